"""apex-amp: what apex.amp and its optimizers do, torch does."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule

AMP = ("apex.amp.initialize", "apex.amp.scale_loss")
MESSAGE = "apex.amp is no longer developed: torch.amp does what its opt_level O1 does, and the other rules can see through it"
ADVICE = (
    "run forward and loss under torch.autocast('cuda', dtype=torch.float16), and let a torch.amp.GradScaler scale the backward, "
    "unscale before gradients are clipped, step and update"
)
FUSED = {
    "FusedAdam": "torch.optim.AdamW(..., fused=True)",
    "FusedSGD": "torch.optim.SGD(..., fused=True)",
}


@rule("apex-amp", Effect.EXACT, groups=("precision", "modernize"))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Report apex.amp and the optimizers that only it knows, and what torch has in their place."""
    for (kind, _), site in script.log.each():
        if kind.startswith("apex.optimizers."):
            short = last_part(kind)
            instead = FUSED.get(short)
            if instead:
                advice = f"use {instead}, which is as fast and comes with torch"
            else:
                advice = "look for an optimizer of torch in its place"
            yield Finding(
                site.node,
                f"{short} of apex is an optimizer that only apex.amp knows",
                advice=advice,
            )
    places = [site.node for kind in AMP for site in script.calls(kind)]
    if places and options.target == "cuda":  # apex works on CUDA only
        yield Finding(places[0], MESSAGE, advice=ADVICE)
