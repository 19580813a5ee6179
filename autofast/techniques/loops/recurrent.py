"""Layers that a recurrent loop applies in each turn and could apply to all turns at once."""

from __future__ import annotations

import ast

from autofast.edit.edits import OfExpression, Remove
from autofast.facts.cost.bounds import range_turns
from autofast.facts.cost.run_counts import over_layers
from autofast.facts.row_by_row import FEW, TRAINING
from autofast.facts.turns import carried
from autofast.flow.memory import Memory
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import any_of
from autofast.model.source import walk
from autofast.model.values import is_weight
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.ahead import ahead
from autofast.techniques.loops.collected import collected
from autofast.techniques.loops.rows import Planned


def recurrent_edits(script: Script, loop: ast.For) -> Planned:
    """What applies such layers ahead of the loop, or behind it; raises :class:`Refusal` without
    words where there is none.
    """
    turns, memory = range_turns(script, loop), script.analysis(Memory)
    if (turns is not None and turns < FEW) or over_layers(loop):
        raise Refusal
    written = (e for n in walk(loop) for e in memory.written(n))
    if any(is_weight(t) for e in written for t in script.values(e)) or any(
        is_method(n, *TRAINING) for n in walk(loop)
    ):
        raise Refusal  # the layer is another one in each turn
    if carried(script, loop) is None:
        raise Refusal  # it may turn over parts so that not all need memory at once
    behind = collected(script, loop)
    taken = [
        e.expr if isinstance(e, OfExpression) else e.stmt
        for e in behind
        if isinstance(e, (OfExpression, Remove))
    ]
    edits = behind
    if not any_of(walk(loop), ast.Break):  # else some turns may never come
        edits += ahead(script, loop, taken)
    if not edits:
        raise Refusal
    return edits, Effect.ROUNDING
