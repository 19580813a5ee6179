"""device-creation: targets of an old constructor that a helper fills, sample by sample, before they
go to the device.
"""

from __future__ import annotations

import pytest

from tests.onerule import apply, run

SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
cuda = torch.cuda.is_available()
device = torch.device("cuda" if cuda else "cpu")

def assign(limit, rows, goals, marks, n):
    near = rows.abs().sum(1)
    if near.size(0) == 0:
        goals[n] = 0
        marks[n] = 0
        return
    goals[n] = near.unsqueeze(1) * limit
    marks[n] = (near > limit).long()

def wanted(batch):
    goals = torch.Tensor(batch.size(0), 5, 1)
    marks = torch.LongTensor(batch.size(0), 5)
    for n in range(batch.size(0)):
        assign(2.0, batch[n], goals, marks, n)
    goals = goals.to(device)
    marks = marks.to(device)
    return goals, marks

model = nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
X = torch.randn(6, 4, 5, 3)
for i in range(6):
    x = X[i].to(device)
    goals, marks = wanted(x)
    optimizer.zero_grad()
    loss = ((model(x) - goals) * marks.unsqueeze(-1)).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_targets_are_made_where_a_helper_fills_them() -> None:
    found = apply("device-creation", SCRIPT)
    assert found.lines == [
        "goals = torch.empty(batch.size(0), 5, 1, device=device)",
        "marks = torch.empty(batch.size(0), 5, dtype=torch.long, device=device)",
    ]
    assert "goals.to(device)" not in found.text
    assert run(found.text)["losses"] == run(SCRIPT)["losses"]


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        (
            "    goals[n] = near.unsqueeze",
            "    goals.numpy()\n    goals[n] = near.unsqueeze",
        ),  # there
        (
            "    goals[n] = near.unsqueeze",
            "    goals[n] = torch.ones(5, 1)\n    goals[n] = near.unsqueeze",
        ),
        ("    goals[n] = near.unsqueeze", "    rows = goals\n    goals[n] = near.unsqueeze"),
        ("    for n in range", "    print(goals)\n    for n in range"),
        (
            "        assign(2.0, batch[n], goals",
            "        (assign if n else print)(2.0, batch[n], goals",
        ),
    ],
)
def test_what_else_is_done_with_them(line: str, instead: str) -> None:
    text = SCRIPT.replace(line, instead, 1)
    assert text != SCRIPT
    found = apply("device-creation", text)
    assert "goals = torch.Tensor(batch.size(0), 5, 1)" in found.text
