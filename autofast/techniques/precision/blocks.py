"""The edits of one block under autocast, and of the outputs that leave it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofast.edit.edits import Around, Before, Edit, Rewrite, Wrap
from autofast.edit.order import Rank
from autofast.facts.forwards import Region, outputs_of
from autofast.facts.precision.between import both_modes
from autofast.facts.precision.code import Code
from autofast.facts.precision.half_values import Half
from autofast.model.script import Script
from autofast.model.source import source_of
from autofast.rule import Options
from autofast.techniques.precision.casts import PART, cast_of, casts_below
from autofast.techniques.precision.forms import Precision
from autofast.techniques.precision.with_logits import logits_of
from autofast.write.neighbours import follows

KEY = "amp"  # of the scaler


@dataclass(eq=False)
class Block:
    """A region that autocast goes around, with the edits for it.

    ``keys`` name its forwards in findings: where one part of the training stays in fp32, all of it
    does, and no evaluation is other than it.
    """

    region: Region
    edits: tuple[Edit, ...]

    @property
    def keys(self) -> list[object]:
        return [(KEY, id(call)) for call in self.region.forwards]


def block_edits(
    script: Script, options: Options, region: Region, precision: Precision, inside: set[int]
) -> tuple[Edit, ...] | str:
    """The edits that put a region under autocast; why there can be none. ``inside`` are the nodes
    of all such regions.
    """
    header, needed = precision.header(script, region.first)
    half = Half(script, inside, options.target, logits_of(script, options))
    casts: dict[int, tuple[ast.Call, str]] = {}
    named: list[Edit] = []
    for call in outputs_of(script, region):
        if why := half.misuse(call):
            cast = cast_of(script, call)
            parts = casts_below(script, half, call) if not cast or PART in cast else []
            if parts:
                named += parts
            elif cast or (cast := cast_of(script, call, maybe=True)):
                casts[id(call)] = call, cast
            else:
                return f"{why}, and the model's output is no plain tensor that .float() could be called on"
    taken = {id(e) for e in region.hoisted}
    wraps = [Wrap(call, cast) for call, cast in casts.values() if id(call) not in taken]
    return (
        *_around(region, header, {n: c for n, (_, c) in casts.items()}),
        *needed,
        *wraps,
        *named,
    )


def joined(script: Script, blocks: Sequence[Block]) -> list[Block]:
    """The blocks, those of one kind that stand beside each other as one."""
    found: list[Block] = []
    for block in blocks:
        one = next((b for b in found if _are_neighbours(script, b, block)), None)
        if one is None:
            found.append(block)
            continue
        (first, *above), (second, *below) = one.edits, block.edits
        assert isinstance(first, Around) and isinstance(second, Around)
        one.edits = (replace(first, last=second.last), *above, *below)
        one.region = replace(
            one.region,
            last=block.region.last,
            forwards=[*one.region.forwards, *block.region.forwards],
        )
    return found


def _are_neighbours(script: Script, one: Block, other: Block) -> bool:
    """Whether nothing stands between two blocks that begin with the same line, and one block may
    hold both.
    """
    first, second = one.edits[0], other.edits[0]
    if not isinstance(first, Around) or not isinstance(second, Around):
        return False
    if one.region.trains != other.region.trains or not follows(first, second):
        return False
    parts = [*one.region.parts, *other.region.parts]
    return not both_modes(Code(script, parts, [*one.region.things, *other.region.things]))


def _around(region: Region, header: str, casts: dict[int, str]) -> tuple[Edit, ...]:
    if not region.hoisted:
        return (Around(region.first, region.last, header, rank=Rank.AUTOCAST),)
    fresh = source_of(region.first).fresh
    name = fresh("output", "model_output") if region.is_forward_only else fresh("loss", "step_loss")
    several = len(region.hoisted) > 1
    holes = {fresh(f"{name}_{n}") if several else name: e for n, e in enumerate(region.hoisted, 1)}
    lines = [
        f"    {name} = " + casts.get(id(e), "{}").format(f"{{{name}}}") for name, e in holes.items()
    ]
    return (
        Before(region.first, "\n".join([header, *lines]), holes, rank=Rank.AUTOCAST),
        *(Rewrite(expr, name) for name, expr in holes.items()),
    )
