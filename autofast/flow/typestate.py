"""Typestate: what is true of an object on every way through a program, as events change it, and the
ways that a protocol forbids.

A :class:`Protocol` says what each event makes of a state. :func:`follow` moves sets of states along
the graphs of all functions in which an event happens, into the functions that are called and back,
out of loops and functions by every ``continue``, ``break``, ``return``, and into each handler.
Conditions that ask the same of what is set nowhere between come out alike on one way; a condition
that the model knows is followed in that arm only. A loop's body runs at least once.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol as Interface, TypeVar

from autofast.flow.accesses import Kind, accesses, evaluated_parts
from autofast.flow.build import Builder, Ways, is_try
from autofast.flow.callgraph import CallGraph
from autofast.flow.graph import FlowGraph, Function, Node
from autofast.flow.program import Flow
from autofast.flow.scopes import own_nodes
from autofast.flow.solve import Problem, solve
from autofast.model.limits import MOST_STATES
from autofast.model.script import Script
from autofast.model.several import any_in, grouped, of_kind
from autofast.model.source import ByNode, Nodes, ancestors, at, function_of, walk
from autofast.model.syntax import DEFINITIONS, DEFS, FUNCTIONS, is_read, is_text, is_unary
from autofast.model.values import any_of


class Happening(Interface):
    """What happens at a node, or before or after a statement."""

    @property
    def node(self) -> ast.AST: ...


S = TypeVar("S", bound=Hashable)
E = TypeVar("E", bound=Happening)


class Protocol(ABC, Generic[S, E]):
    """What is right for an object, and what is not.

    Attributes:
        start: its state where the program begins.
        problems: what went wrong on some way, by kind and place: words, and the node. The engine
            adds why it could not follow: ``recursion``, ``generator``, ``many``, ``group``.
    """

    def __init__(self, start: S):
        self.start = start
        self.problems: dict[tuple[str, ast.AST], tuple[str, ast.AST]] = {}

    @abstractmethod
    def happen(self, event: E, state: S) -> Iterable[S]:
        """The states that there may be when ``event`` has happened in ``state``."""

    def leave(self, node: ast.Raise | ast.Assert, state: S) -> None:
        """The program may end here, by an exception."""

    def wrong(self, kind: str, node: ast.AST, words: str) -> None:
        """Note a problem; ``{}`` in ``words`` becomes the place."""
        self.problems.setdefault((kind, node), (words.format(f"what {at(node)} does"), node))


@dataclass(frozen=True)
class Events(Generic[E]):
    """The events of a program: at the nodes where they happen (when their operands have been
    evaluated), before and after statements.
    """

    at: Iterable[E]
    before: Iterable[E] = ()
    after: Iterable[E] = ()


@dataclass
class Followed(Generic[S]):
    """``ends`` are the states where the program, or a function that nothing calls, ends;
    ``visited`` the nodes with events.
    """

    ends: frozenset[S]
    visited: Nodes = field(default_factory=set)


def follow(
    script: Script, protocol: Protocol[S, E], events: Events[E], roots: Iterable[Function] = ()
) -> Followed[S]:
    """Go all ways through a script; ``roots`` are functions that begin ways of their own, after the
    script's end.
    """
    return _Walk(script, protocol, events).run(roots)


class _State(NamedTuple):  # not generic: Python 3.10 cannot have both
    """A state on one way. ``said``: conditions that were met on it (function, words), and how they
    came out.
    """

    state: Any
    said: frozenset[tuple[ast.AST, str, bool]] = frozenset()


class _Walk(Generic[S, E]):
    def __init__(self, script: Script, protocol: Protocol[S, E], events: Events[E]):
        self.script, self.protocol = script, protocol
        self.at, self.before, self.after = (
            _by_node(e) for e in (events.at, events.before, events.after)
        )
        self.calls = script.analysis(CallGraph)
        self.swallows = script.analysis(Flow).swallows
        self.volatile = script.analysis(_Volatile)
        self.visited: Nodes = set()
        self.active: list[ast.AST] = []
        # The states that were met in what is being followed: where an exception may leave it.
        self.met: list[set[_State]] = []
        self._graphs: ByNode[FlowGraph] = {}
        self._known: dict[tuple[ast.AST, States], tuple[States, States]] = {}
        self._sets: dict[Node, frozenset[str]] = {}
        self._find_places()

    def run(self, roots: Iterable[Function]) -> Followed[S]:
        entry = self.script.entry.tree
        states = self.function(entry, frozenset({_State(self.protocol.start)}))
        for tree in (s.tree for s in self.script.sources if s.tree is not entry):
            if tree in self.functions:
                states = self.function(tree, states) or states
        ends = states.union(*(self.function(root, states) for root in roots))
        return Followed(frozenset(s.state for s in ends), self.visited)

    def _find_places(self) -> None:
        """The functions in which something happens, and all nodes on the way down to it."""
        todo = [
            event.node
            for found in (self.at, self.before, self.after)
            for events in found.values()
            for event in events
        ]
        self.functions: Nodes = set()
        nodes: list[ast.AST] = []
        while todo:
            node = todo.pop()
            nodes.append(node)
            function = function_of(node)
            if function not in self.functions:
                self.functions.add(function)
                nodes += of_kind(own_nodes(function), (ast.Raise, ast.Assert))
                todo += self.calls.entries(function)
        self.hot: Nodes = set()
        for node in nodes:
            for outer in (node, *ancestors(node)):
                if outer in self.hot or isinstance(outer, ast.Module):
                    break
                if outer is not node and isinstance(outer, FUNCTIONS):
                    break
                self.hot.add(outer)

    # ------------------------------------------------------------------------------------ functions
    def function(self, function: Function, states: States) -> States:
        if not states or function not in self.functions:
            return states
        if function in self.active:
            self.protocol.wrong("recursion", function, "{} calls itself")
            return states
        key = function, states
        if key not in self._known:
            if _is_generator(function):
                self.protocol.wrong("generator", function, "{} happens in a generator, bit by bit")
            self.active.append(function)
            self.met.append(set())
            out = self._solved(function, _forget_function(states, function))
            self.active.pop()
            self._known[key] = (
                _forget_function(out, function),
                _forget_function(self.met.pop(), function),
            )
        out, met = self._known[key]
        self._meet(met)
        return out

    def _solved(self, function: Function, states: States) -> States:
        if function not in self._graphs:
            graph = self._graphs[function] = FlowGraph(function)
            _Marking(graph, self.swallows, self.before.keys(), self.after.keys()).run(function)
        graph = self._graphs[function]
        raised: dict[Node, States] = {}

        def step(node: Node, states: States) -> States:
            self.met.append(set())
            out = self.step(node, states) if states else states
            raised[node] = frozenset(self.met.pop()) | states | out
            self._meet(raised[node])
            return out

        problem = Problem(
            states,
            step,
            frozenset.union,
            raised=lambda node, _: raised[node],
            edge=lambda node, other, states: self.edge(graph, node, other, states),
        )
        return solve(graph, problem).get(graph.exit, frozenset())

    def _meet(self, states: Iterable[_State]) -> None:
        if self.met:
            self.met[-1].update(states)

    # ------------------------------------------------------------------------------ nodes and edges
    def step(self, node: Node, states: States) -> States:
        tree, part = node.ast, node.part
        if len(states) > MOST_STATES:
            self.protocol.wrong("many", tree, "there are too many ways to {}")
            return frozenset()
        if part in ("before", "after"):
            for event in (self.before if part == "before" else self.after)[tree]:
                states = self.happen(event, states)
            return states
        if tree in self.hot:
            if is_try(tree) and not isinstance(tree, ast.Try):
                self.protocol.wrong("group", tree, "whether {} is finished is not known")
            if isinstance(tree, (ast.Raise, ast.Assert)):
                for state in states:
                    self.protocol.leave(tree, state.state)
            for expr in [tree] if isinstance(tree, ast.expr) else evaluated_parts(tree, part):
                states = self.expr(expr, states)
            if isinstance(tree, ast.stmt) and not isinstance(tree, COMPOUND):
                states = self._here(tree, states)
        return self._forget(states, node)

    def edge(self, graph: FlowGraph, node: Node, other: Node, states: States) -> States:
        """The states that go along an edge: those in which the condition came out like this."""
        if not isinstance(node.ast, ast.If) or node.part or node not in graph.arms:
            return states
        yes, no = graph.arms[node]
        if yes is no:
            return states
        arm = other is yes
        known = self.script.constant(node.ast.test)
        if known is not ... and bool(known) is not arm:
            return frozenset()
        if (
            node.ast not in self.hot
        ):  # nothing happens in either arm: each would only double the ways
            return states
        return self._suppose(node.ast, arm, states)

    def _suppose(self, node: ast.If, arm: bool, states: States) -> States:
        """The ways on which the condition comes out like this."""
        test: ast.expr = node.test
        while True:
            if is_unary(test, ast.Not):
                test, arm = test.operand, not arm
            elif (
                isinstance(test, ast.Compare)
                and len(test.ops) == 1
                and isinstance(test.ops[0], (ast.IsNot, ast.NotEq))
            ):
                op = ast.Is() if isinstance(test.ops[0], ast.IsNot) else ast.Eq()
                test, arm = ast.Compare(test.left, [op], test.comparators), not arm
            else:
                break
        if not self._is_steady(test):
            return states
        scope, words = function_of(node), ast.dump(test)
        return frozenset(
            s._replace(said=s.said | {(scope, words, arm)})
            for s in states
            if (scope, words, not arm) not in s.said
        )

    def _is_steady(self, test: ast.expr) -> bool:
        """It asks for variables and attributes of which the second is set nowhere but where objects
        are made.
        """
        for node in walk(test):
            if isinstance(node, (ast.Call, ast.NamedExpr, ast.Subscript, ast.Await)):
                return False
            if isinstance(node, ast.Attribute) and node.attr in self.volatile.attributes:
                return False
            if isinstance(node, ast.Name) and node.id in self.volatile.variables:
                return False
        return True

    def _forget(self, states: States, node: Node) -> States:
        """What was said of variables that ``node`` sets is said no longer."""
        if not any(s.said for s in states):
            return states
        if node not in self._sets:
            self._sets[node] = frozenset(
                f"Name(id='{a.name}'" for a in accesses(node) if a.kind is not Kind.USE
            )
        if not (names := self._sets[node]):
            return states
        scope = function_of(node.ast)
        return frozenset(
            s._replace(
                said=frozenset(t for t in s.said if t[0] != scope or not any_in(names, t[1]))
            )
            for s in states
        )

    # ---------------------------------------------------------------------------------- expressions
    def expr(self, node: ast.AST, states: States) -> States:
        """What happens in an expression, in order."""
        if node not in self.hot:
            return states
        match node:
            case ast.Lambda():
                pass  # when it is called
            case ast.BoolOp():
                states = self.expr(node.values[0], states)
                for value in node.values[1:]:
                    states |= self.expr(value, states)
            case ast.IfExp():
                states = self.expr(node.test, states)
                states = self.expr(node.body, states) | self.expr(node.orelse, states)
            case _:
                for child in evaluated_parts(node):
                    states = self.expr(child, states)
        return self._here(node, states)

    def _here(self, node: ast.AST, states: States) -> States:
        """What happens at a node itself, when its parts have been evaluated: events, and the
        functions that it calls.
        """
        for event in self.at.get(node, ()):
            self.visited.add(node)
            states = self.happen(event, states)
        functions = self.calls.entered(node)
        if states and any_in(functions, self.functions):
            return frozenset().union(*(self.function(f, states) for f in functions))
        return states

    def happen(self, event: E, states: States) -> States:
        out = frozenset(
            s._replace(state=new) for s in states for new in self.protocol.happen(event, s.state)
        )
        self._meet(out)
        return out


States = frozenset[_State]
COMPOUND = (
    *(ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match),
    *DEFINITIONS,
)


class _Marking(Builder):
    """A graph with nodes before and after the statements that have events there; loops begin with
    their bodies.
    """

    def __init__(
        self,
        graph: FlowGraph,
        swallows: Collection[ast.AST],
        before: Collection[ast.AST],
        after: Collection[ast.AST],
    ):
        super().__init__(graph, swallows)
        self.before, self.after = before, after

    def stmt(self, stmt: ast.stmt, after: Node, ways: Ways) -> Node:
        if stmt in self.after:
            after = self.node(stmt, "after", ways, [after])
        first = super().stmt(stmt, after, ways)
        return self.node(stmt, "before", ways, [first]) if stmt in self.before else first

    def while_(self, stmt: ast.While, after: Node, ways: Ways) -> Node:
        super().while_(stmt, after, ways)
        body, _ = self.graph.iteration[stmt][-1]
        return self.node(stmt, "", ways, [body])

    def for_(self, stmt: ast.For | ast.AsyncFor, after: Node, ways: Ways) -> Node:
        super().for_(stmt, after, ways)
        target, _ = self.graph.iteration[stmt][-1]
        return self.node(stmt, "", ways, [target])


def _by_node(events: Iterable[E]) -> ByNode[list[E]]:
    found = grouped((event.node, event) for event in events)
    return dict(found)


def _forget_function(states: Iterable[_State], function: Function) -> States:
    """What was said in a function is said of one activation of it."""
    mine = function
    return frozenset(
        s._replace(said=frozenset(t for t in s.said if t[0] != mine)) if s.said else s
        for s in states
    )


def _is_generator(function: Function) -> bool:
    return isinstance(function, DEFS) and any_of(own_nodes(function), ast.Yield, ast.YieldFrom)


class _Volatile:
    """What a condition may ask for in vain: attributes that are set outside of ``__init__``, and
    variables that other functions set.
    """

    def __init__(self, script: Script):
        self.attributes: set[str] = set()
        self.variables: set[str] = set()
        for node in script.nodes:
            if isinstance(node, ast.Attribute) and not is_read(node):
                if getattr(function_of(node), "name", "") != "__init__":
                    self.attributes.add(node.attr)
            elif isinstance(node, (ast.Global, ast.Nonlocal)):
                self.variables.update(node.names)
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("setattr", "delattr")
            ):
                self.attributes.update(n.value for n in node.args if is_text(n))
