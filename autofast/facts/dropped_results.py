"""Parts of what functions return that nobody reads: ``x, weights = attention(...)``."""

from __future__ import annotations

import ast

from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.program import definitions_of
from autofast.model.calls import put_into
from autofast.model.names import FORWARD_HOOKS
from autofast.model.script import Script
from autofast.model.source import ByNode, function_of, parent_of
from autofast.model.syntax import FUNCTIONS

DEEP = 6  # functions that hand a part on to their own callers


class DroppedResults:
    """``script.analysis(DroppedResults)``"""

    def __init__(self, script: Script):
        self.script, self.calls = script, script.analysis(CallGraph)
        self._asked: ByNode[dict[int, bool]] = {}

    def is_dropped(self, part: ast.expr, depth: int = 0) -> bool:
        """Whether an expression is one of several that a function returns, and no caller in the
        script reads what it gets for it."""
        row = parent_of(part)
        if not isinstance(row, ast.Tuple) or not isinstance(parent_of(row), ast.Return):
            return False
        function = function_of(row)
        return isinstance(function, FUNCTIONS) and self._drops(
            function, row.elts.index(part), depth
        )

    def _drops(self, function: Function, index: int, depth: int) -> bool:
        known = self._asked.setdefault(function, {})
        if index not in known:
            known[index] = False  # of a function that calls itself
            known[index] = (
                depth < DEEP
                and self._are_all_known(function)
                and all(
                    isinstance(e, ast.Call) and self._leaves(e, index, depth)
                    for e in self.calls.entries(function)
                )
            )
        return known[index]

    def _are_all_known(self, function: Function) -> bool:
        """Whether the script's own calls are all that runs it: of a ``forward``, those of its
        modules that the reader has seen."""
        if self.calls.handed(function) is not None or self.calls.is_decorated(function):
            return False
        in_class = isinstance(parent_of(function), ast.ClassDef)
        if in_class and getattr(function, "name", "") == "forward":
            hooked = self.script.methods(*FORWARD_HOOKS)
            return bool(self.calls.entries(function)) and not (self.script.unread or hooked)
        return not self.calls.complete(function)

    def _leaves(self, call: ast.Call, index: int, depth: int) -> bool:
        """Whether nothing is done with this part of what a call gives."""
        outer = parent_of(call)
        if isinstance(outer, ast.Expr):
            return True
        if isinstance(outer, ast.Return):  # whose own callers get it
            function = function_of(call)
            return isinstance(function, FUNCTIONS) and self._drops(function, index, depth + 1)
        if isinstance(outer, ast.Subscript) and outer.value is call:
            taken = self.script.constant(outer.slice)
            return isinstance(taken, int) and 0 <= taken != index
        target = put_into(call)
        if not isinstance(target, ast.Tuple) or index >= len(target.elts):
            return False
        name = target.elts[index]
        if not isinstance(name, ast.Name) or any(
            isinstance(e, ast.Starred) for e in target.elts[:index]
        ):
            return False
        uses = definitions_of(self.script, name).uses_of(name)
        return all(self.is_dropped(use, depth + 1) for use in uses)
