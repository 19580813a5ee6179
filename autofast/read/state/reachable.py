"""Which things can be reached from others, and whether one of them has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import is_
from typing import Any

from autofast.model.changes import CLOCK, Mutable, Watched
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Dict,
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
    all_of,
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


def reached(
    roots: Iterable[Thing], most: int, ends: Callable[[Thing], bool] | None = None
) -> list[Thing] | None:
    """What can be reached from ``roots`` and may change, but for what certain things (``ends``)
    hold; None where there are more than ``most`` things.

    As long as none of it has changed, nothing else can be reached, either.
    """
    todo: list[Any] = [t for t in roots if type(t) not in PLAIN]
    seen = set(map(id, todo))
    found: list[Thing] = []
    while todo:
        thing = todo.pop()
        if isinstance(thing, Mutable) or type(thing) in TABLES:
            found.append(thing)
        for part in _parts(thing):
            if id(part) not in seen and not (ends and ends(part)):
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


def _parts(thing: Any) -> list[Any]:
    """What a thing holds itself and may change, looked for again where it has changed since."""
    own = thing.__dict__
    tables = [own[name] for name in TABLES.get(type(thing), ())]
    known: tuple[int, list[Any], list[Any]] | None = own.get("_parts")
    if known is not None and own.get("changed", 0) <= (ticks := known[0]):
        if all(map(is_, tables, known[1])) and all(
            getattr(t, "changed", 0) <= ticks for t in tables
        ):
            return known[2]
    held = (part for values in _held(thing) for part in values if type(part) not in PLAIN)
    parts = list({id(part): part for part in held}.values())
    if all_of(tables, Watched):  # others change unnoticed
        own["_parts"] = CLOCK.ticks, tables, parts
    return parts


def _held(thing: Any) -> list[Iterable[Any]]:
    """What may stand at each place of a thing."""
    if isinstance(thing, Inst):
        own = [thing.cls], *thing.attrs.values(), *thing.past.values()
        return [*own, *(thing.args.all() if thing.args is not None else ())]
    if isinstance(thing, Ext):
        return [*thing.attrs.values(), *thing.args.all()]
    if isinstance(thing, Seq):
        return [thing.elem, *(thing.items or ())]
    if isinstance(thing, Dict):
        return [thing.rest, *(e.values for found in thing.entries.values() for e in found)]
    if isinstance(thing, Cls):
        return [*thing.members.values(), thing.bases]
    if isinstance(thing, Func):
        return [*thing.attrs.values(), *thing.defaults.values()]
    if isinstance(thing, Partial):
        return [thing.func, *thing.args.all()]
    if isinstance(thing, Bound):
        return [[thing.func, thing.this]]
    return [[thing.this]] if isinstance(thing, Method) else []
