"""Which things can be reached from others, and whether one of them has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from autofast.model.changes import Mutable, Watched
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Dict,
    Entry,
    Ext,
    Func,
    Inst,
    Located,
    Method,
    Num,
    Partial,
    Ref,
    Seq,
    Setting,
    Tensor,
    Thing,
    Unknown,
)

# Nothing can be reached from these, or set on them.
PLAIN = frozenset({Const, Num, Setting, Located, Ref, Unknown, Tensor, Arg})

# What notes the changes of its own items.
TABLES: dict[type, tuple[str, ...]] = {
    Inst: ("attrs", "past"),
    Ext: ("attrs",),
    Dict: ("entries",),
    Cls: ("members",),
    Func: ("attrs", "defaults"),
}


def reached(roots: Iterable[Thing], most: int) -> list[Thing] | None:
    """What can be reached from ``roots`` and may change; None where there are more than ``most``
    things.

    As long as none of it has changed, nothing else can be reached, either.
    """
    todo: list[Any] = [t for t in roots if type(t) not in PLAIN]
    seen = set(map(id, todo))
    found: list[Thing] = []
    while todo:
        thing = todo.pop()
        if isinstance(thing, Mutable) or type(thing) in TABLES:
            found.append(thing)
        parts: list[Any] = []
        for held in _held(thing):
            if isinstance(held, Watched):
                for value in held.values():
                    parts.extend(value if isinstance(value, frozenset) else _of_entries(value))
            else:
                parts.extend(held)
        for part in parts:
            if type(part) not in PLAIN and id(part) not in seen:
                seen.add(id(part))
                todo.append(part)
        if len(seen) > most:
            return None
    return found


def tables_of(found: Iterable[Thing]) -> Iterator[int]:
    """The ids of all that changes where one of these does."""
    for thing in found:
        own = thing.__dict__
        yield id(own)
        yield from (id(own[name]) for name in TABLES.get(type(thing), ()))


def changed_since(found: Iterable[Thing], ticks: int) -> bool:
    """Whether one of these (:func:`reached`) was set to something else."""
    for thing in found:
        own = thing.__dict__
        if own.get("changed", 0) > ticks:
            return True
        for name in TABLES.get(type(thing), ()):
            if getattr(own[name], "changed", 0) > ticks:
                return True
    return False


def _of_entries(entries: list[Entry]) -> list[Thing]:
    return [t for e in entries for t in e.values]


def _held(thing: Any) -> list[Iterable[Any]]:
    """What a thing holds: tables (:class:`Watched`), and things."""
    if isinstance(thing, Inst):
        own = [thing.cls], thing.attrs, thing.past
        return [*own, *(thing.args.all() if thing.args is not None else ())]
    if isinstance(thing, Ext):
        return [thing.attrs, *thing.args.all()]
    if isinstance(thing, Seq):
        return [thing.elem, *(thing.items or ())]
    if isinstance(thing, Dict):
        return [thing.entries, thing.rest]
    if isinstance(thing, Cls):
        return [thing.members, thing.bases]
    if isinstance(thing, Func):
        return [thing.attrs, thing.defaults]
    if isinstance(thing, Partial):
        return [thing.func, *thing.args.all()]
    if isinstance(thing, Bound):
        return [[thing.func, thing.this]]
    return [[thing.this]] if isinstance(thing, Method) else []
