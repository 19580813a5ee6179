"""Whether what is computed certainly needs a gradient: on every way that the script may come, a
pass of one of some models is in it.

What the reader says of a tensor is what may be: of one that is ``generator(z)`` in some steps and
data in others, that it may need a gradient.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of, receiver_of
from autofast.model.contents import without_wrappers
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import statement_of
from autofast.model.syntax import SEQUENCES
from autofast.model.values import Tensor, Thing


class CertainGradients:
    """Of passes of the models with these ids, while all others need no gradient themselves."""

    def __init__(self, script: Script, models: Collection[int]):
        self.script = script
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)
        self.passes = {
            site.node
            for site in script.log.of("forward")
            if surely(o.grad == "on" and self._is_of(o.this, models) for o in site)
        }

    @staticmethod
    def _is_of(thing: Thing | None, models: Collection[int]) -> bool:
        return surely(id(m) in models for m in without_wrappers(thing))

    def needs(self, expr: ast.expr | None, seen: frozenset[ast.AST] = frozenset()) -> bool:
        """Whether an expression certainly needs one."""
        if expr is None or expr in seen:
            return False
        seen |= {expr}
        if isinstance(expr, SEQUENCES):
            return any(self.needs(e, seen) for e in expr.elts)
        if not surely(isinstance(t, Tensor) and t.grad for t in self.script.values(expr)):
            return False
        match expr:
            case ast.Name():
                return surely(self._given(d, seen) for d in self.flow.reaching(expr))
            case ast.Attribute(value=owner, attr=name):
                sites = self.script.log.setting(self.script.values(owner), name)
                if not sites:
                    return self.needs(owner, seen)
                return all(self._set(statement_of(s.node), seen) for s in sites)
            case ast.Call():
                given = [*arguments_of(expr), receiver_of(expr)]
                return (
                    expr in self.passes
                    or any(self.needs(e, seen) for e in given)
                    or self._returned(expr, seen)
                )
            case ast.BinOp(left=left, right=right):
                return self.needs(left, seen) or self.needs(right, seen)
            case ast.UnaryOp(operand=inner) | ast.Subscript(value=inner):
                return self.needs(inner, seen)
            case ast.IfExp(body=body, orelse=other):
                return self.needs(body, seen) and self.needs(other, seen)
        return False

    def _given(self, made: Definition, seen: frozenset[ast.AST]) -> bool:
        statement = made.statement
        if isinstance(statement, ast.AugAssign):
            return self._set(statement, seen)
        return surely(self._gives(e, seen) for e in self.calls.gives(made))

    def _set(self, statement: ast.stmt, seen: frozenset[ast.AST]) -> bool:
        match statement:
            case ast.AugAssign(target=target, value=value):
                return self.needs(value, seen) or self.needs(target, seen)
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self._gives(value, seen)
        return False

    def _gives(self, value: ast.expr | None, seen: frozenset[ast.AST]) -> bool:
        """The same of what a variable gets, perhaps one of several results of a model."""
        return self.needs(value, seen) or value in self.passes

    def _returned(self, call: ast.Call, seen: frozenset[ast.AST]) -> bool:
        code = [c for c in self.calls.callees(call) if c.makes is None]
        results = [r for c in code for r in self.calls.results(c.function)]
        return not self.calls.may_run_others(call) and surely(self.needs(r, seen) for r in results)
