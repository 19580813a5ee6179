"""Summaries of calls: what a call gave the last time is looked up again instead of being
interpreted again.

A call that leaves all as it was (what it sets was set already, or is set back) gives the same again
as long as nothing has changed: no object among those it can come to (:data:`CLOCK`), and no
variable around the function that it read. Then only its events happen once more, with the frames
that are around them this time. Loops that are followed until they come to rest would else follow
each call in them over and over.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

from autofast.model.changes import CLOCK
from autofast.model.events import CallFrame, Frame, LoopFrame
from autofast.model.limits import MOST_EVENTS, MOST_SEARCHED, OFTEN, SEARCHED_PER_STEP, WORK
from autofast.model.source import ByNode
from autofast.model.values import Arguments, Env, Func, Thing, Values
from autofast.read.state.reachable import changed_since, reached, tables_of

# A variable of another scope, what it held, and the number of the call whose scope that was then.
Read = tuple[Env, str, "Values | None", int]


@dataclass(slots=True)
class Event:
    """Something that happened in a call: with the frames below the call's, or with all
    (``whole``).
    """

    kind: str
    node: Any
    frames: tuple[Frame, ...]
    whole: bool
    this: Thing | None
    args: Arguments
    result: Values
    grad: str
    data: dict[str, Any]


@dataclass
class Summary:
    """What one call gave."""

    ticks: int
    since: int  # the number of the first change afterwards
    result: Values
    events: list[Event]
    reads: list[Read]
    epoch: int
    roots: list[Thing]  # the things it was given, found and made
    made: list[Thing]
    # Functions that were not entered once more, as they were being followed already.
    recursions: frozenset[ast.AST]
    in_turns: bool  # it made dicts, which are others in the first pass of a loop
    most: int  # that is looked through before it is followed again
    reached: list[Thing] | None = None  # from the roots
    # The largest ``most`` that was too few, for this call or the one before it: not tried again.
    too_few: int = 0

    def holds(self) -> bool:
        """Whether nothing it rests on has changed since."""
        if not all(_unchanged(env.held(name), found) for env, name, found, _ in self.reads):
            return False
        if self.ticks != CLOCK.ticks:
            if self.epoch != CLOCK.epoch or self.most <= self.too_few:
                return False
            if self.reached is None:
                self.reached = reached(self.roots, self.most)
            if self.reached is None:
                self.too_few = self.most
                return False
            # An object may have been made anew at its place, and be what it was by now.
            if changed_since(self.reached, self.ticks) and not CLOCK.is_as_before(
                self.epoch, self.since, self.most, tables_of(self.reached)
            ):
                return False
            self.ticks, self.since = CLOCK.ticks, CLOCK.now
        return True


def _unchanged(now: Values | None, then: Values | None) -> bool:
    return now is then or now == then


class Summaries:
    """The summaries of one run, and what the calls that are being followed have done so far."""

    def __init__(self) -> None:
        self.known: dict[Hashable, dict[tuple[Hashable, Hashable], Summary]] = {}
        self.events: list[tuple[Any, ...]] = []
        self.reads: list[Read] = []
        self.followed: ByNode[int] = {}  # how often each function was
        self.calls = 0  # how many were begun
        self.open = 0  # how many are being followed
        self.made: list[Thing] = []  # objects that were made, or found again, by their place
        self.recursions: list[ast.AST] = []
        self.dicts = self.unsure = 0

    def context(self, stack: list[Frame]) -> tuple[ast.AST, ...]:
        """The last calls on the way to a place: fewer for a function that has been followed often,
        as its objects would be too many.
        """
        found: list[ast.AST] = []
        most = 4
        for frame in reversed(stack):
            if isinstance(frame, CallFrame):
                if not found and self.followed.get(frame.func.node, 0) > OFTEN:
                    most = 1
                found.append(frame.node)
                if len(found) == most:
                    break
        return tuple(reversed(found))

    def read(self, env: Env, name: str, found: Values | None) -> None:
        """A variable of another scope is read (``found`` is None: it has no value there)."""
        if self.open:
            self.reads.append((env, name, found, env.born))

    def event(self, *event: Any) -> None:
        if self.open:
            self.events.append(event)

    def interned(self, thing: Thing, is_dict: bool) -> None:
        """An object is made, or found again, by its place and the way there."""
        if self.open:
            self.made.append(thing)
            self.dicts += is_dict

    def find(
        self, func: Func, key: Hashable, stack: list[Frame], active: list[ast.AST]
    ) -> Summary | None:
        several = self.known.get(key)
        if several is None:
            return None
        often = self.followed.get(func.node, 0) > OFTEN
        ways = self.way_there(stack)
        for place in ((None, None), (ways, None), (ways, _turns(stack))):
            found = several.get(place)
            if found is not None and (often or found.recursions.issubset(active)) and found.holds():
                return found
        return None

    def way_there(self, stack: list[Frame]) -> tuple[Hashable, ...]:
        """What tells objects apart that are made at one place: the last calls on the way there, and
        the turns of unrolled loops.
        """
        return (
            *self.context(stack),
            *(f.turn for f in stack if isinstance(f, LoopFrame) and f.unrolled),
        )

    def replay(self, found: Summary, stack: list[Frame], emit: Callable[..., None]) -> int:
        """The events of a call happen once more; returns how many."""
        before = tuple(stack)
        events = found.events
        stacks: dict[int, tuple[Frame, ...]] = {}  # those of the events, which share theirs
        # Functions that call each other: one way to each place in them.
        if len(events) > MOST_EVENTS:
            events = list({(e.kind, id(e.node), e.this): e for e in events}.values())
        for e in events:
            around = e.frames
            if not e.whole:
                known = stacks.get(id(around))
                around = stacks[id(around)] = before + around if known is None else known
            emit(e.kind, e.node, around, e.this, e.args, e.result, e.grad, e.data)
        if self.open:
            self.reads += [(env, name, held, env.born) for env, name, held, _ in found.reads]
            self.made += found.made
            self.recursions += found.recursions
        self.dicts += found.in_turns
        return len(events)

    def begin(self, func: Func) -> tuple[int, ...]:
        CLOCK.open += 1
        self.followed[func.node] = self.followed.get(func.node, 0) + 1
        self.calls += 1
        self.open += 1
        marks = (
            len(self.events),
            len(self.reads),
            len(self.made),
            len(self.recursions),
            self.dicts,
            self.unsure,
        )
        return (self.calls, WORK.done, CLOCK.ticks, CLOCK.epoch, CLOCK.now, *marks)

    def end(
        self,
        began: tuple[int, ...],
        key: Hashable,
        stack: list[Frame],
        given: Arguments,
        func: Func,
        this: Thing | None,
        result: Values | None,
    ) -> None:
        """A call ends: kept where it changed nothing; ``result`` is None where it was not followed
        to its end.

        ``stack`` holds the frames of the call and those around it, ``this`` is the object ``func``
        belongs to.
        """
        number, done, ticks, epoch, since, events, reads, made, recursions, dicts, unsure = began
        self.open -= 1
        CLOCK.open -= 1
        most = max(MOST_SEARCHED, SEARCHED_PER_STEP * (WORK.done - done))
        if (
            result is not None
            and unsure == self.unsure
            and (ticks == CLOCK.ticks or CLOCK.is_as_before(epoch, since, most))
        ):
            read: dict[Hashable, Read] = {}
            for one in self.reads[reads:]:
                if one[3] < number:  # as it was first, before the call may have set it
                    read.setdefault((id(one[0]), one[1]), one)
            mine = list({id(t): t for t in self.made[made:]}.values())
            ways = self.way_there(stack) if mine else None
            turns = _turns(stack) if dicts != self.dicts else None
            happened = _happened(self.events[events:], stack)
            roots = [
                *(t for found in (*given.all(), result) for t in found),
                *(t for _, _, found, _ in read.values() for t in found or ()),
                *mine,
                func,
                *([] if this is None else [this]),
            ]
            again = frozenset(self.recursions[recursions:]) - {func.node}
            seen = (result, happened, list(read.values()), CLOCK.epoch, roots, mine, again)
            summary = Summary(CLOCK.ticks, CLOCK.now, *seen, turns is not None, most)
            several = self.known.setdefault(key, {})
            if (old := several.get((ways, turns))) is not None:
                summary.too_few = old.too_few
            several[ways, turns] = summary
        if not self.open:
            CLOCK.clear()
            self.events.clear()
            self.reads.clear()
            self.made.clear()
            self.recursions.clear()


def _happened(events: list[tuple[Any, ...]], stack: list[Frame]) -> list[Event]:
    """What happened in a call, with the frames below its own where these are around it."""
    n = len(stack)
    below: dict[int, tuple[tuple[Frame, ...], bool]] = {}  # by their stack, which many share
    found = []
    for kind, node, frames, this, args, result, grad, data in events:
        known = below.get(id(frames))
        if known is None:
            whole = len(frames) < n or (n > 0 and frames[n - 1] is not stack[n - 1])
            known = below[id(frames)] = (frames if whole else frames[n:], whole)
        found.append(Event(kind, node, *known, this, args, result, grad, data))
    return found


def _turns(stack: list[Frame]) -> tuple[int, ...]:
    return tuple(f.turn for f in stack if isinstance(f, LoopFrame))


def key_of(
    func: Func, args: Arguments, this: Thing | None, grad: str, around: tuple[Hashable, ...]
) -> Hashable:
    """What a call depends on, but for what may change: the function, its arguments by what they may
    be, the modes around it.
    """
    positional = tuple((g.values, g.sure) for g in args.positional)
    named = tuple((name, g.values, g.sure) for name, g in args.named.items())
    return (func, this, positional, named, args.open, args.loose, grad, around)
