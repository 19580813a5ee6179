"""A program that puts code of its own in the place of a part of torch: what rules know of torch
does not hold there.
"""

from __future__ import annotations

import pytest

from tests.onerule import apply

SCRIPT = """
from unittest import mock
import torch
from torch import nn, optim
import torch.utils.data as data

class Loud(optim.SGD):
    def __init__(self, params, lr):
        super().__init__(params, 2 * lr)

class Longer(data.DataLoader):
    def __iter__(self):
        return (tuple(2 * part for part in batch) for batch in super().__iter__())

ITEM = torch.Tensor.item
CALLS = []

def item(tensor):
    CALLS.append(tensor)
    return ITEM(tensor)

{}

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(3, 1).to(device)
optimizer = optim.SGD(model.parameters(), lr=0.1)
loader = data.DataLoader(data.TensorDataset(torch.randn(16, 3), torch.randn(16, 1)), batch_size=4)
total = 0.0
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2).mean()
    loss.backward()
    optimizer.step()
    total += loss.item()
print(total, len(CALLS))
"""
RULES = "batched-dataset fused-optimizer gpu-data loss-item-sync"


@pytest.mark.parametrize(
    "line",
    [
        "data.DataLoader = Longer",
        'setattr(optim, "SGD", Loud)',
        "setattr(optim, str(), Loud)",
        "torch.Tensor.item = item",
        "nn.Linear = type('Own', (nn.Linear,), {})",
        "nn.Module.eval = lambda module: module",
        'mock.patch.object(torch.Tensor, "item", item).start()',
        'mock.patch("torch.nn.functional.relu", item).start()',
        'mock.patch.object(torch, "relu", item).start()',
        "layer = nn.Linear(1, 1); layer.__class__ = nn.Identity",
    ],
)
def test_nothing_is_changed(line: str) -> None:
    found = apply(RULES, SCRIPT.format(line))
    assert not found.fixes and "what torch does then is not known" in found.refusals


@pytest.mark.parametrize(
    "line",
    [
        "torch.backends.cudnn.benchmark = True",
        "nn.Linear.reset_parameters = lambda layer: nn.init.ones_(layer.weight)",
        "torch.jit.unused = lambda function: function",
        "torch.Tensor.__repr__ = lambda tensor: str(tensor.shape)",
        "torch.load = lambda path: None",
        "torch._utils._rebuild = item",
        'mock.patch("time.time", item).start()',
        'setattr(torch.backends.cudnn, "benchmark", bool(CALLS))',
        "nn.Loud = Loud",  # nothing of torch's has this name
    ],
)
def test_settings_and_what_only_loads_or_shows(line: str) -> None:
    assert len(apply(RULES, SCRIPT.format(line)).fixes) > 2
