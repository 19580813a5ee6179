"""What arithmetic, comparisons and conditions make of what one process has and what all have."""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.model.syntax import IDENTITY, is_operation
from autofast.model.values import const
from autofast.techniques.ddp.uniformity.calls import LibraryCalls
from autofast.techniques.ddp.uniformity.kinds import (
    EQUAL,
    NEAR,
    Kind,
    add,
    join,
    joined,
    other,
    over,
    times,
)


class Operators(LibraryCalls):
    """Operators and conditions."""

    def _binary(self, node: ast.AST, a: Kind, b: Kind, op: ast.operator) -> Kind:
        if is_operation(node, ast.Mod) and isinstance(const(self.script.values(node.left)), str):
            return self._text([node.right])
        match op:
            case ast.Add() | ast.Sub():
                found = add(a, b)
            case ast.Mult():
                found = times(a, b)
            case ast.Div():
                found = over(a, b)
            case _ if a.whole.same and b.whole.same:
                found = join(replace(a.whole, zero=False), replace(b.whole, zero=False))
            case _ if "batch" in (a.whole.name, b.whole.name):
                found = times(a, b)
            case _:
                found = other("a part of a larger number is taken apart")
        if found.name == "other" and is_operation(node):
            return self._scaled([(node.left, a.whole), (node.right, b.whole)], found)
        return found

    def _scaled(self, operands: list[tuple[ast.expr, Kind]], otherwise: Kind) -> Kind:
        """Numbers of samples that go into a number in another way than a sum: those of all
        processes are meant.
        """
        if not any(k.sized for _, k in operands) or not all(k.sized or k.same for _, k in operands):
            return otherwise
        found = EQUAL
        for expr, kind in operands:
            if kind.sized:
                self.settle(expr)
            else:
                found = join(found, replace(kind, zero=False, none=False))
        return found

    def _compare(self, node: ast.Compare) -> Kind:
        operands = [node.left, *node.comparators]
        kinds = [self.ev(o).whole for o in operands]
        if all(isinstance(op, IDENTITY) for op in node.ops):
            return EQUAL
        if any(k.name == "batch" for k in kinds):
            return (
                joined(*(k for k in kinds if k.name == "batch"))
                if all(k.name == "batch" or k.same for k in kinds)
                else other("samples are compared with a part of something")
            )
        if any(k.name in ("other", "loader") for k in kinds):
            return next(k for k in kinds if k.name in ("other", "loader"))
        for expr, kind in zip(operands, kinds, strict=True):
            if not kind.same:
                self.settle(expr)
        return NEAR if any(k.name == "near" for k in kinds) else EQUAL

    def _agreed(self, expr: ast.expr, whole: Kind) -> Kind | None:
        """What a value is on the host where all processes have the same, or come to the same
        together; None where each has its own.
        """
        if whole.same:
            return replace(whole, zero=False, none=False)
        if whole.name in ("mean", "sum", "per"):
            self.settle(expr)
            return EQUAL
        return None

    def _truth(self, expr: ast.expr, kind: Kind) -> Kind:
        """``not x``, or x as a condition."""
        whole = kind.whole
        if (same := self._agreed(expr, whole)) is not None:
            return same
        if whole.name == "loader":
            return EQUAL
        return (
            other("it depends on single samples of this process's part")
            if whole.name == "batch"
            else whole
        )

    def _bool(self, node: ast.BoolOp) -> Kind:
        found: Kind | None = None
        depth = 0
        for n, value in enumerate(node.values):
            kind = self.ev(value)
            truth = self._truth(value, kind)
            found = (
                truth if found is None else joined(found, truth) if found.name != "other" else found
            )
            if n < len(node.values) - 1:
                self.under(value, truth)
                depth += 1
        for _ in range(depth):
            self.leave()
        assert found is not None
        return found

    def _if(self, node: ast.IfExp) -> Kind:
        test = self.condition(node.test)
        self.under(node.test, test)
        kind = join(self.ev(node.body), self.ev(node.orelse))
        self.leave()
        return (
            kind
            if test.name == "equal"
            else NEAR
            if test.same and kind.same
            else kind
            if kind.name == "mean"
            else other("it is chosen by each process")
        )

    def condition(self, test: ast.expr) -> Kind:
        return self._truth(test, self.ev(test))
