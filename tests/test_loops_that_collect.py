"""python-loop: layers that each turn applies to what is only collected are applied once."""

from __future__ import annotations

import textwrap

import pytest

from autofast.rule import Effect
from tests.onerule import apply
from tests.test_rule_python_loop import same_but_rounding, script_of

NET = script_of("""\
import math


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, h):
        h = F.relu(self.one(h))
        return self.two(h)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 3), nn.BatchNorm1d(3)

    def forward(self, h):
        return self.two(self.one(h))


class Drawn(Head):
    def forward(self, h):
        return self.two(h) * random.random()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.gru = nn.GRUCell(3, 6), nn.GRU(3, 6, batch_first=True)
        self.lstm = nn.LSTMCell(3, 6)
        self.out, self.drop = nn.Linear(6, 3), nn.Dropout(0.5)
        self.deep = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 3))
        self.head, self.normed, self.drawn, self.one = Head(), Norm(), Drawn(), nn.Linear(6, 1)
        self.inside = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(6, 3))
        self.whole = nn.LayerNorm((8, 6))
        self.each = nn.ModuleList([nn.Linear(6, 3) for _ in range(9)])

    def forward(self, x):
        b, steps, _ = x.shape
        h, c = x.new_zeros(b, 6), x.new_zeros(b, 6)
        state = None
        ys = []
{body}


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(torch.randn(24, 9, 3), batch_size=8)
for epoch in range(2):
    for x in loader:
        x = x.to(device)
        out = model(x)
        loss = (out * torch.linspace(0, 1, out.numel(), device=device).view(out.shape)).pow(2).mean()
        {update}
        print("loss", loss.item(), " ".join(str(p.sum().item()) for p in model.parameters()))
""")
LOOP = "for t in range(steps):\n    h = self.cell(x[:, t], h)\n    "
STACK = "return torch.stack(ys, 1)"
PLACES = [
    (
        LOOP + "ys.append(self.out(h))\n" + STACK,
        "ys.append(h)\nreturn self.out(torch.stack(ys, 1))",
    ),
    (
        LOOP + "y = self.out(h)\n    ys.append(y)\nout = torch.stack(ys, dim=0)\nreturn out",
        "ys.append(h)\nout = self.out(torch.stack(ys, dim=0))",
    ),
    (
        LOOP + "ys.append(torch.sigmoid(self.deep(torch.tanh(h)) * 2 - 1))\n" + STACK,
        "ys.append(h)\nreturn torch.sigmoid((self.deep(torch.tanh(torch.stack(ys, 1))) * 2) - 1)",
    ),
    (
        LOOP + "ys.append(self.head(h).softmax(dim=-1).unsqueeze(1))\nreturn torch.cat(ys, 1)",
        "ys.append(h.unsqueeze(1))\nreturn self.head(torch.cat(ys, 1)).softmax(dim=-1)",
    ),
    (
        LOOP + "ys.append(self.one(h).squeeze(-1).exp())\n" + STACK,
        "ys.append(h)\nreturn self.one(torch.stack(ys, 1)).squeeze(-1).exp()",
    ),
    (
        LOOP + "ys.append(self.out(self.drop(h)))\n" + STACK,
        "ys.append(self.drop(h))\nreturn self.out(torch.stack(ys, 1))",
    ),
    (
        "for x_t in x.unbind(1):\n    h, c = self.lstm(x_t, (h, c))\n    ys.append(self.out(h))\n"
        + STACK,
        "ys.append(h)\nreturn self.out(torch.stack(ys, 1))",
    ),
    (
        "for t in range(steps):\n    y, state = self.gru(x[:, t:t + 1], state)\n    ys.append(self.out(y))\n"
        "return torch.cat(ys, dim=-2)",
        "ys.append(y)\nreturn self.out(torch.cat(ys, dim=-2))",
    ),
    (
        "hs = []\n" + LOOP + "hs.append(h)\n    ys.append(self.out(h))\n"
        "return torch.stack(ys, 1) + torch.stack(hs, 1).mean()",
        "ys.append(h)\nreturn self.out(torch.stack(ys, 1)) + torch.stack(hs, 1).mean()",
    ),
]


def script(body: str) -> str:
    return NET.replace("{body}", textwrap.indent(body, " " * 8))


@pytest.mark.parametrize(("body", "written"), PLACES)
def test_layers_behind_the_loop(body: str, written: str) -> None:
    text = script(body)
    found = apply("python-loop", text)
    assert found.lines == written.splitlines()
    assert [f.effect for f in found.fixes] == [Effect.ROUNDING]
    same_but_rounding(found.text, text)


@pytest.mark.parametrize(
    "body",
    [
        LOOP + "y = self.out(h)\n    ys.append(y)\n    h = h + y.mean()\n" + STACK,  # feedback
        LOOP + "ys.append(self.out(h))\n    h = h + ys[-1].mean()\n" + STACK,
        LOOP + "ys.append(self.out(h))\nreturn torch.stack(ys, 1) + len(ys)",
        LOOP + "ys.append(self.out(h))\nreturn torch.stack(ys, 2)",  # features are not the last
        LOOP + "ys.append(self.out(h))\nreturn torch.stack(ys, -1)",
        LOOP + "ys.append(self.out(h))\nreturn torch.cat(ys, 1)",
        LOOP + "ys.append(self.one(h).squeeze(-1).softmax(-1))\nreturn torch.stack(ys, -1)",
        LOOP + "ys.append(self.drop(self.out(h)))\n" + STACK,  # draws for each turn
        LOOP + "ys.append(self.normed(h))\n" + STACK,  # takes the mean of the batch
        LOOP + "ys.append(self.whole(h))\n" + STACK,  # so does this
        "f = self.out\n" + LOOP + "ys.append(f(h))\n    f = self.head\n" + STACK,
        LOOP + "ys.append(self.drawn(h))\n" + STACK,
        LOOP + "ys.append(self.inside(h))\n" + STACK,  # writes to what the next turn reads
        LOOP + "ys.append(self.each[t](h))\n" + STACK,  # another layer in each turn
        LOOP + "ys.append(self.out(h) * t)\n" + STACK,
        LOOP + "ys.append(self.out(h) * random.random())\n" + STACK,
        LOOP
        + "ys.append(self.out(h))\n    h = h.clone()\n    h.mul_(0.5)\n    ys[-1].mul_(2)\n"
        + STACK,
        LOOP + "y = self.out(h)\n    h = h * 2\n    ys.append(y)\n" + STACK,
        LOOP + "ys.append(self.out(h))\n    h *= 0.5\n" + STACK,  # of what was collected
        LOOP + "with torch.no_grad():\n        y = self.out(h)\n    ys.append(y)\n" + STACK,
        LOOP + "with torch.no_grad():\n        ys.append(self.out(h))\nout = self.out(h)[:, None]\n"
        "return torch.cat([torch.stack(ys, 1), out], 1)",
        "for t in range(3):\n    h = self.cell(x[:, t], h)\n    ys.append(self.out(h))\n" + STACK,
        LOOP + "ys.append(self.out(h))\nh.mul_(0)\n" + STACK,
        # in parts, for want of memory
        "x = x.repeat(1, 1, 2)\nfor t in range(steps):\n    ys.append(self.out(x[:, t]))\n" + STACK,
        LOOP + "ys.append(self.out(h))\n    self.out.weight.data.mul_(0.9)\n" + STACK,
    ],
)
def test_what_stays_in_the_loop(body: str) -> None:
    text = script(body)
    found = apply("python-loop", text)
    assert "internal" not in found.refusals
    assert not found.fixes or "self.out" not in "".join(found.lines)
    if found.fixes:
        same_but_rounding(found.text, text)


@pytest.mark.parametrize(
    "line",
    [
        "model.out.register_forward_hook(lambda *a: print('hook', 1))\n",
        "nn.utils.spectral_norm(model.out)\n",
        "model.out = nn.utils.parametrizations.spectral_norm(model.out)\n",
    ],
)
def test_layers_whose_calls_count(line: str) -> None:
    text = script(LOOP + "ys.append(self.out(h))\n" + STACK)
    text = text.replace("optimizer = ", line + "optimizer = ")
    assert not apply("python-loop", text).fixes
