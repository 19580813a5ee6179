"""A training in several processes as the one training that it is, so that it can be compared with
one in a single process.

DistributedDataParallel takes the mean of the gradients over ranks
(torch.nn.parallel.DistributedDataParallel), whose gradient is that of the
mean of the losses: so a step's loss is that mean. Its samples and the checksums of its batches are
sums over ranks, as the parts of a batch make it up. A line has run, and a module of dropout was
called, where it did in any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autofast.verify.evidence.record import Checkpoint, Lines, Numbers, Pass, Record, Run, Step


def compared(runs: Sequence[Run]) -> list[Run]:
    """``runs``; where some are of one process and others of several, all as of one."""
    apart = len({len(run.records) for run in runs if run.records}) > 1
    return [joined(run) if apart else run for run in runs]


def joined(run: Run) -> Run:
    """The run with one record. One that failed stays as it is, as its error is that of one rank."""
    return replace(run, records=(_record(run.records),)) if run.ok and len(run.records) > 1 else run


def _record(ranks: Sequence[Record]) -> Record:
    """What belongs to all (models, optimizers, random states) is rank 0's."""
    places = [_pass(group) for group in zip(*(rank.passes for rank in ranks), strict=False)]
    shared = any(
        not one.training and one.samples > rank.samples
        for one, rank in zip(places, ranks[0].passes, strict=False)
    )
    return replace(
        ranks[0],
        world_size=1,
        steps=tuple(
            _step(group, shared) for group in zip(*(rank.steps for rank in ranks), strict=False)
        ),
        losses=_means(rank.losses for rank in ranks),
        passes=tuple(places),
        calls=(),  # a rank's model is given a part of each batch
        evaluations=(),
        drawn={},
        rows={},
        targets={},
        checkpoints=_checkpoints(ranks),
        wrote_outside=tuple(sorted({path for rank in ranks for path in rank.wrote_outside})),
        notes=tuple(dict.fromkeys(note for rank in ranks for note in rank.notes)),
        lines=_lines(ranks),
        fed=(),
        masks=None,  # of a part of each batch
        dropouts=tuple(dict.fromkeys(name for rank in ranks for name in rank.dropouts)),
        modules={name: text for rank in reversed(ranks) for name, text in rank.modules.items()},
    )


def _lines(ranks: Sequence[Record]) -> dict[str, Lines]:
    """Of files that all of them looked at, or that only some have."""
    if not all(rank.lines for rank in ranks):
        return {}
    found: dict[str, Lines] = {}
    for rank in ranks:
        for name, one in rank.lines.items():
            ran = {*one.ran, *(found[name].ran if name in found else ())}
            found[name] = Lines(one.code, tuple(sorted(ran)))
    return found


def _means(rows: Iterable[Sequence[float]]) -> Numbers:
    return tuple(sum(values) / len(values) for values in zip(*rows, strict=False))


def _step(ranks: Sequence[Step], shared: bool) -> Step:
    """``shared``: evaluations are shared among the ranks."""
    first = ranks[0]
    return replace(
        first,
        wall=max(one.wall for one in ranks),
        samples=sum(one.samples for one in ranks),
        evaluation_samples=sum(one.evaluation_samples for one in ranks)
        if shared
        else first.evaluation_samples,
        losses=_means(one.losses for one in ranks),
        random="",  # each rank draws its own
        state_norm=None,  # and averages its part of a batch
        state_norms=(),
    )


def _pass(ranks: Sequence[Pass]) -> Pass:
    """The same batches in every rank (an evaluation that each makes for itself) are one pass; else
    each rank has a part of every batch.
    """
    first = ranks[0]
    if (
        all(one.samples == first.samples and one.checksums == first.checksums for one in ranks)
        and not first.training
    ):
        return first
    return replace(
        first,
        samples=sum(one.samples for one in ranks),
        complete=all(one.complete for one in ranks),
        items=(),
        sketches=(),
        checksums=_sums(one.checksums for one in ranks),
        leaves=tuple(_sums(parts) for parts in zip(*(one.leaves for one in ranks), strict=False)),
    )


def _sums(rows: Iterable[Sequence[float]]) -> Numbers:
    return tuple(map(sum, zip(*rows, strict=False)))


def _checkpoints(ranks: Sequence[Record]) -> tuple[Checkpoint, ...]:
    """Each file once, as the lowest rank saved it last."""
    found: dict[str, Checkpoint] = {}
    for rank in reversed(ranks):
        found.update((saved.path, saved) for saved in rank.checkpoints)
    return tuple(found.values())
