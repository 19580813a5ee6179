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


ROLLOUT = """
import numpy as np
import torch
from torch import nn

np.random.seed(0)
torch.manual_seed(0)
rng = np.random.default_rng(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(3, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
obs = torch.zeros(5, 2, 3).to(device)
rewards = torch.zeros(5, 2).to(device)
now = torch.zeros(2, 3).to(device)
losses, seen = [], []

for update in range(4):
    for step in range(5):
        obs[step] = now
        with torch.no_grad():
            action = model(now)
        reward = rng.normal(size=(2, 1))
        rewards[step] = torch.tensor(reward).to(device).view(-1)
        now = torch.Tensor(rng.normal(size=(2, 3))).to(device)
    total = torch.zeros(2, device=device)
    for t in reversed(range(5)):
        total = rewards[t] + 0.9 * total
    loss = (model(obs).sum(0) * total[:, None]).mean() + rewards.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    seen.append(rewards.sum().item())
"""
SET = "rewards[step] = torch.tensor(reward).to(device).view(-1)"


def rows(found: Applied) -> list[str]:
    return [line for line in found.lines if "rewards" in line]


@pytest.mark.parametrize(
    ("old", "new", "sets"),
    [
        ("", "", "host_rewards[step] = torch.tensor(reward).view(-1)"),
        (SET, "rewards[step] = torch.from_numpy(reward[:, 0]).to(device)", "host_rewards[step] = torch.from_numpy(reward[:, 0])"),
        (SET, f"{SET}\n        if reward[0, 0] > 1:\n            break", "host_rewards[step] = torch.tensor(reward).view(-1)"),
        (SET, f"if step != 2:\n            {SET}", "host_rewards[step] = torch.tensor(reward).view(-1)"),
        ("rewards = torch.zeros(5, 2).to(device)", "rewards = torch.full((5, 2), 0.5, device=device)", "host_rewards[step] = torch.tensor(reward).view(-1)"),
    ],
)  # fmt: skip
def test_rows_of_steps_are_copied_together(old: str, new: str, sets: str) -> None:
    text = ROLLOUT.replace(old, new)
    found = apply("device-creation", text)
    assert rows(found) == ["host_rewards = rewards.cpu()", sets, "rewards.copy_(host_rewards)"]
    before, after = run(text), run(found.text)
    assert before["losses"] == after["losses"] and before["seen"] == after["seen"]


def test_rows_of_a_tensor_that_each_turn_makes() -> None:
    made = "    rewards = torch.zeros(5, 2).to(device)\n    for step in"
    found = apply("device-creation", text := ROLLOUT.replace("    for step in", made))
    assert "rewards.copy_(host_rewards)" in rows(found)
    assert run(text)["losses"] == run(found.text)["losses"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (SET, f"{SET}\n        seen.append(rewards.sum().item())"),  # read while the loop runs
        (SET, f"{SET}\n        rewards[step] *= 0.5"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nflat = rewards.view(-1)\nscores = flat\n"),
        ("    total = torch.zeros", "    rewards -= rewards.mean()\n    total = torch.zeros"),
        ("    total = torch.zeros", "    rewards.clamp_(-1, 1)\n    total = torch.zeros"),
        ("    total = torch.zeros", "    seen.append(rewards)\n    total = torch.zeros"),
        (SET, "rewards[step] = torch.tensor(reward).to(device, torch.float64).view(-1)"),
        (SET, "rewards[step] = torch.tensor(reward).to(device).view(-1).sigmoid()"),
        (SET, "rewards[step] = action.mean(1)"),
        (SET, "rewards[step] = getattr(torch.tensor(reward), 'to')(device).view(-1)"),
        (SET, "rewards[torch.tensor(step, device=device)] = torch.tensor(reward).to(device).view(-1)"),
        ("rewards = torch.zeros(5, 2).to(device)", "both = torch.zeros(2, 5, 2).to(device)\nrewards = both[0]"),
        ("losses, seen = [], []", "losses, seen = [], []\ndef now_is():\n    return rewards.sum().item()"),
    ],
)  # fmt: skip
def test_rows_that_are_read_or_set_otherwise(old: str, new: str) -> None:
    text = ROLLOUT.replace(old, new)
    if "scores" in new:  # another name that the loop reads
        text = text.replace(
            "        now = torch.T",
            "        seen.append(scores.sum().item())\n        now = torch.T",
            1,
        )
    assert old not in text.replace(new, "")
    run(text)
    assert "host_rewards" not in apply("device-creation", text).text


# ----------------------------------------------------------------------------------- rows by number
COUNTED = """
import argparse
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
parser = argparse.ArgumentParser()
parser.add_argument("--rows", type=int, default=8)
args = parser.parse_args([])
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
policy = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(policy.parameters(), lr=0.1)
losses = []
PAIR = (0, 1)


class Agent:
    def __init__(self, rows):
        self.rows = rows
        self.half = rows / 2

    def learn(self, states, actions):
        n = len(states)
        values = policy(states)
        chosen = {code}
        loss = (chosen**2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


agent = Agent(args.rows)
states, actions = torch.randn(4, 8, 4), torch.randint(0, 3, (4, 8))
for step in range(4):
    agent.learn(states[step].to(device), actions[step].to(device))
"""


@pytest.mark.parametrize(
    ("index", "count"),
    [
        ("range(n)", "n"),
        ("range(len(states))", "len(states)"),
        ("range(0, self.rows)", "self.rows"),
        ("list(range(args.rows))", "args.rows"),
        ("np.arange(states.shape[0])", "states.shape[0]"),
        ("np.arange(n, dtype=np.int32)", "n"),
        ("np.array(range(states.size(0)))", "states.size(0)"),
    ],
)
def test_rows_are_counted_where_the_tensor_is(index: str, count: str) -> None:
    text = COUNTED.replace("{code}", f"values[{index}, actions]")
    found = apply("device-creation", text)
    assert found.lines == [f"chosen = values[torch.arange({count}, device=values.device), actions]"]
    assert run(found.text)["losses"] == run(text)["losses"]


@pytest.mark.parametrize(
    "code",
    [
        "values[np.arange(self.half * 2), actions]",  # fractions, which NumPy's users cut off
        "values[np.arange(n, dtype=float), actions]",
        "values[range(1, n), actions[1:]]",  # empty where there are none: torch raises
        "values[range(n - 9), :]",
        "values[range(n)[::-1], actions]",
        "values.cpu()[range(n), actions.cpu()].to(device)",
        "values[PAIR]",
        "np.ones((8, 3))[range(n), 0].sum() * values",
    ],
)
def test_other_rows_are_left(code: str) -> None:
    text = COUNTED.replace("{code}", code)
    run(text)
    assert not apply("device-creation", text).lines


@pytest.mark.parametrize(
    ("made", "places", "value", "written"),
    [
        ("values @ values.t()", "range(n), range(n)", "0", "chosen.diagonal()[..., :n] = 0"),
        ("values @ values.t()", "np.arange(n), np.arange(n)", "self.half", "chosen.diagonal()[..., :n] = self.half"),
        ("torch.einsum('ij,kj->ikj', values, values)", "range(n), range(n)", "-1.5", "chosen.diagonal()[..., :n] = -1.5"),
        ("torch.zeros(8, 8, device=device)", "range(len(states)), range(len(states))", "0.1", "chosen.diagonal()[: len(states)] = 0.1"),
    ],
)  # fmt: skip
def test_places_on_the_diagonal_need_no_index(
    made: str, places: str, value: str, written: str
) -> None:
    set_there = f"{made}\n        chosen = chosen.clone()\n        chosen[{places}] = {value}\n        chosen = chosen + 0 * values.sum()"
    text = COUNTED.replace("{code}", set_there)
    found = apply("device-creation", text)
    assert found.lines == [written]
    assert run(found.text)["losses"] == run(text)["losses"]
