"""variable-api: write what old versions of torch needed - Variable, ``loss.data[0]``, size_average,
what is gone - as it is written today.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.tensor_identity import Plainness
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.legacy.variable import NAME, old_reductions, renewed_code, variables


@rule(NAME, Effect.EXACT, groups=("modernize",))
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Write what old versions of torch needed (Variable, volatile, size_average) as it is written
    today.
    """
    plain = Plainness(script)
    for source in script.sources:
        yield from variables(script, source, plain)
    yield from renewed_code(script)
    yield from old_reductions(script)
