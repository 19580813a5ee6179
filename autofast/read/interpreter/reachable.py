"""Which things can be reached from others, and whether one of them has changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from autofast.model.changes import Watched
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


def changed_since(roots: Iterable[Thing], ticks: int, most: int) -> bool:
    """Whether a thing among ``roots``, or that can be reached from them, has changed; also where these are more than ``most``."""
    todo: list[Any] = [t for t in roots if type(t) not in PLAIN]
    seen = set(map(id, todo))
    while todo:
        thing = todo.pop()
        parts: list[Any] = []
        for held in _held(thing):
            if isinstance(held, Watched):
                if getattr(held, "changed", 0) > ticks:
                    return True
                for value in held.values():
                    parts.extend(value if isinstance(value, frozenset) else _of_entries(value))
            else:
                parts.extend(held)
        if thing.__dict__.get("changed", 0) > ticks:
            return True
        for part in parts:
            if type(part) not in PLAIN and id(part) not in seen:
                seen.add(id(part))
                todo.append(part)
        if len(seen) > most:
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
