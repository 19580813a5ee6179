"""What a call looks like in the text; what it calls is asked of the values."""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from autofast.model.source import nodes_in, parent_of
from autofast.model.syntax import VARIABLES, has_star, is_all


class MethodCall(ast.Call):
    """The type of ``x.name(...)``."""

    func: ast.Attribute


def is_method(node: object, *names: str) -> TypeGuard[MethodCall]:
    """``x.name(...)``, with one of these names where there are any."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (not names or node.func.attr in names)
    )


def call_of(node: ast.AST) -> ast.Call | None:
    """The call ``node(...)`` that ``node`` is the function of."""
    parent = parent_of(node)
    return parent if isinstance(parent, ast.Call) and parent.func is node else None


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """What stands for a keyword in the call itself."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def may_give(call: ast.Call, *names: str) -> bool:
    """Whether a call gives one of these keywords, or may by ``**``; with none: has that."""
    return any(k.arg in (None, *names) for k in call.keywords)


def arguments_of(call: ast.Call) -> list[ast.expr]:
    """All that a call is given, in the order of the text; ``*rest`` as it stands, keywords and
    ``**options`` by what they give.
    """
    return [*call.args, *(k.value for k in call.keywords)]


def has_unpacking(call: ast.Call) -> bool:
    """Whether it has ``*args`` or ``**options``, so that it is not plain what goes where."""
    return has_star(call.args) or may_give(call)


def short_name(expr: ast.AST | None) -> str:
    """``loss`` for the name ``loss`` and for ``self.loss``; empty for what is neither a name nor an
    attribute.
    """
    name: str = getattr(expr, "attr", "") or getattr(expr, "id", "")
    return name if isinstance(expr, VARIABLES) else ""


def variable_name(expr: ast.AST | None) -> str:
    """The name of a variable; empty for anything else."""
    return expr.id if isinstance(expr, ast.Name) else ""


def literal_of(expr: ast.AST | None) -> Any:
    """The value of what is written out; None for anything else."""
    return expr.value if isinstance(expr, ast.Constant) else None


def is_call_of(node: object, *names: str) -> TypeGuard[ast.Call]:
    """``len(x)``, ``range(n)``: a call of a function by one of these names."""
    return isinstance(node, ast.Call) and is_name(node.func, *names)


def is_name(node: object, *names: str) -> TypeGuard[ast.Name]:
    """A variable of one of these names, read or bound."""
    return isinstance(node, ast.Name) and node.id in names


def names_in(tree: ast.AST) -> set[str]:
    """The names of all variables in an expression."""
    return {node.id for node in nodes_in(tree, ast.Name)}


def is_path(expr: ast.AST | None) -> bool:
    """``model``, ``self.model``, ``self.parts.model``."""
    while isinstance(expr, ast.Attribute):
        expr = expr.value
    return isinstance(expr, ast.Name)


def pairs_of(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What each part of an assignment's target gets: ``x`` of ``a`` and ``y`` of ``b`` in ``x, y =
    a, b``.
    """
    if (
        isinstance(target, ast.Tuple)
        and isinstance(value, ast.Tuple)
        and len(target.elts) == len(value.elts)
    ):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def items_of(expr: ast.expr) -> list[ast.expr]:
    """The parts of ``a, b``, also as an index; ``a`` alone is one."""
    return expr.elts if isinstance(expr, ast.Tuple) else [expr]


def targets_of(statement: ast.Assign | ast.AugAssign | ast.AnnAssign) -> list[ast.expr]:
    """What an assignment sets."""
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target]


def only_target(statement: ast.AST | None) -> ast.expr | None:
    """``x`` of ``x = value``; nothing for ``x = y = value``, and for what is no assignment."""
    single = isinstance(statement, ast.Assign) and len(statement.targets) == 1
    return statement.targets[0] if single else None  # type: ignore[union-attr]


def given_to(statement: ast.AST, name: str) -> ast.expr | None:
    """``value`` of ``name = value``; nothing for other statements."""
    return statement.value if is_name(only_target(statement), name) else None  # type: ignore[attr-defined]


def parts_of(statement: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """:func:`pairs_of` an assignment with one target; none for other statements."""
    target = only_target(statement)
    return [] if target is None else pairs_of(target, statement.value)  # type: ignore[attr-defined]


def put_into(value: ast.AST) -> ast.expr | None:
    """The variable (or the tuple of them) that an assignment gives this value, and no other one."""
    statement = parent_of(value)
    whole = isinstance(statement, ast.Assign) and statement.value is value
    return only_target(statement) if whole else None


def stands_alone(expr: ast.AST) -> bool:
    """Whether an expression is a statement of its own, so that nothing is done with its result."""
    return isinstance(parent_of(expr), ast.Expr)


def taker_of(expr: ast.AST) -> ast.Call | None:
    """The call that an expression is an argument of, by its place or by a keyword."""
    parent = parent_of(expr)
    call = parent_of(parent) if isinstance(parent, ast.keyword) else parent
    return call if isinstance(call, ast.Call) and call.func is not expr else None


def root_of(expr: ast.expr, *through: type[ast.Attribute | ast.Subscript]) -> ast.expr:
    """``x`` of ``x.part.weight``; with ``ast.Subscript`` among ``through``, of ``x[0].weight``,
    too.
    """
    while isinstance(expr, through or ast.Attribute):
        expr = expr.value
    return expr


def spread_out(args: list[ast.expr]) -> list[ast.expr]:
    """The sizes or dimensions in ``view(2, 3)`` and ``view((2, 3))``."""
    match args:
        case [ast.Tuple(elts=elts) | ast.List(elts=elts)]:
            return elts
    return args


def receiver_of(call: ast.Call) -> ast.expr | None:
    """``x`` of ``x.name(...)``; nothing where the function is a plain name."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def method_name(call: ast.Call) -> str:
    """``name`` of ``x.name(...)``; empty where the function is a plain name."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def alternatives(test: ast.expr) -> list[ast.expr]:
    """The conditions one of which is enough: the parts of ``a or b``; ``a`` alone is one."""
    return test.values if is_all(test, ast.Or) else [test]


def requirements(test: ast.expr) -> list[ast.expr]:
    """The conditions that must all hold: the parts of ``a and b``; ``a`` alone is one."""
    return test.values if is_all(test, ast.And) else [test]


def unstarred(expr: ast.expr) -> ast.expr:
    """``x`` of ``*x``."""
    return expr.value if isinstance(expr, ast.Starred) else expr


def is_augmented(expr: ast.AST) -> bool:
    """``x`` of ``x += 1``, which reads it and sets it; also the 1."""
    return isinstance(parent_of(expr), ast.AugAssign)


def is_same_code(one: ast.AST, other: ast.AST) -> bool:
    """Whether two pieces of code are written alike, apart from their layout."""
    return ast.dump(one) == ast.dump(other)


def first_argument(call: ast.Call) -> ast.expr | None:
    """What a call is given at its first place."""
    return call.args[0] if call.args else None
