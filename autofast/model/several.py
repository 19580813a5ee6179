"""Small questions about several things, of whatever sort."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Container, Iterable
from typing import Any, TypeVar

K = TypeVar("K")
T = TypeVar("T")
D = TypeVar("D")
Kinds = type | tuple[type, ...]  # as isinstance takes them


def wordset(words: str, prefix: str = "") -> frozenset[str]:
    """The words of a text, each once, behind a prefix: ``torch.``."""
    return frozenset(prefix + word for word in words.split())


def one(found: Collection[T], otherwise: D = None) -> T | D:  # type: ignore[assignment]
    """The single thing among those, if there is just one."""
    return next(iter(found)) if len(found) == 1 else otherwise


def any_of(found: Iterable[object], *kinds: Kinds) -> bool:
    """Whether one of them is of these kinds."""
    for one in found:
        if isinstance(one, kinds):
            return True
    return False


def all_of(found: Iterable[object], *kinds: Kinds) -> bool:
    """Whether all are of these kinds, if there are any."""
    return all(isinstance(one, kinds) for one in found)


def any_in(found: Iterable[object], among: Container[Any]) -> bool:
    """Whether one of them is among those."""
    return any(one in among for one in found)


def all_known(found: Iterable[T | None]) -> list[T]:
    """All of them; none at all where one is None."""
    known: list[T] = []
    for one in found:
        if one is None:
            return []
        known.append(one)
    return known


def grouped(found: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """What belongs to each key, in the order in which it comes; to a key that never came, none."""
    groups: dict[K, list[T]] = defaultdict(list)
    for key, one in found:
        groups[key].append(one)
    return groups


def surely(answers: Iterable[object]) -> bool:
    """Whether there are answers, and all are yes."""
    some = False
    for answer in answers:
        if not answer:
            return False
        some = True
    return some


def of_kind(found: Iterable[object], kind: type[T] | tuple[type[T], ...]) -> list[T]:
    """Those of one kind."""
    return [one for one in found if isinstance(one, kind)]


def first_such(found: Iterable[object], kind: type[T] | tuple[type[T], ...]) -> T | None:
    """The first of one kind."""
    return next((one for one in found if isinstance(one, kind)), None)


def certainly(found: Collection[object], *kinds: Kinds) -> bool:
    """Whether there are some, and all of these kinds."""
    return bool(found) and all_of(found, *kinds)


def not_none(found: Iterable[T | None]) -> list[T]:
    """Those that are not None."""
    return [one for one in found if one is not None]


def is_numeric(value: object) -> bool:
    """Whether a value is a number, and no truth value."""
    return type(value) in (int, float)


def are_whole(values: Iterable[object]) -> bool:
    """Whether all values are whole numbers."""
    return all(type(value) is int for value in values)
