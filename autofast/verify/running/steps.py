"""Reads what the probe wrote: raw events of one process, made into one row per optimizer step. Runs
in the parent, without torch.

The letters of events are explained in probe/core.py. Three questions are answered here:

* Which iterations over loaders were training? Those with a backward between their first fetch and
  their last (loops that fetch one batch ahead, as Accelerate's, included), or right after their
  last.
* Where did time go? Spans lie inside each other (a backward in a closure in a step), so each gets
  its time less that of those inside it. What no span covers is forward where a backward comes next,
  evaluation from the start of an iteration that was none of training to the next sign of training,
  and other else: logging and zero_grad before a fetch, clipping before the optimizer, the script's
  start.
* Where do rows end? At optimizer steps and skipped steps, or, where there are none, at backwards.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from autofast.verify.evidence.moved import FED
from autofast.verify.evidence.record import (
    PHASES,
    Call,
    Checkpoint,
    Device,
    Ending,
    Evaluation,
    Followed,
    Lines,
    Moments,
    Numbers,
    Pass,
    Record,
    Resumed,
    Saved,
    Step,
    Target,
    TensorPrint,
)
from autofast.verify.running.events import Iteration, Span, evaluations, nested, overlap, passes

VERSION = 1
AS_WRITTEN = (
    "version rank world_size exit_code optimizers syncs peak_memory peak_memory_children wrote_outside environment settings "
    "trainable_unused error traceback notes drawn modules precision written dropouts masks mask_rates idle_masks scalars rows unseen"
).split()  # fields of Record
PHASE_WORDS = "backward optimizer optimizer optimizer forward transfer communication".split()
KINDS = dict(zip("bokuftc", PHASE_WORDS, strict=True))


def read_record(path: Path) -> Record:
    """ValueError, in one line, when there is no such file or it is none of the probe's."""
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path.name}: no record: {error.strerror}") from None
    except ValueError:
        raise ValueError(f"{path.name}: not a record: no JSON") from None
    if not isinstance(raw, dict) or raw.get("version") != VERSION:
        raise ValueError(f"{path.name}: not a record of version {VERSION}")
    try:
        return record(raw)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ValueError(
            f"{path.name}: malformed record: {type(error).__name__}: {error}"
        ) from None


def record(raw: Mapping[str, Any]) -> Record:
    """A record of the raw events of the probe; raises ``ValueError`` for an ending that it does not
    know, ``KeyError`` for what lacks a part.
    """
    if raw["ending"] not in get_args(Ending):
        raise ValueError(f"ending {raw['ending']!r}")
    moments, raw = raw["moments"], {k: v if k == "watched" else frozen(v) for k, v in raw.items()}
    events = nested(_standing_in(raw["events"]))
    iterations = passes(events)
    started = moments.get("script_started", 0.0)
    steps = rows(events, iterations, started, raw.get("walls") or [])
    ends = [step.end for step in steps]
    losses = tuple(span.rest[0] for span in events if span.kind == "b")
    sums, leaves = raw.get("checksums", {}), raw.get("leaves", {})
    items = raw.get("items", {})
    return Record(
        **{name: raw[name] for name in AS_WRITTEN if name in raw},
        ending=cast(Ending, raw["ending"]),
        moments=Moments(
            torch_imported=moments.get("torch_imported", started),
            script_started=started,
            first_step=steps[0].end if steps else None,
            ended=moments["ended"],
            compiling=raw.get("compiling", 0.0),
        ),
        steps=steps,
        losses=losses,
        backwards=len(losses),
        skipped=sum(step.skipped for step in steps),
        passes=tuple(
            Pass(
                one.loader,
                one.training,
                len(one.sizes),
                sum(one.sizes),
                one.complete,
                one.workers,
                tuple(sums.get(str(number), ())),
                columns(leaves.get(str(number), ())),
                *singles(items.get(str(number), ())),
                bisect.bisect_left(ends, one.start),
                bisect.bisect_left(ends, one.end),
                number in raw.get("bytes", ()),
            )
            for number, one in iterations.items()
        ),
        model=prints(raw.get("model", {})),
        start=prints(raw.get("start", {})),
        checkpoints=tuple(Checkpoint(**one) for one in raw.get("checkpoints", ())),
        devices=tuple(Device(**one) for one in raw.get("devices", ())),
        saves=tuple(
            Saved(**{**one, "tensors": prints(one["tensors"])}) for one in raw.get("saves", ())
        ),
        calls=tuple(Call(*one) for one in raw.get("inputs", ())),
        evaluations=tuple(Evaluation(*one) for one in raw.get("evaluations", ())),
        lines={name: Lines(**one) for name, one in raw.get("lines", {}).items()},
        fed=tuple(fed(raw.get("fed", {}), iterations, ends)),
        watched=raw.get("watched", {}),
        resumed=Resumed(**raw["resumed"]) if raw.get("resumed") else None,
        targets={kind: _target(one) for kind, one in raw.get("targets", {}).items()},
        averages=tuple(Followed(*one) for one in raw.get("averages", ())),
    )


def _target(raw: dict[str, Any]) -> Target:
    return Target(**{**raw, "laws": tuple(map(tuple, raw["laws"]))})


def _standing_in(events: Sequence[list[Any]]) -> Iterator[list[Any]]:
    """Gradients by other means stand for backwards where there are none."""
    alone = not any(event[0] == "b" for event in events)
    for kind, *rest in events:
        if kind != "g" or alone:
            yield ["b" if kind == "g" else kind, *rest]


def frozen(value: Any) -> Any:
    """Tuples for lists."""
    if isinstance(value, dict):
        return {key: frozen(entry) for key, entry in value.items()}
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def singles(batches: Sequence[Sequence[Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Of single items: ``Pass.items`` and ``Pass.sketches``."""
    return tuple(batch[:2] for batch in batches), tuple(shown for *_, shown in batches)


def fed(
    raw: Mapping[str, Sequence[Sequence[Any]]],
    iterations: Mapping[int, Iteration],
    ends: Sequence[float],
) -> Iterator[Pass]:
    """Passes by what the models were given of them, under numbers of their own."""
    for key, batches in raw.items():
        one = iterations.get(int(key))
        if one is not None and one.training:
            items, sketches = singles(batches)
            sizes = [len(drawn) for drawn, _ in items]
            whole = one.complete and len(sizes) == len(one.sizes)
            yield Pass(
                FED + one.loader, True, len(sizes), sum(sizes), whole, one.workers,
                items=items, sketches=sketches,
                begun=bisect.bisect_left(ends, one.start), ended=bisect.bisect_left(ends, one.end),
            )  # fmt: skip


def prints(raw: Mapping[str, Any]) -> dict[str, TensorPrint]:
    return {name: TensorPrint(**one) for name, one in raw.items()}


def columns(batches: Sequence[Sequence[float]]) -> tuple[Numbers, ...]:
    """From a row for each batch to one for each tensor in it; empty where batches differ in their
    structure.
    """
    return tuple(zip(*batches, strict=True)) if len({len(batch) for batch in batches}) == 1 else ()


def rows(
    spans: list[Span],
    iterations: Mapping[int, Iteration],
    started: float,
    walls: list[float | None],
) -> tuple[Step, ...]:
    kinds = ("ok", "b", "u")
    ends = next((some for kind in kinds if (some := [s for s in spans if s.kind in kind])), [])
    ends.sort(key=lambda span: span.end)
    limits = [span.end for span in ends]
    parts: list[list[Span]] = [[] for _ in ends]
    for span in spans:
        place = bisect.bisect_left(limits, span.end)
        if place < len(ends):
            parts[place].append(span)
    quiet = evaluations(spans, iterations)
    if len(walls) != len(ends):
        walls = [None] * len(ends)
    each = enumerate(zip(ends, [started, *limits], parts, walls, strict=False))
    return tuple(
        row(index, last, start, some, iterations, quiet, wall)
        for index, (last, start, some, wall) in each
    )


def row(
    index: int,
    last: Span,
    start: float,
    spans: list[Span],
    iterations: Mapping[int, Iteration],
    quiet: list[tuple[float, float]],
    wall: float | None,
) -> Step:
    samples = batches = evaluated = 0
    phases = dict.fromkeys(PHASES, 0.0)
    quiet = [(low, high) for low, high in quiet if low < last.end and high > start]
    phases["evaluation"] = overlap(quiet, start, last.end)
    for span in spans:
        if span.kind == "n":
            training = iterations[span.rest[0]].training
            samples += span.rest[1] if training else 0
            batches += training
            evaluated += 0 if training else span.rest[1]
        if not overlap(quiet, span.start, span.end):
            phases[KINDS.get(span.kind, "data")] += max(0.0, span.end - span.start - span.inside)
    gaps(index, start, [span for span in spans if span.top], quiet, phases)
    step = last.kind in "ok"
    extras = (
        last.rest[-1] if last.kind in "obu" and isinstance(last.rest[-1], dict) else None
    ) or {}
    backwards = [span for span in spans if span.kind == "b"]
    skipped = last.kind == "k" or bool(extras.get("inf"))
    return Step(
        index=index,
        optimizer=last.rest[0] if step else -1,
        end=last.end,
        wall=last.end - start if wall is None else wall,
        phases=phases,
        samples=samples,
        batches=batches,
        evaluation_samples=evaluated,
        backwards=len(backwards),
        losses=tuple(span.rest[0] for span in backwards),
        lr=tuple(last.rest[1]) if step else (),
        skipped=skipped,
        **{name: value for name, value in extras.items() if name != "inf"},
    )


def gaps(
    index: int,
    start: float,
    spans: list[Span],
    quiet: list[tuple[float, float]],
    phases: dict[str, float],
) -> None:
    """Adds the time between spans. By what comes next, transfers and collectives aside; the last
    span ends the row.
    """
    comes_next = "other"
    places: list[str] = []
    for span in reversed(spans):
        if span.kind not in "tc":
            comes_next = "forward" if span.kind == "b" else "other"
        places.append(comes_next)
    if index == 0 and places:
        places[-1] = "other"  # the script's start
    for span, place in zip(spans, reversed(places), strict=True):
        if span.start > start:
            phases[place] += span.start - start - overlap(quiet, start, span.start)
        start = max(start, span.end)
