"""non-blocking: copy batches to the device without waiting for the end of each copy."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.copies import is_batch_memory
from autofast.facts.cost import gains
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import ByNode, statement_of
from autofast.rule import Effect, Finding, Need, Options, Question, rule
from autofast.techniques.loading.pinned import Pinned, pinning_place
from autofast.techniques.loading.resident import is_left
from autofast.techniques.syncs.fetched_back import FetchedBack
from autofast.techniques.transfers.copies import (
    Move,
    asynchronous,
    batch_copies,
    why_not_asynchronous,
)
from autofast.techniques.transfers.made_each_step import copied_arrays
from autofast.techniques.transfers.redundant import is_placed, taken_out

PAGEABLE = gains.nothing(
    "no loader pins these batches: the host waits for a copy of pageable memory"
)
COMPUTED = gains.nothing("computed on the host, not pinned: the host waits for such a copy")
ARRAYS = (
    "keep the data in a tensor on the device and take the batch there, or fill a pinned tensor, "
    "copy it with non_blocking=True, and fill it again only when the copy is done"
)


@rule(
    "non-blocking",
    Effect.EXACT,
    groups=("transfer",),
    relieves={"transfer": 2},
    uses=(
        "pin-memory",
        "num-workers",
        "gpu-data",
        "gpu-augmentation",
        "ddp",
        "dataparallel-to-ddp",
    ),
    asks=gains.copies,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Copy batches to the device without waiting for the end of each copy."""
    if options.target == "cpu":
        return
    fixes: ByNode[list[Move]] = {}
    useless: ByNode[list[Move]] = {}
    for move in batch_copies(script):
        if not is_left(script, options, move.loaders):
            continue  # they come from the device
        if move.transfer is not None and is_placed(script, move.transfer):
            useless.setdefault(statement_of(move.node), []).append(move)
        elif why := why_not_asynchronous(script, move):
            yield Finding(
                move.node,
                "copies a batch to the device and waits for the end of the copy",
                refusal=why,
            )
        else:
            fixes.setdefault(statement_of(move.node), []).append(move)
    for node in copied_arrays(script):
        message = "copies data of the host out of pageable memory, and waits, in every step"
        yield Finding(node, message, advice=ARRAYS)
    for together in useless.values():
        message = "copies a batch to the device where the framework has put it already"
        yield Finding(
            together[0].node, message, edits=tuple(taken_out(script, [m.node for m in together]))
        )
    for together in (group for mine in fixes.values() for group in _alike(script, mine)):
        edits = tuple(edit for move in together for edit in asynchronous(script, move))
        needs, asks = _waits_without(script, options, together)
        what = "a batch" if len(together) == 1 else f"{len(together)} tensors of a batch"
        yield Finding(
            together[0].node,
            f"copies {what} to the device and waits for the end of the copy",
            edits=edits,
            needs=needs,
            asks=asks,
        )


def _alike(script: Script, mine: list[Move]) -> Iterable[list[Move]]:
    """The copies of a statement: of batches, and of what the host has computed, which wait; apart
    from these what need not be copied, as it is only fetched back.
    """
    back = script.analysis(FetchedBack).copies
    kinds = ((is_batch_memory(script, m.source), m.node in back) for m in mine)
    return grouped(zip(kinds, mine, strict=True)).values()


def _waits_without(
    script: Script, options: Options, together: list[Move]
) -> tuple[tuple[Need, ...], Question | None]:
    """What the copies of a statement need to be worth their lines: page-locked memory, else the
    driver copies once more and the host waits.
    """
    if not any(is_batch_memory(script, move.source) for move in together):
        return (), COMPUTED
    where = pinning_place(script, options, [x for move in together for x in move.loaders])
    if where is False:
        return (), PAGEABLE
    return ((Pinned, where),) if isinstance(where, ast.AST) else (), None
