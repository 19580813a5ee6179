"""batched-dataset: loaders over ``range(n)`` give batches of indices, which torch draws and splits
by itself.
"""

from __future__ import annotations

from typing import Any

import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply, run

torch = pytest.importorskip("torch")
RULE = "batched-dataset"
TEXT = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
{before}
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
args = parser.parse_args([])
torch.manual_seed(0)
rows = torch.randn(30, 4)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
seen, losses = [], []
for epoch in range(3):
    for {target} in {loader}:
        seen.append(perm)
        loss = model(rows[perm]).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""


def written(loader: str, target: str = "perm", before: str = "", **options: Any) -> Applied:
    return apply(RULE, TEXT.format(loader=loader, target=target, before=before), **options)


def batches(text: str) -> list[list[int]]:
    return [x.tolist() for x in run(text)["seen"]]


@pytest.mark.parametrize(
    ("loader", "target", "new"),
    [
        ("DataLoader(range(rows.size(0)), 8)", "perm", "torch.arange(rows.size(0)).split(8)"),
        ("DataLoader(range(30), batch_size=args.batch_size, shuffle=False)", "perm", "torch.arange(30).split(args.batch_size)"),
        ("enumerate(DataLoader(range(len(rows)), 8, num_workers=0))", "i, perm", "enumerate(torch.arange(len(rows)).split(8))"),
    ],
)  # fmt: skip
def test_in_order_the_batches_are_the_same(loader: str, target: str, new: str) -> None:
    found = written(loader, target)
    assert f" in {new}:" in found.text
    assert batches(found.text) == batches(found.before)
    assert run(found.text)["losses"] == run(found.before)["losses"]


def test_shuffled_each_epoch_has_every_index_once_in_another_order() -> None:
    found = written("DataLoader(range(30), 8, shuffle=True)")
    assert "for perm in torch.randperm(30).split(8):" in found.text
    new = batches(found.text)
    epochs = [sum(new[n : n + 4], []) for n in (0, 4, 8)]
    assert [sorted(e) for e in epochs] == [list(range(30))] * 3
    assert epochs[0] != epochs[1] != epochs[2]
    assert [len(b) for b in new] == [len(b) for b in batches(found.before)]
    assert new != batches(found.before)  # hence the effect
    assert Effect.SAMPLING in {f.effect for f in found.fixes}


def test_an_import_that_nothing_needs_any_more_goes() -> None:
    assert "DataLoader" not in written("DataLoader(range(30), 8)").text
    used = written("DataLoader(range(30), 8)", before="print(DataLoader)\n")
    assert "import DataLoader\n" in used.text
    spared = TEXT.format(loader="DataLoader(range(30), 8)", target="perm", before="")
    spared = spared.replace("8):\n", "8):  # autofast: ignore[batched-dataset]\n")
    assert "import DataLoader\n" in apply(RULE, spared).text


@pytest.mark.parametrize(
    ("loader", "before"),
    [
        ("DataLoader(range(30), None)", ""),  # single numbers
        ("DataLoader(range(30))", ""),
        ("DataLoader(range(30), 8, drop_last=True)", ""),
        ("DataLoader(range(3, 30), 8)", ""),
        ("DataLoader(range(30), 8, shuffle=epoch > 0)", ""),
        ("DataLoader(range(30), 8, collate_fn=torch.tensor)", ""),
        ("DataLoader(range(30), 8, True, None)", ""),
        ("DataLoader(range(30), 8)", "def range(n):\n    return list(__builtins__['range'](n))\n"),
        ("list(DataLoader(range(30), 8))[:2]", ""),
        ("made", "made = DataLoader(range(30), 8)\n"),
        (
            "Twice(range(30), 8)",
            "class Twice(DataLoader):\n    def __iter__(self):\n        return (2 * x for x in super().__iter__())\n",
        ),
    ],
)
def test_other_loaders_stay(loader: str, before: str) -> None:
    assert "split(" not in written(loader, before=before).text


def test_in_several_processes_the_loader_stays() -> None:
    text = TEXT.format(loader="DataLoader(range(30), 8)", target="perm", before="")
    assert "split(" not in apply("ddp", text, asked=True).text
