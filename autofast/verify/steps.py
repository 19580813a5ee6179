"""Reads what the probe wrote: raw events of one process, made into one row per optimizer step. Runs in the parent, without torch.

The letters of events are explained in probe/core.py. Three questions are answered here:

* Which iterations over loaders were training? Those with a backward between their first fetch and their last (loops that fetch one batch ahead,
  as Accelerate's, included), or right after their last.
* Where did time go? Spans lie inside each other (a backward in a closure in a step), so each gets its time less that of those inside it.
  What no span covers is forward where a backward comes next, evaluation from the start of an iteration that was none of training to the next
  sign of training, and other else: logging and zero_grad before a fetch, clipping before the optimizer, the script's start.
* Where do rows end? At optimizer steps and skipped steps, or, where there are none, at backwards.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

from autofast.verify.record import PHASES, Checkpoint, Device, Ending, Moments, Pass, Record, Step, TensorPrint

VERSION = 1
KINDS = {"b": "backward", "o": "optimizer", "k": "optimizer", "f": "forward", "t": "transfer", "c": "communication"}


@dataclass
class Span:
    kind: str
    start: float
    end: float
    rest: list[Any]
    inside: float = 0.0  # time of spans directly inside
    top: bool = True


@dataclass
class Iteration:
    """What is known of one pass."""

    loader: int = -1
    workers: int = 0
    length: int = 0  # batches of a whole pass, where known
    start: float = math.inf
    end: float = 0.0
    sizes: list[int] = field(default_factory=list)
    first: float = math.inf  # end of its first fetch
    last: float = 0.0  # end of its last fetch
    complete: bool = False
    training: bool = False


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
        raise ValueError(f"{path.name}: malformed record: {type(error).__name__}: {error}") from None


def record(raw: Mapping[str, Any]) -> Record:
    if raw["ending"] not in get_args(Ending):
        raise ValueError(f"ending {raw['ending']!r}")
    moments = raw["moments"]
    events = nested(raw["events"])
    iterations = passes(events)
    started = moments.get("script_started", 0.0)
    steps = rows(events, iterations, started, raw.get("walls") or [])
    sums = raw.get("checksums", {})
    return Record(
        version=raw["version"],
        rank=raw["rank"],
        world_size=raw["world_size"],
        ending=cast(Ending, raw["ending"]),
        exit_code=raw["exit_code"],
        moments=Moments(
            torch_imported=moments.get("torch_imported", started),
            script_started=started,
            first_step=steps[0].end if steps else None,
            ended=moments["ended"],
            compiling=raw.get("compiling", 0.0),
        ),
        steps=steps,
        losses=tuple(span.rest[0] for span in events if span.kind == "b"),
        backwards=raw["backwards"],
        skipped=sum(step.skipped for step in steps),
        optimizers=tuple(raw["optimizers"]),
        passes=tuple(
            Pass(one.loader, one.training, len(one.sizes), sum(one.sizes), one.complete, one.workers, tuple(sums.get(str(number), ())))
            for number, one in iterations.items()
        ),
        model=prints(raw.get("model", {})),
        start=prints(raw.get("start", {})),
        checkpoints=tuple(Checkpoint(**entry) for entry in raw.get("checkpoints", ())),
        syncs=raw.get("syncs", {}),
        random_state=raw.get("random_state", {}),
        peak_memory=raw["peak_memory"],
        peak_memory_children=raw["peak_memory_children"],
        devices=tuple(
            Device(one["name"], one["peak_memory"], tuple(one["utilisation"]), tuple(one["power"])) for one in raw.get("devices", ())
        ),
        wrote_outside=tuple(raw.get("wrote_outside", ())),
        environment=raw["environment"],
        trainable_unused=tuple(raw.get("trainable_unused", ())),
        error=raw["error"],
        traceback=raw["traceback"],
        notes=tuple(raw["notes"]),
    )


def prints(raw: Mapping[str, Any]) -> dict[str, TensorPrint]:
    return {
        name: TensorPrint(tuple(one["shape"]), one["dtype"], one["sha"], one["norm"], tuple(one["sketch"])) for name, one in raw.items()
    }


def nested(events: Iterable[list[Any]]) -> list[Span]:
    """In order of their starts, the outer before the inner, each knowing the time of what lies directly inside it."""
    spans = sorted((Span(kind, start, end, rest) for kind, start, end, *rest in events), key=lambda span: (span.start, -span.end))
    around: list[Span] = []
    for span in spans:
        while around and around[-1].end <= span.start:
            around.pop()
        if around and span.end <= around[-1].end:
            around[-1].inside += span.end - span.start
            span.top = False
        around.append(span)
    return spans


def passes(spans: list[Span]) -> dict[int, Iteration]:
    found: dict[int, Iteration] = {}
    for span in spans:
        if span.kind not in "ine":
            continue
        one = found.setdefault(span.rest[0], Iteration())
        one.start, one.end = min(one.start, span.start), max(one.end, span.end)
        if span.kind == "i":
            _, one.loader, one.workers, one.length = span.rest
        elif span.kind == "n":
            one.sizes.append(span.rest[1])
            one.first, one.last = min(one.first, span.end), max(one.last, span.end)
        else:
            one.complete = True
    # A script may compute gradients by torch.autograd.grad and never call backward.
    signs = [span.start for span in spans if span.kind == "b"] or [span.start for span in spans if span.kind == "o"]
    fetches = [span.start for span in spans if span.kind in "ne"]
    for one in found.values():
        next_sign = after(signs, one.last)
        one.complete = one.complete or 0 < one.length <= len(one.sizes)
        one.training = bool(one.sizes) and (after(signs, one.first) <= one.end or next_sign < after(fetches, one.last))
    return found


def after(times: list[float], moment: float) -> float:
    place = bisect.bisect_left(times, moment)
    return times[place] if place < len(times) else math.inf


def evaluations(spans: list[Span], iterations: Mapping[int, Iteration]) -> list[tuple[float, float]]:
    """From the start of each iteration that is none of training to the next sign of training after its end; merged."""
    signs = [
        span.start
        for span in spans
        if span.kind in "bok" or span.kind in "ine" and (one := iterations[span.rest[0]]).training and one.sizes
    ]
    result: list[tuple[float, float]] = []
    for one in sorted((one for one in iterations.values() if not one.training and one.sizes), key=lambda one: one.start):
        end = after(signs, one.end)
        if result and one.start <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((one.start, end))
    return result


def overlap(intervals: list[tuple[float, float]], start: float, end: float) -> float:
    return sum(max(0.0, min(end, high) - max(start, low)) for low, high in intervals if low < end and high > start)


def rows(spans: list[Span], iterations: Mapping[int, Iteration], started: float, walls: list[float | None]) -> tuple[Step, ...]:
    ends = [span for span in spans if span.kind in "ok"] or [span for span in spans if span.kind == "b"]
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
    return tuple(
        row(index, ends[index], limits[index - 1] if index else started, parts[index], iterations, quiet, walls[index])
        for index in range(len(ends))
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
    step = last.kind != "b"
    extras = (last.rest[2] if last.kind == "o" else None) or {}
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
        grad_norm=extras.get("norm"),
        update_norm=extras.get("update"),
        training=extras.get("training"),
    )


def gaps(index: int, start: float, spans: list[Span], quiet: list[tuple[float, float]], phases: dict[str, float]) -> None:
    """Adds the time between spans. By what comes next, transfers and collectives aside; the last span ends the row."""
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
