"""variable-api: write what torch before 0.4 needed - Variable, volatile, ``loss.data[0]``, size_average - as it is written today."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.tensor_identity import Plainness
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.legacy.variable import NAME, old_items, old_reductions, variables


@rule(NAME, Effect.EXACT, groups=("modernize",))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Write what torch before 0.4 needed (Variable, volatile, size_average) as it is written today."""
    plain = Plainness(script)
    for source in script.sources:
        yield from variables(script, source, plain)
    yield from old_items(script)
    yield from old_reductions(script)
