"""One solver for all data-flow problems: states that move along the edges of a graph until nothing
changes any more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from autofast.flow.graph import FlowGraph, Node
from autofast.model.limits import WORK

S = TypeVar("S")


@dataclass(frozen=True)
class Problem(Generic[S]):
    """A data-flow problem.

    Attributes:
        start: what is known where the function begins; for a backward problem, at each of its ends.
        step: what a node makes of a state: of the one before it, or in a backward problem of the
            one after it.
        join: what is known where two ways meet. States are compared with ``==``; joining must come
            to rest.
        backward: states move against the program's order.
        raised: what is known, before and after a node together, while it runs: the state in which
            an exception leaves it (forward problems); the join of both where this is not given. It
            is asked for right after ``step``.
        edge: what of the state after a node goes to one that follows it: where a condition has come
            out so (forward problems).
    """

    start: S
    step: Callable[[Node, S], S]
    join: Callable[[S, S], S]
    backward: bool = False
    raised: Callable[[Node, S], S] | None = None
    edge: Callable[[Node, Node, S], S] | None = None


def solve(graph: FlowGraph, problem: Problem[S]) -> dict[Node, S]:
    """What is known right before each node, in the program's order; nodes that no way leads to are
    left out.
    """
    return _backward(graph, problem) if problem.backward else _forward(graph, problem)


def _forward(graph: FlowGraph, problem: Problem[S]) -> dict[Node, S]:
    before: dict[Node, S] = {graph.entry: problem.start}
    # A graph is built from the end: what comes first in the text has a high index.
    todo = _Queue(-1, graph.entry)
    while todo:
        WORK.spend()
        node = todo.pop()
        state = before[node]
        after = problem.step(node, state)
        edge = problem.edge
        ways = [(n, edge(node, n, after) if edge else after) for n in graph.succ[node]]
        if graph.raises[node]:
            thrown = problem.raised(node, state) if problem.raised else problem.join(state, after)
            ways += [(other, thrown) for other in graph.raises[node]]
        for other, new in ways:
            joined = problem.join(before[other], new) if other in before else new
            if other not in before or joined != before[other]:
                before[other] = joined
                todo.add(other)
    return before


def _backward(graph: FlowGraph, problem: Problem[S]) -> dict[Node, S]:
    before: dict[Node, S] = {}
    todo = _Queue(1, *graph.ends)
    while todo:
        WORK.spend()
        node = todo.pop()
        found = [before[n] for n in graph.succ[node] if n in before]
        thrown = [before[n] for n in graph.raises[node] if n in before]
        if not found and not thrown and node not in graph.ends:
            continue
        parts = [problem.step(node, s) for s in (*found, *thrown)] + thrown
        if node in graph.ends:
            parts.append(problem.step(node, problem.start))
        state = parts[0]
        for other in parts[1:]:
            state = problem.join(state, other)
        if node not in before or state != before[node]:
            before[node] = state
            for previous in graph.pred[node]:
                todo.add(previous)
    return before


class _Queue:
    """Nodes in the order of their indices, times ``sign``; nothing is in it twice."""

    def __init__(self, sign: int, *nodes: Node):
        self.sign = sign
        self.heap: list[tuple[int, Node]] = []
        self.members: set[Node] = set()
        for node in nodes:
            self.add(node)

    def add(self, node: Node) -> None:
        if node not in self.members:
            self.members.add(node)
            heapq.heappush(self.heap, (self.sign * node.index, node))

    def pop(self) -> Node:
        _, node = heapq.heappop(self.heap)
        self.members.discard(node)
        return node

    def __bool__(self) -> bool:
        return bool(self.heap)
