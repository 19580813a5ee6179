"""What runs have shown of a script, for ``autofast rewrite --facts``: from the one that was
watched, and from those that were timed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from autofast.model.measured import Copies, Facts, Fetches, Forwards, Place, Reads, Shapes, digest
from autofast.model.source import Source
from autofast.verify.diagnosis import shares
from autofast.verify.estimates import fmean, median
from autofast.verify.evidence.record import Record, Run
from autofast.verify.running.runs import Program, Setup
from autofast.verify.speed import window


def facts_of(
    program: Program,
    watched: Run,
    timed: Sequence[Run],
    root: Path,
    setup: Setup,
    machine: Mapping[str, str],
) -> Facts:
    """``watched``: the run that was asked for facts; ``timed``: undisturbed ones of the same
    script, one at the least.
    """
    record = watched.record
    seen = record.watched
    files = _Files(program.path.parent, root)
    warm_up = window(timed).warm_up
    steps = [step.wall for run in timed for step in run.record.steps[warm_up:]]
    return Facts(
        entry=files.name(program.path.name),
        files={files.name(name): digest(files.raw(name)) for name in seen["files"]},
        device=machine["device"],
        step=fmean(steps) if steps else 0.0,
        phases=shares(timed),
        steps=seen["steps"],
        arguments=setup.arguments,
        gpu=machine.get("gpu", ""),
        torch=machine.get("torch", ""),
        operations=seen.get("operations"),
        idle=seen.get("idle"),
        fetches=tuple(_fetches(seen["loaders"], record, files)),
        copies=tuple(Copies(files.place(*at), *sums) for at, sums in _by_place(seen["copies"])),
        reads=tuple(Reads(files.place(*at), *sums) for at, sums in _by_place(seen["reads"])),
        forwards=tuple(_forwards(seen["forwards"], files)),
        host_memory=median([run.record.peak_memory for run in timed]),
        device_memory=max((d.peak_memory for d in timed[0].record.devices), default=None),
    )


class _Files:
    """The project's files by the paths that the run had for them, which start from the script's
    folder.
    """

    def __init__(self, start: Path, root: Path):
        self.start, self.root = start, root
        self._lines: dict[str, list[str]] = {}

    def _path(self, name: str) -> Path:
        return Path(os.path.normpath(self.start / name))

    def name(self, name: str) -> str:
        """From the project's folder."""
        return Path(os.path.relpath(self._path(name), self.root)).as_posix()

    def raw(self, name: str) -> bytes:
        return self._path(name).read_bytes()

    def place(self, name: str, line: int) -> Place:
        if name not in self._lines:
            path = self._path(name)
            self._lines[name] = Source(path, self.name(name), path.read_bytes()).lines
        return Place(self.name(name), line, self._lines[name][line - 1].strip())


def _by_place(found: Iterable[Sequence[Any]]) -> Iterator[tuple[tuple[str, int], Sequence[Any]]]:
    for name, line, count, *sums in found:
        yield (name, line), (count, *sums)


def _fetches(found: Iterable[Sequence[Any]], record: Record, files: _Files) -> Iterator[Fetches]:
    """Those of one place together: a function that makes several loaders, a loader that is made in
    every epoch.
    """
    trains = {one.loader for one in record.passes if one.training}

    def key(one: Sequence[Any]) -> tuple[str, int, bool, int]:
        number, name, line, workers = one[:4]
        return name, line, number in trains, workers

    for (name, line, training, workers), same in groupby(sorted(found, key=key), key):
        loaders = list(same)
        yield Fetches(
            files.place(name, line),
            training,
            workers,
            sum(one[4] for one in loaders),
            sum(one[5] for one in loaders),
            *(median([one[place] for one in loaders]) for place in (6, 7, 8)),
        )


def _forwards(found: Iterable[Sequence[Any]], files: _Files) -> Iterator[Forwards]:
    for name, line, known, others in found:
        shapes = tuple(Shapes(tuple(map(tuple, sizes)), calls) for sizes, calls in known)
        calls = sum(one.calls for one in shapes) + others
        yield Forwards(files.place(name, line), calls, shapes, others)
