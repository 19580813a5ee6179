"""Reads in the new text that may find no value, though all were well in the old one: asked of
definitions and uses of the new text itself.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from autofast.edit.hunks import Hunk, Span
from autofast.edit.spans import own_lines
from autofast.flow.callgraph import CallGraph
from autofast.flow.graph import Function
from autofast.flow.program import Flow, function_around
from autofast.flow.scopes import Variable, bound_by, variables_of
from autofast.model.contents import each_once
from autofast.model.script import Script
from autofast.model.several import any_of
from autofast.model.source import Source, statement_of
from autofast.model.syntax import FUNCTIONS, is_read


@dataclass(frozen=True)
class Unbound:
    """A read of ``name`` that may have no value, as ``hunk`` wrote it, or took the value away."""

    name: str
    hunk: Hunk
    read: ast.Name


def unbound_reads(old: Script, new: Script, source: Source, hunks: Sequence[Hunk]) -> list[Unbound]:
    """What ``hunks`` make of a file of ``old``, as ``new`` reads it, that may raise a ``NameError``
    or ``UnboundLocalError``.
    """
    fresh = new.source_at(source.path)
    return list(_File(old, new, source, fresh, hunks).found()) if fresh is not None else []


class _File:
    def __init__(
        self, old: Script, new: Script, source: Source, fresh: Source, hunks: Sequence[Hunk]
    ):
        self.old, self.new, self.source, self.fresh = old, new, source, fresh
        self.hunks, self.flow = hunks, new.analysis(Flow)
        self.table = variables_of(fresh.tree)
        self.loads = _reads(fresh.nodes)
        self.written = {
            n: h for n in self.loads for h in hunks if h.new[0] <= n.lineno - 1 < h.new[1]
        }
        # A read that was there before finds a value, or the script fails as it did.
        self.trusted = frozenset(n for n in self.loads if n not in self.written)

    def found(self) -> Iterator[Unbound]:
        before: dict[int, frozenset[str]] = {}
        for load in self.loads:
            hunk = self.written.get(load)
            if hunk is None:
                continue
            if id(hunk) not in before:
                before[id(hunk)] = _read_at(self.source, hunk.old)
            if load.id in before[id(hunk)]:
                continue
            if self._may_fail(load):
                yield Unbound(load.id, hunk, load)
        yield from self._robbed()

    def _may_fail(self, load: ast.Name) -> bool:
        variable = self.table.of(load)
        if variable is None or not isinstance(variable.scope, Function):
            # a builtin, a name that nothing binds (see postcheck), a variable of a comprehension or
            # class
            return False
        if function_around(load) is variable.scope:
            return self._comes_unbound(variable, load)
        if self._was_read_in(function_around(load), load.id):
            return False
        return any(self._comes_unbound(variable, call) for call in self._entries(load, variable))

    def _comes_unbound(self, variable: Variable, place: ast.AST) -> bool:
        """Whether it may have no value at a place of its own function; not where the script would
        fail at once for that anyway.
        """
        definitions = self.flow.definitions(place)
        if not definitions.may_come_unbound(variable, place, self.trusted):
            return False
        later = (n for n in self.table.loads(variable) if n in self.trusted)
        here = (n for n in later if function_around(n) is variable.scope)
        return not any(
            definitions.graph.postdominates(n, place)
            and definitions.may_come_unbound(variable, n)
            and self._is_sure(n)
            for n in here
        )

    def _is_sure(self, load: ast.Name) -> bool:
        return not any_of(
            ast.walk(statement_of(load)), ast.BoolOp, ast.IfExp, *FUNCTIONS, ast.comprehension
        )

    def _entries(self, load: ast.Name, variable: Variable) -> Iterator[ast.AST]:
        """The places in the scope of a variable at which the function that reads it is run, through
        others, too.
        """
        graph = self.new.analysis(CallGraph)
        todo = [function_around(load)]
        for function in each_once(todo):
            for node in graph.entries(function):
                if node is function or (outer := function_around(node)) is function:
                    continue
                if outer is variable.scope:
                    yield node
                else:
                    todo.append(outer)

    def _was_read_in(self, function: Function, name: str) -> bool:
        """Whether the function reads the variable of another scope in the old text, too."""
        return any(n.id == name and n in self.trusted for n in _reads(ast.walk(function)))

    def _robbed(self) -> Iterator[Unbound]:
        """Reads that are as they were, but whose value a hunk no longer writes."""
        for hunk in self.hunks:
            lost = _bound_at(self.source, hunk.old) - _bound_at(self.fresh, hunk.new)
            for load in self.loads if lost else ():
                if load.id not in lost or load not in self.trusted:
                    continue
                variable = self.table.of(load)
                if variable is None or function_around(load) is not variable.scope:
                    continue
                trusted = self.trusted - {load}
                if self.flow.definitions(load).may_come_unbound(
                    variable, load, trusted
                ) and not self._failed_before(load):
                    yield Unbound(load.id, hunk, load)

    def _failed_before(self, load: ast.Name) -> bool:
        """Whether a read of this name may already have found no value in the old text."""
        flow, table = self.old.analysis(Flow), variables_of(self.source.tree)
        same = [n for n in _reads(self.source.nodes) if n.id == load.id]
        pairs = [(n, v) for n in same if (v := table.of(n)) is not None]
        return any(
            flow.definitions(n).may_come_unbound(v, n)
            for n, v in pairs
            if function_around(n) is v.scope
        )


def _reads(nodes: Iterable[ast.AST]) -> list[ast.Name]:
    return [n for n in nodes if isinstance(n, ast.Name) and is_read(n)]


def _read_at(source: Source, span: Span) -> frozenset[str]:
    """The names that statements read which stand, with some of their lines, in a span of lines."""
    found = set()
    for node in _reads(source.nodes):
        first, last = own_lines(statement_of(node))
        if first - 1 < span[1] and last > span[0]:
            found.add(node.id)
    return frozenset(found)


def _bound_at(source: Source, span: Span) -> frozenset[str]:
    """The names that are bound in a span of lines."""
    return frozenset(
        name
        for node in source.nodes
        if not isinstance(getattr(node, "ctx", None), ast.Del)
        for name in bound_by(node)
        if span[0] <= getattr(node, "lineno", 0) - 1 < span[1]
    )
