"""Loaders of torch_geometric, whose batches are objects that hold tensors; the library stands in
for itself here.
"""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from tests.onerule import apply, run

SCRIPT = """
import torch
from torch import nn
from torch_geometric.loader import DataLoader
from graphs import load

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(load(), batch_size=4, shuffle=True)
model = nn.Linear(3, 2).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
losses = []
for epoch in range(3):
    total = 0
    for batch in loader:
        batch = batch.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch.x), batch.y)
        loss.backward()
        optimizer.step()
        total += loss.item() * batch.num_graphs
    losses.append(total)
"""


class Batch(SimpleNamespace):
    def to(self, device: Any, non_blocking: bool = False) -> Batch:
        return self

    def pin_memory(self) -> Batch:
        return self


def together(items: list[Any]) -> Batch:
    x, y = torch.stack([i[0] for i in items]), torch.stack([i[1] for i in items])
    return Batch(x=x, y=y, num_graphs=len(items))


class Loader(DataLoader):  # type: ignore[type-arg]
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, collate_fn=together, **options)


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    modules: Any = {n: ModuleType(n) for n in ("torch_geometric", "torch_geometric.loader")}
    modules["torch_geometric.loader"].DataLoader = Loader
    graphs: Any = ModuleType("graphs")
    items = [(torch.randn(3), torch.tensor(i % 2)) for i in range(10)]
    graphs.load = lambda: items
    for name, module in {**modules, "graphs": graphs}.items():
        monkeypatch.setitem(sys.modules, name, module)


def test_copies_of_graphs_do_not_wait() -> None:
    done = apply("pin-memory non-blocking", SCRIPT)
    assert "pin_memory=" in done.text and "batch.to(device, non_blocking=True)" in done.text
    assert run(SCRIPT)["losses"] == run(done.text)["losses"]


def test_losses_are_weighted_by_the_number_of_graphs() -> None:
    done = apply("loss-item-sync", SCRIPT)
    assert done.fixes and run(SCRIPT)["losses"] == run(done.text)["losses"]


def test_batches_are_not_put_together_otherwise() -> None:
    assert not apply("batched-dataset gpu-data cast-on-device", SCRIPT).fixes
