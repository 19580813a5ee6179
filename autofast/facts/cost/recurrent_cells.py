"""Recurrent networks that Python takes through a sequence one element at a time: a few small
products between many launches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from math import prod

from autofast.facts.cost import machine
from autofast.facts.cost.matmul_layers import multiplies
from autofast.facts.cost.run_counts import over_layers
from autofast.facts.cost.step import Cost
from autofast.facts.parts import parts_of, trained_models
from autofast.flow.loops import unit_of
from autofast.flow.positions import position
from autofast.model.calls import names_in
from autofast.model.events import (
    CallFrame,
    LoopFrame,
    Occurrence,
    Site,
    below,
    inside,
    loops,
)
from autofast.model.names import CONTAINERS, CONVOLVE, TIMM, VISION, last_part
from autofast.model.roles import Step
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import Nodes, at, nodes_in, statement_of
from autofast.model.values import Ext, Inst, Tensor, any_of
from autofast.ops import op
from autofast.ops.families import CELLS, RECURRENT

# Layers whose work may outweigh all launches.
LARGE = ("Conv2d", "Conv3d", "ConvTranspose", "Transformer", "MultiheadAttention", VISION, TIMM)
MANY = 1_000  # kernels of a step along a sequence: 5 ms and more in which the host begins them
TOO_MANY = 10**6
BOTH_WAYS = 3  # kernels of an operation: one forwards, two backwards


class Cells:
    """``script.analysis(Cells)``."""

    def __init__(self, script: Script):
        self.script = script

    @cached_property
    def place(self) -> str:
        """Where a sequence is gone through, in words, if that is what the training takes its time
        for: all its recurrent layers go so, or others and convolutions along sequences stand beside
        a loop that launches many kernels along its sequences, and nothing larger is trained; else
        empty.
        """
        models = trained_models(self.script)
        layers = {layer for m in models for layer in m.layers}
        if any(m.unknown for m in models) or any(layer.startswith(LARGE) for layer in layers):
            return ""
        passes = [
            (at(site), name in CELLS or any(self._carrying(site, occurrence)))
            for site in self.script.log.of("forward")
            for occurrence in site
            for name in [getattr(occurrence.this, "name", "").removeprefix("torch.nn.")]
            if name in CELLS.union(RECURRENT) and self._trains(occurrence)
        ]
        if all(carried for _, carried in passes) and not any(
            x.startswith(CONVOLVE) for x in layers
        ):
            return passes[-1][0] if passes else ""
        light = any(carried for _, carried in passes) and not multiplies(self.script)
        return at(min(self._carried, key=position)) if light or self.along >= MANY else ""

    @cached_property
    def kernels(self) -> int:
        """How many kernels each step launches, at the least."""
        steps = self.script.analysis(Cost).training
        return min((self._launched(step, along=False) for step in steps), default=0)

    @cached_property
    def along(self) -> int:
        """How many a step launches while it goes along sequences, one element after the other; 0
        where it does not.
        """
        return max((self._launched(step, along=True) for step in self.script.steps), default=0)

    def _launched(self, step: Step, along: bool) -> int:
        cost, found = self.script.analysis(Cost), 0
        signs: dict[tuple[ast.AST, ...], int] = {}  # a + b, of which there are no events
        for _, site in self.script.log.each():
            if site.kind != "forward" and not _computes(site):
                continue
            for occurrence in (o for o in site if cost.is_each_turn(o.stack, step.loop)):
                within = loops(below(occurrence.stack, step.loop))
                if along and not any(f.node in self._carried for f in within):
                    continue
                times = prod(map(cost.turns_of, within))
                home = unit_of(site.node)
                calls = (f.node for f in occurrence.stack if isinstance(f, CallFrame))
                signs |= {(home, *calls): times * self._signs(home)}
                found += times * _layers(occurrence)
        updates = max((cost.times(u.node, step.loop, ()) for u in step.updates), default=1)
        found = BOTH_WAYS * (found + sum(signs.values())) // max(1, updates)
        # More than any step launches: bounds of loops that are not what they seem.
        return found if found < TOO_MANY else 0

    @cached_property
    def _carried(self) -> Nodes:
        """The loops that carry a state from turn to turn."""
        return {
            frame.node
            for _, site in self.script.log.each()
            if site.kind == "forward" or _computes(site)
            for occurrence in site
            for frame in self._carrying(site, occurrence)
        }

    def _signs(self, home: ast.AST) -> int:
        """How often a loop or function computes with tensors by the signs of Python, beside the
        loops in it.
        """
        made = (n for n in nodes_in(home, ast.BinOp, ast.Compare) if unit_of(n) is home)
        return sum(any_of(self.script.values(n), Tensor) for n in made)

    def _trains(self, occurrence: Occurrence) -> bool:
        return any(inside(occurrence.stack, step.loop) for step in self.script.steps)

    def _carrying(self, site: Site, occurrence: Occurrence) -> Iterator[LoopFrame]:
        """The loops of the step that call it, with a state that goes from turn to turn."""
        for step in self.script.steps:
            within = inside(occurrence.stack, step.loop)
            frames = below(occurrence.stack, step.loop) if within else ()
            for n, frame in enumerate(frames):
                if (
                    isinstance(frame, LoopFrame)
                    and not frame.unrolled
                    and not over_layers(frame.node)
                ):
                    calls = (f.node for f in frames[n + 1 :] if isinstance(f, CallFrame))
                    if _keeps_state(site.node) or _hands_on(next(calls, site.node), frame.node):
                        yield frame


def _computes(site: Site) -> bool:
    """Whether an operation of torch computes something there: no view, no question of shapes."""
    known = op(site.kind)
    if known is None:
        return site.kind == "augment" or site.kind.startswith("torch.sparse.")
    return not known.view and site.kind not in (".size", ".dim", ".numel")


def _layers(occurrence: Occurrence) -> int:
    """How many layers run at once there: those of a Sequential; none of a class of the project,
    whose forward has events of its own.
    """
    if isinstance(occurrence.this, Inst):
        return 0
    parts = of_kind(parts_of(occurrence.this).values(), Ext) if occurrence.this else []
    turns = [machine.TURN // BOTH_WAYS for t in parts if last_part(t.name) in CELLS]
    return max(1, *turns, sum(t.name not in CONTAINERS for t in parts))


def _keeps_state(call: ast.AST) -> bool:
    """``self.state = self.cell(x, self.state)``."""
    stmt = statement_of(call)
    if not isinstance(stmt, ast.Assign):
        return False
    stored = {ast.unparse(n) for t in stmt.targets for n in nodes_in(t, ast.Attribute)}
    return any(ast.unparse(n) in stored for n in nodes_in(stmt.value, ast.Attribute))


def _hands_on(call: ast.AST, loop: ast.AST) -> bool:
    """``out, state = net(x, state)``; not ``x = layer(x)`` of one layer after the other, nor
    ``total = total + net(x)``.
    """
    stmt = statement_of(call)
    if not isinstance(stmt, ast.Assign):
        return False
    stored = {n.id for t in stmt.targets for n in nodes_in(t, ast.Name)}
    if isinstance(loop, ast.For):
        stored -= names_in(loop.target)
    match stmt.value:
        case ast.BinOp(left=ast.Name(id=name), right=rest) if name in stored:
            return bool(stored & names_in(rest))
    return bool(stored & names_in(stmt.value))


def goes_along_sequences(script: Script) -> bool:
    """Whether recurrent layers are trained, which take a sequence one element after the other."""
    return any(CELLS.union(RECURRENT) & m.layers for m in trained_models(script))
