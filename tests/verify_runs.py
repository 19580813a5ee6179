"""Runs made up for the judges of ``autofast verify``: builders for timings, and small trainings in
NumPy that seeded faults go into.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autofast.verify.evidence.record import FULL, Detail, Device, Moments, Pass, Record, Run, Step


def step(index: int, wall: float, phases: Mapping[str, float] | None = None, **more: Any) -> Step:
    return Step(index, more.pop("optimizer", 0), 0.0, wall, phases or {"forward": wall}, **more)


def record(steps: Sequence[Step], **more: Any) -> Record:
    given: dict[str, Any] = {
        "version": 1, "rank": 0, "world_size": 1, "ending": "end", "exit_code": 0, "moments": Moments(1.0, 1.5, 2.0, 9.0),
        "steps": tuple(steps), "losses": tuple(x for s in steps for x in s.losses), "backwards": sum(s.backwards for s in steps),
        "skipped": sum(s.skipped for s in steps),
    }  # fmt: skip
    return Record(**{**given, **more})


def run(
    records: Record | Sequence[Record],
    arm: str = "original",
    seed: int = 0,
    detail: Detail = FULL,
    **more: Any,
) -> Run:
    records = (records,) if isinstance(records, Record) else tuple(records)
    return Run(
        arm, seed, detail, records, more.pop("exit_code", 0), more.pop("seconds", 1.0), **more
    )


def timed(
    walls: Sequence[float], arm: str = "original", workers: int = 0, samples: int = 8, **more: Any
) -> Run:
    """A run of which only the times matter."""
    steps = [
        replace(step(i, w, samples=samples, batches=1, backwards=1, losses=(1.0,)), end=9.0)
        for i, w in enumerate(walls)
    ]  # the last ends with the script
    passes = (Pass(0, True, len(walls) + 1, samples * (len(walls) + 1), False, workers),)
    outside = {name: more.pop(name) for name in ("pressure", "timed_out", "seed") if name in more}
    return run(record(steps, **{"passes": passes, **more}), arm, detail=Detail(), **outside)


def gpu(used: float) -> tuple[Device, ...]:
    return (Device("GPU", 100.0, (used, used)),)
