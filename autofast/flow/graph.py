"""The graph that all analyses of one function walk over: what may run right after what.

A statement that runs is a :class:`Node`; so is the head of a compound statement. What runs on
several ways out of a statement (a ``finally`` block) stands in the graph once for each of them. An
exception has edges of its own (:attr:`FlowGraph.raises`): where the function catches it, or does
something on its way out; any statement may raise one.

All questions take any syntax node, and are about the statement (or handler, or case) that it stands
in. For a compound statement they are about its head. A node of another function (also of one inside
this) is never run here.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cached_property

from autofast.model.several import grouped
from autofast.model.source import ByNode, parent_of
from autofast.model.syntax import FUNCTIONS, Def

Function = Def | ast.Lambda | ast.Module
PLACES = (ast.stmt, ast.ExceptHandler, ast.match_case)


class Node:
    """A statement (or the head of a compound one, a handler or case of one) on one way through the
    function.

    ``part`` tells the nodes of one statement apart: ``""`` for what runs first; ``next`` for asking
    a ``for`` loop's iterator, ``target`` for binding what it gave (or what an ``except``, a
    ``case`` takes); ``end`` for leaving a ``with`` block, a class body, an ``except ... as``;
    ``entry``, ``exit``, ``thrown`` and ``lost`` for the function itself.
    """

    __slots__ = ("ast", "index", "part")

    def __init__(self, tree: ast.AST, part: str, index: int):
        self.ast, self.part, self.index = tree, part, index

    def __repr__(self) -> str:
        return f"<{type(self.ast).__name__} {getattr(self.ast, 'lineno', 0)} {self.part}>"


class FlowGraph:
    """The ways through one function; :mod:`autofast.flow.build` fills it.

    Attributes:
        entry: where it begins.
        exit: where it returns.
        thrown: where it ends by a ``raise`` that it does not catch.
        lost: where any other exception ends it, and what follows a loop that never ends.
        succ: what may run right after a node.
        raises: where an exception in the node goes on.
        arms: where a condition leads when it is true, and when it is not (also an arm that a
            constant rules out).
    """

    def __init__(self, function: Function):
        self.function = function
        self.succ: dict[Node, list[Node]] = defaultdict(list)
        self.raises: dict[Node, list[Node]] = defaultdict(list)
        self.arms: dict[Node, tuple[Node, Node]] = {}
        self.after: ByNode[list[Node]] = {}  # statement -> what follows it when it is done
        # Loop -> where an iteration begins, and what decides on the next.
        self.iteration: dict[ast.AST | None, list[tuple[Node, Node]]] = {}
        self.copies: dict[ast.AST | None, list[Node]] = defaultdict(list)
        self.entry, self.exit, self.thrown, self.lost = (
            self.add(function, part) for part in ("entry", "exit", "thrown", "lost")
        )

    def add(self, tree: ast.AST, part: str) -> Node:
        node = Node(tree, part, self._count)
        self._count += 1
        if tree is not self.function:
            self.copies[tree].append(node)
        return node

    _count = 0

    # ---------------------------------------------------------------------------------------- nodes
    @property
    def ends(self) -> tuple[Node, Node, Node]:
        return self.exit, self.thrown, self.lost

    def out(self, node: Node) -> list[Node]:
        """Everything that may run next, after an exception too."""
        return [*self.succ.get(node, ()), *self.raises.get(node, ())]

    @cached_property
    def nodes(self) -> list[Node]:
        """The nodes that a way from the entry leads to."""
        return [self.entry, *self.reachable([self.entry])]

    @cached_property
    def pred(self) -> dict[Node, list[Node]]:
        """What may run right before a node."""
        return grouped(
            (other, node) for node in self.nodes for other in dict.fromkeys(self.out(node))
        )

    def reachable(self, starts: Iterable[Node], ends: Collection[Node] = ()) -> dict[Node, None]:
        """The nodes that may run after one of ``starts``, and not only after one of ``ends``."""
        found: dict[Node, None] = {}
        todo = [n for start in starts for n in self.out(start)]
        while todo:
            node = todo.pop()
            if node not in found and node not in ends:
                found[node] = None
                todo += self.out(node)
        return found

    def place(self, node: ast.AST) -> ast.AST | None:
        """The statement, handler or case of this function that ``node`` stands in; the body of a
        lambda; None where it runs elsewhere.
        """
        found: ast.AST | None = None
        here: ast.AST | None = node
        while here is not None and here is not self.function:
            if found is None and (isinstance(here, PLACES) or here in self.copies):
                found = here
            below, here = here, parent_of(here)
            if isinstance(here, FUNCTIONS) and here is not self.function and is_body(below, here):
                return None
        return found if here is not None else None

    def starts(self, node: ast.AST) -> list[Node]:
        """The nodes with which the statement of ``node`` begins, one for each of its copies."""
        place = self.place(node)
        return [n for n in self.copies.get(place, ()) if not n.part and n in self.live]

    @cached_property
    def live(self) -> frozenset[Node]:
        """:attr:`nodes`, as a set."""
        return frozenset(self.nodes)


def is_body(part: ast.AST, function: ast.AST) -> bool:
    """Whether a child of a function is code that a call of it runs."""
    return part is function.body if isinstance(function, ast.Lambda) else isinstance(part, ast.stmt)
