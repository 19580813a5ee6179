"""Gradients that are only made shorter: ``if factor < 1: p.grad.mul_(factor)``.

The condition waits for the device; times 1 a gradient is what it was, so that
``p.grad.mul_(factor.clamp(max=1))`` does the same. A factor that is NaN is not below 1 either, but
then the gradient that it is computed of has such numbers, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edits, Replace
from autofast.flow.loops import loops_around
from autofast.model.calls import is_name, literal_of
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import ByNode, source_of, within
from autofast.model.values import Tensor
from autofast.techniques.syncs.scalar_tensors import is_scalar
from autofast.techniques.syncs.substitution import swapped_text


def shortened(script: Script, branch: ast.AST) -> Edits:
    """The edits that shorten gradients without to ask whether they are too long; none where the
    branch does anything else.
    """
    match branch:
        case ast.If(
            test=ast.Compare(
                left=ast.Name() as factor, ops=[ast.Lt() | ast.LtE()], comparators=[most]
            ),
            body=[body],
            orelse=[],
        ) if literal_of(most) == 1 and is_scalar(script, factor):
            factors = [*_factors(script, body)]
            if not surely(is_name(f, factor.id) for f in factors):
                return ()
            source, name = source_of(branch), factor.id
            before, limited = "", f"{name}.clamp(max=1)"
            if any(within(loop, branch) for f in factors for loop in loops_around(f)):  # type: ignore[arg-type]
                before = f"{source.fresh(f'{name}_clamped')} = {limited}\n"
                limited = source.fresh(f"{name}_clamped")
            swaps: ByNode[str] = dict.fromkeys(factors, limited)  # type: ignore[arg-type]
            return (Replace(branch, before + swapped_text(body, swaps)),)
    return ()


def _factors(script: Script, statement: ast.stmt) -> Iterator[ast.expr | None]:
    """What each statement multiplies a gradient with, in place; None for all that do anything
    else.
    """
    match statement:
        case ast.For(
            target=ast.Name(), iter=ast.Name() | ast.Call(args=[]), body=[inner], orelse=[]
        ):
            yield from _factors(script, inner)
        case ast.If(test=ast.Compare(ops=[ast.Is() | ast.IsNot()]), body=[inner], orelse=[]):
            yield from _factors(script, inner)
        case ast.Expr(
            value=ast.Call(func=ast.Attribute(value=of, attr="mul_"), args=[factor], keywords=[])
        ) if surely(isinstance(t, Tensor) and t.param == "grad" for t in script.values(of)):
            yield factor
        case _:
            yield None
