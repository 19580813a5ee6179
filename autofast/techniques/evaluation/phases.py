"""Loops and functions that train in some of their runs, ``if phase == "train": loss.backward()``,
and record for a backward in all of them:

    with torch.set_grad_enabled(phase == "train"):
        loss = criterion(model(x), y)
    if phase == "train":
        loss.backward()

Where it does not train, nothing of what is computed there comes to a backward.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autofast.edit.edits import Around, Edits
from autofast.edit.order import Rank
from autofast.flow.frequency import arms_around
from autofast.flow.program import Flow
from autofast.flow.scopes import parameters, stored_in
from autofast.model.calls import is_name, is_same_code, receiver_of
from autofast.model.events import BranchFrame, Occurrence, Site, Stack, below, inside
from autofast.model.roles import Evaluation, Step
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import (
    block_of,
    function_of,
    is_elif,
    is_same_function,
    nodes_in,
    source_of,
    statement_of,
    within,
    within_any,
)
from autofast.model.syntax import DEFS, VARIABLES, is_attribute, is_read, is_unary
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, all_of, of_kind
from autofast.read.recover.evaluations import region_of
from autofast.read.recover.hazards import needs_gradients
from autofast.read.recover.models import has_fast_path
from autofast.read.recover.region import Region
from autofast.read.recover.shared_passes import keeps_inside
from autofast.read.recover.trained import BACKWARDS, Training, handed_out
from autofast.rule import Effect
from autofast.write.spelling import torch_in

PLAIN = (ast.Name, ast.Constant, ast.Compare, ast.BoolOp, ast.UnaryOp)
ASKED = (*PLAIN, ast.Attribute)
SIGNS = (ast.expr_context, ast.cmpop, ast.boolop, ast.unaryop)


@dataclass
class Phase:
    """A forward pass with gradients on in front of a condition that all backwards stand below, the
    condition, and the edits that switch them by it; none where more may depend on them.
    """

    forward: ast.expr
    test: str
    edits: Edits = ()
    effect: Effect | None = None


def evaluating_turns(script: Script) -> Iterator[Phase]:
    """The passes of loops that train in some of their runs.

    The condition is one of the whole loop, or of a call of the function: nothing there changes what
    it asks for.
    """
    for step in script.steps:
        gates = [_gates(script, step, o.stack) for b in step.backwards for o in b.site]
        common = [g for g in gates[0] if all(_is_in(g, other) for other in gates)] if gates else []
        for gate in common[:1]:
            test = ast.unparse(gate.node.test)  # type: ignore[attr-defined]
            test = test if gate.arm else f"not ({test})"
            sites = [s for s in step.forwards if _is_before(s, gate)]
            told = [region_of(script, e) for e in script.evaluations if not e.unknown and sites]
            if any(region.meets(s, o) for region in told for s in sites for o in s):
                continue  # where it does not train, it stands in one of these
            edits = _switched(script, gate, sites, test) if sites else ()
            rounds = any(has_fast_path(o.this) for s in sites for o in s)
            for site in sites:
                assert isinstance(site.node, ast.expr)
                yield Phase(site.node, test, edits, Effect.ROUNDING if rounds else None)


def _is_before(site: Site, gate: BranchFrame) -> bool:
    asked: ast.expr = gate.node.test  # type: ignore[attr-defined]
    before = is_same_function(site.node, gate.node) and not within(site.node, gate.node)
    around = (g.test for g, _ in arms_around(site.node, None))
    on = all(o.grad == "on" and o.data["outer"] for o in site)
    return before and on and not any(is_same_code(test, asked) for test in around)


def _gates(script: Script, step: Step, stack: Stack) -> list[BranchFrame]:
    frames = below(stack, step.loop) if inside(stack, step.loop) else ()
    return [f for f in of_kind(frames, BranchFrame) if _is_settled(script, f, step.loop)]


def _is_in(gate: BranchFrame, others: list[BranchFrame]) -> bool:
    return any(o.node is gate.node and o.arm is gate.arm for o in others)


def _is_settled(script: Script, gate: BranchFrame, loop: ast.AST) -> bool:
    """Whether the condition holds in all turns of the loop or in none, or all through a call of its
    function, and in some runs does not.
    """
    if not isinstance(gate.node, ast.If):
        return False
    if gate.known and len(script.values(gate.node.test)) < 2:
        return False
    parts = list(ast.walk(gate.node.test))
    names = {n.id for n in parts if isinstance(n, ast.Name)}
    whole = loop
    if not within(gate.node, loop):
        whole = function_of(gate.node)
        if not isinstance(whole, DEFS) or not names <= {p.arg for p in parameters(whole)}:
            return False
    return all_of(parts, (*ASKED, *SIGNS)) and not names & stored_in(whole)


# ---------------------------------------------------------------------------------- what is written
def _switched(script: Script, gate: BranchFrame, sites: Sequence[Site], test: str) -> Edits:
    """The block around all from the first of the passes to the loss; none where something else
    needs the gradients.
    """
    branch: ast.If = gate.node  # type: ignore[assignment]
    block = [] if is_elif(branch) else block_of(branch)
    front = block[: block.index(branch)] if branch in block else []
    training = script.analysis(Training)
    losses = list(_losses(script, sites))
    names = [n for e in losses for n in (nodes_in(e, ast.Name) if e is not None else ())]
    made = [d.node for n in names for d in script.analysis(Flow).reaching(n)]
    held = [s for s in front if any(within(n, s) for n in (*made, *(x.node for x in sites)))]
    parts = list(ast.walk(branch.test))
    if (
        not held
        or not all_of(parts, (*PLAIN, *SIGNS))
        or not all(within_any(s.node, front) for s in sites)
        or not all(e is not None and within(e, branch) for e in losses)
        or any(not within(n, branch) for n in _handed_out(script, sites))
        or _is_set_elsewhere(script, branch.test)
    ):
        return ()
    inner = front[front.index(held[0]) : front.index(held[-1]) + 1]
    stored = {n.id for s in inner for n in nodes_in(s, ast.Name)}
    region = Region(script.log, inner[0], inner, False)
    evaluation = Evaluation(inner[0], "statement", "on", list(sites), shared=True)
    if (
        not all(_is_of_turn(script, e, inner) for e in losses if e is not None)
        or keeps_inside(script, region, training.all, stored)
        or needs_gradients(script, evaluation, region, training)
    ):
        return ()
    torch, imports = torch_in(source_of(branch))
    plain = not gate.arm or _is_truth(script, branch.test)
    header = f"with {torch}.set_grad_enabled({test if plain else f'bool({test})'}):"
    return (*imports, Around(inner[0], inner[-1], header, rank=Rank.GRAD_MODE))


def _is_truth(script: Script, test: ast.expr) -> bool:
    """Whether it is certainly True or False, whoever calls the function."""
    match test:
        case ast.Name():
            given = {a.arg: a.annotation for a in parameters(function_of(test))}
            if test.id in given:
                return is_name(given[test.id], "bool")
            found = script.values(test)
            return surely(isinstance(t, Const) and isinstance(t.value, bool) for t in found)
    return isinstance(test, ast.Compare) or is_unary(test, ast.Not)


def _losses(script: Script, sites: Sequence[Site]) -> Iterator[ast.expr | None]:
    """What all backwards of the script that these passes come to are called on."""
    passes = {s.node for s in sites}

    def comes_of(o: Occurrence) -> bool:
        given = (o.this, *(t for g in o.args.every for t in g.values))
        return any(t.passes & passes for t in tensors_in(frozenset(x for x in given if x)))

    for site in script.log.of(*BACKWARDS):
        if any(map(comes_of, site)):
            yield receiver_of(site.call) if site.call else None


def _handed_out(script: Script, sites: Sequence[Site]) -> Iterator[ast.AST]:
    """The places that give what comes of these passes to something which may call a backward."""
    passes = {s.node for s in sites}
    for (kind, _), site in script.log.each():
        for o in site if kind not in BACKWARDS else ():
            if any(t.passes & passes for t in tensors_in(handed_out(kind, o))):
                yield site.node


def _is_set_elsewhere(script: Script, test: ast.expr) -> bool:
    """Whether a function sets a variable of the module that is asked for."""
    names = {n.id for n in nodes_in(test, ast.Name)}
    told = of_kind(script.nodes, (ast.Global, ast.Nonlocal))
    return any(names & {*getattr(n, "names", ())} for n in told)


def _is_of_turn(script: Script, loss: ast.AST, inner: Sequence[ast.stmt]) -> bool:
    """Whether all gradients that a loss has come from these statements, of this turn."""
    flow = script.analysis(Flow)

    def place(node: ast.AST) -> int:
        return next((k for k, s in enumerate(inner) if within(node, s)), len(inner))

    def is_older(node: ast.AST, than: ast.expr) -> bool:
        """Whether a definition is one of this turn, in front of a use."""
        here, use = place(node), place(than)
        above = (d.node for d in flow.reaching(than) if statement_of(d.node) in inner)
        return here < use or (here == use and any(place(n) < use for n in above))

    def is_new(code: ast.AST, seen: frozenset[ast.AST]) -> bool:
        for node in (n for n in nodes_in(code, *VARIABLES) if n is code or is_read(n)):
            known = script.values(node)
            if known and all(t.param or not (t.grad or t.passes) for t in tensors_in(known)):
                continue  # a scaler, an input, a number
            made = flow.reaching(node)
            if is_attribute(node) or not made:
                return False
            for d in (d for d in made if d.node not in seen):
                value = d.value if d.value is not None else statement_of(d.node)
                parts = [value, d.node] if d.is_augmented else [value]
                if not is_older(d.node, node):
                    return False
                if not all(is_new(part, seen | {d.node}) for part in parts):
                    return False
        return True

    return is_new(loss, frozenset())
