"""pin-memory: keep batches in page-locked memory, from which a GPU fetches them by itself."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.edits import Written
from autofast.facts.cost import gains
from autofast.facts.loaders import is_used, loader_argument, pinning_advice
from autofast.facts.settings import setting, setting_place
from autofast.model.script import Script
from autofast.model.source import statement_of
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.pinned import Pinned, is_given, why_not_pinned, written_off
from autofast.techniques.loading.resident import remaining_loaders
from autofast.write.arguments import Home, Wish, argument_findings
from autofast.write.cuda_flag import enabled_where_cuda

MESSAGE = "batches are in pageable memory, which a GPU can only fetch by way of a copy"


@rule(
    "pin-memory",
    Effect.EXACT,
    groups=("loader", "transfer"),
    decides=Pinned,
    relieves={"data": 5, "transfer": 1},
    uses=("gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
    asks=gains.pinning,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Keep batches in page-locked memory, from which a GPU fetches them by itself."""
    if options.target == "cpu":
        return
    wishes = []
    for loader in remaining_loaders(script, options):
        if not is_used(script, loader):
            continue
        argument = loader_argument(loader, "pin_memory")
        said = setting(argument.values) if argument is not None else None
        if said is not None and said.value is False and not why_not_pinned(script, loader):
            yield Finding(loader.node, MESSAGE, advice=f"set it to true in {setting_place(said)}")
        if is_given(loader):
            continue
        if todo := pinning_advice(loader):
            yield Finding(loader.node, MESSAGE, advice=todo)
        elif why := why_not_pinned(script, loader):
            yield Finding(loader.node, MESSAGE, refusal=why)
        else:
            home = written_off(loader)
            wishes.append(Wish(loader, lambda home: value(script, home), home=home))
    yield from argument_findings(script, "pin_memory", MESSAGE, wishes)


def value(script: Script, home: Home) -> Written:
    """True on CUDA only: elsewhere ``pin_memory=True`` does nothing but warn."""
    test, imports = enabled_where_cuda(script, statement_of(home.node))
    return test or "True", imports
