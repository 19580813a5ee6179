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
from autofast.flow.positions import nodes_of
from autofast.model.script import Script
from autofast.model.source import nodes_in
from autofast.model.tensors import tensors_in
from autofast.rule import Options
from autofast.techniques.precision.casts import cast_of
from autofast.techniques.precision.with_logits import logits_of

TARGETS = 2  # statements that have to do with no network, from which on a block ends above them

Accepted = tuple[Region, Code]


def narrowed(script: Script, options: Options, accepted: Sequence[Accepted]) -> Iterator[Accepted]:
    """The regions, or their forward passes: what is computed from fp32 is the same, or more exact,
    outside of autocast.
    """
    inside = {n for region, _ in accepted for n in nodes_of(region.parts)}
    for region, code in accepted:
        whole = region.is_forward_only or region.hoisted or region.first is region.last
        yield from ([] if whole else _alone(script, options, region, inside, code)) or [
            (region, code)
        ]


def _alone(
    script: Script, options: Options, region: Region, inside: set[int], code: Code
) -> list[Accepted]:
    """The forward passes, where all that they give is cast as a whole; else none. A loss in the
    form of a module is no forward pass: it is computed from fp32.

    So is any loss below statements that only prepare targets for it (copied labels, masks).
    """
    behind = _behind(region)
    prepares = sum(not _concerns(script, part, region) for part in behind) >= TARGETS
    below = nodes_of(behind) if region.trains and prepares else set()
    half = Half(script, inside - below, options.target, logits_of(script, options))
    losses = {id(c) for c in region.forwards if half.is_of_losses(c)}
    passes = [c for c in region.outputs if id(c) not in losses]
    if {id(c) for c in region.forwards} - losses != {id(c) for c in passes}:
        return []
    if not all(half.misuse(c) and cast_of(script, c) for c in passes):
        return []
    things = [t for t in region.things if half.networks.get(id(t), True)]
    short = replace(region, forwards=passes, outputs=passes, things=things)
    alone = [replace(r, hoisted=[]) if below else r for r in forwards_alone(short)]
    found = [(r, code.other(r.parts, r.things)) for r in alone]
    return [] if any(r.hoisted or against(c) for r, c in found) else found


def _behind(region: Region) -> Sequence[ast.AST]:
    """The statements of a region below the last one that holds a forward pass."""
    passes = [n for n, part in enumerate(region.parts) if _holds(part, region)]
    return region.parts[passes[-1] + 1 :] if passes else []


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
