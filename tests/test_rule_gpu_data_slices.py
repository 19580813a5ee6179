"""gpu-data: parts of a tensor that a training copies step by step, without a loader; what it
advises runs and trains the same.
"""

from __future__ import annotations

import pytest

from tests.onerule import apply, run

torch = pytest.importorskip("torch")
SCRIPT = """
import torch
from torch import nn


def part(source, i, length):
    n = min(length, len(source) - i)
    return source[i : i + n], source[i : i + n].sum(1) > 0


def numbers(n):
    return torch.randn(n, 4)


def moved(z, device):
    return z[:, :4].to(device), z[:, :4].to(device)


class Rows:
    def __init__(self):
        self.x = torch.randn(24, 4)


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.randn(24, 4)
    y = (x.sum(1) > 0).long()
    rows = Rows()
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        order = torch.randperm(24)
        for i in range(0, 24, 8):
            {body}
            loss = nn.functional.cross_entropy(model(a), b.long())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


losses = []
main()
"""
TWO = "a, b = x[i : i + 8].to(device), y[i : i + 8].to(device)"


@pytest.mark.parametrize(
    ("body", "moves"),
    [
        (TWO, ["x = x.to(device)", "y = y.to(device)"]),
        ("rest = order[i : i + 8]\n            a, b = x[rest].to(device), y[rest].to(device)", ["x = x.to(device)", "y = y.to(device)"]),
        ("a = x[i : i + 8].view(-1, 4)\n            a = a.to(device)\n            b = a.sum(1) > 0", ["x = x.to(device)"]),
        ("a, b = part(x, i, 8)\n            a, b = a.to(device), b.to(device)", ["x = x.to(device)"]),
        ("a = rows.x[i : i + 8].to(device)\n            b = a.sum(1) > 0", ["rows.x = rows.x.to(device)"]),
    ],
)  # fmt: skip
def test_what_is_advised(body: str, moves: list[str]) -> None:
    text = SCRIPT.format(body=body)
    found = apply("gpu-data", text)
    assert not found.fixes
    for move in moves:
        assert f"`{move}`" in found.advice
    lines = "\n    ".join(moves)
    done = text.replace("    for epoch", f"    {lines}\n    for epoch")
    assert run(done)["losses"] == run(text)["losses"]
    assert not apply("gpu-data", done).findings  # it is there already


@pytest.mark.parametrize(
    "body",
    [
        "z = torch.randn(24, 4)\n            a = z[i : i + 8].to(device)\n            b = a.sum(1) > 0",  # made in the loop
        "a = torch.randn(8, 4).to(device)\n            b = a.sum(1) > 0",
        # of the model
        "a = torch.randn(8, 4, device=device)\n            b = model(a)[:, 0].to(device) > 0",
        # a function is given another one each time
        "a, b = moved(numbers(8), device)\n            b = b.sum(1) > 0",
        "rows.x = torch.randn(24, 4)\n            a = rows.x[i : i + 8].to(device)\n            b = a.sum(1) > 0",
        "a = (x[i : i + 8] * 2).to(device)\n            b = a.sum(1) > 0",  # arithmetic on the host
    ],
)
def test_nothing_to_say(body: str) -> None:
    assert not apply("gpu-data", SCRIPT.format(body=body)).findings


def test_on_a_cpu_there_is_nothing_to_say() -> None:
    assert not apply("gpu-data", SCRIPT.format(body=TWO), target="cpu").findings
