"""set-to-none: drop gradients instead of filling them with zeros."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.optimizer.zeroing import against, by_hand, explicit, readers

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
    places = [*explicit(script), *by_hand(script)]
    reasons = {id(z): against(script, z) for z in places}
    for zeroing in places:
        why = reasons[id(zeroing)]
        if not why and any(
            reasons[id(z)] and id(n) in zeroing.own for z in places for n in readers(script, z)
        ):
            why = "another place clears these gradients, which must stay as it is because they are read here"
        if why:
            yield Finding(zeroing.node, MESSAGE, refusal=why)
        else:
            yield Finding(zeroing.node, MESSAGE, edits=zeroing.edits)
