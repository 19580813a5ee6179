"""Batches that are named tuples, dataclasses and other objects, which a collate_fn makes: their
tensors are followed.
"""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

SCRIPT = """
import collections
from collections import namedtuple
from dataclasses import dataclass
from typing import NamedTuple
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
{kind}
class Rows(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return torch.full((4,), float(i)), i % 3, str(i)
{collate}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Rows(), batch_size=4, collate_fn=collate)
losses = []
for epoch in range(2):
    for batch in loader:
        {move}
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
losses = [float(x) for x in losses]
"""
ROWS = "torch.stack([r[0] for r in rows]), torch.tensor([r[1] for r in rows]), [r[2] for r in rows]"
COLLATE = f"def collate(rows):\n    return Batch({ROWS})\n"
NAMED = {
    "words": 'Batch = namedtuple("Batch", "x y names")',
    "list": 'Batch = collections.namedtuple("Batch", ["x", "y", "names"])',
    "typed": "class Batch(NamedTuple):\n    x: torch.Tensor\n    y: torch.Tensor\n    names: list",
    "extended": 'class Batch(namedtuple("Batch", "x, y, names")):\n    def size(self):\n        return len(self.x)',
}
FIELDS = "x, y = batch.x.to(device), batch.y.to(device)"
OBJECT = "class Batch:\n    def __init__(self, x, y, names):\n        self.x, self.y, self.names = x, y, names\n"
PIN = "    def pin_memory(self):\n        self.x, self.y = self.x.pin_memory(), self.y.pin_memory()\n        return self\n"
DATA = "@dataclass\nclass Batch:\n    x: torch.Tensor\n    y: torch.Tensor\n    names: list\n"
TO = "    def to(self, where):\n        return Batch(self.x.to(where), self.y.to(where), self.names)\n"


def made(kind: str, move: str = FIELDS, collate: str = COLLATE) -> Applied:
    text = SCRIPT.format(kind=kind, collate=collate, move=move.replace("\n", "\n        "))
    found = apply("pin-memory non-blocking", text)
    assert run(found.text)["losses"] == run(text)["losses"]
    return found


@pytest.mark.parametrize("kind", NAMED)
def test_fields_of_named_tuples(kind: str) -> None:
    found = made(NAMED[kind])
    assert 'pin_memory=device.type == "cuda"' in found.text
    assert found.text.count("non_blocking=True") == 2


@pytest.mark.parametrize(
    "move",
    [
        "x, y, names = batch\nx, y = x.to(device), y.to(device)",
        "x, y = batch[0].to(device), batch[1].to(device)",
        "x, y = [t.to(device) for t in batch[:2]]",
    ],
)
@pytest.mark.parametrize("kind", NAMED)
def test_parts_of_named_tuples(kind: str, move: str) -> None:
    if "[:2]" in move and kind in ("typed", "extended"):
        return  # a slice of an object is not followed
    assert "pin_memory=" in made(NAMED[kind], move).text


@pytest.mark.parametrize("kind", [OBJECT + PIN, DATA + PIN])
def test_objects_that_pin_themselves(kind: str) -> None:
    found = made(kind)
    assert "pin_memory=device" in found.text and found.text.count("non_blocking=True") == 2


def test_a_class_as_collate_fn() -> None:
    kind = OBJECT.replace("x, y, names):", "rows):").replace("= x, y, names", f"= {ROWS}") + PIN
    assert "pin_memory=device" in made(kind, collate="collate = Batch").text


@pytest.mark.parametrize(
    ("kind", "move"),
    [
        (OBJECT, FIELDS),
        (DATA, FIELDS),
        (DATA + TO, "batch = batch.to(device)\nx, y = batch.x, batch.y"),
        (OBJECT, "batch.x = batch.x.to(device)\nbatch.y = batch.y.to(device)\nx, y = batch.x, batch.y"),
    ],
)  # fmt: skip
def test_objects_that_nothing_pins(kind: str, move: str) -> None:
    found = made(kind, move)
    assert not found.fixes
    assert "give Batch a pin_memory() that pins its tensors" in found.advice


def test_objects_in_a_tuple() -> None:
    """What stands beside them is pinned, they are not."""
    move = "batch, y = batch\nx, y = batch.x.to(device), y.to(device)"
    collate = COLLATE.replace("return Batch(", "batch = Batch(") + "    return batch, batch.y\n"
    found = made(OBJECT, move, collate)
    assert "pin_memory=device" in found.text and found.text.count("non_blocking=True") == 1
    assert "objects without pin_memory()" in found.refusals


def test_a_copy_that_is_stored_on_the_batch_is_no_copy_of_the_next_one() -> None:
    """The next batch is another object, and lies in host memory again."""
    move = "batch.x = batch.x.to(device)\nbatch.y = batch.y.to(device)\nx, y = batch.x, batch.y"
    text = SCRIPT.format(kind=OBJECT + PIN, collate=COLLATE, move=move.replace("\n", "\n        "))
    found = apply("non-blocking", text)
    assert found.text.count("batch.x.to(device, non_blocking=True)") == 1
