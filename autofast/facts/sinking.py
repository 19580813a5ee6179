"""Code sinking: which statements may as well run below a condition further down, in the turns alone
in which it holds.

That needs four things. What they compute is used nowhere else, and in the same turn. They only
compute, so that nobody sees that they do not run. What they compute with is the same there: no
variable gets another value on the way, and what happens there changes nothing, or nothing of
theirs. And they stay in the same block, but for conditions: no gradient mode, handler or loop comes
between.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.computes import Computes
from autofast.facts.freshness import is_fresh
from autofast.facts.shows import Shows
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.positions import index_in_block, statements_beside
from autofast.flow.program import Flow
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import (
    binds,
    declared,
    loaded_in,
    mentions,
    owner,
    stored_in,
    variables_of,
)
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import (
    any_within,
    contains_kind,
    function_of,
    live_nodes,
    nodes_in,
    parent_of,
    walk,
    within_any,
)
from autofast.model.syntax import ASSIGNMENTS, CALL_ENDS, TURN_ENDS, is_attribute, is_read
from autofast.model.values import Cls, Const, Func, Num, Ref, Tensor, certainly

MOVABLE = (*ASSIGNMENTS, ast.For, ast.With, ast.If)


class Sinking:
    """What may move into ``gate``, a condition that stands, or would, at ``place``."""

    def __init__(self, script: Script, gate: ast.If, place: ast.stmt):
        self.script, self.gate = script, gate
        self.flow = script.analysis(Flow)
        self.uses: dict[ast.stmt, list[ast.Name]] = {}  # of what each statement found computes
        self.passed: list[ast.AST] = []
        self.quiet = True  # whether nothing that is passed changes anything but variables
        if place is gate:
            self._pass(gate.test)
        here: ast.AST = place
        while isinstance(here, ast.stmt):
            block = statements_beside(here)
            for statement in reversed(block[: max(0, index_in_block(block, here))]):
                if isinstance(statement, MOVABLE) and self._may_sink(statement):
                    self.uses[statement] = self._uses_of(statement)
                else:
                    self._pass(statement)
            outer = parent_of(here)
            if not isinstance(outer, ast.If):
                break
            self._pass(outer.test)
            here = outer

    def groups(self) -> Iterator[list[ast.stmt]]:
        """The statements that only move together, in order: that use what others of them compute,
        or give another value to what these compute or compute with.
        """
        found: list[list[ast.stmt]] = []
        for statement in reversed(self.uses):
            stored = stored_in(statement)
            mine = [
                group
                for group in found
                if any(
                    any_within(self.uses[s], statement) or stored & (loaded_in(s) | stored_in(s))
                    for s in group
                )
            ]
            found = [group for group in found if group not in mine]
            found.append([*(s for group in mine for s in group), statement])
        return (sorted(group, key=lambda s: s.lineno) for group in found)

    def _pass(self, code: ast.AST) -> None:
        """Take note of what stays, between what is found and the condition."""
        self.passed.append(code)
        left = {n for end in nodes_in(code, ast.Raise) for n in walk(end)}  # nothing is used then
        shows = self.script.analysis(_Quiet)
        self.quiet = self.quiet and all(n in left or shows.is_harmless(n) for n in live_nodes(code))

    def _uses_of(self, statement: ast.stmt) -> list[ast.Name]:
        flow = self.flow.definitions(statement)
        return [u for name in _bound(statement) for u in flow.uses_of(name)]

    def _may_sink(self, statement: ast.stmt) -> bool:
        names = {n.id for n in _bound(statement)}
        scope = function_of(statement)
        return (
            bool(names)
            and not any(names & stored_in(code) for code in self.passed)
            and not any(loaded_in(statement) & stored_in(code) for code in self.passed)
            and not contains_kind(statement, *TURN_ENDS, *CALL_ENDS)
            and names.isdisjoint(declared(scope))
            and not namespace_calls(scope)
            and not self.flow.is_exported(scope)
            and all(function_of(m) is scope for n in names for m in mentions(scope, n))
            and self._is_used_there(statement)
            and self.script.analysis(Computes).only(statement)
            and (self.quiet or self._is_steady(statement))
        )

    def _is_used_there(self, statement: ast.stmt) -> bool:
        """Whether all that is made of what it computes stands below the condition, or moves with
        it, and gets that of its own turn.
        """
        flow = self.flow.definitions(statement)
        here = [*self.uses, statement, *self.gate.body]
        uses = self._uses_of(statement)
        for use in uses:
            made = [d.node for d in flow.reaching(use)]
            if not within_any(use, here) or not all(within_any(n, here) for n in made):
                return False
            if flow.may_be_unbound(use):  # in the first turn, so that it is left of one before
                return False
        return bool(uses)

    def _is_steady(self, statement: ast.stmt) -> bool:
        """Whether what a statement computes with stays as it is, whatever happens."""
        calls = self.script.analysis(CallGraph)
        called = (f for n in nodes_in(statement, ast.Call) for f in calls.entered(n))
        bound = stored_in(statement)
        kind = {*walk(statement.annotation)} if isinstance(statement, ast.AnnAssign) else set()
        return (
            not any(is_attribute(n, "grad") for n in ast.walk(statement))
            and all(map(self._keeps_to_itself, called))
            and all(
                n.id in bound or self._is_fixed(n)
                for n in nodes_in(statement, ast.Name)
                if is_read(n) and n not in kind
            )
        )

    def _keeps_to_itself(self, function: Function) -> bool:
        """Whether a function looks at nothing but its arguments and what is imported."""
        loads = (n for n in nodes_in(function, ast.Name) if is_read(n))
        outside = (n for n in loads if not binds(function_of(n), n.id))
        return all(certainly(self.script.values(n), Ref, Func, Cls, Const) for n in outside)

    def _is_fixed(self, name: ast.Name) -> bool:
        """Whether a variable holds a number, a text, a function, or a tensor that nothing changes
        in place in this turn.
        """
        table = variables_of(name)
        if (variable := table.of(name)) is not None:
            stores = of_kind(table.stores(variable), ast.Name)
            if any(function_of(n) is not variable.scope for n in stores):
                return False  # whatever is called may set it
        found = self.script.values(name)
        tensors = certainly(found, Tensor, Num, Const) and is_fresh(self.script, name)
        return tensors or certainly(found, Num, Const, Ref, Func)


class _Quiet(Shows):
    """Code that may show something, and sets nothing that is not its own."""

    def may_set(self, function: Function, name: str) -> bool:
        return False


def _bound(statement: ast.stmt) -> list[ast.Name]:
    """The variables of its function that a statement gives a value."""
    scope = function_of(statement)
    stored = (n for n in nodes_in(statement, ast.Name) if not is_read(n))
    return [n for n in stored if owner(n) in (None, scope)]
