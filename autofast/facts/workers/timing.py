"""When code runs, as seen from a loader: after it was made, after its workers have started, or
while an iterator of it is in use.
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from autofast.facts.loaders import lightning_hooks, trainer_fits
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.effects import Write
from autofast.flow.program import Flow
from autofast.model.events import CallFrame, LoopFrame
from autofast.model.kinds import ways_made
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import ancestors, function_of, is_generator, parent_of
from autofast.model.syntax import FUNCTIONS, LOOPS
from autofast.model.values import Inst, Ref, Thing

CONTAINERS = frozenset(
    Ref(n)
    for n in "builtins.list builtins.dict builtins.set collections.OrderedDict collections.deque".split()
)
STARTS = (CallFrame, LoopFrame)  # the frames of a stack that tell where a place begins to run
EARLY = wordset("""__init__ __post_init__ __init_subclass__ setup prepare_data configure_optimizers
    train_dataloader val_dataloader test_dataloader predict_dataloader""")


def made(loader: Loader) -> list[list[ast.AST]]:
    """The ways on which the loader is made: the calls and loops, and the place itself."""
    return [way_made(t, loader.node) for t in loader.things]


def way_made(thing: Thing, node: ast.AST) -> list[ast.AST]:
    """The calls and loops on the way to the place where a thing is made, and the place."""
    return [*(f.node for f in ways_made(thing) if isinstance(f, STARTS)), node]


class Time:
    """When a place runs, as seen from a loader."""

    def __init__(self, script: Script, loader: Loader, skip: Callable[[ast.AST], bool]):
        self.script, self.loader, self.skip = script, loader, skip
        self.flow, self.graph = script.analysis(Flow), script.analysis(CallGraph)
        self.ways: list[list[ast.AST]] = [
            [*(f.node for f in use.stack if isinstance(f, STARTS)), use.node] for use in loader.uses
        ]
        if not self.ways and lightning_hooks(script, loader):
            self.ways = [
                [*(f.node for f in stack if isinstance(f, STARTS)), node]
                for node, stack in trainer_fits(script)
            ]
        if not self.ways:
            self.ways = made(loader)
        self.open = not loader.uses or any(
            u.is_next or is_generator(function_of(u.node)) for u in loader.uses
        )
        self.known: dict[tuple[ast.AST, bool], bool] = {}

    @classmethod
    def since_made(cls, script: Script, loader: Loader, skip: Callable[[ast.AST], bool]) -> Time:
        """The same with the loader's own construction as the beginning: for :meth:`after`."""
        time = cls(script, loader, skip)
        time.ways = made(loader)
        return time

    @classmethod
    def since_built(
        cls, script: Script, loader: Loader, skip: Callable[[ast.AST], bool], data: Thing
    ) -> Time:
        """The same with the construction of what the loader reads."""
        time = cls.since_made(script, loader, skip)
        if isinstance(data, Inst) and data.node is not None:
            time.ways = [way_made(data, data.node)]
        return time

    def after(self, node: ast.AST) -> bool:
        """Whether it may run after workers have been started for the first time."""
        return self.runs(node, False)

    def is_read_after(self, node: ast.AST) -> bool:
        """Whether the loader may be gone through after ``node`` has run."""
        uses = [
            [f.node for f in u.stack if isinstance(f, STARTS)] + [u.node] for u in self.loader.uses
        ]
        beside = [n for way in uses for n in way if _scope_of_place(n) is function_of(node)]
        return not beside or any(self.flow.graph(node).may_follow(n, node) for n in beside)

    def within(self, node: ast.AST) -> bool:
        """Whether it may run while an iterator of the loader is in use."""
        return self.runs(node, not self.open)

    def runs(self, node: ast.AST, within: bool) -> bool:
        function = function_of(node)
        key = (node, within)
        if key in self.known:
            return self.known[key]
        self.known[key] = False
        found = self.known[key] = self.look(node, function, within)
        return found

    def look(self, node: ast.AST, function: ast.AST, within: bool) -> bool:
        on_the_way = [
            n for way in self.ways for n in way if n is function or _scope_of_place(n) is function
        ]
        if within:
            uses = [u.node for u in self.loader.uses if _scope_of_place(u.node) is function]
            if any(_in_body(node, use) for use in uses):
                return True
            if on_the_way:
                return False
        elif on_the_way:
            return any(self.follows(node, place) for place in on_the_way)
        return isinstance(function, FUNCTIONS) and self.called(function, within)

    def of_new(self, change: Write) -> bool:
        """It changes a list or dict that the same call of a function has made: what workers have is
        older.
        """
        function = function_of(change.node)
        if not isinstance(change.base, ast.Name) or not isinstance(function, ast.FunctionDef):
            return False
        started = {n for way in self.ways for n in way}
        if is_generator(function) or function in started | set(map(_scope_of_place, started)):
            return False
        return all(
            function_of(d.node) is function and self._makes(d.value)
            for d in self.flow.reaching(change.base)
        )

    def _makes(self, value: ast.AST | None) -> bool:
        if isinstance(value, ast.Call):
            return self.script.called(value) <= CONTAINERS != frozenset()
        return isinstance(value, (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp))

    def follows(self, node: ast.AST, place: ast.AST) -> bool:
        """Whether, in one function, ``node`` may run after ``place`` has begun."""
        graph = self.flow.graph(node)
        begin = graph.place(place)
        return begin is None or graph.place(node) is begin or graph.may_follow(node, place)

    def called(self, function: Function, within: bool) -> bool:
        """Whether a call of the function may run then."""
        if self.graph.handed(function) is not None:
            return True
        calls: list[ast.expr] = [*self.graph.sites(function)]
        if not calls:
            if getattr(function, "name", "") in EARLY:
                return False
            if self.script.reached(function):
                return True
            calls = self.graph.unknown_calls(function) if self.script.unread else []
        return any(self.runs(call, within) for call in calls if not self.skip(call))


def _scope_of_place(node: ast.AST) -> ast.AST:
    return function_of(node) if parent_of(node) is not None else node


def _in_body(node: ast.AST, loop: ast.AST) -> bool:
    parts: list[ast.AST] = [*loop.body] if isinstance(loop, LOOPS) else [loop]
    around = {node, *ancestors(node)}
    return any_in(parts, around)
