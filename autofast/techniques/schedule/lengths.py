"""Schedulers that count epochs, made to count updates: which arguments are lengths, and which are
factors.

The learning rates at the ends of epochs stay what they are (to the last digits); between them they
follow the same formula.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.edit.edits import Edit, Keyword, Wrap, plain_code
from autofast.facts.updates.rates import counts_batches
from autofast.model.calls import is_call_of, literal_of
from autofast.model.roles import Scheduler
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import at
from autofast.model.syntax import is_operation
from autofast.model.values import Const, is_const
from autofast.rule import Refusal
from autofast.write.spelling import argument_expression


@dataclass(frozen=True)
class Form:
    """How a scheduler counts: the argument ``name`` at position ``index`` is a number of epochs,
    or a factor for each epoch (``root``)."""

    name: str
    index: int
    last_epoch: int  # the position of ``last_epoch``, and of ``verbose`` after it
    default: str = ""
    root: bool = False


FORMS = {
    "LinearLR": Form("total_iters", 3, 4, "5"),
    "PolynomialLR": Form("total_iters", 1, 3, "5"),
    "ExponentialLR": Form("gamma", 1, 2, root=True),
    "CosineAnnealingLR": Form("T_max", 1, 3),
    "CosineAnnealingWarmRestarts": Form("T_0", 1, 4),
}
SAME = "would give the same learning rates: they change at the ends of epochs only"
PARTS = "it is made of a function or of schedulers of whole epochs: write them for updates, and step it after every one"
NEVER = {
    "ReduceLROnPlateau": "it follows a metric of whole epochs, and its patience counts them",
    **dict.fromkeys(("OneCycleLR", "CyclicLR"), "it counts updates already"),
    **dict.fromkeys(("StepLR", "MultiStepLR", "ConstantLR"), SAME),
    **dict.fromkeys(("LambdaLR", "MultiplicativeLR", "SequentialLR", "ChainedScheduler"), PARTS),
}


def lengthened(script: Script, scheduler: Scheduler, count: str) -> Edit:
    """What makes ``scheduler`` count updates, of which an epoch has ``count``; raises
    :class:`Refusal`.
    """
    args, call, name = scheduler.args, scheduler.node, scheduler.name
    if scheduler.own:
        raise Refusal(f"{name} is a class of this project")
    if name not in FORMS:
        raise Refusal(f"{name}: {NEVER.get(name, 'what it counts is not known')}")
    form = FORMS[name]
    if not args.known:
        raise Refusal(f"not all arguments of {name} are known ({at(call)})")
    if any(t != Const(-1) for t in args.get(form.last_epoch, "last_epoch")):
        raise Refusal(f"{name} is given the epoch to go on from ({at(call)})")
    if any(t != Const(False) for t in args.get(form.last_epoch + 1, "verbose")):
        raise Refusal(f"{name} prints each of its steps (`verbose`)")
    given = args.given(form.index, form.name)
    expr = argument_expression(call, given)
    if expr is None:
        if given is not None or not form.default or args.dicts:
            raise Refusal(f"`{form.name}` of {name} does not stand in its call ({at(call)})")
        return Keyword(call, form.name, f"{form.default} * {count}")
    if form.root:
        _positive(script, expr)
        return Wrap(expr, f"{{}} ** (1 / {plain_code(count)})")
    if counts_batches(script, expr):
        raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} counts batches already")
    if name != "CosineAnnealingLR":
        _whole(script, expr)
    return Wrap(expr, f"{{}} * {plain_code(count)}")


def _whole(script: Script, expr: ast.expr) -> None:
    """A number of epochs must be whole: half an epoch is reached now at its end, and would be in
    its middle.
    """
    found = script.values(expr)
    if any(is_const(t, float) and not t.value.is_integer() for t in found):
        raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} is no whole number of epochs")
    if surely(is_const(t, int) for t in found):
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
