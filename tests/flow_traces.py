"""Runs small functions and records what really happens in them, for tests of :mod:`autofast.flow`.

Every definition of a variable is rewritten to wrap the value with the place of the definition,
every read to unwrap it and to note which definition it came from, and every statement to note that
it begins.
"""

from __future__ import annotations

import ast
import copy
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

from autofast.flow.scopes import bound_by, owner, parameters
from autofast.model.source import Source

Spot = tuple[int, int]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parse(code: str) -> Source:
    return Source(Path("program.py"), "program.py", dedent(code).lstrip("\n").encode())


def spot(node: ast.AST) -> Spot:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


class Stop(BaseException):
    """The program has run for long enough."""


@dataclass
class Tagged:
    value: Any
    spot: Spot


@dataclass
class Trace:
    """``seen``: read -> definitions that gave it its value. ``events``: what happened in order, as
    (what, spot, name).

    ``ended`` is how the call ended: ``return``, or the class of the exception.
    """

    seen: dict[Spot, set[Spot]] = field(default_factory=lambda: defaultdict(set))
    events: list[tuple[str, Spot, str]] = field(default_factory=list)
    ended: str = "return"

    def tag(self, spot: Spot, name: str, value: Any) -> Any:
        self.events.append(("define", spot, name))
        return Tagged(value.value if isinstance(value, Tagged) else value, spot)

    def see(self, spot: Spot, name: str, value: Any) -> Any:
        self.events.append(("use", spot, name))
        if not isinstance(
            value, Tagged
        ):  # bound in the middle of a statement, or the parameter of a lambda
            return value
        self.seen[spot].add(value.spot)
        return value.value

    def at(self, spot: Spot) -> None:
        self.events.append(("begin", spot, ""))
        if len(self.events) > 3000:
            raise Stop

    def each(self, spot: Spot, name: str, values: Any) -> Any:
        for value in values:
            yield self.tag(spot, name, value)


class Instrument(ast.NodeTransformer):
    """Rewrites a copy of a tree; ``mine`` are the spots of names that are variables of the file."""

    def __init__(self, tree: ast.Module):
        self.mine = {
            (spot(n), type(n.ctx))
            for n in ast.walk(tree)
            if isinstance(n, ast.Name) and owner(n) is not None
        }

    def is_mine(self, node: ast.Name) -> bool:
        return (spot(node), type(node.ctx)) in self.mine

    def call(self, what: str, node: ast.AST, name: str, value: ast.expr) -> ast.expr:
        where = ast.Constant(spot(node))
        return ast.Call(
            ast.Attribute(ast.Name("TRACE__", ast.Load()), what, ast.Load()),
            [where, ast.Constant(name), value],
            [],
        )

    def tags(self, targets: list[ast.AST]) -> list[ast.stmt]:
        """Statements that wrap what has just been bound."""
        found: list[ast.stmt] = []
        for target in targets:
            for name in bound_by(target):
                value = self.call("tag", target, name, ast.Name(name, ast.Load()))
                found.append(ast.Assign([ast.Name(name, ast.Store())], value))
        return found

    def stores(self, *targets: ast.AST | None) -> list[ast.AST]:
        return [
            n
            for t in targets
            if t is not None
            for n in ast.walk(t)
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        ]

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if isinstance(node.ctx, ast.Load) and self.is_mine(node):
            return self.call("see", node, node.id, ast.Name(node.id, ast.Load()))
        return node

    def visit_NamedExpr(self, node: ast.NamedExpr) -> ast.AST:
        return ast.NamedExpr(
            node.target, self.call("tag", node.target, node.target.id, self.visit(node.value))
        )

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        assert isinstance(node.target, ast.Name)
        source = self.call("each", node.target, node.target.id, self.visit(node.iter))
        return ast.comprehension(node.target, source, [self.visit(i) for i in node.ifs], 0)

    def body(self, block: list[ast.stmt], first: list[ast.stmt] | None = None) -> list[ast.stmt]:
        found = list(first or [])
        for stmt in block:
            found += self.statement(stmt)
        return found

    def statement(self, stmt: ast.stmt) -> list[ast.stmt]:
        if isinstance(stmt, (ast.Global, ast.Nonlocal)):
            return [stmt]
        before: list[ast.stmt] = [ast.Expr(self.call("at", stmt, "", ast.Constant(0)))]
        before[0].value.args = before[0].value.args[:1]  # type: ignore[attr-defined]
        original = stmt
        stmt = copy.copy(stmt)
        behind: list[ast.stmt] = []
        for name, value in ast.iter_fields(stmt):
            if name in ("body", "orelse", "finalbody") and isinstance(value, list):
                bound = (
                    self.stores(getattr(original, "target", None))
                    if name == "body" and isinstance(stmt, ast.For)
                    else []
                )
                if name == "body" and isinstance(stmt, ast.With):
                    bound = self.stores(*(i.optional_vars for i in stmt.items))
                if name == "body" and isinstance(stmt, FUNCTIONS):
                    bound = list(parameters(stmt))
                setattr(stmt, name, self.body(value, self.tags(bound)))
            elif name == "handlers":
                stmt.handlers = [self.handler(h) for h in value]  # type: ignore[attr-defined]
            elif name == "cases":
                stmt.cases = [self.case(c) for c in value]  # type: ignore[attr-defined]
            elif isinstance(value, list):
                setattr(stmt, name, [self.visit(v) if isinstance(v, ast.AST) else v for v in value])
            elif isinstance(value, ast.AST):
                setattr(stmt, name, self.visit(value))
        match original:
            case ast.Assign():
                behind = self.tags(self.stores(*original.targets))
            case ast.AnnAssign() if original.value is not None:
                behind = self.tags(self.stores(original.target))
            case ast.FunctionDef() | ast.ClassDef():
                behind = self.tags([original])
            case ast.Import() | ast.ImportFrom():
                behind = self.tags(list(original.names))
            case ast.AugAssign() if isinstance(original.target, ast.Name):
                read = self.call(
                    "see",
                    original.target,
                    original.target.id,
                    ast.Name(original.target.id, ast.Load()),
                )
                made = ast.BinOp(read, original.op, self.visit(original.value))
                stmt = ast.Assign(
                    [original.target], self.call("tag", original.target, original.target.id, made)
                )
            case ast.Delete():
                names = [t for t in original.targets if isinstance(t, ast.Name)]
                before += [
                    ast.Expr(self.call("see", t, t.id, ast.Name(t.id, ast.Load()))) for t in names
                ]
        return [*before, stmt, *behind]

    def handler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        kind = self.visit(node.type) if node.type is not None else None
        return ast.ExceptHandler(
            kind, node.name, self.body(node.body, self.tags([node] if node.name else []))
        )

    def case(self, node: ast.match_case) -> ast.match_case:
        bound = [n for n in ast.walk(node.pattern) if bound_by(n)]
        guard = self.visit(node.guard) if node.guard is not None else None
        return ast.match_case(node.pattern, guard, self.body(node.body, self.tags(bound)))


def instrumented(source: Source) -> Any:
    visitor = Instrument(source.tree)
    module = ast.Module(visitor.body(ast.parse(source.text).body), [])
    return compile(ast.fix_missing_locations(module), "program.py", "exec")


def run(code: Any, arguments: list[Any], names: dict[str, Any]) -> Trace:
    """One call of the function ``f`` of an instrumented program."""
    trace = Trace()
    space = {"TRACE__": trace, **names}
    try:
        exec(code, space)
        function = space.get("f")
        if function is not None:
            trace.events.clear()
            function.value(*arguments)
    except Stop:
        trace.ended = "stop"
    except (
        NameError,
        TypeError,
        ValueError,
        IndexError,
        RuntimeError,
        KeyError,
        AssertionError,
    ) as error:
        trace.ended = type(error).__name__
    return trace
