"""Blocks come down to the forward passes, where all that these give is written as fp32 anyway, or
end where only targets are prepared.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace

from autofast.facts.forwards import Region
from autofast.facts.forwards_alone import forwards_alone
from autofast.facts.precision.code import Code
from autofast.facts.precision.half_values import Half
from autofast.facts.precision.hazards import against
from autofast.flow.positions import block, index, nodes_of
from autofast.model.script import Script
from autofast.model.source import nodes_in
from autofast.model.tensors import tensors_in
from autofast.rule import Options
from autofast.techniques.precision.casts import PART, cast_of
from autofast.techniques.precision.with_logits import logits_of

TARGETS = 2  # statements that have to do with no network, from which on a block ends above them

Accepted = tuple[Region, Code]


def narrowed(script: Script, options: Options, accepted: Sequence[Accepted]) -> Iterator[Accepted]:
    """The regions, or their forward passes: what is computed from fp32 is the same, or more exact,
    outside of autocast.
    """
    inside = {n for region, _ in accepted for n in nodes_of(region.parts)}
    half = Half(script, inside, options.target, logits_of(script, options))
    for region, code in accepted:
        yield from _alone(script, half, region, code) or [
            _above_targets(script, options, region, inside, code) or (region, code)
        ]


def _alone(script: Script, half: Half, region: Region, code: Code) -> list[Accepted]:
    """The forward passes, where each is a statement of its own and gives what is cast as a whole;
    else none. A loss in the form of a module is no forward pass: it is computed from fp32.
    """
    if region.is_forward_only or region.hoisted or region.first is region.last:
        return []
    losses = {id(c) for c in region.forwards if half.is_of_losses(c)}
    passes = [c for c in region.outputs if id(c) not in losses]
    if {id(c) for c in region.forwards} - losses != {id(c) for c in passes}:
        return []
    if not all(half.misuse(c) and cast_of(script, c) for c in passes):
        return []
    things = [t for t in region.things if half.networks.get(id(t), True)]
    short = replace(region, forwards=passes, outputs=passes, things=things)
    found = [(r, code.other(r.parts, r.things)) for r in forwards_alone(short)]
    return [] if any(r.hoisted or against(c) for r, c in found) else found


def _above_targets(
    script: Script, options: Options, region: Region, inside: set[int], whole: Code
) -> Accepted | None:
    """The region up to statements that only prepare targets for the loss (labels that are copied,
    masks); None where there are none.

    The loss is then computed from fp32: what the one network gives that it is computed from must be
    cast as a whole.
    """
    if not region.trains or region.hoisted or region.is_forward_only:
        return None
    here = block(region.first)
    parts = here[index(here, region.first) : index(here, region.last) + 1]
    passes = [n for n, part in enumerate(parts) if _holds(part, region)]
    others = [n for n, part in enumerate(parts) if not _concerns(script, part, region)]
    stop = next((n for n in others if n > passes[-1]), len(parts)) if passes else len(parts)
    if sum(n >= stop for n in others) < TARGETS:
        return None
    short = replace(region, last=parts[stop - 1], is_forward_only=True)
    half = Half(script, inside - nodes_of(parts[stop:]), options.target, logits_of(script, options))
    leaves = [c for c in short.outputs if half.misuse(c)]
    if len(leaves) != 1 or PART in (cast := cast_of(script, leaves[0])) or not cast:
        return None
    code = whole.other(short.parts, short.things)
    return None if against(code) else (short, code)


def _holds(part: ast.AST, region: Region) -> bool:
    """Whether a forward pass stands in a statement."""
    return any(id(c) in nodes_of([part]) for c in region.forwards)


def _concerns(script: Script, part: ast.AST, region: Region) -> bool:
    """Whether a statement calls a network, computes from what one gave, or holds more than one
    simple statement.
    """
    if not isinstance(part, (ast.Assign, ast.AnnAssign)) or _holds(part, region):
        return True
    reads = (n for n in nodes_in(part, ast.expr))
    return any(t.models for n in reads for t in tensors_in(script.values(n)))
