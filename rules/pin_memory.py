"""pin-memory: keep batches in page-locked memory, from which a GPU fetches them by itself."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.edits import Written
from autofast.facts.cost import gains
from autofast.facts.loaders import counts, given, unpinned
from autofast.facts.settings import place, setting
from autofast.model.script import Script
from autofast.model.source import statement_of
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.pinned import Pinned, against, is_given, written_off
from autofast.techniques.loading.resident import left
from autofast.write.arguments import Home, Wish, added
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
    for loader in left(script, options):
        if not counts(script, loader):
            continue
        argument = given(loader, "pin_memory")
        said = setting(argument.values) if argument is not None else None
        if said is not None and said.value is False and not against(script, loader):
            yield Finding(loader.node, MESSAGE, advice=f"set it to true in {place(said)}")
        if is_given(loader):
            continue
        if todo := unpinned(loader):
            yield Finding(loader.node, MESSAGE, advice=todo)
        elif why := against(script, loader):
            yield Finding(loader.node, MESSAGE, refusal=why)
        else:
            home = written_off(loader)
            wishes.append(Wish(loader, lambda home: value(script, home), home=home))
    yield from added(script, "pin_memory", MESSAGE, wishes)


def value(script: Script, home: Home) -> Written:
    """True on CUDA only: elsewhere ``pin_memory=True`` does nothing but warn."""
    test, imports = enabled_where_cuda(script, statement_of(home.node))
    return test or "True", imports
