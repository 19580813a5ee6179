"""set-to-none: drop gradients instead of filling them with zeros."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.optimizer.zeroing import against, explicit

MESSAGE = (
    "fills gradients with zeros, to which the next backward adds, instead of letting it write them"
)


@rule(
    "set-to-none",
    Effect.EXACT,
    groups=("optimizer",),
    relieves={"optimizer": 2, "host": 3},
    asks=gains.usual(0.01, "one kernel for each gradient"),
    torch=(1, 7),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Drop gradients instead of filling them with zeros."""
    for zeroing in explicit(script):
        if why := against(script, zeroing):
            yield Finding(zeroing.node, MESSAGE, refusal=why)
        else:
            yield Finding(zeroing.node, MESSAGE, edits=zeroing.edits)
