"""Schedulers that count epochs, made to count updates: which arguments are lengths, which are factors, and which functions may be asked
between two epochs.

The learning rates at the ends of epochs stay what they are (to the last digits); between them they follow the same formula.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit, Keyword, Rewrite, Wrap, literal
from autofast.facts.updates.rates import counts_batches
from autofast.flow.callgraph import code_of
from autofast.flow.scopes import stored_in
from autofast.model.calls import is_name
from autofast.model.script import Scheduler, Script, Tick
from autofast.model.source import at, nodes_in
from autofast.model.values import Bound, Const, Func, Seq, Thing, Values, const, one
from autofast.rule import Refusal
from autofast.write.spelling import spelled


@dataclass(frozen=True)
class Form:
    """How a scheduler counts: the argument ``name`` at position ``index`` is a number of epochs (``times``), a list of such numbers
    (``each``), a factor for each epoch (``root``), or a function of the epoch (``function``, ``factor``)."""

    name: str = ""
    index: int = 0
    kind: str = ""
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
    "LambdaLR": Form("lr_lambda", 1, "function", last_epoch=2),
    "MultiplicativeLR": Form("lr_lambda", 1, "factor", last_epoch=2),
    "SequentialLR": Form("milestones", 2, "each", smooth=False, last_epoch=3),
    "ChainedScheduler": Form(smooth=False, last_epoch=2),
}
NEVER = {
    "ReduceLROnPlateau": "it follows a metric of whole epochs, and its patience counts them",
    "OneCycleLR": "OneCycleLR counts updates already",
    "CyclicLR": "CyclicLR counts updates already",
}
# Set the rate from its first value, whatever others made of it.
ABSOLUTE = ("LambdaLR", "CosineAnnealingWarmRestarts")


@dataclass(frozen=True, eq=False)
class Conversion:
    """The edits of one scheduler. ``uses`` tells how often they need the number of updates."""

    scheduler: Scheduler
    edits: tuple[Edit, ...]
    smooth: bool
    uses: int


def every_part(script: Script, scheduler: Scheduler, tick: Tick) -> list[Scheduler]:
    """The scheduler and those that it is made of; raises :class:`Refusal` where they are not known."""
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
    if scheduler.name not in ("SequentialLR", "ChainedScheduler"):
        return ()
    listed = one(scheduler.args.get(1 if scheduler.name == "SequentialLR" else 0, "schedulers"))
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
        if (
            any(t != Const(-1) for t in args.get(form.last_epoch, "last_epoch"))
            and part.name != "ChainedScheduler"
        ):
            raise Refusal(f"{part.name} is given the epoch to go on from ({at(part.node)})")
        if (
            any(t != Const(False) for t in args.get(form.last_epoch + 1, "verbose"))
            and part.name != "ChainedScheduler"
        ):
            raise Refusal(f"{part.name} prints each of its steps (`verbose`)")
    for outer in (p for p in parts if p.name == "SequentialLR"):
        for inner in (p for p in parts if any(t is x for t in p.things for x in outer.inner)):
            if inner.name == "ChainedScheduler" or (
                inner.name == "MultiplicativeLR" and _may_be(inner, _items(outer)[1:])
            ):
                raise Refusal(
                    f"{inner.name} goes on from the last step of the scheduler before it, which is another one then"
                )
    for outer in (p for p in parts if p.name == "ChainedScheduler"):
        for inner in (p for p in parts if any(t is x for t in p.things for x in outer.inner)):
            if inner.name in ABSOLUTE or inner.inner:
                raise Refusal(
                    f"{inner.name} in a ChainedScheduler undoes what the others do in each step"
                )
            if (
                inner.name == "CosineAnnealingLR"
                and any(t != Const(0) for t in inner.args.get(2, "eta_min"))
                and len(_items(outer)) > 1
            ):
                raise Refusal(
                    "CosineAnnealingLR with `eta_min` in a ChainedScheduler mixes sums and products, which step by step give other rates"
                )


def _may_be(scheduler: Scheduler, items: tuple[Values, ...]) -> bool:
    return any(t is x for item in items for x in item for t in scheduler.things)


def changed(script: Script, scheduler: Scheduler, count: str) -> Conversion:
    """What makes ``scheduler`` count updates, of which an epoch has ``count``; raises :class:`Refusal`."""
    form = FORMS[scheduler.name]
    if not form.kind:
        return Conversion(scheduler, (), form.smooth, 0)
    args, call = scheduler.args, scheduler.node
    given = args.given(form.index, form.name)
    expr = spelled(call, given)
    if expr is not None and form.kind in ("times", "each") and counts_batches(script, expr):
        raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} counts batches already")
    factor = literal(count)
    if expr is None:
        if given is not None or not form.default or args.dicts:
            raise Refusal(
                f"`{form.name}` of {scheduler.name} does not stand in its call ({at(call)})"
            )
        return Conversion(
            scheduler, (Keyword(call, form.name, f"{form.default} * {count}"),), form.smooth, 1
        )
    if form.kind == "times":
        if scheduler.name != "CosineAnnealingLR":
            _whole(script, expr)
        return Conversion(scheduler, (Wrap(expr, f"{{}} * {factor}"),), form.smooth, 1)
    if form.kind == "each":
        if isinstance(expr, (ast.List, ast.Tuple)) and not any(
            isinstance(e, ast.Starred) for e in expr.elts
        ):
            for e in expr.elts:
                _whole(script, e)
            return Conversion(
                scheduler,
                tuple(Wrap(e, f"{{}} * {factor}") for e in expr.elts),
                form.smooth,
                len(expr.elts),
            )
        _whole(script, expr)
        return Conversion(
            scheduler, (Wrap(expr, f"[epoch * {factor} for epoch in {{}}]"),), form.smooth, 2
        )
    if form.kind == "root":
        _positive(script, expr)
        return Conversion(scheduler, (Wrap(expr, f"{{}} ** (1 / {factor})"),), form.smooth, 1)
    functions = [f for part in _listed(expr) for f in [_function(script, part, factor, form.kind)]]
    edits = tuple(e for made, _ in functions for e in made)
    return Conversion(scheduler, edits, any(smooth for _, smooth in functions), 2)


def _listed(expr: ast.expr) -> list[ast.expr]:
    return list(expr.elts) if isinstance(expr, (ast.List, ast.Tuple)) else [expr]


def _whole(script: Script, expr: ast.expr) -> None:
    """A number of epochs must be whole: half an epoch is reached now at its end, and would be in its middle."""
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
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("int", "round", "len")
        ):
            continue
        if (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)) or (
            isinstance(node, ast.Constant) and isinstance(node.value, float)
        ):
            raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} may be no whole number of epochs")
        todo += ast.iter_child_nodes(node)


def _positive(script: Script, expr: ast.expr) -> None:
    for thing in script.values(expr):
        if isinstance(thing, Const) and not (
            isinstance(thing.value, (int, float)) and thing.value > 0
        ):
            raise Refusal(f"`{ast.unparse(expr)}` on {at(expr)} has no root")


# ------------------------------------------------------------------------------------------------ functions of the epoch
def _function(script: Script, expr: ast.expr, count: str, kind: str) -> tuple[list[Edit], bool]:
    """The edits for one function of the epoch, and whether it then changes within epochs."""
    if kind == "factor":
        return _factor(script, expr, count), True
    if isinstance(expr, ast.Lambda) and _is_plain(expr.args):
        name = expr.args.args[0].arg
        smooth, changes = _is_smooth(expr.body, {name}), _changes_between(expr.body, {name})
        if any(
            isinstance(n, (ast.Lambda, ast.comprehension, ast.NamedExpr))
            for n in ast.walk(expr.body)
        ):
            return [Wrap(expr, f"lambda step: {{}}(step // {count})")], False
        new = "step" if not any(is_name(n, "step") for n in ast.walk(expr.body)) else "update"
        how = "/" if smooth and changes else "//"
        edits: list[Edit] = [Rewrite(expr, f"lambda {new}: {{body}}", {"body": expr.body})]
        uses = [n for n in nodes_in(expr.body, ast.Name) if n.id == name]
        edits += [Rewrite(n, f"({new} {how} {count})") for n in uses]
        return edits, smooth and changes
    found = script.values(expr)
    if (
        not found
        or not all(isinstance(t, (Func, Bound)) for t in found)
        or not isinstance(expr, (ast.Name, ast.Attribute))
    ):
        raise Refusal(f"the function `{ast.unparse(expr)}` on {at(expr)} is not known")
    smooth, changes = True, False
    if isinstance(expr, ast.Attribute) and not isinstance(expr.value, (ast.Name, ast.Attribute)):
        raise Refusal(
            f"the object of `{ast.unparse(expr)}` on {at(expr)} would be made in every step: put it into a variable first"
        )
    for thing in found:
        s, c = _of_function(thing)
        smooth &= s
        changes |= c
    how = "/" if smooth and changes else "//"
    return [Wrap(expr, f"lambda step: {{}}(step {how} {count})")], smooth and changes


def _is_plain(args: ast.arguments) -> bool:
    return len(args.args) == 1 and not (
        args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg or args.defaults
    )


def _factor(script: Script, expr: ast.expr, count: str) -> list[Edit]:
    if isinstance(expr, ast.Lambda) and _is_plain(expr.args):
        name, body = expr.args.args[0].arg, expr.body
        if not any(is_name(n, name) for n in ast.walk(body)) and isinstance(
            body, (ast.Constant, ast.Name, ast.Attribute)
        ):
            value = const(script.values(body)) if not isinstance(body, ast.Constant) else body.value
            if value is ... or (isinstance(value, (int, float)) and value > 0):
                return [Wrap(body, f"{{}} ** (1 / {count})")]
    raise Refusal("the factor of MultiplicativeLR is not the same in all epochs")


MATH = frozenset("cos sin tan exp sqrt pow tanh atan acos asin fabs cosh sinh pi radians".split())


def _of_function(thing: Thing) -> tuple[bool, bool]:
    """Whether a function of the project may be asked between two epochs, and whether it then gives other values."""
    (callee,) = code_of(thing)
    node = callee.function
    taken = [*node.args.posonlyargs, *node.args.args][int(callee.is_bound) :]
    if len(taken) != 1 or node.args.vararg or node.args.kwonlyargs:
        return False, False
    known = {taken[0].arg}
    if isinstance(node, ast.Lambda):
        return _is_smooth(node.body, known), _changes_between(node.body, known)
    local = stored_in(node)
    changes = False
    for statement in _statements(node.body):
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.If):
            smooth = _is_smooth_test(statement.test, known | local)
        elif isinstance(statement, (ast.Return, ast.Assign)) and statement.value is not None:
            smooth = _is_smooth(statement.value, known | local)
            smooth &= all(isinstance(t, ast.Name) for t in getattr(statement, "targets", ()))
            changes |= _changes_between(statement.value, known | local)
        else:
            return False, False
        if not smooth:
            return False, False
    return True, changes


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from _statements([*statement.body, *statement.orelse])


def _mentions(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


def _changes_between(node: ast.AST, names: set[str]) -> bool:
    """Whether the value changes between two whole numbers: the names do more than choose (``0.1 if epoch > 5 else 1``)."""
    if isinstance(node, ast.IfExp):
        return _changes_between(node.body, names) or _changes_between(node.orelse, names)
    if isinstance(node, ast.Compare):
        return False
    if isinstance(node, ast.Name):
        return node.id in names
    return any(_changes_between(child, names) for child in ast.iter_child_nodes(node))


def _is_smooth(node: ast.expr, names: set[str]) -> bool:
    """Arithmetic that is as good between two whole numbers as at them: no rounding, no look-up, no pole near zero, no test for equality."""
    if not _mentions(node, names):
        return not any(isinstance(n, (ast.Yield, ast.Await, ast.NamedExpr)) for n in ast.walk(node))
    match node:
        case ast.Name():
            return True
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
            return _is_smooth(node.left, names) and _is_smooth(node.right, names)
        case ast.BinOp(op=ast.Div()):
            return _is_smooth(node.left, names) and (
                not _mentions(node.right, names) or _above_zero(node.right, names)
            )
        case ast.BinOp(op=ast.Pow()):
            negative = (
                isinstance(node.right, ast.UnaryOp)
                and _mentions(node.left, names)
                and not _above_zero(node.left, names)
            )
            twice = _mentions(node.left, names) and _mentions(node.right, names)
            return (
                not negative
                and not twice
                and _is_smooth(node.left, names)
                and _is_smooth(node.right, names)
            )
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            return _is_smooth(node.operand, names)
        case ast.IfExp():
            return (
                _is_smooth_test(node.test, names)
                and _is_smooth(node.body, names)
                and _is_smooth(node.orelse, names)
            )
        case ast.Compare():
            plain = all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops)
            return plain and all(_is_smooth(part, names) for part in (node.left, *node.comparators))
        case ast.Call():
            return (
                not node.keywords
                and _is_arithmetic(node.func)
                and all(_is_smooth(a, names) for a in node.args)
            )
    return False


def _is_smooth_test(node: ast.expr, names: set[str]) -> bool:
    """A test for order, not for being zero or equal."""
    if isinstance(node, ast.BoolOp):
        return all(_is_smooth_test(part, names) for part in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _is_smooth_test(node.operand, names)
    return not _mentions(node, names) or (isinstance(node, ast.Compare) and _is_smooth(node, names))


def _is_arithmetic(func: ast.expr) -> bool:
    if isinstance(func, ast.Name):
        return func.id in ("min", "max", "abs", "float", "pow") or func.id in MATH
    return (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id in ("math", "np", "numpy")
        and func.attr in MATH
    )


def _above_zero(node: ast.expr, names: set[str]) -> bool:
    """``1 + decay * epoch``, ``max(1, epoch)``: nothing near zero between whole numbers."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return any(
            _is_positive(side) and _is_smooth(other, names)
            for side, other in ((node.left, node.right), (node.right, node.left))
        )
    if isinstance(node, ast.Call) and is_name(node.func, "max"):
        return any(_is_positive(a) for a in node.args) and all(
            _is_smooth(a, names) for a in node.args
        )
    return False


def _is_positive(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and node.value > 0
    )
