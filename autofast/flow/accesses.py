"""What a node of the graph does to variables, in the order in which Python does it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from autofast.flow.graph import Node
from autofast.flow.scopes import bound_by, outside_parts, owner, parameters
from autofast.model.several import grouped, not_none, wordset
from autofast.model.source import children, nodes_in, parent_of, walk
from autofast.model.syntax import is_stored

# builtins that take all of an iterable before they return
EAGER = wordset("all any bytes dict frozenset list max min set sorted sum tuple")


class Kind(Enum):
    USE = "reads it"
    DEFINE = "gives it a value"
    REMOVE = "takes the value away (`del`, the end of `except ... as`)"


@dataclass(frozen=True)
class Access:
    """One access to a variable; ``sure`` is False where the node may run without it. ``node`` reads
    or binds the name.
    """

    kind: Kind
    node: ast.AST
    name: str
    sure: bool = True


def accesses(node: Node) -> list[Access]:
    """The accesses of one node to variables, in order."""
    return list(_of_node(node))


def _of_node(node: Node) -> Iterator[Access]:
    tree, part = node.ast, node.part
    if part == "entry":
        yield from (Access(Kind.DEFINE, p, p.arg) for p in parameters(tree))
    elif part == "target":
        if isinstance(tree, (ast.For, ast.AsyncFor)):
            yield from _of(tree.target, True)
        elif isinstance(tree, ast.match_case):
            yield from _captures(tree.pattern)
            yield from _of(tree.guard, True)
        elif isinstance(tree, ast.ExceptHandler) and tree.name:
            yield Access(Kind.DEFINE, tree, tree.name)
    elif part == "end":
        if isinstance(tree, ast.ClassDef):
            yield Access(Kind.DEFINE, tree, tree.name)
        elif isinstance(tree, ast.ExceptHandler) and tree.name:
            yield Access(Kind.REMOVE, tree, tree.name)
    elif not part:
        yield from _of_statement(tree)


def evaluated_parts(tree: ast.AST, part: str = "") -> list[ast.AST]:
    """The expressions and targets that a node of the graph evaluates, in order; the parts of an
    expression that are evaluated before it.
    """
    match tree:
        case ast.For() | ast.AsyncFor() if part == "target":
            return [tree.target]
        case ast.match_case() if part == "target":
            return [tree.guard] if tree.guard is not None else []
        case _ if part:
            return []
        case ast.If() | ast.While():
            return [tree.test]
        case ast.For() | ast.AsyncFor():
            return [tree.iter]
        case ast.With() | ast.AsyncWith():
            parts = [e for item in tree.items for e in (item.context_expr, item.optional_vars)]
            return not_none(parts)
        case ast.Match():
            return [tree.subject]
        case ast.ExceptHandler():
            return [tree.type] if tree.type is not None else []
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.ClassDef():
            return list(outside_parts(tree))
        case ast.Assign():
            return [tree.value, *tree.targets]
        case ast.AugAssign() | ast.AnnAssign():
            others = [e for e in children(tree) if e is not tree.value]
            return [tree.value, *others] if tree.value is not None else others
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return [*tree.generators, *(e for e in children(tree) if e not in tree.generators)]
        case ast.Try() | ast.match_case():
            return []
        case _ if type(tree).__name__ == "TryStar":
            return []
    return list(children(tree))


def _of_statement(tree: ast.AST) -> Iterator[Access]:
    match tree:
        case ast.match_case():
            yield from (Access(Kind.USE, n, n.id, False) for n in nodes_in(tree.pattern, ast.Name))
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            yield from _of(tree, True)
        case ast.AugAssign():
            if isinstance(tree.target, ast.Name):
                yield Access(Kind.USE, tree.target, tree.target.id)
                yield from _all(True, tree.value, tree.target)
            else:
                yield from _all(True, tree.target, tree.value)
        case ast.AnnAssign():
            yield from _all(True, tree.value, tree.annotation)
            if tree.value is not None or not isinstance(tree.target, ast.Name):
                yield from _of(tree.target, True)
        case ast.Import() | ast.ImportFrom():
            yield from (Access(Kind.DEFINE, a, bound_by(a)[0]) for a in tree.names)
        case ast.Assert():
            yield from _of(tree.test, True)
            yield from _of(tree.msg, False)
        case ast.expr():
            yield from _of(tree, True)
        case _:
            yield from _all(True, *evaluated_parts(tree))


def _captures(pattern: ast.pattern) -> Iterator[Access]:
    """The names that a pattern binds once it has matched; one of the arms of ``|`` does."""
    if isinstance(pattern, ast.MatchOr):
        names = grouped((name, node) for node in walk(pattern) for name in bound_by(node))
        for name, nodes in names.items():
            yield Access(Kind.DEFINE, nodes[0], name)
            yield from (Access(Kind.DEFINE, n, name, sure=False) for n in nodes[1:])
        return
    yield from (Access(Kind.DEFINE, pattern, name) for name in bound_by(pattern))
    for child in children(pattern):
        if isinstance(child, ast.pattern):
            yield from _captures(child)


def _all(sure: bool, *parts: ast.AST | None) -> Iterator[Access]:
    for part in parts:
        yield from _of(part, sure)


def _of(node: ast.AST | None, sure: bool) -> Iterator[Access]:
    """The accesses of an expression or a target; ``sure`` where it is certainly evaluated."""
    match node:
        case None:
            return
        case ast.Name():
            yield from _of_name(node, sure)
        case ast.NamedExpr():
            yield from _all(sure, node.value, node.target)
        case ast.BoolOp():
            yield from _of(node.values[0], sure)
            yield from _all(False, *node.values[1:])
        case ast.IfExp():
            yield from _of(node.test, sure)
            yield from _all(False, node.body, node.orelse)
        case ast.Compare():
            yield from _all(sure, node.left, node.comparators[0])
            yield from _all(False, *node.comparators[1:])
        case ast.Dict():
            yield from (
                a for pair in zip(node.keys, node.values, strict=True) for a in _all(sure, *pair)
            )
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
            yield from _all(sure, *outside_parts(node))
            if not isinstance(node, ast.Lambda):
                yield Access(Kind.DEFINE, node, node.name, sure)
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            yield from _of_comprehension(node, sure)
        case _:
            yield from _all(sure, *children(node))


def _of_name(node: ast.Name, sure: bool) -> Iterator[Access]:
    if is_stored(node):
        yield Access(Kind.DEFINE, node, node.id, sure)
        return
    yield Access(Kind.USE, node, node.id, sure)
    if isinstance(node.ctx, ast.Del):
        yield Access(Kind.REMOVE, node, node.id, sure)


def _of_comprehension(
    node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, sure: bool
) -> Iterator[Access]:
    """It runs any number of times, so what it does is given twice: what it binds may be read in the
    next turn. One that runs later is not given.
    """
    yield from _of(node.generators[0].iter, sure)
    if is_lazy(node):
        return
    for _ in range(2):
        for number, generator in enumerate(node.generators):
            if number:
                yield from _of(generator.iter, False)
            yield from _all(False, generator.target, *generator.ifs)
        yield from _all(
            False, *((node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,))
        )


def is_lazy(node: ast.AST) -> bool:
    """A generator expression that does not certainly run where it stands."""
    if not isinstance(node, ast.GeneratorExp):
        return False
    call = parent_of(node)
    eager = (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in EAGER
        and owner(call.func) is None
    )
    return not (eager and isinstance(call, ast.Call) and call.args[:1] == [node])
