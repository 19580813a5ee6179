"""A piece of code with all that runs in it, also in the functions that it calls."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.model.events import CallFrame, Log, Occurrence, Site, Stack, Way, way_of
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import function_of, walk
from autofast.model.syntax import PAUSES


class Region:
    """Statements of one block, or the body of a function; ``scope`` is the function (or module)
    whose code they are.
    """

    def __init__(self, log: Log, node: ast.AST, statements: Iterable[ast.stmt], whole: bool):
        self.node, self.statements, self.whole = node, list(statements), whole
        self.inner = {n for s in self.statements for n in walk(s)}
        self.scope = node if whole else function_of(node)
        # Where models that run here were read for the first time.
        self.repeated: dict[Way, None] = {}
        self._below: dict[Stack, Stack] = {}
        self._calls: dict[CallFrame, None] | None = None
        todo = [
            (o.stack, first)
            for site in log.of("forward_again")
            for o in site
            for first in o.data["firsts"]
        ]
        while now := [first for stack, first in todo if self.reaches(stack)]:
            self.repeated.update(dict.fromkeys(now))
            self._below.clear()
            todo = [(stack, first) for stack, first in todo if first not in self.repeated]

    @property
    def yields(self) -> bool:
        return any(isinstance(n, PAUSES) for n in self.nodes())

    def holds(self, node: ast.AST) -> bool:
        return node in self.inner

    def nodes(self) -> Iterator[ast.AST]:
        """What it holds, in an order that is the same in every run."""
        return (node for statement in self.statements for node in walk(statement))

    def meets(self, site: Site, occurrence: Occurrence) -> bool:
        """Whether this happens in the region, or in something that is called there."""
        return site.node in self.inner or self.reaches(occurrence.stack)

    def reaches(self, stack: Stack) -> bool:
        return bool(self.below(stack))

    def below(self, stack: Stack) -> Stack:
        """The frames from the first one on that stands in the region."""
        found = self._below.get(stack)
        if found is None:
            found = self._below[stack] = self._look_below(stack)
        return found

    def _look_below(self, stack: Stack) -> Stack:
        for i, frame in enumerate(stack):
            if frame.node in self.inner:
                return stack[i:]
        if self.repeated:
            way = way_of(stack)
            for i in range(len(way)):
                if way[: i + 1] in self.repeated:
                    return stack[i:]
        return ()

    def calls(self, script: Script) -> Iterable[CallFrame]:
        """The calls of the project's functions that run here."""
        if self._calls is None:
            frames = (frame for stack in script.stacks for frame in self.below(stack))
            self._calls = dict.fromkeys(of_kind(frames, CallFrame))
        return self._calls

    def sites(self, script: Script, *kinds: str) -> Iterator[tuple[Site, Occurrence]]:
        for site in script.log.of(*kinds):
            for occurrence in site:
                if self.meets(site, occurrence):
                    yield site, occurrence
