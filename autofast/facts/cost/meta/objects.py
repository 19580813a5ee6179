"""What code of a network works with, beside tensors and Python's own objects."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Protocol

from autofast.facts.cost.meta.layers import Layer
from autofast.facts.cost.meta.tensor import Ledger, Meta
from autofast.model.syntax import Def
from autofast.model.values import Cls, Env, Func, Inst


@dataclass(eq=False)
class Object:
    """An object of a class of the project; ``parts`` are what it holds where it is a container of
    torch, too, ``base`` the layer of torch that it extends, ``thing`` what the reader knows of it.
    """

    cls: Cls
    attrs: dict[str, Any] = field(default_factory=dict)
    parts: list[Any] | None = None
    base: Layer | None = None
    thing: Inst | None = None


@dataclass(eq=False)
class Frame:
    """The variables of a call; ``outer``: those of the function around, or what the reader knows of
    the module.
    """

    outer: Frame | Env | None
    this: Any = None
    owner: Cls | None = None
    vars: dict[str, Any] = field(default_factory=dict)
    shared: set[str] = field(default_factory=set)  # by ``nonlocal``


@dataclass(eq=False)
class Closure:
    """A function that is defined in a function; or a lambda."""

    node: Def | ast.Lambda
    frame: Frame
    defaults: list[Any]
    named: dict[str, Any]


@dataclass(frozen=True)
class Library:
    """Something of a library, by its canonical name."""

    name: str


@dataclass(eq=False)
class Method:
    """A method of an object: of the project (``func``), of a layer, of a tensor or a list."""

    this: Any
    func: Func | Closure | str


@dataclass(eq=False)
class Super:
    """``super()``, in a method of the class ``after``."""

    this: Object
    after: Cls


@dataclass(eq=False)
class Partial:
    """``functools.partial(func, *args, **named)``"""

    func: Any
    args: list[Any]
    named: dict[str, Any]


class Runs(Protocol):
    """What runs code, as libraries ask it back."""

    ledger: Ledger
    weights: list[Meta]  # parameters that constructors make by hand
    made: int  # layers of torch

    def call(self, what: Any, args: list[Any], named: dict[str, Any]) -> Any:
        """What a call gives."""

    def items(self, value: Any) -> list[Any] | None:
        """What a loop goes over; None where that is not known."""

    def attribute(self, this: Any, name: str) -> Any:
        """An attribute of an object."""
