"""Recurrent networks that Python takes through a sequence one element at a time: a few small
products between many launches.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from math import prod

from autofast.facts.cost import machine
from autofast.facts.cost.inputs import turns
from autofast.facts.cost.matmul_layers import is_light
from autofast.facts.cost.run_counts import SHORT, is_each_turn
from autofast.facts.parts import trained_models
from autofast.model.calls import names_in
from autofast.model.events import CallFrame, LoopFrame, Occurrence, Site, Stack, below, inside
from autofast.model.names import CONVOLVE, TIMM, VISION
from autofast.model.script import Script
from autofast.model.source import at, function_of, nodes_in, statement_of
from autofast.model.values import Ext, Tensor, any_of
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
        a cell, and nothing larger is trained, be it that all are light or that a step launches
        many kernels along its sequences; else empty.
        """
        models = trained_models(self.script)
        layers = {layer for m in models for layer in m.layers}
        if any(m.unknown for m in models) or any(layer.startswith(LARGE) for layer in layers):
            return ""
        found, beside = "", any(layer.startswith(CONVOLVE) for layer in layers)
        by_cell = ""
        for site in self.script.log.of("forward"):
            for occurrence in site:
                name = occurrence.this.name if isinstance(occurrence.this, Ext) else ""
                short = name.removeprefix("torch.nn.")
                if short not in CELLS.union(RECURRENT) or not self._trains(occurrence):
                    continue
                found, carried = at(site), any(self._carrying(site, occurrence))
                beside = beside or (short in RECURRENT and not carried)
                by_cell = found if short in CELLS and carried else by_cell
        small = not beside or is_light(self.script) or self.kernels[0] >= MANY
        return (by_cell if beside else found) if small else ""

    @cached_property
    def kernels(self) -> tuple[int, str]:
        """How many kernels a step launches while it goes along sequences, one element after the
        other, forwards and backwards, at the least, and where; 0 where it does not.
        """
        found = (0, "")
        for step in self.script.steps:
            passes, operations, place = 0, 0, ""
            signs: dict[tuple[ast.AST, Stack], int] = {}  # a + b, of which there are no events
            for _, site in self.script.log.each():
                layer = site.kind == "forward"
                if not layer and not _computes(site):
                    continue
                for occurrence in (o for o in site if is_each_turn(o.stack, step.loop)):
                    loops = list(self._carrying(site, occurrence))
                    if not loops:
                        continue
                    times = prod(turns(self.script, loop.node) or SHORT for loop in loops)
                    function = function_of(site.node)
                    signs[function, occurrence.stack] = times * self._signs(function)
                    operations += times
                    passes, place = (max(passes, times), at(site)) if layer else (passes, place)
            operations += sum(signs.values())
            found = max(found, (max(BOTH_WAYS * operations, passes * machine.TURN), place))
        # More than any step launches: bounds of loops that are not what they seem.
        return found if found[1] and found[0] < TOO_MANY else (0, "")

    def _signs(self, function: ast.AST) -> int:
        """How often a function computes with tensors by the signs of Python."""
        found = (self.script.values(n) for n in nodes_in(function, ast.BinOp))
        return sum(any_of(values, Tensor) for values in found)

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
                    and not _over_layers(frame.node)
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


def _over_layers(loop: ast.AST) -> bool:
    """Whether a loop calls what it goes over, ``layer(x)``, ``self.layers[n](x)``: layers, each of
    which takes what the last one gave.
    """
    known: bool | None = getattr(loop, "_af_over_layers", None)  # asked for each event within
    if known is None:
        targets = names_in(loop.target) if isinstance(loop, ast.For) else frozenset()
        called = (call.func for call in nodes_in(loop, ast.Call))
        known = any(names_in(f) & targets for f in called if not isinstance(f, ast.Attribute))
        loop._af_over_layers = known  # type: ignore[attr-defined]
    return known


def _keeps_state(call: ast.AST) -> bool:
    """``self.state = self.cell(x, self.state)``."""
    stmt = statement_of(call)
    if not isinstance(stmt, ast.Assign):
        return False
    stored = {ast.unparse(n) for t in stmt.targets for n in nodes_in(t, ast.Attribute)}
    return any(ast.unparse(n) in stored for n in nodes_in(stmt.value, ast.Attribute))


def _hands_on(call: ast.AST, loop: ast.AST) -> bool:
    """``out, state = net(x, state)``; not ``x = layer(x)`` of one layer after the other."""
    stmt = statement_of(call)
    if not isinstance(stmt, ast.Assign):
        return False
    stored = {n.id for t in stmt.targets for n in nodes_in(t, ast.Name)}
    if isinstance(loop, ast.For):
        stored -= names_in(loop.target)
    return bool(stored & names_in(stmt.value))


def goes_along_sequences(script: Script) -> bool:
    """Whether recurrent layers are trained, which take a sequence one element after the other."""
    return any(CELLS.union(RECURRENT) & m.layers for m in trained_models(script))
