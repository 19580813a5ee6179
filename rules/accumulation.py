"""accumulation: make one update of the gradients of several batches."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.accumulation.accumulated import Accumulated, accumulated

MESSAGE = "the gradients of several batches can be gathered for one update"


@rule(
    "accumulation",
    Effect.RECIPE,
    default=False,
    option="--accumulate N",
    decides=Accumulated,
    relieves={"communication": 2, "optimizer": 4},
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Gather the gradients of several batches for one update."""
    if options.accumulate < 2:
        if script.steps and options.requested:
            yield Finding(
                script.steps[0].backwards[0].node,
                MESSAGE,
                refusal="of how many batches is not said: give --accumulate N",
            )
        return
    for found in accumulated(script, options):
        if found.refusal:
            yield Finding(found.node, found.message, refusal=found.refusal)
        else:
            yield Finding(found.node, found.message, edits=found.edits, key=found.step.loop)
