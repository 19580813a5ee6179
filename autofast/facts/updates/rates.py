"""Who else reads and sets learning rates, and schedules that count one thing while they are stepped
after another.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.defuse import bound_to
from autofast.flow.program import definitions_at, definitions_of
from autofast.model.calls import is_name
from autofast.model.events import LoopFrame
from autofast.model.kinds import is_loader, is_scheduler
from autofast.model.roles import Scheduler, Tick
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind, surely
from autofast.model.source import ancestors, at, nodes_in, outwards, parent_of, statement_of
from autofast.model.syntax import (
    LOOPS,
    TARGETS,
    TESTS,
    is_attribute,
    is_constant,
    is_read,
    is_stored,
)
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Func,
    Given,
    Ref,
    Values,
    all_of,
    begins,
    certainly,
)
from autofast.rule import Refusal

SHOWS = ("get_last_lr", "get_lr", "print_lr")  # the rate of now
FINE = ("step", "state_dict", *SHOWS)


def check_rates(script: Script, schedulers: list[Scheduler]) -> None:
    """Raise :class:`Refusal` where something relies on the scheduler counting epochs, or sets the
    rates as well.
    """
    wanted = {id(t) for s in schedulers for t in s.things}
    rates = {t for s in schedulers for t in s.optimizers}
    for other in script.schedulers:
        if other not in schedulers and any_in(other.optimizers, rates) and other.ticks:
            raise Refusal(f"another scheduler sets the same learning rates ({at(other)})")
    for node in _uses(script, wanted):
        parent = parent_of(node)
        if isinstance(parent, ast.Attribute):
            if parent.attr == "load_state_dict":
                raise Refusal(
                    f"its state is loaded on {at(parent)}: a checkpoint of epochs would bring back their number as that of updates"
                )
            if parent.attr not in FINE:
                raise Refusal(f"`{ast.unparse(parent)}` on {at(parent)} counts epochs")
        elif (taker := _taken_by(script, node)) is not None:
            raise Refusal(f"it is given to `{ast.unparse(taker.func)}` on {at(taker)}")
    for node in _rates(script):
        if is_stored(node):
            raise Refusal(f"the learning rate is also set by hand on {at(node)}")
    for read in [*_rates(script), *_shown(script, wanted)]:
        if (test := _decides(script, read)) is not None:
            raise Refusal("decides by the learning rate", test)


def by_hand(script: Script) -> ast.AST | None:
    """A place that sets a learning rate while the script trains."""
    for node in _rates(script):
        if is_stored(node) and script.steps:
            return statement_of(node)
    return None


# --------------------------------------------------------------------------------------------- uses
def _uses(script: Script, wanted: set[int]) -> Iterator[ast.expr]:
    for node in script.nodes:
        if isinstance(node, TARGETS) and is_read(node):
            if any(id(t) in wanted for t in script.values(node)):
                yield node


def _taken_by(script: Script, node: ast.expr) -> ast.Call | None:
    """A call that is given the scheduler and is not of this project, so what it does with it is not
    known.
    """
    for here, outer in outwards(node):
        if isinstance(outer, ast.stmt):
            return None
        if isinstance(outer, ast.Call) and here is not outer.func:
            found = script.called(outer)
            mine = certainly(found, Func, Bound, Cls)
            library = surely(
                begins(t, Ref, ("torch.optim.lr_scheduler.", "builtins.")) for t in found
            )
            if mine or library or any(is_scheduler(t) for t in script.values(outer)):
                return None
            return outer
    return None


def _rates(script: Script) -> Iterator[ast.Subscript]:
    """``group["lr"]`` of an optimizer's parameter groups, where the script comes to it."""
    for source in script.sources:
        if "param_groups" not in source.text:
            continue
        for node in source.each(ast.Subscript):
            if is_constant(node.slice, "lr"):
                if is_group(script, node.value) and script.reached(statement_of(node)):
                    yield node


def is_group(script: Script, expr: ast.expr) -> bool:
    """Whether an expression is one of an optimizer's ``param_groups``: an element of them, or made
    of one.
    """
    if isinstance(expr, ast.Name):
        made = (bound_to(d.node)[0] for d in definitions_at(script, expr))
        return any(value is not None and _has_groups(value) for value in made)
    return _has_groups(expr)


def _has_groups(expr: ast.expr) -> bool:
    return any(is_attribute(n, "param_groups") for n in ast.walk(expr))


def _shown(script: Script, wanted: set[int]) -> Iterator[ast.Attribute]:
    for node in _uses(script, wanted):
        parent = parent_of(node)
        if is_attribute(parent, *SHOWS):
            yield parent


def _decides(script: Script, node: ast.expr) -> ast.AST | None:
    """A condition that depends on what ``node`` reads, directly or through one variable."""
    for here, outer in outwards(node):
        if isinstance(outer, ast.Compare) or (isinstance(outer, TESTS) and here is outer.test):
            return outer
        if (
            isinstance(outer, ast.Assign)
            and len(outer.targets) == 1
            and isinstance(outer.targets[0], ast.Name)
        ):
            target = outer.targets[0]
            uses = definitions_of(script, target).uses_of(target)
            return next((a for n in uses for a in ancestors(n) if isinstance(a, ast.Compare)), None)
        if isinstance(outer, ast.stmt) and not isinstance(outer, TESTS):
            return None
    return None


# -------------------------------------------------------------------------------------------- units
HORIZONS = {
    "StepLR": (1, "step_size"),
    "CosineAnnealingLR": (1, "T_max"),
    "CosineAnnealingWarmRestarts": (1, "T_0"),
    "LinearLR": (3, "total_iters"),
    "PolynomialLR": (1, "total_iters"),
}
TOO_SHORT = {
    "CosineAnnealingLR": "the rate goes up and down again and again",
    "PolynomialLR": "the rate ends in the first epochs",
}


def counted_wrong(script: Script, tick: Tick, schedulers: list[Scheduler]) -> str:
    """A horizon in epochs of a scheduler that is stepped in every iteration, or the other way
    round, in words.
    """
    for scheduler in schedulers:
        if scheduler.own:
            continue
        once = f"but the step on {at(tick)} is made once an epoch: the rate hardly moves"
        if scheduler.name == "OneCycleLR" and tick.unit == "epoch":
            each = scheduler.args.given(4, "steps_per_epoch")
            total = scheduler.args.given(2, "total_steps")
            if each is not None and each.values != {Const(1)} or _in_batches(script, total):
                return f"OneCycleLR is made for a step after every update, {once}"
        if scheduler.name not in HORIZONS:
            continue
        index, name = HORIZONS[scheduler.name]
        given = scheduler.args.given(index, name)
        if given is None or given.expr is None:
            continue
        told = f"`{name}={ast.unparse(given.expr)}`"
        if tick.unit == "epoch" and _in_batches(script, given):
            return f"{told} counts batches, {once}; count epochs, or step after every update"
        short = TOO_SHORT.get(scheduler.name) if tick.unit == "update" and not tick.given else None
        if short and _is_number_of_epochs(script, given.values, tick):
            return (
                f"{told} is the number of epochs, but the step on {at(tick)} is made in every iteration: "
                f"{short}; multiply it by the length of the loader, or step once an epoch"
            )
    return ""


def _in_batches(script: Script, given: Given | None) -> bool:
    return given is not None and given.expr is not None and counts_batches(script, given.expr)


def _is_number_of_epochs(script: Script, values: Values, tick: Tick) -> bool:
    """Whether the same number says how often the loop over epochs goes round, in which a loop over
    a loader steps the scheduler.
    """
    if not values or not all_of(values, Arg, Const):
        return False
    for occurrence in tick.site:
        around = [f for f in of_kind(occurrence.stack, LoopFrame) if isinstance(f.node, LOOPS)]
        if len(around) < 2 or not around[-1].loaders:
            return False
        match around[-2].node:
            case ast.For(iter=ast.Call(args=args)):
                if not any(script.values(a) == values for a in args):
                    return False
            case _:
                return False
    return True


def counts_batches(script: Script, expr: ast.expr) -> bool:
    """Whether the length of a loader is in a number, directly or through one variable."""
    names = (n for n in nodes_in(expr, ast.Name))
    values = (d.value for n in names for d in definitions_at(script, n))
    parts = [expr, *(v for v in values if v is not None)]
    calls = [n for part in parts for n in nodes_in(part, ast.Call) if is_name(n.func, "len")]
    return any(is_loader(t) for call in calls for a in call.args for t in script.values(a))
