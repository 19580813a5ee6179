"""Summaries of calls: what a call gave the last time is looked up again instead of being interpreted again.

A call that changed nothing (all that it sets was set already) gives the same again as long as nothing has changed: no object
(:data:`CLOCK`), and no variable around the function that it read. Then only its events happen once more, with the frames that are
around them this time. Loops that are followed until they come to rest would else follow each call in them over and over.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from autofast.model.events import Frame, LoopFrame, way_of
from autofast.model.values import CLOCK, Arguments, Env, Func, Thing, Values


@dataclass
class Event:
    """Something that happened in a call: with the frames below the call's, or with all (``whole``)."""

    kind: str
    node: Any
    frames: tuple[Frame, ...]
    whole: bool
    this: Thing | None
    args: Arguments | None
    result: Values
    grad: str
    data: dict[str, Any]


@dataclass
class Summary:
    """What one call gave."""

    ticks: int
    result: Values
    events: list[Event]
    reads: list[tuple[Env, str, Values | None]]
    ways: tuple[Hashable, ...] | None  # the frames around it, where it made objects
    turns: tuple[int, ...] | None  # the passes of the loops around it, where it made dicts

    def holds(self) -> bool:
        """Whether nothing it rests on has changed since."""
        if self.ticks != CLOCK.ticks:
            return False
        return all(_unchanged(env.vars.get(name), found) for env, name, found in self.reads)


def _unchanged(now: Values | None, then: Values | None) -> bool:
    return now is then or now == then


class Summaries:
    """The summaries of one run, and what the calls that are being followed have done so far."""

    def __init__(self) -> None:
        self.known: dict[Hashable, Summary] = {}
        self.events: list[tuple[Any, ...]] = []
        self.reads: list[tuple[Env, str, Values | None]] = []
        self.calls = 0  # how many were begun
        self.open = 0  # how many are being followed
        self.objects = self.dicts = self.unsure = 0

    def read(self, env: Env, name: str, found: Values | None) -> None:
        """A variable of another scope is read (``found`` is None: it has no value there)."""
        if self.open:
            self.reads.append((env, name, found))

    def event(self, *event: Any) -> None:
        if self.open:
            self.events.append(event)

    def interned(self, is_dict: bool) -> None:
        """An object is made, or found again, by its place and the way there."""
        self.objects += 1
        self.dicts += is_dict

    def find(self, key: Hashable, stack: list[Frame]) -> Summary | None:
        found = self.known.get(key)
        if found is None or not found.holds():
            return None
        if found.ways is not None and found.ways != _ways(stack):
            return None
        if found.turns is not None and found.turns != _turns(stack):
            return None
        return found

    def replay(self, found: Summary, stack: list[Frame], emit: Callable[..., None]) -> int:
        """The events of a call happen once more; returns how many."""
        before = tuple(stack)
        for e in found.events:
            emit(
                e.kind, e.node, e.frames if e.whole else before + e.frames, e.this, e.args, e.result, e.grad, e.data
            )  # fmt: skip
        if self.open:
            self.reads += found.reads
        self.objects += found.ways is not None
        self.dicts += found.turns is not None
        return len(found.events)

    def begin(self) -> tuple[int, ...]:
        self.calls += 1
        self.open += 1
        marks = (len(self.events), len(self.reads), self.objects, self.dicts, self.unsure)
        return (self.calls, CLOCK.ticks, *marks)

    def end(
        self, began: tuple[int, ...], key: Hashable, stack: list[Frame], result: Values | None
    ) -> None:
        """A call ends: kept where it changed nothing; ``result`` is None where it was not followed to its end.

        ``stack`` holds the frames of the call and those around it.
        """
        number, ticks, events, reads, objects, dicts, unsure = began
        self.open -= 1
        if result is not None and ticks == CLOCK.ticks and unsure == self.unsure:
            read = {
                (id(env), name): (env, name, found)
                for env, name, found in self.reads[reads:]
                if env.born < number
            }
            ways = _ways(stack) if objects != self.objects else None
            turns = _turns(stack) if dicts != self.dicts else None
            happened = [_event(e, stack) for e in self.events[events:]]
            self.known[key] = Summary(ticks, result, happened, list(read.values()), ways, turns)
        if not self.open:
            self.events.clear()
            self.reads.clear()


def _event(event: tuple[Any, ...], stack: list[Frame]) -> Event:
    kind, node, frames, *rest = event
    n = len(stack)
    whole = len(frames) < n or (n > 0 and frames[n - 1] is not stack[n - 1])
    return Event(kind, node, frames if whole else frames[n:], whole, *rest)


def _ways(stack: list[Frame]) -> tuple[Hashable, ...]:
    return tuple(map(way_of, stack))


def _turns(stack: list[Frame]) -> tuple[int, ...]:
    return tuple(f.turn for f in stack if isinstance(f, LoopFrame))


def key_of(
    func: Func, args: Arguments, this: Thing | None, grad: str, around: tuple[Hashable, ...]
) -> Hashable:
    """What a call depends on, but for what may change: the function, its arguments by what they may be, the modes around it."""
    positional = tuple((g.values, g.sure) for g in args.positional)
    named = tuple((name, g.values, g.sure) for name, g in args.named.items())
    return (func, this, positional, named, args.open, args.loose, grad, around)
