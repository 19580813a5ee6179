"""prefetch-factor: where a deeper queue of batches may help, which only a measurement can tell."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.facts.loaders import is_iterated_again, is_used, loader_argument
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.values import const
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.resident import remaining_loaders

ADVICE = "if training still waits for data, try prefetch_factor=4; it costs that many batches of memory for each worker and gains nothing otherwise"


@rule(
    "prefetch-factor",
    Effect.EXACT,
    groups=("loader",),
    relieves={"data": 4},
    uses=("gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Point out where a deeper queue of batches may smooth out slow files."""
    for loader in remaining_loaders(script, options):
        if (
            is_used(script, loader)
            and loader.trains
            and is_iterated_again(script, loader)
            and _reads_files(loader)
            and loader_argument(loader, "prefetch_factor") is None
        ):
            yield Finding(loader.node, "each worker has two batches ready at most", advice=ADVICE)


def _reads_files(loader: Loader) -> bool:
    """Workers read files: the only work whose time varies so much that more than two batches in
    store can matter.
    """
    workers = loader_argument(loader, "num_workers")
    if workers is None or const(workers.values) == 0:
        return False
    return any(dataset.reads & {"file", "decode"} for dataset in loader.datasets)
