"""checkpoint-state: save and load the state of the GradScaler beside that of the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.precision.amp import amp
from autofast.techniques.precision.blocks import KEY
from autofast.techniques.precision.scaler_state import forgotten
from autofast.techniques.precision.scaling import Scaling

ADDED = "a training that goes on from a checkpoint keeps the scale that its GradScaler had found"
BUG = "a training that goes on from this checkpoint begins with another scale: the GradScaler's state belongs to it, too"


@rule("checkpoint-state", Effect.EXACT, groups=("precision",), uses=("grad-scaler",), torch=(1, 6))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Save and load the state of the GradScaler beside that of the optimizer."""
    made = amp(script, options).scaling
    for place in made.states if made is not None else ():
        yield Finding(place.node, ADDED, edits=(place.edit,), key=KEY, needs=(Scaling,))
    if any(step.scalers for step in script.steps):
        yield from forgotten(script, BUG)
