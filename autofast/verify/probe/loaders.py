"""DataLoaders: how long the script waits for them, and what they give.

``_BaseDataLoaderIter.__next__`` is one place for loaders with and without workers. Samples are
counted by the indices that the sampler gave out (``_next_index``), as the shape of a batch does not
always tell: detection batches are lists of images of different sizes.
"""

from __future__ import annotations

import operator
import threading
import weakref
import zlib
from collections import deque
from typing import Any

import torch
from torch.utils.data import dataloader

from .core import Data, Probe
from .instead import instead_of
from .prints import signs
from .walk import walk

MOST_ITEMS = 100_000  # numbers of single items that are kept
PROJECTIONS = 12  # of an item, from which its distance to itself in another batch is estimated
LONGEST = 1 << 17  # values of an item that are projected
UNCHANGED = (
    30  # batches: where a model is given them as they were loaded, it is not looked any further
)
MOST_LEAVES = 16  # of a batch's structure whose checksums are kept one by one
PASS, SIZES, GIVEN = "_autofast_pass", "_autofast_sizes", "_autofast_given"


def first_size(batch: Any, depth: int = 0) -> int:
    """The first dimension of the first tensor or array found."""
    shape = getattr(batch, "shape", None)
    if shape is not None and hasattr(batch, "dtype"):
        return int(shape[0]) if len(shape) else 1
    if depth < 4:
        for value in (
            batch.values()
            if hasattr(batch, "values")
            else batch
            if isinstance(batch, (list, tuple))
            else ()
        ):
            size = first_size(value, depth + 1)
            if size:
                return size
    return 0


def leaves(batch: Any) -> list[Any]:
    return [leaf for _, leaf in walk(batch)]


def weights(count: int) -> Any:
    """Fixed, irregular weights between 1 and 2: so that a flipped image or a moved token changes
    the sum.
    """
    return 1 + torch.frac(torch.arange(count, dtype=torch.float64) * 0.6180339887498949)


def value(leaf: Any) -> float:
    """A sum over samples, so that their order in the batch does not matter (but for rounding);
    within a sample, position does.
    """
    if isinstance(leaf, torch.Tensor):
        data = leaf.detach().cpu()
        data = (
            torch.view_as_real(data)
            if data.is_complex()
            else data.to_dense()
            if data.layout != torch.strided
            else data
        ).double()
        if data.dim() < 2:
            return float(data.sum())
        rows = data.reshape(data.shape[0], -1).sum(0)
        return float((rows * weights(rows.numel())).sum())
    if isinstance(leaf, (bool, int, float)):
        return float(leaf)
    if hasattr(leaf, "__array__") and getattr(getattr(leaf, "dtype", None), "kind", "") in "biuf":
        return value(torch.as_tensor(leaf))
    if isinstance(leaf, (str, bytes)):
        return float(zlib.crc32(leaf.encode() if isinstance(leaf, str) else leaf))
    return 0.0


def is_bytes(leaf: Any) -> bool:
    """Images, or one image, as they are stored."""
    return isinstance(leaf, torch.Tensor) and leaf.dtype == torch.uint8 and leaf.dim() > 2


def readable(leaf: Any, probe: Probe) -> float | None:
    """``value``; None, and a note, for a tensor that cannot be read: a meta tensor, one inside of
    ``torch.func.vmap``.
    """
    try:
        with torch.no_grad():
            return value(leaf)
    except Exception as error:
        probe.note(f"tensors that cannot be read were not compared ({type(error).__name__})")
        return None


def checksums(batch: Any, probe: Probe) -> tuple[float, list[float]]:
    """Of the whole and of each leaf: see record.Pass. In double precision whatever the default is;
    reads the batch only.
    """
    values = [readable(leaf, probe) or 0.0 for leaf in leaves(batch)]
    return float(sum(one * (1 + place / 8) for place, one in enumerate(values))), values if len(
        values
    ) <= MOST_LEAVES else []


def in_double(batch: Any) -> Any:
    """For runs in double precision: batches of single precision are cast where they come in, as
    some modules compare dtypes.
    """
    if isinstance(batch, torch.Tensor):
        return batch.double() if batch.is_floating_point() else batch
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(in_double, batch))
    if type(batch) in (list, tuple):
        return type(batch)(map(in_double, batch))
    if type(batch) is dict:
        return {key: in_double(entry) for key, entry in batch.items()}
    return batch


def length(loader: Any) -> int:
    """Batches of a whole pass, 0 where that is not known: who knows it (Lightning) never asks for
    the end.
    """
    try:
        return len(loader) if loader._dataset_kind == dataloader._DatasetKind.Map else 0
    except Exception:  # a sampler of the user's without __len__
        return 0


class Loaders:
    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.numbers: Any = weakref.WeakKeyDictionary()
        self.passes = 0
        self.checksums: dict[int, list[float]] = {}
        self.leaves: dict[int, list[list[float]]] = {}
        self.items: dict[int, list[tuple[list[int], list[list[float]], list[Any]]]] = {}
        # What was made of the items of a batch by the time when a model is given them.
        self.fed: dict[int, list[tuple[list[int], list[list[float]], list[Any]]]] = {}
        self.latest: tuple[int, list[Any], list[float]] | None = None
        # A batch with images as bytes, of which no model has been given anything yet; passes in
        # which one was.
        self.waiting: tuple[int, Any, list[Any], int] | None = None
        self.given_bytes: set[int] = set()
        self.changed, self.looked = False, 0
        self.projections: dict[int, Any] = {}
        self.rows: Any = None  # rows.Rows
        self.kept = 0
        base: Any = dataloader._BaseDataLoaderIter
        self.wrap_iter(dataloader.DataLoader)
        self.wrap_next(base)
        self.wrap_index(base)
        if probe.settings.samples:
            self.shorten(probe.settings.samples)

    def event(self, kind: str, start: float, *rest: Any) -> None:
        """Where a prefetching thread waits, the training does not."""
        probe, end = self.probe, self.probe.clock()
        start = start if threading.get_ident() == probe.main else end
        probe.events.append((kind, start, end, *rest))

    def wrap_iter(self, cls: Any) -> None:
        @instead_of("__iter__", cls, hidden=True)
        def make(original: Any, loader: Any) -> Any:
            persistent = getattr(loader, "_iterator", None)
            if persistent is not None and SIZES in persistent.__dict__:
                persistent.__dict__[SIZES].clear()  # of an iteration that was broken off
            start = self.probe.clock()
            iterator = original(loader)
            number = self.numbers.setdefault(loader, len(self.numbers))
            iterator.__dict__[PASS] = self.passes
            self.event("i", start, self.passes, number, loader.num_workers, length(loader))
            self.passes += 1
            return iterator

    def wrap_next(self, base: Any) -> None:
        probe = self.probe
        double, sums = probe.settings.double, probe.settings.batches

        @instead_of("__next__", base, hidden=True)
        def fetch(original: Any, iterator: Any) -> Any:
            start, number = probe.clock(), iterator.__dict__.get(PASS, -1)
            try:
                batch = original(iterator)
            except StopIteration:
                self.event("e", start, number)
                raise
            sizes = iterator.__dict__.get(SIZES)
            drawn = sizes.popleft() if sizes else None
            self.event("n", start, number, first_size(batch) if drawn is None else len(drawn))
            if drawn and self.rows is not None:
                self.rows.took(iterator._dataset, drawn)
            if sums:
                self.settle()
                whole, single = checksums(batch, probe)
                self.checksums.setdefault(number, []).append(whole)
                self.leaves.setdefault(number, []).append(single)
                parts = leaves(batch)
                images = [place for place, leaf in enumerate(parts) if is_bytes(leaf)]
                if len(images) == 1 and single:
                    self.waiting = (number, drawn, parts, images[0])
                elif drawn and self.kept < MOST_ITEMS:
                    self.single(self.items.setdefault(number, []), drawn, parts)
                    self.latest = (number, drawn, single)
            return in_double(batch) if double else batch

    def given(self, tensors: list[Any], sums: list[float]) -> None:
        """A model is given tensors, with their checksums: those that have as many rows as the
        latest batch had items are kept.

        Of all batches, as a flip of the whole batch leaves every second one as it was; but not
        where the first ones are all what was loaded.
        """
        self.settle(tensors, sums)
        if self.latest is None or self.kept >= MOST_ITEMS:
            return
        number, drawn, known = self.latest
        self.latest = None
        made = [
            (tensor, one)
            for tensor, one in zip(tensors, sums)  # noqa: B905
            if tensor.dim() > 1 and tensor.is_floating_point() and len(tensor) == len(drawn)
        ]
        self.changed = self.changed or any(
            all(abs(one - other) > 1e-6 * max(abs(one), abs(other)) for other in known)
            for _, one in made
        )
        self.looked += 1
        if made and (self.changed or self.looked <= UNCHANGED):
            self.single(self.fed.setdefault(number, []), drawn, [tensor for tensor, _ in made])

    def found(self) -> Data:
        self.settle()
        fed = self.fed if self.changed else {}
        kept = {"checksums": self.checksums, "leaves": self.leaves, "items": self.items}
        return {"bytes": sorted(self.given_bytes), "fed": fed, **kept}

    def settle(self, tensors: Any = (), sums: Any = ()) -> None:
        """Images that are loaded as bytes count as what a model is given of them: whether they
        become floats before or after the copy to the device is nothing that the training sees.
        Those that no model is given stay bytes."""
        if self.waiting is None:
            return
        number, drawn, parts, place = self.waiting
        self.waiting = None
        for tensor, made in zip(tensors, sums):  # noqa: B905
            if tensor.is_floating_point() and tensor.numel() == parts[place].numel():
                row = self.leaves[number][-1]
                self.checksums[number][-1] += (made - row[place]) * (1 + place / 8)
                row[place] = made
                parts = [*parts[:place], tensor, *parts[place + 1 :]]
                self.given_bytes.add(number)
                break
        if drawn and self.kept < MOST_ITEMS:
            self.single(self.items.setdefault(number, []), drawn, parts)
            if tensors:
                self.latest = (number, drawn, self.leaves[number][-1])

    def single(self, store: list[Any], drawn: list[Any], tensors: list[Any]) -> None:
        """Each item of a batch by itself, in three numbers for each tensor (weighted sum, sum of
        squares, sum) and a projection. Tokens and masks too; labels tell of nothing that is
        drawn."""
        try:
            indices = [operator.index(index) for index in drawn]
        except Exception:  # pairs, names: no numbers of items
            return
        rows: list[list[float]] = []
        shown: list[list[list[float]]] = []
        with torch.no_grad():
            for leaf in tensors[:4]:
                if (
                    isinstance(leaf, torch.Tensor)
                    and not leaf.is_complex()
                    and leaf.layout == torch.strided
                    and leaf.dim() > 1
                    and len(leaf) == len(drawn)
                ):
                    flat = leaf.detach().cpu().double().reshape(len(drawn), -1)
                    rows.append((flat * weights(flat.shape[1])).sum(1).tolist())
                    rows.append((flat * flat).sum(1).tolist())
                    rows.append(flat.sum(1).tolist())
                    shown.append(self.projected(flat))
        if rows:
            self.kept += len(drawn) * (len(rows) + len(shown) * PROJECTIONS)
            store.append((indices, rows, shown))

    def projected(self, flat: Any) -> list[list[float]]:
        """To six digits: 0 and 1 are all that matters of a distance."""
        flat = flat[:, :: flat.shape[1] // LONGEST + 1]
        size = flat.shape[1]
        if size not in self.projections:
            self.projections[size] = signs(size, PROJECTIONS, 20_023)
        return [
            [float(f"{x:.6g}") for x in row] for row in (flat @ self.projections[size]).tolist()
        ]

    def wrap_index(self, base: Any) -> None:
        mapped, most = dataloader._DatasetKind.Map, self.probe.settings.samples

        @instead_of("_next_index", base, hidden=True)
        def next_index(original: Any, iterator: Any) -> Any:
            index = original(iterator)
            if most:
                index = self.part(iterator, index, most)
            known = isinstance(index, (list, tuple)) and iterator._dataset_kind == mapped
            iterator.__dict__.setdefault(SIZES, deque()).append(list(index) if known else None)
            return index

    def part(self, iterator: Any, index: Any, most: int) -> Any:
        """What is left of ``most`` samples of this pass; its end where nothing is."""
        sampler, given = iterator.__dict__.get(GIVEN, (None, 0))
        if sampler is not iterator._sampler_iter:  # persistent workers: another pass
            given = 0
        if given >= most:
            raise StopIteration
        if isinstance(index, (list, tuple)):
            index = index[: most - given]
        size = len(index) if isinstance(index, (list, tuple)) else 1
        iterator.__dict__[GIVEN] = (iterator._sampler_iter, given + size)
        return index

    def shorten(self, most: int) -> None:
        """Loaders say how long their passes are now: what is averaged or planned by that goes
        on.
        """

        @instead_of("__len__", dataloader.DataLoader)
        def length_of(original: Any, loader: Any) -> int:
            whole: int = original(loader)
            batches = loader.batch_sampler or loader.sampler  # with batch_size=None
            size = loader.batch_size or getattr(batches, "batch_size", None) or 1
            return min(whole, -(-most // size)) if isinstance(size, int) else whole
