"""cache-constant: compute once what comes out the same at every call."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.transfers.constants import Constant, constants
from autofast.techniques.transfers.factories import loops_of_steps

COMPUTED = gains.usual(0.05, "computed again each time")


@rule(
    "cache-constant",
    Effect.EXACT,
    groups=("transfer",),
    relieves={"transfer": 9, "host": 9},
    decides=Constant,
    asks=COMPUTED,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Compute once what comes out the same at every call."""
    for constant in constants(script, loops_of_steps(script)):
        yield Finding(
            constant.node,
            "copies the same to the device at each call"
            if constant.copied
            else "computes the same at each call",
            edits=constant.edits,
            asks=gains.in_steps if constant.copied else COMPUTED,
        )
