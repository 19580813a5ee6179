"""unscale-before-clip: clip and read gradients only after they have been unscaled."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.precision.amp import amp
from autofast.techniques.precision.blocks import KEY
from autofast.techniques.precision.scaling import Scaling
from autofast.techniques.precision.unscale_places import Known, forgotten

ADDED = "with a GradScaler, gradients are still scaled here: they are unscaled before anything clips or reads them"


@rule(
    "unscale-before-clip",
    Effect.ROUNDING,
    groups=("precision",),
    uses=("grad-scaler",),
    torch=(1, 6),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Unscale gradients before they are clipped or read."""
    made = amp(script, options).scaling
    for unscale in made.unscales if made is not None else ():
        yield Finding(unscale.node, ADDED, edits=unscale.edits, key=KEY, needs=(Scaling,))
    mine = [s for s in script.steps if s.scalers]
    if not mine:
        return
    known = Known(script)
    for step in mine:
        yield from forgotten(known, step)
