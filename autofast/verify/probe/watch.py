"""What a run is asked to show of its script, line by line: batches of loaders, copies, reads of
tensors, shapes, operations.

Only in the one run that is asked for facts (record.Detail.facts): looking for the line of each
costs time. Steps before ``WARM`` are
not looked at: a first copy waits until the device is there, a first batch until files are open.
"""

from __future__ import annotations

import functools
import os
import statistics
import sys
import threading
from typing import Any

import torch
from torch.utils.data import dataloader
from torch.utils.data._utils import fetch as fetchers

from .core import Data, Probe
from .instead import instead_of, opaque
from .lines import HERE, Files
from .operations import Operations
from .walk import walk

WARM = 2
LEAST = 3  # batches of a loader from which anything is told
MOST = 8  # shapes that are kept of a place
LOADER, PLACE = "_autofast_loader", "_autofast_place"
READS = ("item", "tolist", "cpu", "__bool__", "__float__", "__int__", "__index__")


class Watch:
    """``folders``: a file under one of them is of the project; ``start``: paths are told from
    there; ``journal``: the file that workers write to.

    Attributes:
        made: seconds and items of each batch, and whether the profiler slowed it, by what made it.
        by: numbers of loaders, by the same.
        waits: seconds for each batch, and the same, by number of loader.
        copies, reads: number, bytes or nothing, seconds.
        shapes: calls of each.
    """

    def __init__(
        self, probe: Probe, loaders: Any, folders: tuple[str, ...], start: str, journal: str
    ) -> None:
        self.probe, self.loaders = probe, loaders
        self.path = Files(folders).path
        self.start, self.journal = start, journal
        self.made: dict[str, list[tuple[float, int, bool]]] = {}
        self.by: dict[str, set[int]] = {}
        self.places: dict[int, tuple[str, int]] = {}
        self.workers: dict[int, int] = {}
        self.waits: dict[int, list[tuple[float, bool]]] = {}
        self.copies: dict[tuple[str, int], list[float]] = {}
        self.reads: dict[tuple[str, int], list[float]] = {}
        self.shapes: dict[tuple[str, int], dict[Any, int]] = {}
        self.kept: list[Any] = []  # so that no other object gets the number of one of these
        self.depth = 0
        self.operations = Operations(probe)
        self.wrap_loaders()
        self.wrap_copies()
        for name in READS:
            self.wrap_read(name)
        self.wrap_calls()

    # --------------------------------------------------------------------------------------- places
    def place(self, direct: bool = False) -> tuple[str, int] | None:
        """The innermost line of the project; with ``direct`` only where that calls us itself."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            path = self.path(file)
            if path:
                return os.path.relpath(path, self.start), frame.f_lineno
            if direct and not file.startswith(HERE):
                return None
            frame = frame.f_back
        return None

    @property
    def looks(self) -> bool:
        """Whether what happens now counts: in the thread that trains, behind the first steps."""
        probe = self.probe
        return probe.ours and probe.steps >= WARM and threading.get_ident() == probe.main

    # -------------------------------------------------------------------------------------- loaders
    def wrap_loaders(self) -> None:
        loader: Any = dataloader.DataLoader
        base: Any = dataloader._BaseDataLoaderIter
        construct, iterate, following = loader.__init__, loader.__iter__, base.__next__

        @functools.wraps(construct)
        def made(this: Any, *args: Any, **kwargs: Any) -> None:
            this.__dict__[PLACE] = self.place()
            construct(this, *args, **kwargs)

        def begin(this: Any) -> Any:
            iterator = iterate(this)
            number = self.loaders.numbers.get(this)
            if number is not None and this.__dict__.get(PLACE):
                key = f"{id(this.dataset)} {id(this.collate_fn)}"
                self.kept.append((this.dataset, this.collate_fn))
                self.by.setdefault(key, set()).add(number)
                self.places[number] = this.__dict__[PLACE]
                self.workers[number] = this.num_workers
                iterator.__dict__[LOADER] = number
            return iterator

        def fetch(iterator: Any) -> Any:
            start = self.probe.clock()
            batch = following(iterator)
            if threading.get_ident() == self.probe.main:
                self.waits.setdefault(iterator.__dict__.get(LOADER, -1), []).append(
                    (self.probe.clock() - start, self.operations.looks)
                )
            return batch

        loader.__init__, loader.__iter__ = made, opaque(begin)
        base.__next__ = opaque(fetch)
        for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
            self.wrap_fetch(getattr(fetchers, name))

    def wrap_fetch(self, cls: Any) -> None:
        original, probe = cls.fetch, self.probe

        def fetch(fetcher: Any, index: Any) -> Any:
            with self.operations.fetching():
                start = probe.clock()
                batch = original(fetcher, index)
            seconds = probe.clock() - start
            items = len(index) if isinstance(index, (list, tuple)) else 1
            key = f"{id(fetcher.dataset)} {id(fetcher.collate_fn)}"
            if probe.ours:
                self.made.setdefault(key, []).append((seconds, items, self.operations.looks))
            else:
                self.report(f"{key} {seconds} {items}\n")
            return batch

        cls.fetch = opaque(fetch)

    def report(self, line: str) -> None:
        """From a worker that was forked, where objects have the numbers that they have here."""
        try:
            with open(self.journal, "a") as file:
                file.write(line)
        except OSError:
            pass

    def reported(self) -> None:
        try:
            with open(self.journal) as file:
                entries = [line.split() for line in file]
            os.remove(self.journal)
        except OSError:
            return
        for dataset, collate, seconds, items in entries:
            batch = (float(seconds), int(items), False)
            self.made.setdefault(f"{dataset} {collate}", []).append(batch)

    # -------------------------------------------------------------------------------------- tensors
    def wrap_copies(self) -> None:
        for name in ("to", "cuda"):

            @instead_of(name, torch.Tensor, hidden=True)
            def moved(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
                start = self.probe.clock()
                result = original(tensor, *args, **kwargs)
                if tensor.device.type == "cpu" and result.device.type != "cpu" and self.looks:
                    seconds = self.probe.clock() - start
                    size = tensor.numel() * tensor.element_size()
                    self.add(self.copies, self.place(), (1, size, seconds))
                return result

    def wrap_read(self, name: str) -> None:
        """A tensor on the host is counted only where a line of the script reads it: nothing waits
        for it.
        """

        @instead_of(name, torch.Tensor, hidden=True)
        def read(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
            start = self.probe.clock()
            result = original(tensor, *args, **kwargs)
            if self.looks:
                seconds = self.probe.clock() - start
                self.add(self.reads, self.place(tensor.device.type == "cpu"), (1, seconds))
            return result

    def add(self, found: Any, place: tuple[str, int] | None, more: tuple[float, ...]) -> None:
        if place is not None:
            known = found.get(place, (0,) * len(more))
            found[place] = [a + b for a, b in zip(known, more)]  # noqa: B905

    def wrap_calls(self) -> None:
        @instead_of("__call__", torch.nn.Module, hidden=True)
        def call(original: Any, this: Any, *args: Any, **kwargs: Any) -> Any:
            probe = self.probe
            if self.depth or not probe.ours or threading.get_ident() != probe.main:
                return original(this, *args, **kwargs)
            if not torch.is_grad_enabled():
                self.operations.disturbed()
            elif next(this.parameters(), None) is not None:
                self.given(self.place(), (args, kwargs))
            self.depth += 1
            try:
                return original(this, *args, **kwargs)
            finally:
                self.depth -= 1

    def given(self, place: tuple[str, int] | None, arguments: Any) -> None:
        if place is not None:
            tensors = [leaf for _, leaf in walk(arguments) if isinstance(leaf, torch.Tensor)]
            sizes = tuple(tuple(tensor.shape) for tensor in tensors)
            known = self.shapes.setdefault(place, {})
            key = sizes if sizes in known or len(known) < MOST else None
            known[key] = known.get(key, 0) + 1

    # ----------------------------------------------------------------------------------- at the end
    def found(self) -> Data:
        """Plain lists and numbers: record.Record.watched."""
        self.reported()
        found = {
            "files": sorted(self.modules()),
            "steps": max(0, self.probe.steps - WARM),
            "loaders": list(self.fetched()),
            "copies": [[*place, *sums] for place, sums in sorted(self.copies.items())],
            "reads": [[*place, *sums] for place, sums in sorted(self.reads.items())],
            "forwards": [
                [
                    *place,
                    [[key, calls] for key, calls in known.items() if key is not None],
                    known.get(None, 0),
                ]
                for place, known in sorted(self.shapes.items())
            ],
            **self.operations.found(),
        }
        return {"watched": found}

    def fetched(self) -> Any:
        """Of each loader whose data no other gives: its number and place, workers, batches, items,
        seconds of an item and of a batch, seconds that a batch was waited for. Medians, without the
        first batch, and those that the profiler saw."""
        for key, numbers in self.by.items():
            number = min(numbers)
            every = self.made.get(key, [])
            batches = [(seconds, items) for seconds, items, slowed in every[1:] if not slowed]
            waits = [seconds for seconds, slowed in self.waits.get(number, [])[1:] if not slowed]
            if len(numbers) == 1 and min(len(batches), len(waits)) >= LEAST:
                yield [
                    number,
                    *self.places[number],
                    self.workers[number],
                    len(every),
                    sum(items for _, items, _ in every),
                    statistics.median([seconds / max(1, items) for seconds, items in batches]),
                    statistics.median([seconds for seconds, _ in batches]),
                    statistics.median(waits),
                ]

    def modules(self) -> set[str]:
        """The project's files that the run has imported."""
        names = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        paths = {self.path(name) for name in names if isinstance(name, str)}
        return {
            os.path.relpath(p, self.start) for p in paths if p.endswith(".py") and os.path.isfile(p)
        }
