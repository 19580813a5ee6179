"""What happened while the script was interpreted: events, each with the frames around it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any, TypeGuard

from autofast.model.limits import MOST_WAYS
from autofast.model.several import grouped
from autofast.model.source import ByNode, at, walk
from autofast.model.values import Arguments, Func, Given, Thing, Values, of_kind


@dataclass(frozen=True, eq=False)
class _Frame:
    node: ast.AST

    @cached_property
    def way(self) -> Hashable:
        """What tells two passes through the frame apart."""
        return self.node

    @property
    def code(self) -> ast.AST:
        """What runs in the frame."""
        return self.node

    def is_of(self, node: ast.AST) -> bool:
        """Whether it is the frame of this loop, block, call or function."""
        return node in (self.node, self.code)


@dataclass(frozen=True, eq=False)
class CallFrame(_Frame):
    """A call of a project function; ``given`` maps its parameters to the arguments at ``node``."""

    func: Func
    given: dict[str, Given]

    @property
    def code(self) -> ast.AST:
        return self.func.node


@dataclass(frozen=True, eq=False)
class LoopFrame(_Frame):
    """A loop (``for``, ``while`` or comprehension); ``over`` is what it iterates, ``loaders`` the
    loaders in that.

    ``turn`` tells passes apart: the number of the value in a loop over a few known ones, else 0 for
    the first pass and 1 for all others. ``sure``: nothing in such a loop leaves it, or a turn.
    """

    over: Values
    loaders: frozenset[Any] = frozenset()
    turn: int = 0
    unrolled: bool = False
    sure: bool = False

    @property
    def is_statement(self) -> bool:
        """A ``for`` or ``while``, and no comprehension."""
        return isinstance(self.node, (ast.For, ast.While))

    @cached_property
    def way(self) -> Hashable:
        turn = self.turn if self.unrolled else 0
        return self.node, frozenset(map(id, self.loaders)), turn


@dataclass(frozen=True, eq=False)
class BranchFrame(_Frame):
    """One arm of an ``if``; ``arm`` is the value of the test, ``known`` where that is certain in
    this way there.
    """

    arm: bool
    known: bool = False

    @cached_property
    def way(self) -> Hashable:
        return self.node, self.arm


@dataclass(frozen=True, eq=False)
class WithFrame(_Frame):
    """A ``with`` block (or a decorator that acts like one, then ``node`` is the function) and its
    contexts.
    """

    contexts: tuple[tuple[ast.expr, Values], ...]


@dataclass(frozen=True, eq=False)
class GuardFrame(_Frame):
    """Below ``if __name__ == "__main__"``: not run again when a worker process imports the
    script.
    """


@dataclass(frozen=True, eq=False)
class TryFrame(_Frame):
    """Part of a ``try``: ``body``, ``handler``, ``else`` or ``finally``."""

    part: str


Frame = CallFrame | LoopFrame | BranchFrame | WithFrame | TryFrame | GuardFrame
Stack = tuple[Frame, ...]


@dataclass(eq=False, slots=True)
class Occurrence:
    """One way that the script comes to a place; not frozen, as so many are made and that takes
    thrice as long.
    """

    stack: Stack
    order: int
    this: Thing | None
    args: Arguments  # NO_ARGUMENTS where it is no call
    result: Values
    grad: str  # on | off | inference | maybe: the gradient mode
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(eq=False)
class Site:
    """A place in the source where something of one kind happens, with every way the script comes
    there.
    """

    kind: str
    node: ast.AST
    occurrences: list[Occurrence] = field(default_factory=list)

    def __iter__(self) -> Iterator[Occurrence]:
        return iter(self.occurrences)

    @property
    def call(self) -> ast.Call | None:
        """The call that stands there; None for a decorator, a class, an item of ``with``."""
        return self.node if isinstance(self.node, ast.Call) else None

    @property
    def owners(self) -> list[Thing]:
        """What it happens to: the object whose method is called, whose attribute is set."""
        return [o.this for o in self.occurrences if o.this is not None]


Way = tuple[Hashable, ...]


_each = attrgetter("way")


def way_of(stack: Stack) -> Way:
    """What tells one way of the script to a place from others."""
    return tuple(map(_each, stack))


class Log:
    """All sites by kind. The same way to a place is kept once, as it was the last (and most
    general) time.
    """

    def __init__(self) -> None:
        self._sites: dict[tuple[str, ast.AST], Site] = {}
        self._ways: dict[tuple[str, ast.AST], dict[Hashable, int]] = {}
        # Each stack once, with the number of its way: most that happens shares one with others.
        self._stacks: dict[Stack, tuple[Stack, int]] = {}
        self._numbers: dict[Way, int] = {}
        self._count = 0
        self._kinds: dict[str, list[tuple[int, Site]]] = defaultdict(list)  # numbered as they came
        self._places: ByNode[list[tuple[int, Site]]] = defaultdict(list)  # by their node
        self._setters: tuple[int, dict[str, list[Site]]] = -1, {}  # by name, as of so many events
        self.full = ""  # a place that is reached in more ways than are kept

    def add(self, kind: str, node: ast.AST, stack: Stack, this: Thing | None,
            args: Arguments, result: Values, grad: str, data: dict[str, Any]) -> None:  # fmt: skip
        key = (kind, node)
        site = self._sites.get(key)
        if site is None:
            site, self._ways[key] = Site(kind, node), {}
            self._keep(site)
        ways = self._ways[key]
        self._count += 1
        if (known := self._stacks.get(stack)) is None:
            number = self._numbers.setdefault(way_of(stack), len(self._numbers))
            known = self._stacks[stack] = stack, number
        stack = known[0]
        way = (grad, this, known[1])
        if (place := ways.get(way)) is not None:
            old = site.occurrences[place]
            if old.result is not result:
                old.result = old.result | result
            old.stack, old.this, old.args, old.data = stack, this, args, data
        elif len(ways) < MOST_WAYS:
            ways[way] = len(site.occurrences)
            site.occurrences.append(Occurrence(stack, self._count, this, args, result, grad, data))
        else:
            self.full = self.full or f"the code on {at(node)} is reached in too many ways"

    def of(self, *kinds: str) -> list[Site]:
        """The sites of these kinds, in the order the script first came to them."""
        found = [pair for kind in dict.fromkeys(kinds) for pair in self._kinds.get(kind, ())]
        if len(kinds) > 1:
            found.sort(key=itemgetter(0))
        return [site for _, site in found]

    def each(self) -> list[tuple[tuple[str, ast.AST], Site]]:
        """Every site with its kind, in the order the script first came to them."""
        return list(self._sites.items())

    def within(self, node: ast.AST) -> list[Site]:
        """The sites in the code of ``node``, in the order the script first came to them."""
        found = [pair for n in walk(node) for pair in self._places.get(n, ())]
        return [site for _, site in sorted(found, key=itemgetter(0))]

    def _keep(self, site: Site) -> None:
        numbered = len(self._sites), site
        self._kinds[site.kind].append(numbered)
        self._places[site.node].append(numbered)
        self._sites[site.kind, site.node] = site

    @classmethod
    def holding(cls, sites: Iterable[Site]) -> Log:
        """A log of these sites, which nothing is added to."""
        log = cls()
        for site in sites:
            log._keep(site)
        return log

    def setting(self, owners: Collection[Thing], name: str) -> list[Site]:
        """The sites that set an attribute of one of these objects."""
        if self._setters[0] != self._count:
            set_there = ((o.data["name"], s) for s in self.of("set_attribute") for o in s)
            self._setters = self._count, grouped(set_there)
        named = dict.fromkeys(self._setters[1].get(name, ()))
        return [s for s in named if any(o.data["name"] == name and o.this in owners for o in s)]

    def at(self, kind: str, node: ast.AST) -> Site | None:
        return self._sites.get((kind, node))

    def ways(self, kind: str, node: ast.AST) -> list[Occurrence]:
        """Every way that the script comes to this; none where it never does."""
        site = self.at(kind, node)
        return site.occurrences if site is not None else []


def loops(stack: Stack) -> list[LoopFrame]:
    """The loops around a place, outermost first, across function calls."""
    return of_kind(stack, LoopFrame)


def inside(stack: Stack, node: ast.AST) -> bool:
    """Whether ``node`` (a loop, ``with``, function or branch) is among the frames."""
    return any(f.is_of(node) for f in stack)


def below(stack: Stack, node: ast.AST) -> Stack:
    """The frames inside the innermost frame of ``node``."""
    for i in range(len(stack) - 1, -1, -1):
        frame = stack[i]
        if frame.is_of(node):
            return stack[i + 1 :]
    return stack


def is_undecided(frame: Frame) -> TypeGuard[BranchFrame]:
    """An arm that is run or not: its condition is not known there."""
    return isinstance(frame, BranchFrame) and not frame.known


def branches(stack: Stack) -> set[tuple[ast.AST, bool]]:
    """The conditions, and their arms, that decide whether a place is reached."""
    return {(f.node, f.arm) for f in of_kind(stack, BranchFrame) if not f.known}
