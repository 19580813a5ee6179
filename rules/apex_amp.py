"""apex-amp: torch.amp in the place of apex.amp."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.ignores import is_spared
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.precision.apex import KEY, Going, without_apex

NAME = "apex-amp"
MESSAGE = "apex.amp is no longer developed: torch.amp does what its opt_level O1 does, and the other rules can see through it"
FUSED = {
    "FusedAdam": "torch.optim.AdamW(..., fused=True)",
    "FusedSGD": "torch.optim.SGD(..., fused=True)",
}


@rule(
    NAME,
    Effect.ROUNDING,
    groups=("precision", "modernize"),
    default=False,
    decides=Going,
    told=True,
    torch=(1, 10),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Put torch.amp (autocast and GradScaler) in the place of apex.amp."""
    for site in script.log.each():
        short = site[0][0].rpartition(".")[2]
        if site[0][0].startswith("apex.optimizers."):
            instead = FUSED.get(short)
            advice = (
                f"use {instead}, which is as fast and comes with torch"
                if instead
                else "look for an optimizer of torch in its place"
            )
            yield Finding(
                site[1].node,
                f"{short} of apex is an optimizer that only apex.amp knows",
                advice=advice,
            )
    going = without_apex(script, options)
    if going is None:
        return
    spared = any(is_spared(place, NAME) for place in going.places)
    for n, place in enumerate(going.places):
        if going.refusal or spared:
            if n == 0:
                yield Finding(
                    place,
                    MESSAGE,
                    refusal=going.refusal or "another place of apex.amp is kept by a comment",
                )
        else:
            yield Finding(place, MESSAGE, edits=tuple(going.edits), key=KEY)
