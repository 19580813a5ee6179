"""What Python's own objects do, as far as it takes no longer than they are long."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from autofast.facts.cost.meta.tensor import MOST_ITEMS, TOO_LONG, UNKNOWN, Ledger, few
from autofast.facts.cost.work import Unsized
from autofast.model.several import wordset

MOST_BITS = 200  # of a number
SIGNS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
    ast.Pow: operator.pow, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert,
}  # fmt: skip
COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
SIZED = (str, list, tuple, dict)
VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()), set, frozenset)
# Methods of Python's own objects that take no longer than these are long.
METHODS = {
    str: wordset("format split lower upper startswith endswith strip lstrip rstrip join find count isdigit"),
    list: wordset("append extend insert pop index count copy remove reverse sort clear"),
    dict: wordset("get items keys values update pop setdefault copy"),
    tuple: wordset("index count"),
}  # fmt: skip
# A width in a format, or one that comes from elsewhere.
WIDE = re.compile(r"\d{4}|%[^a-zA-Z%]*\*|\{[^}]*\{")
NATIVE = (str, int, float, bool, list, tuple, dict, range, type(None))


def weight(values: Iterable[Any]) -> int:
    """How much is in objects of Python's own, with all that is in that; raises :class:`Unsized`
    for more than is followed.
    """
    todo, found = list(values), 0
    while todo:
        here = todo.pop()
        found = few(found + 1)
        if isinstance(here, dict):
            todo += [*here.keys(), *here.values()]
        elif isinstance(here, (list, tuple)):
            few(len(here))
            todo += here
        elif isinstance(here, (str, range)):
            found = few(found + (len(here) if len(here) < MOST_ITEMS else MOST_ITEMS))
    return found


def native(ledger: Ledger, func: Any, args: list[Any], named: dict[str, Any]) -> Any:
    """What a function or method of Python's own gives; what is not known, where it raises."""
    ledger.budget.spend(weight([getattr(func, "__self__", None), *args, *named.values()]) // 16)
    try:
        found = func(*args, **named)
    except Exception:
        return UNKNOWN
    held = getattr(func, "__self__", None)
    if any(isinstance(x, SIZED) and len(x) > MOST_ITEMS for x in (found, held)):
        raise Unsized(TOO_LONG)
    return list(found) if isinstance(found, VIEWS) else found


def is_harmless(this: Any, name: str) -> bool:
    """Whether it is a method of Python's own that takes no longer than its object is long."""
    return any(name in names for kind, names in METHODS.items() if type(this) is kind)


def too_large(op: ast.operator, left: Any, right: Any) -> bool:
    """Whether it would make a number or a list of a size that no network has."""
    numbers = isinstance(left, int) and isinstance(right, int)
    match op:
        case ast.Pow():
            return numbers and bool(abs(right) * max(1, left.bit_length()) > MOST_BITS)
        case ast.LShift():
            return numbers and bool(right > MOST_BITS)
        case ast.Mod():
            return isinstance(left, str) and WIDE.search(left) is not None
        case ast.Mult() if numbers:
            return bool(left.bit_length() + right.bit_length() > MOST_BITS)
        case ast.Mult():
            pairs = ((left, right), (right, left))
            return any(
                isinstance(held, SIZED) and isinstance(n, int) and len(held) * n > MOST_ITEMS
                for held, n in pairs
            )
    return False


def power(base: Any, exponent: Any) -> Any:
    """``numpy.power`` of two numbers."""
    return UNKNOWN if too_large(ast.Pow(), base, exponent) else base**exponent
