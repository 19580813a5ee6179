"""Builds the control-flow graph of a function, from its end to its beginning: what comes next is
known before what leads there.

A ``finally`` block, the end of a ``with`` block and the end of ``except ... as e`` run on every way
out of their statement; each kind of way out gets nodes of its own for them, so that ways that never
meet in a run do not meet in the graph.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from typing import TypeGuard

from autofast.flow.graph import FlowGraph, Function, Node
from autofast.model.calls import is_name
from autofast.model.syntax import SILENT

Target = Callable[[], Node]
TRIES: tuple[type[ast.AST], ...] = (ast.Try, getattr(ast, "TryStar", ast.Try))


@dataclass(frozen=True)
class Ways:
    """Where each kind of way out of a statement leads. ``thrown`` is for ``raise``, ``error`` for
    all other exceptions.
    """

    returns: Target
    breaks: Target
    continues: Target
    thrown: Target
    error: Target

    def through(self, make: Callable[[Node], Node]) -> Ways:
        """The same ways, each with nodes on it that ``make`` puts before its target; made where
        they are asked for.
        """
        return Ways(*(_once(getattr(self, f.name), make) for f in fields(self)))


def _once(target: Target, make: Callable[[Node], Node]) -> Target:
    made: dict[int, Node] = {}

    def get() -> Node:
        after = target()
        if id(after) not in made:
            made[id(after)] = make(after)
        return made[id(after)]

    return get


class Builder:
    """Fills a graph; ``swallows`` holds the ``with`` statements that may end an
    exception.
    """

    def __init__(self, graph: FlowGraph, swallows: Collection[ast.AST]):
        self.graph, self.swallows = graph, swallows

    def run(self, function: Function) -> None:
        graph = self.graph
        nowhere: Target = lambda: graph.lost  # noqa: E731
        ways = Ways(lambda: graph.exit, nowhere, nowhere, lambda: graph.thrown, nowhere)
        if isinstance(function, ast.Lambda):
            first = self.node(function.body, "", ways, [graph.exit])
        else:
            first = self.block(function.body, graph.exit, ways)
        self.link(graph.entry, [first])

    def link(self, node: Node, after: list[Node]) -> None:
        self.graph.succ[node] = list(dict.fromkeys((*self.graph.succ[node], *after)))

    def node(self, tree: ast.AST, part: str, ways: Ways, after: list[Node]) -> Node:
        node = self.graph.add(tree, part)
        self.link(node, after)
        if not isinstance(tree, SILENT) and (target := ways.error()) is not self.graph.lost:
            self.graph.raises[node] = [target]
        return node

    def block(self, body: list[ast.stmt], after: Node, ways: Ways) -> Node:
        for stmt in reversed(body):
            self.graph.after.setdefault(stmt, []).append(after)
            after = self.stmt(stmt, after, ways)
        return after

    def stmt(self, stmt: ast.stmt, after: Node, ways: Ways) -> Node:
        if is_try(stmt):
            return self.try_(stmt, after, ways)
        match stmt:
            case ast.If():
                return self.if_(stmt, after, ways)
            case ast.While():
                return self.while_(stmt, after, ways)
            case ast.For() | ast.AsyncFor():
                return self.for_(stmt, after, ways)
            case ast.With() | ast.AsyncWith():
                return self.with_(stmt, after, ways)
            case ast.Match():
                return self.match_(stmt, after, ways)
            case ast.ClassDef():
                end = self.node(stmt, "end", ways, [after])
                return self.node(stmt, "", ways, [self.block(stmt.body, end, ways)])
            case ast.Return():
                return self.node(stmt, "", ways, [ways.returns()])
            case ast.Raise():
                return self.node(stmt, "", ways, [ways.thrown()])
            case ast.Break():
                return self.node(stmt, "", ways, [ways.breaks()])
            case ast.Continue():
                return self.node(stmt, "", ways, [ways.continues()])
        return self.node(stmt, "", ways, [after])

    # ------------------------------------------------------------------------- conditions and loops
    def if_(self, stmt: ast.If, after: Node, ways: Ways) -> Node:
        node = self.node(stmt, "", ways, [])
        self.branch(
            node,
            stmt.test,
            self.block(stmt.body, after, ways),
            self.block(stmt.orelse, after, ways),
        )
        return node

    def branch(self, node: Node, test: ast.expr, yes: Node, no: Node) -> None:
        self.graph.arms[node] = yes, no
        if isinstance(test, ast.Constant):
            self.link(node, [yes if test.value else no])
        else:
            self.link(node, [yes, no])

    def while_(self, stmt: ast.While, after: Node, ways: Ways) -> Node:
        node = self.node(stmt, "", ways, [])
        inside = self.loop_ways(ways, after, node)
        body = self.block(stmt.body, node, inside)
        self.branch(node, stmt.test, body, self.block(stmt.orelse, after, ways))
        # It may go on for ever.
        self.link(node, [self.graph.lost] if isinstance(stmt.test, ast.Constant) else [])
        self.graph.iteration.setdefault(stmt, []).append((body, node))
        return node

    def for_(self, stmt: ast.For | ast.AsyncFor, after: Node, ways: Ways) -> Node:
        step = self.node(stmt, "next", ways, [])
        body = self.block(stmt.body, step, self.loop_ways(ways, after, step))
        target = self.node(stmt, "target", ways, [body])
        self.link(step, [target, self.block(stmt.orelse, after, ways)])
        self.graph.iteration.setdefault(stmt, []).append((target, step))
        return self.node(stmt, "", ways, [step])

    def loop_ways(self, ways: Ways, after: Node, head: Node) -> Ways:
        return replace(ways, breaks=lambda: after, continues=lambda: head)

    def match_(self, stmt: ast.Match, after: Node, ways: Ways) -> Node:
        other = after
        for case in reversed(stmt.cases):
            body = self.block(case.body, after, ways)
            guarded = case.guard is not None
            bound = self.node(case, "target", ways, [body, other] if guarded else [body])
            other = self.node(
                case, "", ways, [bound] if _takes_all(case.pattern) else [bound, other]
            )
        return self.node(stmt, "", ways, [other])

    # -------------------------------------------------------------------------- exceptions
    def with_(self, stmt: ast.With | ast.AsyncWith, after: Node, ways: Ways) -> Node:
        def leave(target: Node) -> Node:
            return self.node(stmt, "end", ways, [target])

        def swallow(target: Node) -> Node:
            return self.node(stmt, "end", ways, [target, after])

        inside = ways.through(leave)
        if stmt in self.swallows:
            inside = replace(
                inside, thrown=_once(ways.thrown, swallow), error=_once(ways.error, swallow)
            )
        return self.node(stmt, "", ways, [self.block(stmt.body, leave(after), inside)])

    def try_(self, stmt: ast.Try, after: Node, ways: Ways) -> Node:
        if stmt.finalbody:
            outer, behind = ways, after
            ways = outer.through(lambda target: self.block(stmt.finalbody, target, outer))
            after = self.block(stmt.finalbody, behind, outer)
        inside = ways
        if stmt.handlers:
            inside = self.handlers(stmt, after, ways)
        orelse = self.block(stmt.orelse, after, ways)
        return self.node(stmt, "", ways, [self.block(stmt.body, orelse, inside)])

    def handlers(self, stmt: ast.Try, after: Node, ways: Ways) -> Ways:
        """The ways inside a ``try`` block: an exception is offered to one handler after the other,
        and goes on where none takes it.
        """
        # ``except*``: the next handler takes the rest of the group.
        several = not isinstance(stmt, ast.Try)

        def chain(unmatched: Node) -> Node:
            other = unmatched
            for handler in reversed(stmt.handlers):
                first = self.handler(handler, [after, other] if several else [after], ways)
                target = self.node(handler, "target", ways, [first])
                other = self.node(
                    handler, "", ways, [target] if catches_all(handler) else [target, other]
                )
            return other

        return replace(ways, thrown=_once(ways.thrown, chain), error=_once(ways.error, chain))

    def handler(self, handler: ast.ExceptHandler, after: list[Node], ways: Ways) -> Node:
        if handler.name is None and len(after) == 1:
            return self.block(handler.body, after[0], ways)

        def leave(target: Node) -> Node:
            return self.node(handler, "end", ways, [target])

        end = self.node(handler, "end", ways, after)
        return self.block(handler.body, end, ways.through(leave) if handler.name else ways)


def is_try(node: ast.AST) -> TypeGuard[ast.Try]:
    """``try`` with ``except`` or with ``except*``."""
    return isinstance(node, TRIES)


def catches_all(handler: ast.ExceptHandler) -> bool:
    """``except:`` and ``except BaseException``: nothing goes past it."""
    return handler.type is None or (is_name(handler.type, "BaseException"))


def _takes_all(pattern: ast.pattern) -> bool:
    match pattern:
        case ast.MatchAs(pattern=None):
            return True
        case ast.MatchAs(pattern=inner) if inner is not None:
            return _takes_all(inner)
        case ast.MatchOr():
            return any(_takes_all(p) for p in pattern.patterns)
    return False
