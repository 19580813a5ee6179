"""device-creation: arrays of NumPy that index tensors on the device, copied there once."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

SCRIPT = """
import random
import numpy as np
import torch
from torch import nn

random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
rng = np.random.default_rng(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
n = 12
host = torch.randn(n, 3)
obs = host.to(device)
returns = torch.randn(n, 1).to(device)
seen = []
losses = []
{before}
for epoch in range(4):
    {draw}
    for start in range(0, n, 4):
        {cut}
        value = model(obs[mb])
        loss = (value - {target}).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    {after}
"""
CUT = "mb = order[start : start + 4]"
DRAW = "order = np.random.permutation(n)"
SHUFFLE = "np.random.shuffle(order)"
ARANGE = "order = np.arange(n)"
COPY = "order = torch.from_numpy({}).to(obs.device)"
ONCE = ["indices = torch.from_numpy(order).to(obs.device)", "mb = indices[start : start + 4]"]


def script(
    draw: str = DRAW, cut: str = CUT, target: str = "returns[mb]", before: str = "", after: str = ""
) -> str:
    draw, cut = draw.replace("\n", "\n    "), cut.replace("\n", "\n        ")
    return SCRIPT.format(before=before, draw=draw, cut=cut, target=target, after=after)


def of(found: Applied) -> str:
    """The advice on arrays."""
    return "; ".join(
        f.advice for f in found.findings if f.message.startswith("indexes tensors on the device")
    )


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ({}, [COPY.format("np.random.permutation(n)")]),
        ({"draw": "order = rng.permutation(n)"}, [COPY.format("rng.permutation(n)")]),
        ({"target": "returns[mb, :]", "after": "seen.append(len(order))"}, [COPY.format("np.random.permutation(n)")]),
        ({"before": ARANGE, "draw": SHUFFLE}, ONCE),
        ({"before": ARANGE, "draw": "rng.shuffle(order)"}, ONCE),
        ({"draw": f"{ARANGE}\nrandom.shuffle(order)"}, ONCE),
        ({"cut": "mb = order[start : start + 4]\nseen.append(len(mb))"}, [COPY.format("np.random.permutation(n)")]),
        ({"cut": "mb = order[start : start + 4]", "target": "returns[order[start : start + 4]]"}, [COPY.format("np.random.permutation(n)")]),
        ({"draw": "pass", "cut": "mb = np.random.randint(0, n, 4)"}, ["mb = torch.from_numpy(np.random.randint(0, n, 4)).to(obs.device)"]),
        ({"draw": "pass", "cut": "mb = np.random.choice(n, size=4, replace=False)"}, ["mb = torch.from_numpy(np.random.choice(n, size=4, replace=False)).to(obs.device)"]),
        ({"draw": "pass", "cut": "mb = rng.integers(n, size=4)"}, ["mb = torch.from_numpy(rng.integers(n, size=4)).to(obs.device)"]),
    ],
)  # fmt: skip
def test_the_indices_are_copied_once(parts: dict[str, str], lines: list[str]) -> None:
    text = script(**parts)
    found = apply("device-creation", text)
    assert found.lines == lines and not of(found)
    assert run(found.text)["losses"] == run(text)["losses"]
    assert run(found.text)["seen"] == run(text)["seen"]


@pytest.mark.parametrize(
    "parts",
    [
        {"target": "host[mb].sum(1, keepdim=True).to(device)"},  # takes no index of the device
        {"cut": f"{CUT}\nseen.append(mb)"},  # somebody else has it
        {"cut": f"{CUT}\nseen.append(mb.sum())"},
        {"after": "seen.append(order.sum())"},
        {"after": "mb.sort()"},
        {"before": ARANGE, "draw": SHUFFLE, "cut": f"{SHUFFLE}\n{CUT}"},  # another in each step
        {"before": ARANGE, "draw": SHUFFLE, "cut": f"order[0] = start\n{CUT}"},
        {"before": f"{ARANGE}\nmb = order[:4]", "cut": f"old = obs[mb].sum().item()\n{CUT}"},
        {"before": ARANGE, "draw": SHUFFLE, "after": "seen.append(obs[mb].sum())\n    random.shuffle(order)\n    seen.append(obs[mb].sum())"},
        {"draw": "pass", "cut": "mb = np.random.choice(n, 4)\nseen.append(mb.max())"},
        {"before": "def show():\n    seen.append(order.sum())", "after": "show()"},
        {"before": "other = torch.zeros(1).to('cuda:1' if torch.cuda.device_count() > 9 else 'cpu')\nmore = torch.zeros(1).to('cuda:0' if torch.cuda.device_count() > 9 else 'cpu')"},
    ],
)  # fmt: skip
def test_what_is_not_certain_is_advice(parts: dict[str, str]) -> None:
    text = script(**parts)
    run(text)
    found = apply("device-creation", text)
    assert not found.lines and "copy the indices there once" in of(found)


@pytest.mark.parametrize(
    "parts",
    [
        {"draw": "pass", "cut": "mb = np.random.randint(0, n)"},  # a number
        {"draw": "pass", "cut": "mb = np.random.choice(n, 4)", "target": "returns[:4]"},  # one copy
        {"draw": "pass", "cut": "mb = slice(start, start + 4)"},
        {"draw": "order = torch.randperm(n).to(device)"},
        {"draw": "order = list(range(n))"},
    ],
)
def test_no_array(parts: dict[str, str]) -> None:
    text = script(**parts)
    run(text)
    found = apply("device-creation", text)
    assert not of(found) and not any("from_numpy" in line for line in found.lines)


def test_buffers_of_an_object() -> None:
    text = """
    import numpy as np
    import torch
    from torch import nn

    np.random.seed(0)
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    class Replay:
        def __init__(self, n):
            self.n = n
            self.obs = torch.randn(n, 3).to(device)
            self.acts = torch.randn(n, 1).to(device)

        def sample(self, size):
            idx = np.random.randint(0, self.n, size)
            return self.obs[idx], self.acts[idx]

    replay = Replay(32)
    model = nn.Linear(3, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(6):
        obs, acts = replay.sample(8)
        loss = (model(obs) - acts).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    """
    found = apply("device-creation", text)
    new = "idx = torch.from_numpy(np.random.randint(0, self.n, size)).to(self.obs.device)"
    assert found.lines == [new]
    assert run(found.text)["losses"] == run(text)["losses"]
