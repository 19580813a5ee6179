"""Lists, tuples, sets and dicts."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from autofast.model.changes import Mutable
from autofast.model.values.simple import Unknown
from autofast.model.values.thing import NOTHING, Row, Thing, Values


@dataclass(eq=False, repr=False)
class Seq(Mutable, Thing):
    """A list, tuple or set: ``items`` where they are known one by one; ``elem`` may stand at any
    place, and after them.
    """

    node: ast.AST | None
    items: Row | None
    elem: Values = NOTHING
    kind: str = "list"
    made: tuple[Any, ...] = ()
    names: tuple[str, ...] = ()  # of a named tuple
    head: Row = ()  # what stands first in a tuple of which no more is known

    @property
    def exact(self) -> Row | None:
        """The elements one by one, where there are certainly no others."""
        return None if self.elem else self.items

    def any(self) -> Values:
        """What an element may be."""
        return self.elem.union(*self.items) if self.items else self.elem


@dataclass(eq=False)
class Entry:
    """One value that a dict may hold under a key, and where it is written."""

    values: Values
    expr: ast.expr | None  # the value's expression
    home: ast.AST | None  # the dict display, dict() call or assignment that holds it
    sure: bool  # False where it is set under a condition

    def alike(self, other: Entry) -> bool:
        """Whether another entry says the same."""
        mine, others = (self.values, self.sure), (other.values, other.sure)
        return mine == others and self.expr is other.expr and self.home is other.home


@dataclass(eq=False, repr=False)
class Dict(Mutable, Thing):
    """A dict with string (or constant) keys; ``rest`` are all values under keys that are not known
    (one may be Unknown: then anything is).
    """

    node: ast.AST | None
    entries: dict[Any, list[Entry]] = field(default_factory=dict)
    rest: Values = NOTHING
    open: str = ""  # why there may be keys that are not known
    made: tuple[Any, ...] = ()
    removed: frozenset[Any] = frozenset()  # keys that are taken out of it, or of what it is made of

    def get(self, key: Any) -> Values:
        found: Values = NOTHING
        for entry in self.entries.get(key, ()):
            found |= entry.values
        return found | self.rest

    def holds(self, key: Any) -> bool:
        """Whether there is certainly a value under ``key``."""
        return any(entry.sure for entry in self.entries.get(key, ()))

    def widen(self, why: str) -> None:
        """Anything may have been set."""
        self.open = self.open or why
        self.rest |= {Unknown(why)}

    def any(self) -> Values:
        found = self.rest
        for entries in self.entries.values():
            for entry in entries:
                found |= entry.values
        return found


COLLECTIONS = (Seq, Dict)


def are_parameters(thing: object) -> TypeGuard[Seq]:
    """What ``model.parameters()`` gives."""
    return isinstance(thing, Seq) and thing.kind == "parameters"
