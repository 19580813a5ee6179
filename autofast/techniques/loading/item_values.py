"""What a variable of ``__getitem__`` is where the code makes a whole batch: rows of a tensor, a
number drawn for each item, or the same for all.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TypeAlias

from autofast.rule import Refusal

FLOATS = ("float16", "float32", "float64")
SMALL = ("bool", "uint8", "int8", "int16")


def no_form(node: ast.AST) -> Refusal:
    """For what cannot be said of a whole batch."""
    return Refusal("has no form for batches", node)


@dataclass(frozen=True)
class Items:
    """An array or tensor of each item: ``code`` is a tensor of all, the first dimension counts
    them.

    Attributes:
        root: the stored array whose items' dimensions ``more`` is counted from; empty: ``more`` is
            their number.
        dtype: in the script, as NumPy calls it; ``made``: of the tensor. Empty where it is not
            known.
        numpy: an array of NumPy in the script.
        fresh: in memory of its own there.
        laid_out: the tensor certainly lies in memory as a stacked one.
        shape: two that are equal have the same one.
        taken: torch took it as it is stored.
    """

    code: str
    root: str = ""
    more: int = 0
    dtype: str = ""
    made: str = ""
    numpy: bool = True
    fresh: bool = False
    laid_out: bool = True
    shape: str = ""
    taken: bool = False


@dataclass(frozen=True)
class Draw:
    """A random number for each item: ``code`` has one dimension.

    ``kind`` is float, int or bool; ``low`` to ``high``: the whole numbers that it may be;
    ``below``: what it is below, as code, made of
    the length of a side.
    """

    code: str
    kind: str = "float"
    low: int | None = None
    high: int | None = None
    below: str = ""


@dataclass(frozen=True)
class Same:
    """A value of Python that all items share; ``side``: the length of one of an item's sides,
    ``sided``: a number is added to one.
    """

    code: str
    value: object = ...
    side: bool = False
    sided: bool = False


@dataclass(frozen=True)
class Fixed:
    """A small array of the module, ``rank`` dimensions of ``dtype``."""

    code: str
    rank: int
    dtype: str


@dataclass(frozen=True)
class Several:
    """A tuple; ``names``: the keys of a dict."""

    parts: tuple[Value, ...]
    names: tuple[object, ...] = ()


Value: TypeAlias = "Items | Draw | Same | Fixed | Several"


def by_numpy(one: str, other: str) -> str:
    """The type that NumPy computes two types in; empty where it is not known."""
    if one == other or not one or not other:
        return one if one == other else ""
    floats = [t for t in (one, other) if t in FLOATS]
    if len(floats) == 2:
        return max(floats)
    whole = other if floats == [one] else one
    return "float64" if floats == ["float64"] or whole not in SMALL else (floats or [""])[0]


def by_torch(one: str, other: str) -> str:
    """The type that torch computes two types of tensors in."""
    floats = [t for t in (one, other) if t in FLOATS]
    return max(floats) if floats else one if one == other else ""
