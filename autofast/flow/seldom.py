"""What a function is given in few of its calls only: ``if store is not None:``, where its callers
have something in every 50th step, and else None.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.frequency import arms_around, is_seldom, rare_arms_around
from autofast.flow.loops import Loop, loops_around
from autofast.flow.program import Flow
from autofast.flow.scopes import defaults
from autofast.model.contents import each_once
from autofast.model.script import Script
from autofast.model.source import ByNode, function_of, within
from autofast.model.syntax import is_unary


class Seldom:
    """``script.analysis(Seldom)``"""

    def __init__(self, script: Script):
        self.script = script
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)
        self.known: ByNode[bool] = {}

    def around(self, node: ast.AST, loop: Loop | None) -> bool:
        """Whether few iterations of ``loop`` (calls of its function, without one) come to a place,
        as it stands below such a condition.
        """
        return any(self._is_given(gate.test, arm) for gate, arm in arms_around(node, loop))

    def _is_given(self, test: ast.expr, arm: bool) -> bool:
        """Whether a test has this truth where a variable is given what it mostly is not."""
        while is_unary(test, ast.Not):
            test, arm = test.operand, not arm
        match test:
            case ast.Compare(left=ast.Name() as name, ops=[op], comparators=[ast.Constant(None)]):
                arm = arm is isinstance(op, (ast.IsNot, ast.NotEq))
            case ast.Name() as name:
                pass
            case _:
                return False
        if name not in self.known:
            self.known[name] = self._is_seldom(name, is_truth=name is test)
        return arm and self.known[name]

    def _is_seldom(self, name: ast.Name, is_truth: bool) -> bool:
        """Whether all that a variable may be is None, or false (``is_truth``), but for what few
        iterations give.
        """
        few, todo = False, list[ast.expr | None]([name])
        for expr in each_once(todo):
            match expr:
                case ast.expr() if is_truth and is_seldom(expr, True, expr):
                    few = True
                case ast.Constant(value=value) if value is None or (is_truth and not value):
                    pass
                case ast.IfExp(test=test, body=then, orelse=other):
                    both = ((then, True), (other, False))
                    usual = [arm for arm, on in both if not is_seldom(test, on, expr)]
                    few |= len(usual) < 2
                    todo += usual
                case ast.Name() if found := self.flow.reaching(expr):
                    usually = [d for d in found if not rare_arms_around(d.node, None)]
                    loop = next(loops_around(expr), None)
                    if len(usually) < len(found):
                        few = True
                        if loop is not None and not all(within(d.node, loop) for d in found):
                            return False  # what one turn gives the others have, too
                    todo += [e for d in usually for e in self._given(d, expr)]
                case ast.Call() if callees := self.calls.callees(expr):
                    todo += [r for c in callees for r in self.calls.results(c.function)]
                case _:
                    return False
        return few

    def _given(self, made: Definition, use: ast.Name) -> Iterator[ast.expr | None]:
        """What a definition gives a variable; behind a ``*``, the arguments that it may be by their
        values.
        """
        function = function_of(made.node)
        if not made.is_parameter or isinstance(function, ast.Module):
            yield made.value
            return
        every = self.calls.arguments(function, made.name)
        given = self.calls.arguments(function, made.name, given=True)
        if len(given) < len(every) or not every:
            yield defaults(function).get(made.name)
        found = self.script.values(use)
        for call, value in given:
            likely = [a for a in call.args if not found.isdisjoint(self.script.values(a))]
            yield from (value,) if value is not None else likely or (None,)
