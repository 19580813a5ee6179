"""Changes of what the reader knows: a clock ticks whenever a thing changes."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterable
from typing import Any

from autofast.model.several import grouped

Note = tuple[dict[Any, Any], Any, Any]  # a table, a name or key, and what stood there

_serial = itertools.count(1)
_STEADY: dict[str, int] = {}
_pool: dict[Any, Any] = {}


class Pooled(type):
    """Makes classes whose equal objects are one object as long as a script is read."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if kwargs:
            made = super().__call__(*args, **kwargs)
            return _pool.setdefault(made, made)
        key = (cls, args, *map(type, args))  # 1 is not True
        found = _pool.get(key)
        if found is None:
            made = super().__call__(*args)
            found = _pool[key] = _pool.setdefault(made, made)
        return found


def remembered(key: Any) -> Any:
    """What was kept under ``key`` while this script is read; None where there is nothing."""
    return _pool.get(key)


def remember(key: Any, found: Any) -> Any:
    """Keep what follows from values that are one object each, until the next script is read."""
    _pool[key] = found
    return found


def steady(text: str) -> int:
    """A hash of a string that is the same in every run, as is then the order of sets."""
    found = _STEADY.get(text)
    if found is None:
        found = _STEADY[text] = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return found


def restart() -> None:
    """Number the things of the next script from 1 again: two readings agree in every order."""
    global _serial
    _serial = itertools.count(1)
    _pool.clear()
    CLOCK.open = 0
    CLOCK.clear()


class Numbered:
    """Things that are what they are by identity. Their hash is a serial number, so sets of them
    have one order in every run.
    """

    __slots__ = ()
    serial = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "serial", next(_serial))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {hash(self)}>"

    def __hash__(self) -> int:
        return self.serial


_ABSENT = object()  # what stood under a name or key that was not there


class Clock:
    """Ticks whenever something that the reader knows changes: between two equal times nothing has.

    What changes is an object, which notes the time, or a variable; ``epoch`` counts changes that
    may concern anything. ``notes`` holds what was there before each change (the table it stands in,
    name or key, value), as long as somebody asks (``open``).
    """

    def __init__(self) -> None:
        self.ticks = self.epoch = self.open = 0
        self.notes: list[Note] = []
        self._cleared = 0  # how many notes there were before these

    def tick(self, table: dict[Any, Any], key: Any) -> int:
        """What stands in ``table`` under ``key`` is about to change."""
        self.ticks += 1
        if self.open:
            self.notes.append((table, key, table.get(key, _ABSENT)))
        return self.ticks

    def shake(self) -> None:
        """Anything may be otherwise from now on."""
        self.ticks += 1
        self.epoch += 1

    @property
    def now(self) -> int:
        """The number of the next note, to be given to :meth:`is_as_before`."""
        return self._cleared + len(self.notes)

    def clear(self) -> None:
        """Nobody asks any more; what changes from now on is not noted."""
        self._cleared += len(self.notes) + 1
        self.notes.clear()

    def is_as_before(
        self, epoch: int, since: int, most: int, tables: Iterable[int] | None = None
    ) -> bool:
        """Whether all that has changed since is what it was again: a flag that is set and set back,
        a dict that is filled anew. Only ``tables`` count, where they are given, by their ids. Where
        it was not noted, or more than ``most`` times, it is taken that something has changed.
        """
        if epoch != self.epoch or since < self._cleared or self.now - since > most:
            return False
        first: dict[tuple[int, Any], tuple[dict[Any, Any], Any, Any]] = {}
        made = set()  # tables that took the place of others
        for note in self.notes[since - self._cleared :]:
            if first.setdefault((id(note[0]), note[1]), note) is not note:
                made.add(id(note[2]))
        asked = list(first.values()) if tables is None else _those_in(first.values(), tables)
        made.update(id(table.get(key)) for table, key, _ in asked)
        made.difference_update(id(old) for _, _, old in asked)
        return all(
            same(old, table.get(key, _ABSENT)) for table, key, old in asked if id(table) not in made
        )


def _those_in(notes: Iterable[Note], tables: Iterable[int]) -> list[Note]:
    """The notes on some tables, and on those that stood in their places first."""
    of = grouped((id(note[0]), note) for note in notes)
    todo, found = [t for t in tables if t in of], list[Note]()
    while todo:
        mine = of.pop(todo.pop(), ())
        found += mine
        todo += [id(old) for _, _, old in mine if id(old) in of]
    return found


CLOCK = Clock()


class Watched(dict[Any, Any]):
    """What an object holds under names or keys; a change of it is a tick of the clock."""

    __slots__ = ("changed",)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not same(self.get(key, ...), value):
            self.changed = CLOCK.tick(self, key)
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        self.changed = CLOCK.tick(self, key)
        dict.__delitem__(self, key)

    def update(self, *others: Any, **named: Any) -> None:
        for key, value in dict(*others, **named).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


def same(old: Any, new: Any) -> bool:
    """Whether a value says what the one before said; what has parts (``alike``), by them."""
    if old is new:
        return True
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(same(old[k], v) for k, v in new.items())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(same(a, b) for a, b in zip(old, new, strict=True))
    if type(old) is not type(new):
        return False
    alike = getattr(old, "alike", None)
    return alike(new) if alike is not None else bool(old == new)


class Mutable(Numbered):
    """Things that change while the script is followed."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is dict:
            value = Watched(value)
        own = self.__dict__
        if not same(own.get(name, value), value):
            own["changed"] = CLOCK.tick(own, name)
        object.__setattr__(self, name, value)

    def touch(self) -> None:
        self.__dict__["changed"] = CLOCK.tick(self.__dict__, "changed")
