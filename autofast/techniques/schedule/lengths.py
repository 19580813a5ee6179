"""Schedulers that count epochs, made to count updates: which arguments are lengths, and which are
factors.

The learning rates at the ends of epochs stay what they are (to the last digits); between them they
follow the same formula.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import partial

from autofast.edit.edits import Edit, Keyword, Wrap, literal
from autofast.facts.updates.rates import counts_batches
from autofast.model.calls import is_call_of, literal_of
from autofast.model.script import Scheduler, Script, Tick
from autofast.model.source import at
from autofast.model.syntax import SEQUENCES, has_star, is_operation
from autofast.model.values import Const, Seq, Values, one
from autofast.rule import Refusal
from autofast.write.spelling import spelled


@dataclass(frozen=True)
class Form:
    """How a scheduler counts: the argument ``name`` at position ``index`` is a number of epochs
    (``times``), a list of such numbers (``each``), or a factor for each epoch (``root``)."""

    name: str
    index: int
    kind: str
    default: str = ""
    smooth: bool = True  # between the ends of epochs there are other rates than now
    last_epoch: int = 0  # the position of ``last_epoch``, and of ``verbose`` after it


FORMS = {
    "StepLR": Form("step_size", 1, "times", smooth=False, last_epoch=3),
    "MultiStepLR": Form("milestones", 1, "each", smooth=False, last_epoch=3),
    "ConstantLR": Form("total_iters", 2, "times", "5", smooth=False, last_epoch=3),
    "LinearLR": Form("total_iters", 3, "times", "5", last_epoch=4),
    "PolynomialLR": Form("total_iters", 1, "times", "5", last_epoch=3),
    "ExponentialLR": Form("gamma", 1, "root", last_epoch=2),
    "CosineAnnealingLR": Form("T_max", 1, "times", last_epoch=3),
    "CosineAnnealingWarmRestarts": Form("T_0", 1, "times", last_epoch=4),
    "SequentialLR": Form("milestones", 2, "each", smooth=False, last_epoch=3),
}
NEVER = {
    "ReduceLROnPlateau": "it follows a metric of whole epochs, and its patience counts them",
    "OneCycleLR": "OneCycleLR counts updates already",
    "CyclicLR": "CyclicLR counts updates already",
    "LambdaLR": "its function is made for whole epochs: write it for parts of them, and step it after every update",
    "MultiplicativeLR": "its function is made for whole epochs: write it for parts of them, and step it after every update",
    "ChainedScheduler": "in small steps its schedulers may combine to other rates",
}


@dataclass(frozen=True, eq=False)
class Conversion:
    """The edits of one scheduler. ``uses`` tells how often they need the number of updates."""

    scheduler: Scheduler
    edits: tuple[Edit, ...]
    smooth: bool
    uses: int


def every_part(script: Script, scheduler: Scheduler, tick: Tick) -> list[Scheduler]:
    """The scheduler and those that it is made of; raises :class:`Refusal` where they are not
    known.
    """
    parts = [scheduler]
    for item in _items(scheduler):
        for thing in item:
            inner = next((s for s in script.schedulers if any(t is thing for t in s.things)), None)
            if inner is None:
                raise Refusal(f"of which schedulers {scheduler.name} is made is not known")
            if other := next((t for t in inner.ticks if t is not tick), None):
                raise Refusal(f"a scheduler inside it is stepped by itself on {at(other.node)}")
            if inner is scheduler:
                raise Refusal(f"{scheduler.name} may be made of itself")
            parts += [p for p in every_part(script, inner, tick) if p not in parts]
    return parts


def _items(scheduler: Scheduler) -> tuple[Values, ...]:
    """What the schedulers in it may be, one after the other."""
    if scheduler.name != "SequentialLR":
        return ()
    listed = one(scheduler.args.get(1, "schedulers"))
    items = listed.exact if isinstance(listed, Seq) else None
    if not items:
        raise Refusal(f"of which schedulers {scheduler.name} is made is not known")
    return items


def check(scheduler: Scheduler, parts: list[Scheduler]) -> None:
    """Raise :class:`Refusal` where the steps of epochs cannot be those of updates."""
    for part in parts:
        if part.own:
            raise Refusal(f"{part.name} is a class of this project")
        if part.name in NEVER:
            raise Refusal(NEVER[part.name])
        if part.name not in FORMS:
            raise Refusal(f"what {part.name} counts is not known")
        form, args = FORMS[part.name], part.args
        if args.open or args.loose is not None:
            raise Refusal(f"not all arguments of {part.name} are known ({at(part.node)})")
        if any(t != Const(-1) for t in args.get(form.last_epoch, "last_epoch")):
            raise Refusal(f"{part.name} is given the epoch to go on from ({at(part.node)})")
        if any(t != Const(False) for t in args.get(form.last_epoch + 1, "verbose")):
            raise Refusal(f"{part.name} prints each of its steps (`verbose`)")


def changed(script: Script, scheduler: Scheduler, count: str) -> Conversion:
    """What makes ``scheduler`` count updates, of which an epoch has ``count``; raises
    :class:`Refusal`.
    """
    form = FORMS[scheduler.name]
    args, call = scheduler.args, scheduler.node
    given = args.given(form.index, form.name)
    expr = spelled(call, given)
    if expr is not None and form.kind in ("times", "each") and counts_batches(script, expr):
        raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} counts batches already")
    factor, made = literal(count), partial(Conversion, scheduler, smooth=form.smooth)
    if expr is None:
        if given is not None or not form.default or args.dicts:
            raise Refusal(
                f"`{form.name}` of {scheduler.name} does not stand in its call ({at(call)})"
            )
        return made(edits=(Keyword(call, form.name, f"{form.default} * {count}"),), uses=1)
    if form.kind == "times":
        if scheduler.name != "CosineAnnealingLR":
            _whole(script, expr)
        return made(edits=(Wrap(expr, f"{{}} * {factor}"),), uses=1)
    if form.kind == "each":
        if isinstance(expr, SEQUENCES) and not has_star(expr.elts):
            for e in expr.elts:
                _whole(script, e)
            every = tuple(Wrap(e, f"{{}} * {factor}") for e in expr.elts)
            return made(edits=every, uses=len(every))
        _whole(script, expr)
        return made(edits=(Wrap(expr, f"[epoch * {factor} for epoch in {{}}]"),), uses=2)
    _positive(script, expr)
    return made(edits=(Wrap(expr, f"{{}} ** (1 / {factor})"),), uses=1)


def _whole(script: Script, expr: ast.expr) -> None:
    """A number of epochs must be whole: half an epoch is reached now at its end, and would be in
    its middle.
    """
    found = script.values(expr)
    if any(
        isinstance(t, Const) and isinstance(t.value, float) and not t.value.is_integer()
        for t in found
    ):
        raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} is no whole number of epochs")
    if found and all(isinstance(t, Const) and isinstance(t.value, int) for t in found):
        return
    todo: list[ast.AST] = [expr]
    while todo:
        node = todo.pop()
        if is_call_of(node, "int", "round", "len"):
            continue
        if is_operation(node, ast.Div) or isinstance(literal_of(node), float):
            raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} may be no whole number of epochs")
        todo += ast.iter_child_nodes(node)


def _positive(script: Script, expr: ast.expr) -> None:
    for thing in script.values(expr):
        if isinstance(thing, Const) and not (
            isinstance(thing.value, (int, float)) and thing.value > 0
        ):
            raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} has no root")
