"""Waiting for the device in every step that nothing spells out, or that only a person can take out:
shown values, tests, copies, masks.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edits, Replace
from autofast.facts.cost import gains
from autofast.facts.switches import (
    frequent_nodes,
    goes_by_batch,
    in_each_turn_or_none,
    in_every_iteration,
)
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.loops import loop_of
from autofast.flow.memory import Memory
from autofast.flow.program import Flow, definitions_at
from autofast.flow.reflection import is_spelled
from autofast.model.calls import items_of, receiver_of
from autofast.model.contents import with_contents
from autofast.model.events import Occurrence, Site
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import Nodes, nodes_in, source_of, statement_of
from autofast.model.syntax import LOOPS, TESTS, is_attribute, is_operation, is_read
from autofast.model.values import (
    Const,
    Num,
    Tensor,
    Thing,
    Values,
    are_numbers,
    is_on_device,
    names_of,
)
from autofast.ops.families import TRUTHS
from autofast.rule import Effect, Finding
from autofast.techniques.syncs.branches import without_branch
from autofast.techniques.syncs.code_motion import moved_with, moves
from autofast.techniques.syncs.ignored import ignored
from autofast.techniques.syncs.scalar_tensors import is_scalar
from autofast.techniques.syncs.shortened import shortened
from autofast.techniques.syncs.steps import FEW, runs_in_steps
from autofast.write.spelling import torch_in

SHOWS = wordset(
    "format builtins.print .set_postfix .set_description .set_postfix_str .add_scalar .add_scalars wandb.log"
)
COPIES = wordset("tolist numpy")
PICKS = wordset(
    ".nonzero torch.nonzero .masked_select torch.masked_select .unique torch.unique torch.argwhere .argwhere"
)
SIZES = wordset(
    "builtins.range torch.zeros torch.ones torch.empty torch.rand torch.randn torch.arange torch.eye torch.linspace "
    ".view .reshape .expand .repeat .narrow .new_zeros .new_ones torch.nn.functional.pad torch.nn.functional.interpolate"
)
COMPUTES = ("math.", "builtins.min", "builtins.max")
LOOKED_AT = (*TESTS, ast.Subscript, ast.BinOp)
SHAPED = wordset("flatten view reshape squeeze unsqueeze detach")
MOST_NAMES = 8  # followed behind a mask
SPREAD = ("expand", "expand_as", "broadcast_to", "as_strided", "unfold")  # one memory for many
MASKS = TRUTHS | wordset("bool isnan isinf isfinite")


@dataclass(frozen=True)
class Wait:
    """What makes the host wait, and what to write for that."""

    message: str
    advice: str


BRANCH = "asks the device in every step whether there is something, which comes to the same unasked"
SHOWN = Wait(
    "shows values of the device in every step, and waits for them",
    f"show them in few steps, below {FEW}; what is summed up for that can then be read there, too",
)
ASKED = Wait(
    "decides something by values on the device in every step, and waits for them",
    f"where the training allows it, ask in few steps only, below {FEW}, or compute both ways with torch.where",
)
COPIED = Wait(
    "copies results to the host in every step, and waits for them",
    "keep them on the device in a list, detached, and copy them once after the loop with torch.cat, if memory allows; or count there; "
    "what the host needs at once, lengths say, had better stay on the host",
)
PICKED = Wait(
    "picks elements by a mask in every step: how many there are is asked of the device",
    "where only a sum or mean of them is needed, multiply by the mask, or take torch.where or masked_fill",
)
READ = Wait(
    "reads a number from the device in every step, and waits for it",
    f"keep the tensor, detached, and read it where the number is shown, in few steps, below {FEW}",
)
SIZED = Wait(
    "takes numbers of the device for sizes, bounds or indices in every step, and waits for each",
    "let them stay on the host from the beginning, or copy them there once, before (`lengths = lengths.tolist()`); "
    "a mask needs no loop: `torch.arange(n, device=...)[None] < lengths[:, None]`",
)
COMPUTED = Wait(
    "computes with Python's functions on a value of the device in every step, and waits for it",
    "take torch's function of that name, and read the result where it is shown",
)


def findings(script: Script, answered: Nodes) -> Iterator[Finding]:
    """Advice for each statement that waits in every turn of a loop over batches, or in a function
    called there, with the first reason; ``answered`` are ids of statements of which something is
    said already.
    """
    found = [*_by_code(script), *_by_calls(script)]
    # What is done with it says more.
    for node, wait in sorted(found, key=lambda f: f[1] is READ):
        if whole_statement(node) not in answered:
            answered.add(whole_statement(node))
            unasked = without_wait(script, node, wait)
            yield unasked or Finding(node, wait.message, advice=wait.advice)


def without_wait(script: Script, node: ast.AST, wait: Wait) -> Finding | None:
    """What comes to the same without to wait; None where that is not known."""
    if wait is ASKED:
        edits, effect = shortened(script, whole_statement(node)), Effect.EXACT
        if not edits:
            edits, effect = without_branch(script, whole_statement(node))
        found = Finding(node, BRANCH, edits=edits, effect=effect, asks=gains.unasked)
    else:
        edits, effect = (_chosen(script, node) if wait is PICKED else ()), None
        if wait is PICKED and not edits:
            edits, effect = script.analysis(ignored).get(node, ()), Effect.ROUNDING
        found = Finding(node, wait.message, edits=edits, effect=effect, asks=gains.elements)
    return found if edits else None


def _chosen(script: Script, node: ast.AST) -> Edits:
    """``a.copy_(torch.where(mask, b, a))`` for ``a[mask] = b[mask]``, where the mask compares
    ``a`` with ``b`` or a number, so that all three have one shape, and ``a`` has memory of its own
    for each element.
    """
    match statement_of(node):
        case (
            ast.Assign(
                targets=[ast.Subscript(value=ast.Name() as a, slice=ast.Name() as mask)],
                value=ast.Subscript(value=ast.Name() as b, slice=ast.Name() as same) as value,
            ) as statement
        ) if value is node and mask.id == same.id and _is_tensor(script, a):
            flow, memory = script.analysis(Flow), script.analysis(Memory)
            match flow.value(mask):
                case ast.Compare(left=left, comparators=[right]):
                    if flow.is_same(right, a):
                        left, right = right, left
                    fits = flow.is_same(right, b) or are_numbers(script.values(right))
                case _:
                    return ()
            made = flow.values(a)
            if (
                not (fits and flow.is_same(left, a))
                or not surely(m is not None and memory.is_fresh(m) for m in made)
                or any(is_attribute(n, *SPREAD) for m in made for n in ast.walk(m))
            ):
                return ()
            torch, imports = torch_in(source_of(statement))
            code = f"{a.id}.copy_({torch}.where({mask.id}, {b.id}, {a.id}))"
            return *imports, Replace(statement, code)
    return ()


def whole_statement(node: ast.AST) -> ast.AST:
    """The statement of a place; of a condition, the condition."""
    return node if isinstance(node, (ast.If, ast.While)) else statement_of(node)


def _by_calls(script: Script) -> Iterator[tuple[ast.AST, Wait]]:
    for site, wait in _waiting(script):
        if moved_with(script, site) is None:
            found = in_every_iteration(script, site, or_none=True)
            if found is not None and goes_by_batch(script, found[0]):
                yield site.node, wait


def _waiting(script: Script) -> Iterator[tuple[Site, Wait]]:
    for (kind, _), site in script.log.each():
        if (wait := _of_call(script, kind, site)) is not None:
            yield site, wait


def moved_waits(script: Script) -> Iterator[tuple[ast.stmt, Wait]]:
    """The statements that move and wait in every step, themselves or in what they call."""
    for site, wait in _waiting(script) if moves(script) else ():
        moved = moved_with(script, site)
        if moved is not None and runs_in_steps(script, site, each=True):
            yield moved[0], wait


def _of_call(script: Script, kind: str, site: Site) -> Wait | None:
    if kind in SHOWS:
        held = [frozenset({o.this}) for o in site if kind == "format" and o.this is not None]
        return SHOWN if any(map(_waits, [*held, *_given(site)])) else None
    if kind == "sync" and site.call:
        how = site.occurrences[-1].data.get("how", "item")
        mine = any(_on_device(o.this) for o in site)
        core = receiver_of(site.call) or site.call
        if how in COPIES and not is_scalar(script, core):
            return COPIED if mine else None
        wait = ASKED if _is_tested(site.call) else READ
        return wait if mine and not is_spelled(site.call) else None
    if kind == "move" and site.call:
        return _of_copy(script, site, site.call)
    if kind in SIZES:
        given = [v for o in site for v in _given([o])[1 if ".functional." in kind else 0 :]]
        return SIZED if any(map(_waits, given)) else None
    if kind in PICKS or kind.startswith(COMPUTES):
        given = [frozenset(site.owners), *_given(site)]
        there = any(_on_device(t) for v in given for t in with_contents(v))
        return (PICKED if kind in PICKS else COMPUTED) if there else None
    return None


def _given(site: Iterable[Occurrence]) -> list[Values]:
    """All that a place is given."""
    return [v for o in site for v in o.args.all()]


def _is_tested(node: ast.AST) -> bool:
    """Whether it stands in the condition of its statement."""
    test = getattr(statement_of(node), "test", None)
    return test is not None and node in ast.walk(test)


def _of_copy(script: Script, site: Site, node: ast.Call) -> Wait | None:
    """``out.detach().cpu()``, certainly of a result on the device, and not in the background."""
    to_host = all(o.data.get("kinds") == {"cpu"} and is_on_device(o.this) for o in site)
    if not to_host or any(k.arg == "non_blocking" for k in node.keywords):
        return None
    core = receiver_of(node) or node
    return READ if is_scalar(script, core) else COPIED


def waits_itself(script: Script, statement: ast.AST) -> bool:
    """Whether a statement reads what it shows, and not a number that was read before."""
    sites = script.log.within(statement)
    given = [v for s in sites if s.kind in SHOWS for v in (frozenset(s.owners), *_given(s))]
    return (
        any(s.kind == "sync" for s in sites)
        or any(_on_device(t) for v in given for t in with_contents(v))
        or any(_of_code(script, n) is SHOWN for n in nodes_in(statement, ast.BinOp))
    )


def _waits(values: Values) -> bool:
    """A tensor of the device, or a number that was just read from there."""
    return any(_on_device(t.synced if isinstance(t, Num) else t) for t in with_contents(values))


def _on_device(thing: Thing | None) -> bool:
    """A tensor that may be on a device, or was there before it was copied to the host."""
    return isinstance(thing, Tensor) and (thing.device != "cpu" or bool(thing.models))


def _by_code(script: Script) -> Iterator[tuple[ast.AST, Wait]]:
    """Tests and indices, which are no calls."""
    for loop, node in frequent_nodes(script, LOOKED_AT):
        if isinstance(loop, LOOPS) and loop_of(node) is loop:  # itself, no loop inside of it
            if not in_each_turn_or_none(script, node, loop):
                continue
        if (wait := _of_code(script, node)) is not None:
            yield node, wait


def _of_code(script: Script, node: ast.AST) -> Wait | None:
    if isinstance(node, TESTS):
        return ASKED if any(_is_asked(script, e) for e in _tests(script, node.test)) else None
    if is_operation(node, ast.Mod):
        filled = node.right.elts if isinstance(node.right, ast.Tuple) else []
        is_text = isinstance(script.constant(node.left), str)
        return SHOWN if is_text and any(_is_tensor(script, e) for e in filled) else None
    if isinstance(node, ast.Subscript) and _is_bounded(script, node):
        return SIZED
    if isinstance(node, ast.Subscript) and is_read(node):
        picks = _is_tensor(script, node.value) and is_mask(script, node.slice, 0)
        return PICKED if picks else None
    return None


def _is_tensor(script: Script, expr: ast.expr) -> bool:
    return surely(_on_device(t) for t in script.values(expr))


def _is_bounded(script: Script, node: ast.Subscript) -> bool:
    """``mask[i, :n]`` and ``mask[i, n]``, of a number that is on the device."""
    parts = items_of(node.slice)
    bounds = [e for p in parts if isinstance(p, ast.Slice) for e in (p.lower, p.upper) if e]
    numbers = [p for p in parts if is_scalar(script, p) and not is_mask(script, p, 0)]
    return any(_is_tensor(script, e) for e in (*bounds, *numbers))


def _is_asked(script: Script, expr: ast.expr) -> bool:
    """Whether the truth of a part of a condition is that of a tensor, or of a number just read from
    one.
    """
    found = script.values(expr)
    return surely(_on_device(t.synced if isinstance(t, Num) else t) for t in found)


def _tests(script: Script, test: ast.expr) -> Iterator[ast.expr]:
    """The parts of a condition that Python asks for their truth whenever it comes there."""
    match test:
        case ast.BoolOp(op=ast.And(), values=[first, second, *_]) if _is_there(script, first):
            yield from _tests(script, second)
        case ast.BoolOp(values=[first, *_]):
            yield from _tests(script, first)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield from _tests(script, operand)
        case ast.Call(func=ast.Name(id="bool"), args=[inner]):
            yield from _tests(script, inner)
        case _:
            yield test


def _is_there(script: Script, test: ast.expr) -> bool:
    """``mask is not None`` of what is never None."""
    match test:
        case ast.Compare(left=left, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return bool(found := script.values(left)) and Const(None) not in found
    return False


def is_mask(script: Script, expr: ast.expr, depth: int) -> bool:
    """Certainly made by a comparison of tensors."""
    match expr:
        case ast.Compare():
            return _is_tensor(script, expr)
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr(), left=left):
            return is_mask(script, left, depth)
        case ast.UnaryOp(op=ast.Invert()):
            return _is_tensor(script, expr)
        case ast.Call(func=ast.Attribute(attr="to"), args=[kind]) if names_of(
            script.values(kind)
        ) == {"torch.bool"}:
            return _is_tensor(script, expr)
        case ast.Call(func=ast.Attribute(attr=attr, value=inner)) if attr in SHAPED:
            return is_mask(script, inner, depth)
        case ast.Call(func=ast.Attribute(attr=attr)):
            return attr in MASKS and _is_tensor(script, expr)
        case ast.Name() if depth < MOST_NAMES:
            made = definitions_at(script, expr)
            return surely(_binds_mask(script, d, depth + 1) for d in made)
    return False


def _binds_mask(script: Script, made: Definition, depth: int) -> bool:
    """What a variable is set to; of a parameter, what every call that trains or evaluates gives
    it.
    """
    given = script.analysis(CallGraph).gives(made)
    return surely(e is not None and is_mask(script, e, depth) for e in given)
