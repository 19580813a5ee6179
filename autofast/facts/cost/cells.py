"""Recurrent networks that Python takes through a sequence one element at a time: a few small
products between many launches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from math import prod

from autofast.facts.cost.inputs import turns
from autofast.facts.cost.step import is_each_turn
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
        """Where a sequence is gone through, in words, if all recurrent layers of the training go so
        and nothing larger is trained; else empty.
        """
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
                if short in RECURRENT and not any(self._carrying(site, occurrence)):
                    return ""
                found = at(site.node)
        return found

    @cached_property
    def turns(self) -> tuple[int, str]:
        """How often a step goes through a recurrent network, one element after the other, at the
        least, and where; 0 where that is not known.
        """
        found = (0, "")
        for step in self.script.steps:
            for site in step.forwards:
                for occurrence in (o for o in site if is_each_turn(o.stack, step.loop)):
                    loops = list(self._carrying(site, occurrence))
                    known = [turns(self.script, loop.node) or 1 for loop in loops]
                    found = max(found, (prod(known) if known else 0, at(site.node)))
        return found if found[0] else (0, "")

    def _trains(self, occurrence: Occurrence) -> bool:
        return any(inside(occurrence.stack, step.loop) for step in self.script.steps)

    def _carrying(self, site: Site, occurrence: Occurrence) -> Iterator[LoopFrame]:
        """The loops of the step that call it, with a state that goes from turn to turn."""
        for step in self.script.steps:
            within = inside(occurrence.stack, step.loop)
            frames = below(occurrence.stack, step.loop) if within else ()
            for n, frame in enumerate(frames):
                if isinstance(frame, LoopFrame) and not frame.unrolled:
                    calls = (f.node for f in frames[n + 1 :] if isinstance(f, CallFrame))
                    if _hands_on(next(calls, site.node), frame.node):
                        yield frame


def _hands_on(call: ast.AST, loop: ast.AST) -> bool:
    """``out, state = net(x, state)``; not ``x = layer(x)`` of one layer after the other."""
    stmt = statement_of(call)
    if not isinstance(stmt, ast.Assign):
        return False
    stored = {n.id for t in stmt.targets for n in nodes_in(t, ast.Name)}
    if isinstance(loop, ast.For) and isinstance(call, ast.Call):
        if names_in(call.func) & names_in(loop.target):
            return False
    return bool(stored & names_in(stmt.value))
