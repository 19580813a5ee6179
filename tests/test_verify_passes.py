"""Passes that verify cuts: all loaders say how long they are then, however they put batches
together.
"""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, dataloader as library

from autofast.verify.probe.loaders import Loaders

DATA = list(range(100))
BATCHES = BatchSampler(RandomSampler(DATA), batch_size=8, drop_last=False)


@pytest.mark.parametrize(
    "arguments",
    [{"batch_size": 8}, {"batch_sampler": BATCHES}, {"batch_size": None, "sampler": BATCHES}],
)
def test_the_length_of_a_pass_that_is_cut(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library.DataLoader, "__len__", library.DataLoader.__len__)  # put back
    loader: DataLoader[int] = DataLoader(DATA, **arguments)  # type: ignore[arg-type]
    assert len(loader) == 13
    Loaders.shorten(None, 40)  # type: ignore[arg-type]
    assert len(loader) == 5
