"""python-loop: rows that each turn picks out of its own row of a tensor are picked all at once."""

from __future__ import annotations

import textwrap

import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply
from tests.test_rule_python_loop import same_but_rounding, script_of

PICKED = script_of("""\

class Sessions(Dataset):
    def __len__(self):
        return 14

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randn(6, 4, generator=g), torch.randint(0, 6, (5,), generator=g), torch.randn((), generator=g)


def to_cuda(x):
    if torch.cuda.is_available():
        return x.cuda()
    else:
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, data, idx):
        x = torch.tanh(self.embed(data))
        B, T, D = x.size()
{body}
        return self.out(z).flatten(1).mean(1)


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(Sessions(), batch_size=4)
for epoch in range(2):
    for data, idx, y in loader:
        data, idx, y = to_cuda(data), to_cuda(idx.long()), to_cuda(y)
        loss = (model(data, idx) - y).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
""")
ROWS = "torch.arange({n}, device=x.device).view(-1, *[1] * ({i}.dim() - 1))"
WHOLE = ROWS.format(n="len(idx)", i="idx")
SIZED = ROWS.format(n="x.size(0)", i="idx")
B_ROWS = ROWS.format(n="B", i="idx")


def made(body: str) -> Applied:
    body = textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)
    return apply("python-loop", PICKED.replace("{body}", body))


def squeezed(text: str) -> str:
    return "".join(text.split()).replace(",]", "]").replace("(x[", "x[").replace(",)", ")")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("z = torch.stack([x[i][idx[i]] for i in range(len(idx))])", f"z = x[{WHOLE}, idx]"),
        ("z = torch.stack([x[i, idx[i], :] for i in range(x.size(0))], dim=0)", f"z = x[{SIZED}, idx]"),
        ("z = torch.stack([x[b].index_select(0, idx[b]) for b in range(B)])", f"z = x[{B_ROWS}, idx[:B]]"),
        ("get = lambda i: x[i][idx[i]]\nz = torch.stack([get(i) for i in torch.arange(len(idx)).long()])", f"z = x[{WHOLE}, idx]"),
        ("z = []\nfor i in range(len(idx)):\n    z.append(x[i][idx[i]])\nz = torch.stack(z)", f"z = x[{WHOLE}, idx]"),
        ("z = torch.stack([x[i][idx[i]] for i in range(2)])\nz = torch.cat([z, z])[:B]\nz = z.mean() + x", "z = x[torch.arange(2, device=x.device).view(-1, *[1] * (idx.dim() - 1)), idx[:2]]"),
        ("z = torch.stack([torch.index_select(x[i], 0, idx[i]) for i in range(len(idx))])", f"z = x[{WHOLE}, idx]"),
        ("z = torch.cat([x[i][idx[i]].unsqueeze(0) for i in range(len(idx))], 0)", f"z = x[{WHOLE}, idx]"),
        ("rows = [x[i, idx[i]] for i in range(len(idx))]\nz = torch.stack(rows)", f"z = x[{WHOLE}, idx]"),
        ("z = []\nfor i, k in enumerate(idx):\n    z.append(x[i, k].unsqueeze(0))\nz = torch.cat(z, dim=0)", f"z = x[{WHOLE}, idx]"),
        ("last = torch.zeros(B, dtype=torch.long, device=x.device)\nz = torch.stack([x[i, last[i]] for i in range(B)])", "z = x[torch.arange(B, device=x.device), last[:B]]"),
        ("z = torch.stack([torch.index_select(x[i], 0, idx[i]) for i in range(len(idx))])", f"z = x[{WHOLE}, idx]"),
        ("z = torch.cat([x[i][idx[i]].unsqueeze(0) for i in range(len(idx))], 0)", f"z = x[{WHOLE}, idx]"),
        ("rows = [x[i, idx[i]] for i in range(len(idx))]\nz = torch.stack(rows)", f"z = x[{WHOLE}, idx]"),
        ("z = []\nfor i, k in enumerate(idx):\n    z.append(x[i, k].unsqueeze(0))\nz = torch.cat(z, dim=0)", f"z = x[{WHOLE}, idx]"),
        ("last = torch.zeros(B, dtype=torch.long, device=x.device)\nz = torch.zeros(B, D, device=x.device)\nfor i in range(B):\n    z[i] = x[i, last[i]]", "z[:B] = x[torch.arange(B, device=x.device), last[:B]]"),
        ("z = torch.zeros_like(x)\nfor b in range(B):\n    for t in range(5):\n        z[b, t] = x[b, idx[b][t]]",
         f"z[:B, :5] = x[{B_ROWS}, idx[:B, :5]].view_as(z[:B, :5])"),
        ("z = torch.zeros_like(x)\nfor b in range(B):\n    for t in range(3):\n        z[b][t] = x[b][idx[b, t]]",
         f"z[:B, :3] = x[{B_ROWS}, idx[:B, :3]].view_as(z[:B, :3])"),
    ],
)  # fmt: skip
def test_all_rows_are_picked_at_once(body: str, line: str) -> None:
    done = made(body)
    assert squeezed(line) in squeezed(done.text), done.lines
    assert [f.effect for f in done.fixes] == [Effect.ROUNDING]
    assert done.text.count("for ") < done.before.count("for ")
    same_but_rounding(done.before, done.text)


@pytest.mark.parametrize(
    "body",
    [
        "m = idx > 2\nz = torch.cat([x[i][:5][m[i]].mean(0, keepdim=True) for i in range(B)])",  # a mask
        "m = (idx > 5).to(torch.uint8)\nz = torch.stack([x[i, m[i][0]] for i in range(B)])",
        "z = torch.stack([x[i][idx[i]] for i in range(B)], dim=1).transpose(0, 1)",
        "z = []\nfor i in range(B):\n    for t in range(5):\n        z.append(x[i, idx[i][t]])\nz = torch.stack(z).view(B, 5, D)",
        "z = [x[i][idx[i]] for i in range(B)]\nn = len(z)\nz = torch.stack(z)",
        "z = [x[i][idx[i]] for i in range(B)]\nx = x + 1\nz = torch.stack(z)",
        "z = torch.stack([a[i] for a, i in zip(x[:2], idx)])\nz = torch.cat([z, z])",
        "z = torch.stack([x[i][idx[0]] for i in range(B)])",
        "z = torch.stack([x[i][idx[i]] for i in range(B) if i >= 0])",
        "z = torch.stack([x[i][idx[i]] for i in range(0, B)])",
        "z = torch.stack([x[i][idx[i]] * (i + 1) for i in range(B)])",
        "z = torch.stack([x[i][idx[i - 1]] for i in range(B)])",
        "z = x.clone()\nfor b in range(B):\n    for t in range(5):\n        z[b, t] = z[b, idx[b][t]]",  # reads what it wrote
        "z = x.clone()\nv = z.view(B, T, D)\nfor b in range(B):\n    for t in range(5):\n        z[b, t] = v[b, idx[b][t]]",
        "z = torch.zeros_like(x)\nfor b in range(B):\n    for t in range(b + 1):\n        z[b, t] = x[b, idx[b][t]]",
        "z = torch.zeros_like(x)\nfor b in range(B):\n    for t in range(5):\n        z[b, t] = x[b, idx[b][t]]\nz = z + b",
        "z = torch.zeros_like(x)\nfor b in range(B):\n    for t in range(5):\n        z[b, t] = x[b, idx[b][t]]\nelse:\n    z = z + 1",
        "z = torch.zeros_like(x)\nfor b in range(B):\n    for t in range(5):\n        z[t, b] = x[t, idx[b][t]] if t < B and b < T else 0",
        "z = []\nfor i in range(B):\n    z.append(x[i][idx[i]])\nz.append(x[0][idx[0]])\nz = torch.stack(z)[:B]",
        "z = []\nfor i in range(B):\n    z.append(x[i][idx[i]])\nx = x + 1\nz = torch.stack(z)",
        "rows = [1, 2, 0, 3]\nz = torch.stack([x[i][rows[i]] for i in range(B)])",  # a list
        "h = x.detach().cpu()\nz = to_cuda(torch.stack([h[i][idx.cpu()[i]] for i in range(B)]))",
        "w = torch.zeros(B, T, 5, D, device=x.device)\nfor b in range(B):\n    w[b] = x[b][idx[b]]\nz = w[:, 0]",  # spread
    ],
)  # fmt: skip
def test_what_stays(body: str) -> None:
    done = made(body)
    assert not done.fixes, done.lines


def test_a_helper_that_changes_more_than_the_device() -> None:
    """Truths that a function of the project makes of integers are no places."""
    body = "keep = truths(idx)\nz = torch.stack([x[i][:5][keep[i]][:1] for i in range(B)])"
    helper = "def truths(v):\n    v = v >= 0\n    return v\n\n\nclass Net("
    text = PICKED.replace("{body}", textwrap.indent(body, " " * 8)).replace("class Net(", helper)
    assert not apply("python-loop", text).fixes
