"""The control-flow graph of one function, module or lambda: which of its statements runs before, after and as often as which.

A statement that runs is a :class:`Node`; so is the head of a compound statement. What runs on several ways out of a statement
(a ``finally`` block) stands in the graph once for each of them. An exception has edges of its own (:attr:`Graph.raises`): where the
function catches it, or does something on its way out; any statement may raise one.

All questions take any syntax node, and are about the statement (or handler, or case) that it stands in. For a compound
statement they are about its head. A node of another function (also of one inside this) is never run here.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from enum import Enum
from functools import cached_property
from itertools import takewhile

from autofast.flow.scopes import FUNCTIONS
from autofast.model.source import ancestors, block_of, parent_of, statement_of

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module
Loop = ast.For | ast.AsyncFor | ast.While
LOOPS = (ast.For, ast.AsyncFor, ast.While)
PLACES = (ast.stmt, ast.ExceptHandler, ast.match_case)


class Frequency(Enum):
    """In how many iterations of a loop a place runs."""

    EVERY = "in every iteration that is followed by another one"
    SOME = "in some iterations"
    RARE = "in few iterations: every n-th, in the last, after an exception"
    NEVER = "in none: it stands elsewhere, or nothing leads there"


class Node:
    """A statement (or the head of a compound one, a handler or case of one) on one way through the function.

    ``part`` tells the nodes of one statement apart: ``""`` for what runs first; ``next`` for asking a ``for`` loop's iterator, ``target`` for
    binding what it gave (or what an ``except``, a ``case`` takes); ``end`` for leaving a ``with`` block, a class body, an ``except ... as``;
    ``entry``, ``exit``, ``thrown`` and ``lost`` for the function itself.
    """

    __slots__ = ("ast", "index", "part")

    def __init__(self, tree: ast.AST, part: str, index: int):
        self.ast, self.part, self.index = tree, part, index

    def __repr__(self) -> str:
        return f"<{type(self.ast).__name__} {getattr(self.ast, 'lineno', 0)} {self.part}>"


class Graph:
    """The ways through one function.

    Attributes:
        entry: where it begins. exit: where it returns. thrown: where it ends by a ``raise`` that it does not catch.
        lost: where any other exception ends it, and what follows a loop that never ends.
        succ: what may run right after a node. raises: where an exception in the node goes on.
        arms: where a condition leads when it is true, and when it is not (also an arm that a constant rules out).
    """

    def __init__(self, function: Function, swallows: Collection[int] = frozenset()):
        """``swallows`` holds the ids of the ``with`` statements that may end an exception."""
        from autofast.flow.build import Builder

        self.function = function
        self.succ: dict[Node, list[Node]] = defaultdict(list)
        self.raises: dict[Node, list[Node]] = defaultdict(list)
        self.arms: dict[Node, tuple[Node, Node]] = {}
        self.after: dict[int, list[Node]] = {}  # statement -> what follows it when it is done
        # Loop -> where an iteration begins, and what decides on the next.
        self.iteration: dict[int, list[tuple[Node, Node]]] = {}
        self.copies: dict[int, list[Node]] = defaultdict(list)
        self.entry, self.exit, self.thrown, self.lost = (
            self.add(function, part) for part in ("entry", "exit", "thrown", "lost")
        )
        Builder(self, swallows).run(function)

    def add(self, tree: ast.AST, part: str) -> Node:
        node = Node(tree, part, self._count)
        self._count += 1
        if tree is not self.function:
            self.copies[id(tree)].append(node)
        return node

    _count = 0

    # ------------------------------------------------------------------------------------------ nodes
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
        found: dict[Node, list[Node]] = defaultdict(list)
        for node in self.nodes:
            for other in dict.fromkeys(self.out(node)):
                found[other].append(node)
        return found

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
        """The statement, handler or case of this function that ``node`` stands in; the body of a lambda; None where it runs elsewhere."""
        found: ast.AST | None = None
        here: ast.AST | None = node
        while here is not None and here is not self.function:
            if found is None and (isinstance(here, PLACES) or id(here) in self.copies):
                found = here
            below, here = here, parent_of(here)
            if isinstance(here, FUNCTIONS) and here is not self.function and _is_body(below, here):
                return None
        return found if here is not None else None

    def starts(self, node: ast.AST) -> list[Node]:
        """The nodes with which the statement of ``node`` begins, one for each way it is copied on."""
        place = self.place(node)
        return [n for n in self.copies.get(id(place), ()) if not n.part and n in self.live]

    @cached_property
    def live(self) -> frozenset[Node]:
        """:attr:`nodes`, as a set."""
        return frozenset(self.nodes)

    # ------------------------------------------------------------------------------------------ order
    def dominates(self, a: ast.AST, b: ast.AST) -> bool:
        """Whether ``a`` has run before ``b``, on every way to it (or is the same statement). False for code that is never run."""
        bit, starts = self._bit(a), self.starts(b)
        same = bool(bit) and bit == self._bit(b)
        return bool(starts) and (same or all(self._before[n] & bit for n in starts))

    def one_dominates(self, several: Iterable[ast.AST], b: ast.AST | None) -> bool:
        """Whether one of ``several`` has run before ``b``, on every way to it; where ``b`` is None, on every way to the function's return."""
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
        """Whether ``a`` runs after ``b`` (or is the same statement), on every way from there to a ``return``, a ``raise`` or the end.

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
        """Whether ``b`` may run after ``a`` in one activation of the function; with ``loop``, before another iteration of it begins."""
        starts = frozenset(self.starts(b))
        place = self.place(a)
        if place is None or not starts:
            return False
        key = id(place), id(loop)
        if key not in self._following:
            heads = [head for _, head in self.iteration.get(id(loop), ())]
            self._following[key] = frozenset(self.reachable(self.starts(place), heads))
        return not starts.isdisjoint(self._following[key])

    @cached_property
    def _following(self) -> dict[tuple[int, int], frozenset[Node]]:
        return {}

    @cached_property
    def frequencies(self) -> dict[tuple[int, int], Frequency]:
        """What :meth:`frequency` has answered, by statement and loop."""
        return {}

    @cached_property
    def rare(self) -> dict[int, frozenset[tuple[Node, Node]]]:
        """The edges that few iterations of a loop take, as far as they were asked for."""
        return {}

    def _bit(self, node: ast.AST) -> int:
        place = self.place(node)
        copies = self.copies.get(id(place))
        return 1 << copies[0].index if copies else 0

    def _ran(self, node: Node, state: int) -> int:
        if node is self.lost:
            return -1  # no way that ends here counts
        return state if node.part else state | self._bit(node.ast)

    @cached_property
    def _before(self) -> dict[Node, int]:
        from autofast.flow.solve import Problem, solve

        return solve(self, Problem(0, self._ran, int.__and__))

    @cached_property
    def _behind(self) -> dict[Node, int]:
        from autofast.flow.solve import Problem, solve

        return solve(self, Problem(0, self._ran, int.__and__, backward=True))

    # ------------------------------------------------------------------------------------------ loops
    def exits(self, loop: Loop) -> list[ast.stmt]:
        """The ``break``, ``continue``, ``return`` and ``raise`` statements that end an iteration of ``loop``, in the order of the text.

        A ``raise`` that a handler in the iteration certainly catches is none of them.
        """
        found = [s for body in loop.body for s in leaving(body)]
        return [
            s
            for s in found
            if self.starts(s) and not (isinstance(s, ast.Raise) and _is_caught(s, loop))
        ]

    def leaving_before(self, node: ast.AST, loop: Loop | None = None) -> list[ast.stmt]:
        """The ``return`` statements, with a ``loop`` the :meth:`exits` of its iterations, that may come in place of ``node``.

        They stand in a statement before it, in its block or a block around it. Whether a condition or a loop around ``node`` leads to it is
        not asked here (the other arm of such a condition is not "before"), nor where an exception does not.
        """
        found = (
            self.exits(loop)
            if loop is not None
            else [s for n in self.nodes if isinstance(s := n.ast, ast.Return)]
        )
        path = [
            p
            for p in (self.place(node), *ancestors(node))
            if isinstance(p, ast.stmt) and self.place(p) is p
        ]
        found = sorted(dict.fromkeys(found), key=lambda s: (s.lineno, s.col_offset))
        return [s for s in found if any(self._stands_before(s, p) for p in path)]

    def _stands_before(self, a: ast.AST, b: ast.stmt) -> bool:
        """Whether ``a`` stands in an earlier statement of the block of ``b``."""
        around = {id(a), *map(id, ancestors(a))}
        earlier = takewhile(lambda s: s is not b, block_of(b))
        return any(id(s) in around for s in earlier)

    def frequency(self, node: ast.AST, loop: Loop) -> Frequency:
        """In how many iterations of ``loop`` the statement of ``node`` runs."""
        from autofast.flow.frequency import frequency

        return frequency(self, node, loop)


def graph_of(function: Function) -> Graph:
    """The graph of a function, made once; no ``with`` statement is taken to end exceptions (see :class:`autofast.flow.program.Flow`)."""
    known: Graph | None = getattr(function, "_af_graph", None)
    if known is None:
        known = function._af_graph = Graph(function)  # type: ignore[union-attr]
    return known


def loops_around(node: ast.AST) -> Iterator[Loop]:
    """The loops whose iterations run ``node``, in its own function, innermost first."""
    here = node
    for outer in ancestors(node):
        if isinstance(outer, FUNCTIONS) and _is_body(here, outer):
            return
        if isinstance(outer, LOOPS) and is_repeated(here, outer):
            yield outer
        here = outer


def loop_of(node: ast.AST) -> Loop | None:
    """The innermost loop whose iterations run the statement of ``node``, in its own function."""
    return next(loops_around(statement_of(node)), None)


def common_loop(a: ast.AST, b: ast.AST) -> Loop | None:
    """The innermost loop whose iterations run the statements of both."""
    around = list(loops_around(statement_of(b)))
    return next((loop for loop in loops_around(statement_of(a)) if loop in around), None)


def is_repeated(part: ast.AST, loop: Loop) -> bool:
    """Whether a child of ``loop`` runs in each iteration: its body, the test of ``while``, the target of ``for``."""
    return any(part is s for s in loop.body) or part is (
        loop.test if isinstance(loop, ast.While) else loop.target
    )


def _is_body(part: ast.AST, function: ast.AST) -> bool:
    """Whether a child of a function is code that a call of it runs."""
    return part is function.body if isinstance(function, ast.Lambda) else isinstance(part, ast.stmt)


def leaving(stmt: ast.AST, inner: bool = False) -> Iterator[ast.stmt]:
    """The statements in ``stmt`` that may leave the iteration around it; ``inner`` where they stand in a loop inside that one."""
    if isinstance(stmt, (ast.Return, ast.Raise)) or (
        isinstance(stmt, (ast.Break, ast.Continue)) and not inner
    ):
        yield stmt
    elif isinstance(stmt, LOOPS):
        yield from (s for child in stmt.body for s in leaving(child, True))
        yield from (s for child in stmt.orelse for s in leaving(child, inner))
    elif not isinstance(stmt, (*FUNCTIONS, ast.expr)):
        yield from (s for child in ast.iter_child_nodes(stmt) for s in leaving(child, inner))


def _is_caught(stmt: ast.Raise, loop: Loop) -> bool:
    from autofast.flow.build import catches_all, is_try

    here: ast.AST = stmt
    for outer in ancestors(stmt):
        if outer is loop:
            return False
        if (
            is_try(outer)
            and any(here is s for s in outer.body)
            and any(catches_all(h) for h in outer.handlers)
        ):
            return True
        here = outer
    return False
