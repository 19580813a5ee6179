"""Dicts that give their items as attributes, dicts made item by item, objects that are asked for
what comes next: what the reader and rules see of them.
"""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

from autofast.model.values import Const, Tensor
from tests.onerule import apply, run
from tests.reading import HEAD, read, shown


class Munch(dict[str, object]):
    """As munch.Munch, which the tests do not install."""

    def __getattr__(self, name: str) -> object:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: object) -> None:
        self[name] = value


@pytest.fixture
def munch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("munch")
    module.Munch = Munch  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "munch", module)


FETCHER = """
import torch
import torch.nn as nn
from munch import Munch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Fetcher:
    def __init__(self, loader, mode):
        self.loader = loader
        self.mode = mode
        self.device = device

    def fetch(self):
        try:
            x, y = next(self.iter)
        except (AttributeError, StopIteration):
            self.iter = iter(self.loader)
            x, y = next(self.iter)
        return x, y

    def __next__(self):
        x, y = self.fetch()
        if self.mode == "train":
            inputs = Munch(x=x, y=y, scale=torch.ones(x.size(0), 8))
        else:
            inputs = Munch(x=x, y=y)
        return Munch({k: v.to(self.device) for k, v in inputs.items()})


data = TensorDataset(torch.randn(16, 8), torch.randint(0, 4, (16,)))
nets = Munch(net=nn.Linear(8, 4).to(device))
optims = Munch()
for name in nets.keys():
    optims[name] = torch.optim.Adam(nets[name].parameters(), lr=1e-2)
fetcher = Fetcher(DataLoader(data, batch_size=4, pin_memory=True), "train")
losses = []
for i in range(8):
    batch = next(fetcher)
    loss = nn.functional.cross_entropy(nets.net(batch.x * batch.scale), batch.y)
    optims.net.zero_grad()
    loss.backward()
    optims.net.step()
    losses.append(loss.item())
"""


@pytest.mark.usefixtures("munch")
def test_a_fetcher_of_batches():
    copies = apply("non-blocking", FETCHER)
    assert "{k: v.to(self.device, non_blocking=True) for k, v in inputs.items()}" in copies.lines
    update = apply("fused-optimizer", FETCHER)
    assert len(update.fixes) == 1
    before = run(FETCHER)["losses"]
    assert run(copies.text)["losses"] == before
    assert run(update.text)["losses"] == pytest.approx(before, rel=1e-5)


def test_items_keep_their_own_values_in_a_comprehension(tmp_path: Path):
    code = """
    from torch.utils.data import DataLoader
    table = {"image": torch.randn(4, 3), "label": torch.arange(4), "scale": 2.0}
    moved = {k: v for k, v in table.items()}
    probe.show(moved["label"])
    named = {k + "_too": v for k, v in table.items()}
    probe.show(named["label_too"])
    """
    found = shown(read(tmp_path, HEAD + "\n".join(line[4:] for line in code.splitlines())))
    assert {t.dtype for t in found if isinstance(t, Tensor)} == {"int"}
    assert Const(2.0) not in found


def test_dicts_made_at_one_place_share_what_they_may_hold(tmp_path: Path):
    code = """
def moved(table):
    return {k: v for k, v in table.items()}

one = moved({"a": 1})
two = moved({"a": 2})
probe.show(one["a"])
"""
    assert Const(1) in shown(read(tmp_path, HEAD + code))


def test_modules_added_to_a_list_of_them():
    text = """
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList()
        for _ in range(2):
            self.heads += [nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3))]

    def forward(self, x):
        return sum(head(x).mean((1, 2, 3)) for head in self.heads)


model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for i in range(3):
    x = torch.randn(2, 3, 16, 16, device=device)
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
    done = apply("channels-last", text)
    assert "model = Net().to(device, memory_format=torch.channels_last)" in done.lines
    assert run(done.text)["losses"] == pytest.approx(run(text)["losses"], rel=1e-4)


def test_names_put_together_of_a_few_constants(tmp_path: Path):
    code = """
class Solver:
    def __init__(self, nets):
        for name, net in nets.items():
            setattr(self, name + "_ema", net)
        self.device = "cpu"

probe.show(Solver({"a": 1, "b": 2}).device)
probe.show(Solver({"a": 1, "b": 2}).b_ema)
"""
    assert shown(read(tmp_path, HEAD + code)) == {Const("cpu"), Const(2)}
