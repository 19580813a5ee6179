"""Blocks of many statements come down to the forward passes, where all that these give is written as fp32 anyway."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autofast.facts.forwards import Region
from autofast.facts.forwards_alone import forwards_alone
from autofast.facts.precision.code import Code
from autofast.facts.precision.half_values import Half
from autofast.facts.precision.hazards import against
from autofast.flow.positions import nodes_of
from autofast.model.script import Script
from autofast.rule import Options
from autofast.techniques.precision.casts import cast_of

MANY = 4  # statements beside the forward passes from which on indenting them all is more than a reviewer wants to read

Accepted = tuple[Region, Code]


def narrowed(script: Script, options: Options, accepted: Sequence[Accepted]) -> Iterator[Accepted]:
    """The regions, or their forward passes: what is computed from fp32 is the same, or more exact, outside of autocast."""
    inside = {n for region, _ in accepted for n in nodes_of(region.parts)}
    half = Half(script, inside, options.target)
    for region, code in accepted:
        alone = _alone(script, half, region) if _others(region) >= MANY else []
        yield from alone or [(region, code)]


def _others(region: Region) -> int:
    """How many statements stand in a region beside those that hold its forward passes."""
    if region.hoisted or region.is_forward_only:
        return 0
    forwards = {id(c) for c in region.forwards}
    return sum(
        isinstance(n, ast.stmt) and not forwards & nodes_of([n])
        for part in region.parts
        for n in ast.walk(part)
    )


def _alone(script: Script, half: Half, region: Region) -> list[Accepted]:
    """The forward passes, where each is a statement of its own and gives what is cast as a whole; else none."""
    if {id(c) for c in region.forwards} != {id(c) for c in region.outputs}:
        return []
    if not all(half.misuse(c) and cast_of(script, c) for c in region.outputs):
        return []
    found = [(r, Code(script, r.parts, r.things)) for r in forwards_alone(region)]
    return [] if any(r.hoisted or against(c) for r, c in found) else found
