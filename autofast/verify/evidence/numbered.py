"""Names of models and of what they hold, as they compare between two scripts.

The probe numbers models in the order of their first calls: in another order they are the same
models still.

A model is known by its parameters' names and shapes (a module without any by its buffers'), and by
whether it is called with gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from autofast.verify.evidence.record import Record

T = TypeVar("T")
Kind = tuple[bool, frozenset[tuple[str, tuple[int, ...]]]]


def plain(key: str) -> str:
    """A name without the prefixes of torch.compile and of wrappers for several devices."""
    return ".".join(
        part for part in key.replace("/", "/.").split(".") if part not in ("_orig_mod", "module")
    ).replace("/.", "/")


def _kinds(record: Record) -> dict[int, Kind]:
    tensors: dict[int, dict[bool, set[tuple[str, tuple[int, ...]]]]] = {}
    for key, tensor in record.model.items():
        number, _, name = plain(key).partition("/")
        if number.isdigit():
            some = tensors.setdefault(int(number), {False: set(), True: set()})
            some[tensor.buffer].add((name, tensor.shape))
    trained = {call.model for call in record.calls}
    return {n: (n in trained, frozenset(t[False] or t[True])) for n, t in sorted(tensors.items())}


def _numbers(own: dict[int, Kind], other: dict[int, Kind]) -> dict[int, int]:
    """From numbers of ``own`` to those of ``other``: equal kinds in their order, then what is
    left.
    """
    found: dict[int, int] = {}
    free = list(other)
    for number, kind in own.items():
        place = next((n for n in free if other[n] == kind), None)
        if place is not None:
            found[number] = place
            free.remove(place)
    left = [n for n in own if n not in found]
    # What keeps its number may, else what is free is given in order, then new numbers.
    for number in left:
        if number in free:
            found[number] = number
            free.remove(number)
    new = iter([*free, *range(max([*own, *other], default=0) + 1, 2 * len(own) + len(other) + 1)])
    for number in left:
        if number not in found:
            found[number] = next(new)
    return found


def aligned(record: Record, original: Record) -> Record:
    """``record`` with the numbers that its models have in ``original``."""
    numbers = _numbers(_kinds(record), _kinds(original))
    if all(old == new for old, new in numbers.items()):
        return record

    def named(key: str) -> str:
        number, slash, rest = key.partition("/")
        known = number.isdigit() and int(number) in numbers
        return f"{numbers[int(number)]}{slash}{rest}" if known else key

    def entries(some: Mapping[str, T]) -> dict[str, T]:
        return {named(key): value for key, value in some.items()}

    return replace(
        record,
        model=entries(record.model),
        start=entries(record.start),
        modules=entries(record.modules),
        dropouts=tuple(map(named, record.dropouts)),
        trainable_unused=tuple(map(named, record.trainable_unused)),
        calls=tuple(
            replace(call, model=numbers.get(call.model, call.model)) for call in record.calls
        ),
        drawn=entries(record.drawn),
        evaluations=tuple(
            replace(one, model=numbers.get(one.model, one.model)) for one in record.evaluations
        ),
    )
