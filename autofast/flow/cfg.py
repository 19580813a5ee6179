"""The control-flow graph of one function, module or lambda: which of its statements runs before and
after which.

:mod:`autofast.flow.graph` says what a node is, :mod:`autofast.flow.frequency` how often a place
runs in a loop.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from functools import cached_property
from itertools import takewhile

from autofast.flow.build import Builder
from autofast.flow.graph import FlowGraph, Function, Node
from autofast.flow.loops import Loop, is_caught, loop_exits
from autofast.flow.solve import Problem, solve
from autofast.model.several import any_in
from autofast.model.source import ancestors, block_of


class Graph(FlowGraph):
    """The ways through one function, and what follows from them."""

    def __init__(self, function: Function, swallows: Collection[ast.AST] = frozenset()):
        """``swallows`` holds the ``with`` statements that may end an exception."""
        super().__init__(function)
        Builder(self, swallows).run(function)

    # ---------------------------------------------------------------------------------------- order
    def dominates(self, a: ast.AST, b: ast.AST) -> bool:
        """Whether ``a`` has run before ``b``, on every way to it; False for what is never run."""
        bit, starts = self._bit(a), self.starts(b)
        same = bool(bit) and bit == self._bit(b)
        return bool(starts) and (same or all(self._before[n] & bit for n in starts))

    def one_dominates(self, several: Iterable[ast.AST], b: ast.AST | None) -> bool:
        """Whether one of ``several`` has run before ``b``, on every way to it; where ``b`` is None,
        on every way to the function's return.
        """
        wanted = {n for a in several for n in self.starts(a)}
        ends = {self.exit} & self.live if b is None else set(self.starts(b))
        todo, seen = [self.entry], {self.entry}
        while todo:
            node = todo.pop()
            new = [
                n
                for n in (self.raises.get(node, ()) if node in wanted else self.out(node))
                if n not in seen
            ]
            seen.update(new)
            todo += new
        return bool(ends) and not ends & seen

    def postdominates(self, a: ast.AST, b: ast.AST) -> bool:
        """Whether ``a`` runs after ``b`` (or is the same statement), on every way from there to a
        ``return``, a ``raise`` or the end.

        Other exceptions that leave the function do not count, those that it catches do.
        """
        bit = self._bit(a)
        if self.place(a) is self.place(b):
            return bool(self.starts(a))
        return (
            bool(bit)
            and self.may_follow(a, b)
            and all(self._behind.get(n, 0) & bit for n in self.starts(b))
        )

    def may_follow(self, b: ast.AST, a: ast.AST, loop: Loop | None = None) -> bool:
        """Whether ``b`` may run after ``a`` in one activation of the function; with ``loop``,
        before another iteration of it begins.
        """
        starts = frozenset(self.starts(b))
        place = self.place(a)
        if place is None or not starts:
            return False
        key = place, loop
        if key not in self._following:
            heads = [head for _, head in self.iteration.get(loop, ())]
            self._following[key] = frozenset(self.reachable(self.starts(place), heads))
        return not starts.isdisjoint(self._following[key])

    @cached_property
    def _following(self) -> dict[tuple[ast.AST, Loop | None], frozenset[Node]]:
        return {}

    def _bit(self, node: ast.AST) -> int:
        place = self.place(node)
        copies = self.copies.get(place)
        return 1 << copies[0].index if copies else 0

    def _ran(self, node: Node, state: int) -> int:
        if node is self.lost:
            return -1  # no way that ends here counts
        return state if node.part else state | self._bit(node.ast)

    @cached_property
    def _before(self) -> dict[Node, int]:
        return solve(self, Problem(0, self._ran, int.__and__))

    @cached_property
    def _behind(self) -> dict[Node, int]:
        return solve(self, Problem(0, self._ran, int.__and__, backward=True))

    # ---------------------------------------------------------------------------------------- loops
    def exits(self, loop: Loop) -> list[ast.stmt]:
        """The ``break``, ``continue``, ``return`` and ``raise`` statements that end an iteration of
        ``loop``, in the order of the text.

        A ``raise`` that a handler in the iteration certainly catches is none of them.
        """
        found = [s for body in loop.body for s in loop_exits(body)]
        return [
            s
            for s in found
            if self.starts(s) and not (isinstance(s, ast.Raise) and is_caught(s, loop))
        ]

    def leaving_before(self, node: ast.AST, loop: Loop | None = None) -> list[ast.stmt]:
        """The ``return`` statements, with a ``loop`` the :meth:`exits` of its iterations, that may
        come in place of ``node``.

        They stand in a statement before it, in its block or a block around it. Whether a condition
        or a loop around ``node`` leads to it is not asked here (the other arm of such a condition
        is not "before"), nor where an exception does not.
        """
        if loop is not None:
            found = self.exits(loop)
        else:
            found = [s for n in self.nodes if isinstance(s := n.ast, ast.Return)]
        path = [
            p
            for p in (self.place(node), *ancestors(node))
            if isinstance(p, ast.stmt) and self.place(p) is p
        ]
        found = sorted(dict.fromkeys(found), key=lambda s: (s.lineno, s.col_offset))
        return [s for s in found if any(self._stands_before(s, p) for p in path)]

    def _stands_before(self, a: ast.AST, b: ast.stmt) -> bool:
        """Whether ``a`` stands in an earlier statement of the block of ``b``."""
        around = {a, *ancestors(a)}
        earlier = takewhile(lambda s: s is not b, block_of(b))
        return any_in(earlier, around)


def graph_of(function: Function) -> Graph:
    """The graph of a function, made once; no ``with`` statement is taken to end exceptions (see
    :class:`autofast.flow.program.Flow`).
    """
    known: Graph | None = getattr(function, "_af_graph", None)
    if known is None:
        known = function._af_graph = Graph(function)  # type: ignore[union-attr]
    return known
