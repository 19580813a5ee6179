"""Calls of ``nn.MultiheadAttention`` that drop the weights, which it writes attention out for
unless it is told not to.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.model.values import Const, Ext, const
from autofast.rule import Effect

LAYER = "torch.nn.MultiheadAttention"
PLACE = 4  # need_weights, in forward(query, key, value, key_padding_mask, need_weights, ...)


def drops_weights(script: Script) -> Iterator[tuple[ast.Call, Effect]]:
    """The calls that ask for weights and drop them; ``sampling`` where there is dropout, which is
    drawn in another order.
    """
    for site in script.log.of("forward"):
        call = site.call
        if call is None or len(call.args) > PLACE:
            continue
        layers = script.values(call.func)
        if not layers or not all(isinstance(t, Ext) and t.name == LAYER for t in layers):
            continue
        given = {k.arg for k in call.keywords}
        # With is_causal=True, the layer without weights looks at no mask.
        if None in given or {"need_weights", "is_causal"} & given or not _drops(script, call):
            continue
        none = all(
            t.args.get(2, "dropout") <= {Const(0), Const(0.0)} for t in layers if isinstance(t, Ext)
        )
        yield call, Effect.ROUNDING if none else Effect.SAMPLING


def _drops(script: Script, call: ast.Call) -> bool:
    """``layer(...)[0]``, ``x, _ = layer(...)`` where nothing reads ``_``."""
    match parent_of(call):
        case ast.Subscript(value=value, slice=index):
            return value is call and const(script.values(index)) == 0
        case ast.Assign(targets=[ast.Tuple(elts=[_, ast.Name() as second])], value=value) if (
            value is call
        ):
            flow = script.analysis(Flow).definitions(second)
            return not flow.uses(Definition(second.id, second))
    return False
