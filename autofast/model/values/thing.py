"""What all abstract values have in common, and the set of them that an expression may be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Thing:
    """Something that an expression may evaluate to."""

    __slots__ = ()


class InOrder(frozenset[T_co]):
    """A set that gives what is in it in the order in which it was made of it: in the same one in
    every run, so that texts and decisions may follow it.
    """

    __slots__ = ("_order",)
    _order: tuple[T_co, ...]

    def __new__(cls, parts: Iterable[T_co]) -> InOrder[T_co]:
        order = tuple(dict.fromkeys(parts))
        made = super().__new__(cls, order)
        made._order = order
        return made

    def __iter__(self) -> Iterator[T_co]:
        return iter(self._order)


Values: TypeAlias = frozenset[Thing]
Row: TypeAlias = tuple[Values, ...]  # of what stands at each place
ByName: TypeAlias = dict[str, Values]  # of variables, attributes, keywords
Where: TypeAlias = (
    ast.AST | None
)  # what makes a thing, or where something happens, if that is known
ById: TypeAlias = dict[int, Thing]  # things that may be equal, told apart by their address
NOTHING: Values = frozenset()
SOMEWHERE = ast.Pass()  # the place of a call that stands nowhere in the text
