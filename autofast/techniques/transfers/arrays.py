"""Data of the host that no loader makes, put into a tensor and copied to the device in every
training step.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model.events import Stack, loops
from autofast.model.script import Script
from autofast.model.syntax import is_attribute
from autofast.model.values import Arg, Const
from autofast.techniques.transfers.fixed import is_fixed, is_size, made_of


def arrays(script: Script) -> Iterator[ast.Call]:
    """The copies, in the loops that train; what changes never, and sizes, are other rules'
    business.
    """
    steps = {id(_innermost(o.stack)) for s in script.steps for b in s.backwards for o in b.site} - {
        id(None)
    }
    for transfer in script.transfers:
        data = transfer.operand
        if (
            data is not None
            and transfer.how in ("to", "cuda")
            and transfer.to_device
            and not transfer.loaders
            and not transfer.unknown
            and bool(transfer.tensors)
            and all(t.device == "cpu" for t in transfer.tensors)
            and any(id(_innermost(o.stack)) in steps for o in transfer.site)
            and _is_of_data(script, data)
        ):
            yield transfer.node


def _innermost(stack: Stack) -> ast.AST | None:
    around = [f.node for f in loops(stack) if f.is_statement]
    return around[-1] if around else None


def _is_of_data(script: Script, expr: ast.expr) -> bool:
    """Made from an array, a list or a number that is not known before.

    A number may be a size (``torch.FloatTensor(n)``), but nobody copies memory that nothing was
    written to.
    """
    made = made_of(script, expr)
    if made is None:
        return False
    data = made.args[0]
    found = script.values(data)
    known = is_fixed(script, data) or all(isinstance(t, (Const, Arg)) for t in found)
    return bool(found) and not known and not (is_size(script, made) and _is_filled(expr))


def _is_filled(expr: ast.expr) -> bool:
    """``torch.FloatTensor(n).zero_()``"""
    return any(is_attribute(n, "fill_", "zero_") for n in ast.walk(expr))
