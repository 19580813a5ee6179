"""num-workers: fetch and collate batches in worker processes, as many as the machine that runs the
script has cores for.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.cost import gains
from autofast.facts.loaders import is_used, loader_argument
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.few_workers import (
    NAME,
    NONE,
    too_few_workers,
    why_none,
    workers_wish,
)
from autofast.techniques.loading.resident import remaining_loaders
from autofast.write.arguments import argument_findings
from autofast.write.worker_helper import Helped


@rule(
    "num-workers",
    Effect.SAMPLING,
    groups=("loader",),
    decides=Helped,
    relieves={"data": 1, "evaluation": 2},
    uses=("gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
    asks=gains.fetching,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Fetch and collate batches in worker processes, as many as the machine has cores for."""
    loaders = remaining_loaders(script, options)
    without = [x for x in loaders if is_used(script, x) and loader_argument(x, NAME) is None]
    reasons = [(loader, why_none(script, loader)) for loader in without]
    those = [loader for loader, why in reasons if not why]
    yield from (Finding(loader.node, NONE, refusal=why) for loader, why in reasons if why)
    yield from argument_findings(
        script, NAME, NONE, [workers_wish(script, x, options) for x in those]
    )
    yield from too_few_workers(script, options, loaders)
