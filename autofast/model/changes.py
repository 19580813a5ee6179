"""Changes of what the reader knows: things are what they are by identity, and a clock ticks whenever one of them changes."""

from __future__ import annotations

import itertools
import zlib
from typing import Any

_serial = itertools.count(1)
_STEADY: dict[str, int] = {}


def steady(text: str) -> int:
    """A hash of a string that is the same in every run, so that sets of things have one order in every run."""
    found = _STEADY.get(text)
    if found is None:
        found = _STEADY[text] = zlib.crc32(text.encode("utf-8", "surrogatepass"))
    return found


def restart() -> None:
    """Number the things of the next script from 1 again, so that two readings of one script agree in every order."""
    global _serial
    _serial = itertools.count(1)


class Numbered:
    """Things that are what they are by identity. Their hash is a serial number, so sets of them have one order in every run."""

    __slots__ = ()
    serial = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "serial", next(_serial))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {hash(self)}>"

    def __hash__(self) -> int:
        return self.serial


class Clock:
    """Ticks whenever something that the reader knows changes: between two equal times nothing has.

    What changes is an object, which notes the time (:func:`changed_at`), or a variable; ``epoch`` counts changes that may concern anything.
    """

    def __init__(self) -> None:
        self.ticks = 0
        self.epoch = 0

    def tick(self) -> int:
        self.ticks += 1
        return self.ticks

    def shake(self) -> None:
        """Anything may be otherwise from now on."""
        self.ticks += 1
        self.epoch += 1


CLOCK = Clock()


class Watched(dict[Any, Any]):
    """What an object holds under names or keys; a change of it is a tick of the clock."""

    __slots__ = ("changed",)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not same(self.get(key, ...), value):
            self.changed = CLOCK.tick()
        dict.__setitem__(self, key, value)

    def __delitem__(self, key: Any) -> None:
        self.changed = CLOCK.tick()
        dict.__delitem__(self, key)

    def update(self, *others: Any, **named: Any) -> None:
        for key, value in dict(*others, **named).items():
            self[key] = value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


def same(old: Any, new: Any) -> bool:
    """Whether a value says what the one before said; what has parts (``alike``) is compared by them."""
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
        if not same(self.__dict__.get(name, value), value):
            self.touch()
        object.__setattr__(self, name, value)

    def touch(self) -> None:
        """It has changed."""
        self.__dict__["changed"] = CLOCK.tick()
