"""Tensors, by what is known of them."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard

from autofast.model.changes import Pooled, steady
from autofast.model.values.thing import Thing

_WORDS: dict[
    tuple[Any, ...], int
] = {}  # what tensors are, and a number of it that is the same in every run


@dataclass(frozen=True)
class Tensor(Thing, metaclass=Pooled):
    """A tensor. Two tensors with the same facts are one value, so loops come to rest.

    Attributes:
        batch: loaders whose batches it comes from, not through a model.
        models: models whose forward made it (with or without a gradient).
        passes: the calls of models that a backward through it reaches; none where it carries no
            gradient.
        device: ``cpu``, ``dev`` (moved to the device of the script, perhaps a GPU) or ``?``.
        dtype: ``f64``, ``complex``, ``half``, ``int``, ``f32`` or ``?``.
        grad: a backward through it reaches parameters.
        prob: it is the direct result of a sigmoid (or a view of it), which stands here: the call,
            or the layer where a container calls it.
        loss: a loss function made it.
        fresh: made by a factory (``zeros``, ``randn``...), named here, with no data of its own.
        param: it is a model's parameter, or a parameter's ``.grad`` or ``.data``.
        rank: ``4d`` where it is known to be an image batch, ``0d`` where it has no dimensions (a
            loss, a mean), ``?`` where it may not be a tensor at all but a tuple or dict.
        loss_first: it is no tensor but what a model of a library gives that was given labels: its
            first part is the loss.
        sure: it certainly is a tensor, as not all is that is taken for one; None: certainly none,
            but what holds such.
    """

    batch: frozenset[Any] = frozenset()
    models: frozenset[Any] = frozenset()
    device: str = "?"
    dtype: str = "?"
    grad: bool = False
    prob: ast.AST | None = None
    loss: bool = False
    fresh: str = ""
    param: str = ""
    rank: str = ""
    made: ast.AST | None = None
    loss_first: bool = False

    def __hash__(self) -> int:
        try:
            known: int = self._hash  # type: ignore[attr-defined]
        except AttributeError:
            words = (self.device, self.dtype, self.grad, getattr(self.prob, "lineno", 0), self.loss,
                     self.fresh, self.param, self.rank, self.loss_first)  # fmt: skip
            if words not in _WORDS:
                _WORDS[words] = steady(" ".join(map(str, words)))
            owners = sum(hash(x) for x in (*self.batch, *self.models))
            known = hash(
                (
                    _WORDS[words],
                    owners,
                    getattr(self.made, "lineno", 0),
                    getattr(self.made, "col_offset", 0),
                )
            )
            self.__dict__["_hash"] = known
        return known

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Tensor) and self._facts == other._facts)

    @cached_property
    def _facts(self) -> tuple[object, ...]:
        """All that is said of it, put together once: tensors are compared far more often than
        made.
        """
        return tuple(map(self.__dict__.__getitem__, self.__dataclass_fields__))

    passes: frozenset[Any] = frozenset()
    sure: bool | None = False

    def but(self, **facts: Any) -> Tensor:
        """The same with other facts: one object for each, as most are asked for again and again."""
        known: dict[Any, Tensor] = self.__dict__.setdefault("_but", {})
        key = tuple(facts.items())
        if key not in known:
            known[key] = replace(self, **facts)
        return known[key]

    def __post_init__(self) -> None:
        if (self.grad or self.loss) and self.dtype == "int":
            object.__setattr__(self, "grad", False)  # none goes through integers and booleans,
            object.__setattr__(self, "loss", False)  # and a count of losses is none
        if self.passes and not self.grad:
            object.__setattr__(self, "passes", frozenset())
        if self.sure is None:
            object.__setattr__(self, "rank", "?")
        elif self.sure != ((self.sure or bool(self.fresh or self.param)) and self.rank != "?"):
            object.__setattr__(self, "sure", not self.sure)


def is_scalar(thing: object) -> TypeGuard[Tensor]:
    """A tensor of one number."""
    return isinstance(thing, Tensor) and thing.rank == "0d"


def is_weight(thing: object) -> TypeGuard[Tensor]:
    """A parameter of a model."""
    return isinstance(thing, Tensor) and thing.param == "param"


def is_on_device(thing: object) -> TypeGuard[Tensor]:
    """A tensor that lies on the GPU."""
    return isinstance(thing, Tensor) and thing.device == "dev"
