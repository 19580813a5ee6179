"""Ratios of two probabilities, ``exp(new - old)``: one precision for both, or for neither.

Where a policy is updated from what an earlier pass of it has said, both must round alike: the ratio
is 1 in the first step then, and with ``new`` in 16 bits and ``old`` in fp32 it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition, bound_to
from autofast.flow.program import Flow, function_around
from autofast.model.calls import is_method
from autofast.model.contents import each_once
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.source import nodes_in
from autofast.model.syntax import is_read
from autofast.model.values import Arg, Cls, Const, Func, Module, Num, Ref, Tensor

# what is done to a difference of logarithms before exp() is taken of it
BETWEEN = frozenset(
    "sum mean view reshape squeeze unsqueeze flatten clamp float nan_to_num".split()
)
PLAIN = (Const, Num, Arg, Ref, Module, Func, Cls)


class Ratios:
    """The ratios in a piece of code: ``parts`` and what they call, the node ids ``inside``, of
    which ``passes`` lead to a forward pass.
    """

    def __init__(self, script: Script, parts: list[ast.AST], inside: set[int], passes: set[int]):
        self.script, self.parts, self.inside, self.passes = script, parts, inside, passes
        self.flow, self.calls = script.analysis(Flow), script.analysis(CallGraph)

    @cached_property
    def of_an_earlier_pass(self) -> ast.Call | None:
        """``exp(a - b)`` of which one is made of a forward pass of this code, and the other comes
        from outside of it.
        """
        for call in (n for p in self.parts for n in nodes_in(p, ast.Call)):
            for a, b in self._differences(call):
                if {self._is_made_here(a), self._is_made_here(b)} == {True, False}:
                    return call
        return None

    def _differences(self, call: ast.Call) -> Iterator[tuple[ast.expr, ast.expr]]:
        """What is subtracted from what, in the argument of ``exp``."""
        if Ref("torch.exp") in self.script.values(call.func) and call.args:
            todo = [call.args[0]]
        elif is_method(call, "exp"):
            todo = [call.func.value]
        else:
            return
        for expr in each_once(todo):
            match expr:
                case ast.BinOp(left=a, op=ast.Sub(), right=b):
                    yield a, b
                case ast.Name():
                    todo += [d.value for d in self.flow.reaching(expr) if d.value is not None]
                case ast.Call(func=ast.Attribute(value=inner, attr=name)) if name in BETWEEN:
                    todo += [inner, *expr.args[:1]]  # x.sum(-1), torch.sum(x, -1)

    def _is_made_here(self, expr: ast.expr) -> bool | None:
        """Whether a value is made of a forward pass in this code; False where it comes from
        outside, None where it is neither.
        """
        from_outside = False
        todo: list[ast.AST] = [expr]
        for node in each_once(todo):
            if id(node) in self.passes:
                return True
            if isinstance(node, ast.Name):
                if is_read(node) and not self._is_plain(node):
                    for definition in self.flow.reaching(node):
                        before = self._before(definition)
                        todo += before
                        from_outside |= not before
                continue
            todo += ast.iter_child_nodes(node)
        return False if from_outside else None

    def _before(self, definition: Definition) -> list[ast.expr]:
        """The expressions of this code that a variable gets its value from; empty where it comes
        from outside.
        """
        if definition.is_parameter:
            function = function_around(definition.node)
            assert not isinstance(function, ast.Module)
            given = self.calls.arguments(function, definition.name)
            return [a for call, a in given if a is not None and id(call) in self.inside]
        value, _ = bound_to(definition.node)
        return [value] if value is not None and id(definition.node) in self.inside else []

    def _is_plain(self, name: ast.Name) -> bool:
        """A number, a function, a module or a parameter: nothing that a pass has made."""
        found = self.script.values(name)
        return bool(found) and all(
            isinstance(t, PLAIN) or is_module(t) or (isinstance(t, Tensor) and bool(t.param))
            for t in found
        )
