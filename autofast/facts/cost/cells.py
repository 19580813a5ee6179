"""Recurrent networks that Python takes through a sequence one element at a time: a few small products between many launches."""

from __future__ import annotations

import ast
from functools import cached_property

from autofast.facts.parts import trained_models
from autofast.model.calls import names_in
from autofast.model.events import CallFrame, LoopFrame, Occurrence, Site, below, inside
from autofast.model.script import Script
from autofast.model.source import at, nodes_in, statement_of
from autofast.model.values import Ext
from autofast.ops.families import CELLS, RECURRENT

LARGE = ("Conv", "Transformer", "MultiheadAttention")  # layers whose work may outweigh all launches


class Cells:
    """``script.analysis(Cells)``."""

    def __init__(self, script: Script):
        self.script = script

    @cached_property
    def place(self) -> str:
        """Where a sequence is gone through, in words, if all recurrent layers of the training go so and nothing larger is trained; else empty."""
        models = trained_models(self.script)
        if any(m.unknown or any(layer.startswith(LARGE) for layer in m.layers) for m in models):
            return ""
        found = ""
        for site in self.script.log.of("forward"):
            for occurrence in site:
                name = occurrence.this.name if isinstance(occurrence.this, Ext) else ""
                short = name.removeprefix("torch.nn.")
                if short not in CELLS.union(RECURRENT) or not self._trains(occurrence):
                    continue
                if short in RECURRENT and not self._carries(site, occurrence):
                    return ""
                found = at(site.node)
        return found

    def _trains(self, occurrence: Occurrence) -> bool:
        return any(inside(occurrence.stack, step.loop) for step in self.script.steps)

    def _carries(self, site: Site, occurrence: Occurrence) -> bool:
        """Whether a loop inside the step calls it, with a state that one turn of the loop hands to the next."""
        for step in self.script.steps:
            frames = below(occurrence.stack, step.loop)
            for n, frame in enumerate(frames):
                if isinstance(frame, LoopFrame) and not frame.unrolled:
                    calls = [f.node for f in frames[n + 1 :] if isinstance(f, CallFrame)]
                    if any(_hands_on(node) for node in (*calls, site.node)):
                        return True
        return False


def _hands_on(call: ast.AST) -> bool:
    """``out, state = net(x, state)``."""
    stmt = statement_of(call)
    if not isinstance(stmt, ast.Assign):
        return False
    stored = {n.id for t in stmt.targets for n in nodes_in(t, ast.Name)}
    given = names_in(stmt.value)
    return bool(stored & given)
