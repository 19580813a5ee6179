"""Variables that certainly hold a dict where the reader, which does not know what a loader yields,
takes them for a tensor.
"""

from __future__ import annotations

import ast

from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import any_in, surely
from autofast.model.source import nodes_in
from autofast.model.syntax import is_read
from autofast.model.values import Tensor


class Mappings:
    """``script.analysis(Mappings)``: told by what is done with them. No tensor has ``.items()`` or
    ``.keys()``, is asked for a name, or gives the keys that it is asked for.
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
                case ast.Subscript(value=ast.Name() as base, slice=key) if is_read(node):
                    if isinstance(script.constant(key), str):
                        self._add(base)
                case ast.For(iter=ast.Name() as base, target=ast.Name() as key):
                    if self._asks_itself(node, base, key):
                        self._add(base)

    def holds(self, expr: ast.expr) -> bool:
        """Whether a variable that is taken for a batch certainly holds a dict here."""
        batch = surely(isinstance(t, Tensor) and t.batch for t in self.script.values(expr))
        if not batch or not isinstance(expr, ast.Name):
            return False
        return any(self.flow.is_same(expr, told) for told in self.told.get(expr.id, ()))

    def _add(self, base: ast.Name) -> None:
        self.told.setdefault(base.id, []).append(base)

    def _asks_itself(self, loop: ast.For, base: ast.Name, key: ast.Name) -> bool:
        """``for key in batch: batch[key]``"""
        return any(
            isinstance(part.value, ast.Name)
            and isinstance(part.slice, ast.Name)
            and self.flow.is_same(part.value, base)
            and any_in([loop], [d.statement for d in self.flow.reaching(part.slice)])
            and part.slice.id == key.id
            for part in nodes_in(loop, ast.Subscript)
        )
