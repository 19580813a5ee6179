"""Variables that certainly hold a dict where the reader, which does not know what a loader yields,
takes them for a tensor.
"""

from __future__ import annotations

import ast

from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import ancestors, nodes_in, statement_of, within, within_any
from autofast.model.syntax import COMPREHENSIONS
from autofast.model.values import Tensor


class Mappings:
    """``script.analysis(Mappings)``: told by what is done with them, on every way to the place that
    is asked about. No tensor has ``.items()`` or ``.keys()``, is asked for a name, or moves to the
    device what it holds under what it holds.
    """

    def __init__(self, script: Script):
        self.script, self.flow = script, script.analysis(Flow)
        self.told: dict[str, list[ast.Name]] = {}
        for node in script.nodes:
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name() as base), args=[]) if is_method(
                    node, "items", "keys"
                ):
                    self._add(base)
                case ast.Subscript(value=ast.Name() as base, slice=key, ctx=ast.Load()):
                    if isinstance(script.constant(key), str):
                        self._add(base)
                case ast.For(iter=ast.Name() as base, target=ast.Name() as key):
                    if self._moves_its_own(node, base, key):
                        self._add(base)

    def holds(self, expr: ast.expr) -> bool:
        """Whether a variable that is taken for a batch certainly holds a dict here."""
        batch = surely(isinstance(t, Tensor) and t.batch for t in self.script.values(expr))
        if not batch or not isinstance(expr, ast.Name):
            return False
        told = self.told.get(expr.id, ())
        return any(self.flow.is_same(expr, t) and self._comes_first(t, expr) for t in told)

    def _comes_first(self, told: ast.Name, place: ast.Name) -> bool:
        """Whether every way to a place has come by what tells it, with no error on the way."""
        for around in ancestors(told):
            if isinstance(around, ast.stmt):
                break
            if isinstance(around, (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)):
                return False
        attempts = of_kind(ancestors(told), (ast.Try,))
        if any(within(told, t) and not within_any(place, t.body) for t in attempts):
            return False
        here, there = statement_of(told), statement_of(place)
        return here is there or self.flow.graph(place).dominates(here, there)

    def _add(self, base: ast.Name) -> None:
        self.told.setdefault(base.id, []).append(base)

    def _moves_its_own(self, loop: ast.For, base: ast.Name, key: ast.Name) -> bool:
        """``for key in batch: batch[key] = batch[key].to(device)``"""
        for statement in nodes_in(loop, ast.Assign):
            match statement:
                case ast.Assign(
                    targets=[ast.Subscript() as under],
                    value=ast.Call(
                        func=ast.Attribute(
                            value=ast.Subscript(value=ast.Name() as of, slice=ast.Name() as by),
                            attr="to" | "cuda",
                        )
                    ),
                ) if ast.unparse(under) == f"{of.id}[{by.id}]":
                    made = [d.statement for d in self.flow.reaching(by)]
                    if by.id == key.id and made == [loop] and self.flow.is_same(of, base):
                        return True
        return False
