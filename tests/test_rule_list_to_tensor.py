"""list-to-tensor: lists of arrays that become one array first, and those that stay lists."""

from __future__ import annotations

import pytest
import torch

from tests.onerule import Applied, apply, run

RULE = "list-to-tensor"
SCRIPT = """
import random
from collections import deque, namedtuple
import numpy as np
import torch
from torch import nn

Transition = namedtuple("Transition", ("state", "action", "reward", "done"))
random.seed(0)
torch.manual_seed(0)
rng = np.random.RandomState(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Buffer:
    def __init__(self, size):
        self.kept = deque(maxlen=size)

    def push(self, *row):
        self.kept.append(Transition(*row))

    def sample(self, n):
        return random.sample(self.kept, n)


def observe():
    return rng.randn(4)


buffer, seen = Buffer(64), []
net = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(40):
    buffer.push(observe(), step % 2, rng.rand(), float(step % 3 == 0))
    if step < 16:
        continue
    rows = buffer.sample(8)
    batch = Transition(*zip(*rows))
    states, actions, rewards, done = map(list, zip(*rows))
    loss = net(torch.FloatTensor(np.stack(states)).to(device)).sum()
    x = {made}
    seen.append(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def made(expr: str, **given: str) -> Applied:
    text = SCRIPT.replace("{made}", expr)
    for old, new in given.items():
        assert old in text
        text = text.replace(old, new)
    return apply(RULE, text)


def same(found: Applied) -> bool:
    """Both texts make the same tensors, of the same type."""
    before, after = run(found.before)["seen"], run(found.text)["seen"]
    assert len(before) == len(after) > 0
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("torch.FloatTensor(batch.state)", "torch.FloatTensor(np.array(batch.state))"),
        ("torch.Tensor(batch.state)", "torch.Tensor(np.array(batch.state))"),
        (
            "torch.FloatTensor([r.state for r in rows]).to(device)",
            "torch.FloatTensor(np.array([r.state for r in rows])).to(device)",
        ),
        (
            "torch.tensor([r[0] for r in rows], dtype=torch.float32, device=device)",
            "torch.tensor(np.array([r[0] for r in rows]), dtype=torch.float32, device=device)",
        ),
        (
            "torch.as_tensor(batch.state, dtype=torch.float)",
            "torch.as_tensor(np.array(batch.state), dtype=torch.float)",
        ),
        (
            "torch.tensor(batch.state).to(device).float()",
            "torch.tensor(np.array(batch.state)).to(device).float()",
        ),
        (
            "torch.tensor(batch.state).unsqueeze(0).to(device, torch.float32)",
            "torch.tensor(np.array(batch.state)).unsqueeze(0).to(device, torch.float32)",
        ),
        (
            "torch.tensor([rng.randn(3), rng.randn(3)])",
            "torch.tensor(np.array([rng.randn(3), rng.randn(3)]))",
        ),
        ("torch.FloatTensor([observe()])", "torch.FloatTensor(np.array([observe()]))"),
        ("torch.LongTensor([rng.randint(0, 9, 4)])", "torch.LongTensor(np.array([rng.randint(0, 9, 4)]))"),
        (
            "torch.tensor(rng.randn(2, 3).tolist(), device=device)",
            "torch.tensor(rng.randn(2, 3), device=device, dtype=torch.float32)",
        ),
        ("torch.tensor(rng.randint(0, 9, (2, 3)).tolist())", "torch.tensor(rng.randint(0, 9, (2, 3)))"),
        (
            "torch.tensor(rng.randn(2, 3).tolist(), dtype=torch.float64)",
            "torch.tensor(rng.randn(2, 3), dtype=torch.float64)",
        ),
    ],
)  # fmt: skip
def test_one_array_comes_first(expr: str, expected: str) -> None:
    found = made(expr)
    assert found.lines == [f"x = {expected}"] and same(found)


@pytest.mark.parametrize(
    "expr",
    [
        "torch.tensor(batch.state)",  # the type is that of what the list holds
        "torch.tensor(batch.state).sum(1).float()",
        "torch.LongTensor(batch.action)",  # numbers of Python
        "torch.FloatTensor([float(r.done) for r in rows])",
        "torch.FloatTensor([sum(batch.action), random.random()])",
        "torch.FloatTensor([[sum(batch.action), r.done] for r in rows])",
        "torch.LongTensor([sum(batch.action) for r in rows])",
        "torch.FloatTensor(np.stack(batch.state))",
        "torch.tensor([net(torch.ones(4, device=device)).sum(), loss], dtype=torch.float32)",
        "torch.as_tensor(rng.randn(2, 3).tolist())",
        "torch.tensor(rng.randn(2, 3).astype(np.float16).tolist())",
        "torch.tensor(torch.ones(3).tolist())",
    ],
)
def test_what_stays_a_list(expr: str) -> None:
    found = made(expr)
    assert not found.fixes and not found.refusals


@pytest.mark.parametrize(
    "row", ["torch.rand(1).squeeze()", "net(torch.ones(4, device=device)).sum().detach()"]
)
def test_tensors_among_the_numbers(row: str) -> None:
    """A tensor of the device is a number to torch, and none to NumPy."""
    found = made("torch.FloatTensor(batch.reward)", **{"rng.rand(), float": f"{row}, float"})
    assert not found.fixes


def test_what_is_not_known_may_be_a_tensor() -> None:
    found = made(
        "torch.FloatTensor([unheard.of(r) for r in rows])", **{"import random": "import unheard"}
    )
    assert not found.fixes and "it is not known what the list holds" in found.refusals


ITEMS = """
{imports}
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self):
        self.rows = self.table()

    def table(self):
        return {table}

    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.tensor(self.rows[i].tolist()), i


torch.manual_seed(0)
seen = []
net = nn.Linear(3, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(2):
    for x, i in DataLoader(Rows(), batch_size=4):
        seen.append(x)
        loss = net(x.float()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("np.ones((16, 3), np.int64)", ["return torch.tensor(self.rows[i]), i"]),
        ("np.random.RandomState(0).rand(16, 3)", ["return torch.tensor(self.rows[i], dtype=torch.float32), i"]),
        ("np.ones((16, 3), np.int32)", []),
        ("torch.ones(16, 3)", []),
    ],
)  # fmt: skip
def test_items_of_a_data_set(table: str, expected: list[str]) -> None:
    found = apply(RULE, ITEMS.format(table=table, imports="import numpy as np"))
    assert found.lines == expected
    assert not expected or same(found)


def test_numpy_is_imported_where_it_is_missing() -> None:
    """Environments give arrays to scripts that never name NumPy."""
    text = """
        import gym
        import torch

        env, net = gym.make("CartPole-v1"), torch.nn.Linear(4, 2).cuda()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        states = []
        for step in range(9):
            states.append(env.reset())
            loss = net(torch.FloatTensor(states).cuda()).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
    found = apply(RULE, text)
    assert found.lines == [
        "import numpy as np",
        "loss = net(torch.FloatTensor(np.array(states)).cuda()).sum()",
    ]


def test_once_is_not_worth_a_line() -> None:
    found = made(
        "0",
        **{
            "buffer, seen": "table = torch.FloatTensor([observe() for _ in range(9)])\nbuffer, seen"
        },
    )
    assert not found.fixes
