"""What worker processes draw for a batch comes to the main process with it, and is counted there
with what that draws (sizes.py): by a batch that is taken, in a training or an evaluation.

Workers that are spawned do not know of this: their batches are counted as ``unseen``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch.utils.data import dataloader, get_worker_info
from torch.utils.data._utils import pin_memory
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from .instead import instead_of


class Carried:
    """A batch, and by kind and size how often that much was drawn for it."""

    def __init__(self, batch: Any, drawn: dict[str, int]) -> None:
        self.batch, self.drawn = batch, drawn

    def pin_memory(self, device: Any = None) -> Carried:
        pin: Any = pin_memory.pin_memory
        return Carried(pin(self.batch, device), self.drawn)


class Carrying:
    def __init__(self, sizes: Any) -> None:
        self.sizes = sizes  # sizes.Sizes
        for fetcher in (_MapDatasetFetcher, _IterableDatasetFetcher):
            instead_of("fetch", fetcher)(self.fetched)
        several: Any = dataloader._MultiProcessingDataLoaderIter
        single: Any = dataloader._SingleProcessDataLoaderIter
        instead_of("_process_data", several)(self.taken)
        instead_of("_next_data", single)(within)

    def drawn(self) -> Counter[str]:
        return Counter(self.sizes.whole) + Counter(self.sizes.idle)

    def fetched(self, original: Any, fetcher: Any, index: Any) -> Any:
        if get_worker_info() is None:
            return original(fetcher, index)
        before = self.drawn()
        batch = original(fetcher, index)
        return Carried(batch, dict(self.drawn() - before))

    def taken(self, original: Any, iterator: Any, data: Any, *more: Any) -> Any:
        known = isinstance(data, Carried)
        batch = original(iterator, data.batch if known else data, *more)
        store = self.sizes.idle if self.sizes.idles() else self.sizes.whole
        for key, times in data.drawn.items() if known else ():
            store[key] = store.get(key, 0) + times
        self.sizes.drawn["unseen"] += not known
        return batch


def within(original: Any, iterator: Any) -> Any:
    """A loader in a worker, which counts what it draws itself."""
    data = original(iterator)
    return data.batch if isinstance(data, Carried) else data
