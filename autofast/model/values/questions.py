"""Small questions about what an expression may be."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from typing import Any, TypeGuard, TypeVar

from autofast.model.changes import Numbered, remember, remembered
from autofast.model.several import Kinds, of_kind, one, surely
from autofast.model.values.program import Bound, Ext
from autofast.model.values.simple import Arg, Const, Method, Num, Reason, Ref, Setting, Unknown
from autofast.model.values.tensor import Tensor
from autofast.model.values.thing import InOrder, Thing, Values

N = TypeVar("N", Ext, Method, Ref, Unknown)
FEW = 8  # of more, the order is kept: large sets are asked for again and again


def things(*found: Thing) -> Values:
    return frozenset(found)


def ordered(values: Values) -> list[Thing]:
    """The things in an order that is the same in every run (strings and types hash differently in
    each).
    """
    if len(values) < 2 or isinstance(values, InOrder):
        return list(values)
    if len(values) <= FEW:
        return sorted(values, key=_rank)
    key = ordered, values
    found = remembered(key)
    return list(found if found is not None else remember(key, sorted(values, key=_rank)))


def _rank(thing: Thing) -> tuple[str, int, str]:
    kind = type(thing).__name__
    if isinstance(thing, Numbered):
        return kind, thing.serial, ""
    if isinstance(thing, Bound):
        return kind, hash(thing.this) if isinstance(thing.this, Numbered) else 0, thing.func.name
    if isinstance(thing, Method):
        return kind, hash(thing.this) if isinstance(thing.this, Numbered) else 0, thing.name
    if isinstance(thing, Tensor):
        known: tuple[str, int, str] | None = thing.__dict__.get("_rank")
        if known is not None:
            return known
        makers = sorted(hash(x) for x in (*thing.models, *thing.batch) if isinstance(x, Numbered))
        sigmoid = getattr(thing.prob, "lineno", 0)
        known = (
            kind,
            getattr(thing.made, "lineno", 0),
            f"{thing.device} {thing.dtype} {thing.grad} {sigmoid} {thing.loss} {thing.fresh} {thing.param} {thing.rank} {makers}",
        )
        thing.__dict__["_rank"] = known
        return known
    if isinstance(thing, Arg):
        return kind, thing.node.lineno, thing.name
    if isinstance(thing, Const):
        text = repr(thing.value)
    elif isinstance(thing, Ref):
        text = thing.name
    else:
        text = getattr(thing, "why", "")
    return kind, 0, text


def is_named(thing: object, kind: type[N], names: str | Container[str]) -> TypeGuard[N]:
    """Whether it is of this kind, and its name is this, or one of these."""
    return isinstance(thing, kind) and (
        thing.name == names if isinstance(names, str) else thing.name in names
    )


def any_named(found: Iterable[object], kind: type[N], names: str | Container[str]) -> bool:
    """Whether one of them is of this kind, by this name or one of these."""
    return any(is_named(thing, kind, names) for thing in found)


def surely_named(found: Iterable[object], kind: type[N], names: str | Container[str]) -> bool:
    """Whether there are some, and all are of this kind, by this name or one of these."""
    return surely(is_named(thing, kind, names) for thing in found)


def begins(thing: object, kind: type[N], prefix: str | tuple[str, ...]) -> TypeGuard[N]:
    """Whether it is of this kind, and its name begins so."""
    return isinstance(thing, kind) and thing.name.startswith(prefix)


def is_const(thing: object, *kinds: Kinds) -> TypeGuard[Const]:
    """Whether it is a constant of one of these types."""
    return isinstance(thing, Const) and isinstance(thing.value, kinds)


def are_numbers(values: Collection[Thing]) -> bool:
    """Whether there are some, and all are numbers of Python."""
    return surely(isinstance(t, Num) or is_const(t, int, float) for t in values)


def const(values: Values) -> Any:
    """The constant that ``values`` must be; :data:`Ellipsis` where it is not certain."""
    thing = one(values)
    return thing.value if isinstance(thing, Const) else ...


def said(thing: Thing | None) -> Any:
    """What a constant says, an option by its default, and a setting in its file; else Ellipsis."""
    if isinstance(thing, Arg):
        return said(one(thing.default))
    return thing.value if isinstance(thing, (Const, Setting)) else ...


def library_name(values: Values) -> str:
    """The canonical name of the library's object that ``values`` must be; empty where it is not
    certain.
    """
    thing = one(values)
    return thing.name if isinstance(thing, Ref) else ""


def library_names(values: Values) -> set[str]:
    """The canonical names of the libraries' objects among ``values``."""
    return {t.name for t in values if isinstance(t, Ref)}


def names_of(values: Iterable[Thing]) -> set[str]:
    """The names of ``values``; "" where one has none."""
    return {getattr(t, "name", "") for t in values}


def consts(values: Values) -> set[Any] | None:
    """All constants that ``values`` may be, options by their defaults left out; None where any is
    not a constant.
    """
    found = set()
    for thing in values:
        if not isinstance(thing, Const):
            return None
        found.add(thing.value)
    return found


def why_unknown(values: Values) -> str:
    """The reason of the first unknown thing."""
    return next((t.why for t in ordered(values) if isinstance(t, Unknown)), "")


def is_chosen(values: Values) -> bool:
    """Whether these may be anything that a name means which is not known."""
    return any(t.reason is Reason.CHOSEN for t in of_kind(values, Unknown))
