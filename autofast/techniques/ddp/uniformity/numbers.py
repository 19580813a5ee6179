"""What the number that one process has is of that of all: a mean over processes, or a sum.

The same is asked of a loss, and is answered by the same analysis.
"""

from __future__ import annotations

import ast

from autofast.facts.batch.kinds import EACH, REDUCED, Kind, unknown_value, words
from autofast.facts.batch.samples import Activation, Shape
from autofast.flow.callgraph import Callee
from autofast.model.calls import is_method
from autofast.model.source import at
from autofast.rule import Refusal
from autofast.techniques.ddp.loss import REDUCTION, Loss

# What gives a value and a place for each sample.
PAIRS = ("max", "min", "topk", "sort")


class Numbers(Loss):
    """Follows numbers. A sum over the batch to which something is added that all processes have is
    no sum over processes, so such a number is ``FREE``."""

    def together(self, expr: ast.expr, run: Activation) -> str:
        """``mean`` or ``sum``; raises :class:`Refusal`."""
        kind = self.shape(expr, run)
        if isinstance(kind, Kind) and kind in REDUCTION:
            return REDUCTION[kind]
        if kind in EACH:
            raise Refusal(
                f"`{words(expr)}` on {at(expr)} is made of single samples, of which each process has a part"
            )
        raise unknown_value(expr)

    def has_rows(self, expr: ast.expr, run: Activation) -> bool:
        """Whether its first dimension certainly is that of the samples."""
        try:
            return self.shape(expr, run) is Kind.ROWS and not self._container(expr)
        except Refusal:
            return False

    def are_rows(self, changed: ast.expr, by: list[ast.expr], run: Activation) -> bool:
        """Whether ``changed`` may be changed in place by these: no number, or rows by rows."""
        try:
            kind, *others = (self.shape(e, run) for e in (changed, *by))
        except Refusal:
            return not by
        return kind not in REDUCED and (not by or {kind, *others} <= EACH)

    def entered(self, callee: Callee, call: ast.Call, run: Activation) -> Activation:
        """The run of a function that is called in another."""
        try:
            return self._entered(callee, call, run)
        except Refusal:
            return Activation(callee.function)

    def _shape(self, expr: ast.expr, run: Activation) -> Shape:
        if isinstance(expr, ast.Constant) and (expr.value is None or expr.value in (0, 0.0)):
            return Kind.NONE
        found = super()._shape(expr, run)
        return Kind.FREE if found is Kind.NUMBER else found

    def _attribute(self, expr: ast.Attribute, run: Activation) -> Shape:
        if expr.attr == "data":
            return self.shape(expr.value, run)
        return super()._attribute(expr, run)

    def _subscript(self, expr: ast.Subscript, run: Activation) -> Shape:
        picked = expr.value
        if is_method(picked, *PAIRS) and isinstance(self.script.constant(expr.slice), int):
            return self.shape(picked, run)
        return super()._subscript(expr, run)

    def _unlisted(
        self, name: str, kind: Shape, args: list[ast.expr], expr: ast.Call, run: Activation
    ) -> Shape:
        if kind in REDUCED and name == "detach":
            return kind
        return super()._unlisted(name, kind, args, expr, run)
