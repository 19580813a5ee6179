"""Which statements hold a forward pass and its loss: the blocks that autocast goes around."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from autofast.facts.precision.activations import holds_output
from autofast.facts.used_parameters import parameters_of
from autofast.flow.frequency import is_rare
from autofast.flow.positions import (
    depth_of,
    happens_in,
    in_common,
    index_in_block,
    nodes_of,
    statement_at,
    statements_beside,
)
from autofast.model.events import BranchFrame, CallFrame, LoopFrame, Occurrence, Site, inside
from autofast.model.kinds import is_module
from autofast.model.roles import Evaluation, Step
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ByNode, Nodes, nodes_in, parent_of, statement_of
from autofast.model.syntax import ASSIGNMENTS, LOOPS, SIMPLE, VARIABLES, is_read, is_stored
from autofast.model.tensors import tensors_in
from autofast.model.values import Inst, Method, Ref, Tensor, Thing, all_of, is_named, of_kind
from autofast.read.recover.eval_mode import switched_above
from autofast.rule import Refusal


@dataclass(eq=False)
class Region:
    """Statements ``first`` to ``last`` of one block: from a forward pass to the last part of its
    loss.

    Attributes:
        home: the step or evaluation they belong to.
        forwards: the calls of models in them, or in functions they call.
        outputs: those of ``forwards`` that give the script's own code what a network made
            (``net.losses(x)`` gives losses).
        things: the models that are called.
        backward: of a training step, the statement of the same block that holds the backward.
        hoisted: expressions that are taken out of the one statement, and of it alone go under
            autocast: where forward, loss and backward are one statement (``loss(model(x),
            y).backward()``), what the backward is called on.
        is_forward_only: whether it is the forward pass without the loss.
        refusal: why there can be no such block.
    """

    home: Step | Evaluation
    first: ast.stmt
    last: ast.stmt
    forwards: list[ast.Call] = field(default_factory=list)
    outputs: list[ast.Call] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)
    backward: ast.stmt | None = None
    hoisted: Sequence[ast.expr] = ()
    is_forward_only: bool = False
    refusal: str = ""

    @property
    def trains(self) -> bool:
        return isinstance(self.home, Step)

    @property
    def parts(self) -> Sequence[ast.AST]:
        """The code that comes under autocast."""
        if self.hoisted:
            return self.hoisted
        here = statements_beside(self.first)
        return here[index_in_block(here, self.first) : index_in_block(here, self.last) + 1]

    @property
    def span(self) -> Sequence[ast.AST]:
        """All code from the forward pass to the backward."""
        here = statements_beside(self.first)
        return here[
            index_in_block(here, self.first) : index_in_block(here, self.backward or self.last) + 1
        ]

    def add(self, script: Script, occurrence: Occurrence, site: Site, depth: int) -> None:
        """Take in one forward pass."""
        call = _outermost(occurrence, site, depth)
        if isinstance(call, ast.Call) and call not in self.forwards:
            self.forwards.append(call)
            if call is site.node or holds_output(script.values(call)):
                self.outputs.append(call)
        if occurrence.this is not None and occurrence.this not in self.things:
            self.things.append(occurrence.this)


def outputs_of(script: Script, region: Region) -> list[ast.Call]:
    """What networks give in a region: its own outputs, and those of passes without gradients, as of
    a teacher.
    """
    here = nodes_of(region.parts)
    found = {call: call for call in region.outputs}
    for site in script.log.of("forward"):
        for o in site:
            if (
                not o.data["outer"]
                or o.grad in ("on", "maybe")
                or not happens_in(o, site.node, here)
            ):
                continue
            depth = next((n for n, f in enumerate(o.stack) if f.node in here), len(o.stack))
            call = _outermost(o, site, depth)
            if isinstance(call, ast.Call) and (
                call is site.node or holds_output(script.values(call))
            ):
                found[call] = call
    return list(found.values())


def may_record(forward: Site) -> bool:
    """Whether a pass may record something for a backward: not that of a loss or a metric without
    parameters, which is given nothing with a gradient.
    """
    if any(t.grad for o in forward for t in tensors_in(*o.args.each)):
        return True
    with suppress(Refusal):
        return any(o.this is None or any(parameters_of(o.this)) for o in forward)
    return True


def is_dropped(evaluation: Evaluation) -> bool:
    """Whether what its passes record is gone at once: ``model(x).detach()``."""
    return surely(
        getattr(parent_of(site.node), "attr", "") == "detach" for site in evaluation.forwards
    )


def _outermost(occurrence: Occurrence, site: Site, depth: int) -> ast.AST:
    """The call that leads into a model: ``model.decode(z)`` rather than the layer that is called in
    it.
    """
    for frame in occurrence.stack[depth:]:
        if (
            isinstance(frame, CallFrame)
            and frame.func.owner is not None
            and is_module(Inst(frame.func.owner, None))
        ):
            return frame.node
    return site.node


# ----------------------------------------------------------------------------------------- training
def training_regions(script: Script, step: Step) -> list[Region]:
    """The blocks of a training step, one for each backward that has its forward before it in the
    same block.
    """
    regions: ByNode[Region] = {}
    measured = _evaluated(script, step)
    for site, is_forward in [
        *((s, True) for s in step.forwards),
        *((s, False) for s in step.losses),
    ]:
        for occurrence in site:
            if (
                not inside(occurrence.stack, step.loop)
                and not isinstance(step.loop, ast.Module)
                or occurrence.grad not in ("on", "maybe")
                or any(_start(e, site, occurrence) is not None for e in measured)
            ):
                continue
            if is_forward and not occurrence.data["outer"]:
                continue
            found = _before_backward(script, step, occurrence, site.node)
            if found is None:
                continue
            statement, backward, depth = found
            region = regions.get(backward)
            if region is None:
                if not is_forward:
                    continue  # a loss of numbers alone
                region = regions[backward] = Region(step, statement, statement, backward=backward)
            _widen(region, statement, is_forward)
            if is_forward:
                region.add(script, occurrence, site, depth)
            if statement is backward:
                region.hoisted = _receiver(step, statement)
    for region in regions.values():
        if any(region.last is statement_of(b.node) for b in step.backwards):
            if not region.hoisted or region.first is not region.last:
                region.refusal = "forward, loss and backward stand in one statement: give the loss a name on a line of its own"
        else:
            _up_to_backward(script, region, step)
    return list(regions.values())


def _evaluated(script: Script, step: Step) -> list[Evaluation]:
    """The evaluations that stand apart from a step, perhaps in a function that it calls."""
    backwards = {b.node for b in step.backwards}
    return [
        e
        for e in script.evaluations
        if e.kind != "statement" and not e.shared and not backwards & nodes_of([e.node])
    ]


def _receiver(step: Step, statement: ast.stmt) -> list[ast.expr]:
    """``f(x)`` in the statement ``f(x).backward()``; empty where the backward is another."""
    for backward in step.backwards:
        call = backward.node
        if (
            isinstance(statement, ast.Expr)
            and statement.value is call
            and isinstance(call.func, ast.Attribute)
            and not backward.scaled
        ):
            return [call.func.value]
    return []


def _before_backward(
    script: Script, step: Step, occurrence: Occurrence, node: ast.AST
) -> tuple[ast.stmt, ast.stmt, int] | None:
    """The statement of a forward, that of the backward which follows it in the same block, and the
    depth of that block.
    """
    best: tuple[int, int] | None = None
    found: tuple[ast.stmt, ast.stmt, int] | None = None
    mine_too = {b.node for b in step.backwards}
    for backward in (b for s in script.steps for b in s.backwards):
        for other in backward.site:
            mine, theirs, depth = in_common(occurrence, node, other, backward.node)
            here = statements_beside(theirs)
            distance = index_in_block(here, theirs) - index_in_block(here, mine)
            after = distance == 0 and occurrence.order > other.order  # f(True), f(False)
            if index_in_block(here, mine) < 0 or distance < 0 or after:
                continue
            if best is None or (depth, -distance) > best:
                best = depth, -distance
                # None: it belongs to a loop inside this step.
                found = (mine, theirs, depth) if backward.node in mine_too else None
    return found


def _widen(region: Region, statement: ast.stmt, is_forward: bool) -> None:
    here = statements_beside(region.first)
    n = index_in_block(here, statement)
    if is_forward and n < index_in_block(here, region.first):
        region.first = statement
    if n > index_in_block(here, region.last):
        region.last = statement


def _up_to_backward(script: Script, region: Region, step: Step) -> None:
    """Take in the statements that make the loss out of what the region has computed so far."""
    here = statements_beside(region.first)
    start, stop = index_in_block(here, region.last) + 1, len(here)
    barriers = {b.node for b in step.backwards} | {u.node for u in step.updates}
    for n in range(start, len(here)):
        if barriers & nodes_of([here[n]]) or _reaches(script, here[n], step):
            stop = n
            break
    wanted: set[str] = set()
    for statement in here[stop : stop + 1]:
        wanted |= _loaded(statement)
    for n in range(stop - 1, start - 1, -1):
        if not _stored(here[n]) & wanted:
            continue
        another_name = _names_again(here[n])  # of what is taken in, which need not be, too
        if another_name or _makes_tensor(script, here[n]):
            if index_in_block(here, region.last) < n and not another_name:
                region.last = here[n]
            wanted |= _loaded(here[n])


def _reaches(script: Script, statement: ast.stmt, step: Step) -> bool:
    """Whether a backward or update happens in a function that the statement calls."""
    nodes = nodes_of([statement])
    sites = [b.site for b in step.backwards] + [u.site for u in step.updates]
    return any(f.node in nodes for s in sites for o in s for f in o.stack)


def _loaded(statement: ast.stmt) -> set[str]:
    return {ast.unparse(n) for n in ast.walk(statement) if isinstance(n, VARIABLES) and is_read(n)}


def _stored(statement: ast.stmt) -> set[str]:
    return {
        ast.unparse(n) for n in ast.walk(statement) if isinstance(n, VARIABLES) and is_stored(n)
    }


def _names_again(statement: ast.stmt) -> bool:
    """``total = loss``."""
    match statement:
        case ast.Assign(targets=targets, value=ast.Name()):
            return all_of(targets, ast.Name)
    return False


def _makes_tensor(script: Script, statement: ast.stmt) -> bool:
    """It computes a new tensor out of a model's output: more than picking one out of a tuple or
    reading a number.
    """
    if not isinstance(statement, ASSIGNMENTS) or statement.value is None:
        return True
    return any(t.models and t.grad for t in of_kind(script.values(statement.value), Tensor))


# --------------------------------------------------------------------------------------- evaluation
def evaluation_regions(script: Script, evaluation: Evaluation) -> Iterator[Region]:
    """The blocks of an evaluation, one for each loop over batches (or over chunks that a loss is
    taken of); where training shares them, they are its own.
    """
    if evaluation.shared or (evaluation.kind == "statement" and not is_worth(script, evaluation)):
        return
    regions: ByNode[Region] = {}
    measured: Nodes = set()
    for is_forward, sites in ((True, evaluation.forwards), (False, script.log.of("loss"))):
        for site in sites:
            for occurrence in site:
                start = _start(evaluation, site, occurrence)
                if start is None or (occurrence.grad == "on" and evaluation.mode != "on"):
                    continue
                if is_forward and not occurrence.data["outer"]:
                    continue
                home, batches, depth = _loop(occurrence, evaluation, start)
                statement = statement_at(occurrence.stack, site.node, depth)
                region = regions.get(home)
                if region is None:
                    if not is_forward:
                        continue
                    region = regions[home] = Region(evaluation, statement, statement)
                if index_in_block(statements_beside(region.first), statement) < 0:
                    region.refusal = (
                        region.refusal or "its forward passes stand in different blocks"
                    )
                    continue
                _widen(region, statement, is_forward)
                if is_forward:
                    region.add(script, occurrence, site, depth)
                if batches or not is_forward:
                    measured.add(home)
    yield from (region for key, region in regions.items() if key in measured)


def _start(evaluation: Evaluation, site: Site, occurrence: Occurrence) -> int | None:
    """The number of frames down to and with the evaluation; None where the place is not in it."""
    if evaluation.kind != "statement":
        return depth_of(occurrence.stack, evaluation.node) or None
    nodes = nodes_of([evaluation.node])
    ways = [f.node for f in occurrence.stack] + [site.node]
    return next((n for n, way in enumerate(ways) if way in nodes), None)


def _loop(occurrence: Occurrence, evaluation: Evaluation, start: int) -> tuple[ast.AST, bool, int]:
    """The innermost loop of the evaluation around a place (else the evaluation itself), whether it
    is one over batches, and its depth.
    """
    first = start if evaluation.kind == "statement" else start - 1
    for n in range(len(occurrence.stack) - 1, first - 1, -1):
        frame = occurrence.stack[n]
        if isinstance(frame, LoopFrame) and isinstance(frame.node, LOOPS):
            return frame.node, bool(frame.loaders), n + 1
    return evaluation.node, False, start


# -------------------------------------------------------------------------------- single statements
def is_worth(script: Script, evaluation: Evaluation) -> bool:
    """A single statement that is evaluation as a whole (not the head of an ``if`` or ``for``), and
    runs more than now and then.
    """
    whole = isinstance(evaluation.node, SIMPLE)
    return whole and not all(
        _seldom(script, occurrence) for site in evaluation.forwards for occurrence in site
    )


MEASURES = wordset("argmax max topk eq")


def is_measured(script: Script, evaluation: Evaluation) -> bool:
    """A single statement that measures the model: switched to ``eval()`` above it, or its output
    counted below it.
    """
    statement = evaluation.node
    if not isinstance(statement, ast.Assign):
        return False
    if switched_above(script, evaluation):
        return True
    here = statements_beside(statement)
    passes = {p for t in tensors_in(script.values(statement.value)) for p in t.passes}
    return any(
        passes & t.passes
        for below in here[index_in_block(here, statement) + 1 :]
        for call in nodes_in(below, ast.Call)
        for t in _measured_by(script, call)
    )


def _measured_by(script: Script, call: ast.Call) -> Iterator[Tensor]:
    """The tensors that a call takes the largest of, or compares."""
    for callee in script.called(call):
        if is_named(callee, Method, MEASURES):
            yield from tensors_in(frozenset({callee.this}))
        elif is_named(callee, Ref, {f"torch.{m}" for m in MEASURES}):
            yield from tensors_in(*(script.values(a) for a in call.args[:1]))


def _seldom(script: Script, occurrence: Occurrence) -> bool:
    """Inside a training loop, but not in each of its turns that train: there is hardly anything to
    gain.
    """
    steps = {f.way for b in script.steps for s in b.backwards for o in s.site for f in o.stack}
    inner = of_kind(occurrence.stack, LoopFrame)
    rest = occurrence.stack[occurrence.stack.index(inner[-1]) :] if inner else ()
    gates = (f for f in of_kind(rest, BranchFrame) if f.way not in steps)
    return any(not f.known and is_rare(f) for f in gates)
