"""loss-item-sync: lists that an evaluation extends by the numbers of a tensor, batch by batch."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(10, 4), torch.randint(0, 2, (10,)))
loader = DataLoader(data, batch_size=4)
none = DataLoader(torch.utils.data.Subset(data, []), batch_size=4)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = []


def evaluate(loader):
    {before}
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            {step}
        {after}
    return truth, scores


for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    seen.append(evaluate({loader}))
"""
BEFORE = "truth, scores = [], list()"
STEP = "truth.extend(y.tolist())\nscores.extend(out.cpu().tolist())"


def made(
    step: str = STEP, before: str = BEFORE, after: str = "pass", loader: str = "loader"
) -> Applied:
    inner = step.replace("\n", "\n            ")
    text = SCRIPT.format(step=inner, before=before, after=after, loader=loader)
    return apply("loss-item-sync", text)


@pytest.mark.parametrize("loader", ["loader", "none"])
def test_the_same_numbers_in_the_same_order(loader: str) -> None:
    done = made(loader=loader)
    in_the_loop = done.text[done.text.index("out = ") : done.text.index("truth = [value")]
    assert "tolist()" not in in_the_loop
    assert "truth = [value for part in truth for value in part.tolist()]" in done.lines
    before, after = run(done.before)["seen"], run(done.text)["seen"]
    assert before == after and (loader == "none" or len(before[0][0]) == 10)
    assert all(type(n) is int for n in after[0][0])


def test_batches_of_other_widths() -> None:
    done = made(STEP.replace("out.cpu()", "out[:, : len(x) - 1]"))
    assert "scores" in "".join(done.lines)
    assert run(done.before)["seen"] == run(done.text)["seen"]


@pytest.mark.parametrize(
    ("step", "before", "after"),
    [
        (STEP + "\nprint(len(truth), scores[-1])", BEFORE, "pass"),  # read in the loop
        (STEP, "truth, scores = [0], [[0.0, 0.0]]", "pass"),  # not empty
        (STEP, BEFORE + "\n    truth.append(0)\n    scores.append(0)", "pass"),
        (STEP, BEFORE + "\n    show = lambda: (truth, scores)", "pass"),  # read elsewhere
        (STEP, "global truth, scores\n    " + BEFORE, "pass"),
        ("truth.extend(y.numpy())\nscores.extend(out.numpy())", BEFORE, "pass"),
    ],
)
def test_lists_that_stay(step: str, before: str, after: str) -> None:
    """At the most, labels that only come back are left on the host."""
    done = made(step, before, after)
    assert all(line in done.text for line in step.split("\n"))
    assert repr(run(done.before)["seen"]) == repr(run(done.text)["seen"])
