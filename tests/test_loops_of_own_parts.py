"""python-loop: layers that each turn applies to its own part of a tensor are applied ahead."""

from __future__ import annotations

import textwrap

import pytest

from autofast.rule import Effect
from tests.onerule import apply
from tests.test_rule_python_loop import same_but_rounding, script_of

NET = script_of("""\

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.lstm = nn.GRUCell(6, 6), nn.LSTMCell(6, 6)
        self.embed, self.proj, self.out = nn.Embedding(9, 6), nn.Linear(3, 6), nn.Linear(6, 9)
        self.decay, self.wide, self.drop = nn.Linear(3, 6), nn.Linear(7, 6), nn.Dropout(0.5)
        self.normed = nn.Embedding(9, 6, max_norm=0.5)

    def forward(self, x, ids):
        b, steps, _ = x.shape
        h, c = x.new_zeros(b, 6), x.new_zeros(b, 6)
        T = ids.size(1)
        total = 0.0
{body}
        return self.out(h) + total


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(24, 9, 3), torch.randint(0, 9, (24, 9))), batch_size=8)
for epoch in range(2):
    for x, ids in loader:
        x, ids = x.to(device), ids.to(device)
        out = model(x, ids)
        loss = F.cross_entropy(out, ids[:, 0])
        {update}
        print("loss", loss.item(), " ".join(str(p.sum().item()) for p in model.parameters()))
""")
LOOP = "for t in range(steps):\n    "
PLACES = [
    (
        LOOP + "x_t = self.proj(x[:, t])\n    h = self.cell(x_t, h)",
        "all_x_t = self.proj(x)\nx_t = all_x_t[:, t]",
    ),
    (
        LOOP + "h = self.cell(self.proj(x[:, t]), h * torch.exp(-F.relu(self.decay(x[:, t]))))",
        "inputs = self.proj(x)\ninputs_2 = torch.exp(-F.relu(self.decay(x)))\n"
        "h = self.cell(inputs[:, t], h * inputs_2[:, t])",
    ),
    (
        "for t in range(T - 1):\n    emb = self.embed(ids[:, t])\n    h, c = self.lstm(self.drop(emb), (h, c))",
        "all_emb = self.embed(ids)\nemb = all_emb[:, t]",
    ),
    (
        "x = x.transpose(0, 1).view(steps, b, 3)\n"
        + LOOP
        + "now = x[t]\n    h = self.cell(torch.tanh(self.proj(now)), h)",
        "inputs = torch.tanh(self.proj(x))\nh = self.cell(inputs[t], h)",
    ),
    (
        "for t in range(steps - 1, -1, -1):\n    h = self.cell(self.proj(x[:, t]), h)\n    total = total + x[:, t].mean()",
        "inputs = self.proj(x)\nh = self.cell(inputs[:, t], h)",
    ),
]


def script(body: str) -> str:
    return NET.replace("{body}", textwrap.indent(body, " " * 8))


@pytest.mark.parametrize(("body", "lines"), PLACES)
def test_layers_ahead_of_the_loop(body: str, lines: str) -> None:
    text = script(body)
    found = apply("python-loop", text)
    assert found.lines == lines.splitlines()
    assert [f.effect for f in found.fixes] == [Effect.ROUNDING]
    same_but_rounding(found.text, text)


def test_layers_on_both_sides() -> None:
    body = "ys = []\n" + LOOP + "h = self.cell(self.proj(x[:, t]), h)\n    ys.append(self.out(h))\n"
    text = script(body + "total = torch.stack(ys, 1).mean(1)")
    found = apply("python-loop", text)
    assert found.lines == [
        "inputs = self.proj(x)",
        "h = self.cell(inputs[:, t], h)",
        "ys.append(h)",
        "total = self.out(torch.stack(ys, 1)).mean(1)",
    ]
    same_but_rounding(found.text, text)


@pytest.mark.parametrize(
    "body",
    [
        LOOP + "x[:, 0] = 0.5 * x[:, t]\n    h = self.cell(self.proj(x[:, t]), h)",  # is written to
        LOOP + "h = self.cell(self.proj(x[:, t]), h)\n    x = x + h[:, None, :3]",
        LOOP + "h = self.cell(self.proj(x[:, t] + h[:, :3]), h)",  # needs the turn before
        LOOP + "h = self.cell(self.proj(x[:, t] * t), h)",
        LOOP + "h = self.cell(self.proj(x[:, t] * random.random()), h)",
        LOOP + "h = self.cell(self.drop(x[:, t]).repeat(1, 2), h)",
        LOOP + "if t % 2:\n        h = self.cell(self.proj(x[:, t]), h)",  # not in each turn
        LOOP + "h = self.cell(self.proj(x[:, t]) if t % 2 else h, h)",
        LOOP + "h = self.cell(self.proj(x[:, t]), h)\n    if h.sum() > 1e6:\n        break",
        LOOP + "i = min(t + 1, 8)\n    h = self.cell(self.proj(x[:, i]), h)",
        LOOP + "with torch.no_grad():\n        y = self.proj(x[:, t])\n    h = self.cell(y, h)",
        LOOP + "h = self.cell(self.normed(ids[:, t]), h)",  # the table is scaled on the way
        LOOP + "h = self.cell(self.embed(ids[:, t]), h)",  # of another length, as far as is shown
        "for t in range(3):\n    h = self.cell(self.proj(x[:, t]), h)",
        "x = x.permute(0, 2, 1)[:, :, :7]\nx = x.unflatten(2, (7,))\nfor t in range(3):\n    h = self.cell(self.wide(x[:, t]), h)",
        "y = x[:, :, 0].t()[:7]\n" + LOOP + "h = self.cell(self.wide(y[:, t % 8].expand(b, 7)), h)",
        LOOP
        + "total = total + self.out(self.proj(x[:, t])).mean()",  # in parts, for want of memory
        LOOP + "h = self.cell(self.proj(x[:, t]), h)\n    self.proj.weight.data.mul_(0.9)",
    ],
)
def test_what_stays_in_the_loop(body: str) -> None:
    found = apply("python-loop", script(body))
    assert not found.fixes
