"""Parentheses around expressions that are put somewhere else: where precedence or a line break
needs them, and only there.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

import libcst as cst

# How tightly an expression holds together; a place that needs level n takes expressions of level n
# and above.
(
    ANY, TUPLE, TEST, OR, AND, NOT, COMPARE, BITOR, BITXOR, BITAND, SHIFT, SUM, PRODUCT, UNARY, POWER, AWAIT, PRIMARY
) = range(17)  # fmt: skip

_BINARY: dict[type[cst.BaseBinaryOp], int] = {
    cst.BitOr: BITOR, cst.BitXor: BITXOR, cst.BitAnd: BITAND, cst.LeftShift: SHIFT,
    cst.RightShift: SHIFT, cst.Add: SUM, cst.Subtract: SUM, cst.Power: POWER,
}  # fmt: skip
_LEVELS: dict[type[cst.BaseExpression], int] = {
    cst.NamedExpr: ANY, cst.GeneratorExp: ANY, cst.Yield: ANY, cst.Tuple: TUPLE,
    cst.Lambda: TEST, cst.IfExp: TEST, cst.Comparison: COMPARE, cst.Await: AWAIT,
}  # fmt: skip
# Places where an expression's own parentheses say nothing.
_HOLDS_ONE = (cst.Arg, cst.Element, cst.DictElement, cst.Index)


def level(node: cst.BaseExpression) -> int:
    """How tightly ``node`` holds together."""
    if node.lpar:
        return PRIMARY
    if isinstance(node, cst.BinaryOperation):
        return _BINARY.get(type(node.operator), PRODUCT)
    if isinstance(node, cst.BooleanOperation):
        return OR if isinstance(node.operator, cst.Or) else AND
    if isinstance(node, cst.UnaryOperation):
        return NOT if isinstance(node.operator, cst.Not) else UNARY
    return _LEVELS.get(type(node), PRIMARY)


def needed(node: cst.BaseExpression, child: cst.CSTNode, around: Sequence[cst.CSTNode]) -> int:
    """The level that ``node`` must have to stand where ``child`` stands now; ``around`` are the
    nodes around that, innermost first.
    """
    parent = around[0]
    match parent:
        case cst.BinaryOperation():
            return _operand(parent, left=parent.left is child)
        case cst.BooleanOperation():
            return (OR if isinstance(parent.operator, cst.Or) else AND) + (parent.right is child)
        case cst.UnaryOperation():
            return NOT if isinstance(parent.operator, cst.Not) else UNARY
        case cst.Comparison() | cst.ComparisonTarget() | cst.StarredElement():
            return BITOR
        case cst.Attribute() | cst.Call() | cst.Subscript() | cst.Await() | cst.Decorator():
            return PRIMARY
        case cst.IfExp():
            return TEST if parent.orelse is child else OR
        case cst.CompFor() | cst.CompIf() | cst.FormattedStringExpression():
            return OR
        case cst.Arg():
            return (
                ANY if isinstance(node, cst.GeneratorExp) and _is_sole(parent, around[1:]) else TEST
            )
        case cst.Assign() | cst.AugAssign() | cst.AnnAssign() | cst.Expr():
            return ANY if isinstance(node, cst.Yield) else TUPLE
        case cst.Return() | cst.For():
            return TUPLE
        case cst.If() | cst.While():
            return ANY if isinstance(node, cst.NamedExpr) else TEST
    return TEST


def _operand(parent: cst.BinaryOperation, left: bool) -> int:
    own = _BINARY.get(type(parent.operator), PRODUCT)
    if own == POWER:  # binds to the right, and its right side takes a sign: 2 ** -x
        return AWAIT if left else UNARY
    return own if left else own + 1


def _is_sole(arg: cst.Arg, around: Sequence[cst.CSTNode]) -> bool:
    call = around[0] if around else None
    return isinstance(call, cst.Call) and len(call.args) == 1 and not arg.keyword and not arg.star


def in_brackets(child: cst.CSTNode, around: Sequence[cst.CSTNode]) -> bool:
    """Whether a line may be broken at ``child``, which stands in ``around`` (innermost first)."""
    for outer in around:
        match outer:
            case (
                cst.List()
                | cst.Set()
                | cst.Dict()
                | cst.ListComp()
                | cst.SetComp()
                | cst.DictComp()
            ):
                return True
            case cst.Call() | cst.Subscript() | cst.ClassDef() if isinstance(
                child, (cst.Arg, cst.SubscriptElement)
            ):
                return True
            case cst.FunctionDef():
                return isinstance(child, cst.Parameters)
            case cst.With():
                return isinstance(outer.lpar, cst.LeftParen)
            case cst.BaseExpression() if outer.lpar:
                return True
            case cst.BaseSmallStatement() | cst.BaseCompoundStatement():
                return False
        child = outer
    return False


def fitted(
    node: cst.BaseExpression, child: cst.CSTNode, around: Sequence[cst.CSTNode]
) -> cst.BaseExpression:
    """``node`` as it must be written where ``child`` stands now, inside ``around`` (innermost
    first).
    """
    if not around:
        return node
    if node.lpar:
        return (
            bare(node) if isinstance(around[0], _HOLDS_ONE) and in_brackets(child, around) else node
        )
    # 1.real is no expression.
    number = isinstance(node, cst.BaseNumber) and isinstance(around[0], cst.Attribute)
    if (
        number
        or level(node) < needed(node, child, around)
        or (breaks_line(node) and not in_brackets(child, around))
    ):
        return parenthesised(node)
    return node


def parenthesised(node: cst.BaseExpression) -> cst.BaseExpression:
    """``(node)``."""
    return node.with_changes(
        lpar=[cst.LeftParen(), *node.lpar], rpar=[*node.rpar, cst.RightParen()]
    )


def bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """``node`` without its parentheses, unless they make it what it is or hold a comment or a line
    break of their own.
    """
    blank = all(isinstance(p.whitespace_after, cst.SimpleWhitespace) for p in node.lpar)
    blank = blank and all(isinstance(p.whitespace_before, cst.SimpleWhitespace) for p in node.rpar)
    without = node.with_changes(lpar=[], rpar=[])
    return without if blank and level(without) >= TEST else node


def breaks_line(node: cst.BaseExpression) -> bool:
    """Whether ``node`` has a line break that is in none of its own brackets."""
    code = cst.Module([]).code_for_node(node)
    if "\n" not in code:
        return False
    try:
        ast.parse(code, mode="eval")
    except SyntaxError:
        return True
    return False
