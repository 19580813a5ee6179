"""pin-memory: keep batches in page-locked memory, from which a GPU fetches them by itself."""

from __future__ import annotations

from collections.abc import Iterator

from autofast.edit.edits import Edit
from autofast.facts.cost import gains
from autofast.facts.loaders import DEVICE_DEFAULTS, counts, given, is_spelled_out, managed, unpinned
from autofast.facts.settings import place, setting
from autofast.facts.workers.legality import on_device
from autofast.model.script import Loader, Script
from autofast.model.source import at
from autofast.model.values import Tensor
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.loading.resident import left
from autofast.write.arguments import Home
from autofast.write.loader_arguments import Wish, added
from autofast.write.spelling import cuda_test, requires_cuda

MESSAGE = "batches are in pageable memory, which a GPU can only fetch by way of a copy"


@rule(
    "pin-memory",
    Effect.EXACT,
    groups=("loader", "transfer"),
    relieves={"data": 5, "transfer": 1},
    uses=("gpu-data", "gpu-augmentation", "ddp", "dataparallel-to-ddp"),
    asks=gains.copies,
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
        if _is_given(loader):
            continue
        if todo := unpinned(loader):
            yield Finding(loader.node, MESSAGE, advice=todo)
        elif why := against(script, loader):
            yield Finding(loader.node, MESSAGE, refusal=why)
        else:
            wishes.append(Wish(loader, lambda home: value(script, home)))
    yield from added(script, "pin_memory", MESSAGE, wishes)


def _is_given(loader: Loader) -> bool:
    argument = given(loader, "pin_memory")
    return argument is not None and not is_spelled_out(argument, False)


def value(script: Script, home: Home) -> tuple[str, tuple[Edit, ...]]:
    """True on CUDA only: elsewhere ``pin_memory=True`` does nothing but warn."""
    return ("True", ()) if requires_cuda(script) else cuda_test(script, home.node)


def against(script: Script, loader: Loader) -> str:
    """Why the batches must stay where they are; empty where nothing speaks against."""
    if is_spelled_out(given(loader, "pin_memory"), False):
        return "pin_memory=False is written out"
    if sites := script.calls(*DEVICE_DEFAULTS):
        return f"{at(sites[0].node)} puts new tensors on another device: batches that are on it cannot be pinned"
    for dataset in loader.datasets:
        if dataset.on_device:
            return f"items of {dataset.name} are on the device already ({dataset.on_device}): they cannot be pinned"
    if why := on_device(loader):
        return f"{why}: they cannot be pinned"
    if not managed(script, loader) and not _reaches_gpu(script, loader):
        return "its batches are never moved to a GPU as they are"
    return ""


def _reaches_gpu(script: Script, loader: Loader) -> bool:
    if any(
        t.kinds - {"cpu", "tensor", "type"} and t.how in ("to", "cuda", "type")
        for t in loader.moved
    ):
        return True
    for site in script.methods("copy_"):  # into a buffer on the device
        for occurrence in site:
            given = occurrence.args.get(0, "src") if occurrence.args is not None else ()
            on_device = isinstance(occurrence.this, Tensor) and occurrence.this.device == "dev"
            if on_device and any(
                isinstance(t, Tensor) and any(x in loader.things for x in t.batch) for t in given
            ):
                return True
    return False
