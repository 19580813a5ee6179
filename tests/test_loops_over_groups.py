"""python-loop: sums and means over groups of rows are taken of all groups at once."""

from __future__ import annotations

import textwrap

import pytest

from autofast.rule import Effect
from tests.onerule import apply
from tests.test_rule_python_loop import same_but_rounding, script_of

GRAPHS = script_of("""\

class Graphs(Dataset):
    def __init__(self, n):
        sizes = [1 + i % {most} for i in range(n)]
        self.items = [(torch.randn(s, 4), torch.randn(s), torch.randn(())) for s in sizes]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(samples):
    xs, ws, ys, batch = [], [], [], []
    for k, (x, w, y) in enumerate(samples):
        xs.append(x)
        ws.append(w)
        ys.append(y)
        batch.append({number})
    return torch.cat(xs), torch.cat(ws), torch.cat(batch), torch.stack(ys)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.gate, self.proj = nn.Linear(4, 5), nn.Linear(5, 1), nn.Linear(5, 3)
        self.norm, self.drop, self.out = nn.BatchNorm1d(5), nn.Dropout(0.5), nn.Linear(3, 1)

    def forward(self, x, w, batch):
        h = torch.relu(self.embed(x))
        n = int(batch.max()) + 1
{body}


def to_device(data):
    return [d.to(device) for d in data]


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
loader = DataLoader(Graphs(20), batch_size={size}, collate_fn=collate)
for epoch in range(2):
    for data in loader:
        x, w, batch, y = to_device(data)
        out = model(x, w, batch)
        loss = ((out.sum() - y.sum()) ** 2).mean() + (out * torch.linspace(0, 1, out.numel(), device=device).view(out.shape)).sum()
        {update}
        print("loss", loss.item(), out.numel(), " ".join(str(p.sum().item()) for p in model.parameters()))
""")
NUMBER = "torch.full((x.size(0),), k, dtype=torch.long)"
LOOP = "out = []\nfor g in range(n):\n    "
STACK = "\nreturn torch.stack(out)"


def script(body: str, number: str = NUMBER, size: int = 6, most: int = 4) -> str:
    text = GRAPHS.replace("{body}", textwrap.indent(body, " " * 8)).replace("{number}", number)
    return text.replace("{most}", str(most)).replace("{size}", str(size))


SUM = "{0}.new_zeros(n, *{0}.shape[1:]).index_add_(0, batch, {0})"
FLAT = "{0}.new_zeros(n).index_add_(0, batch, {0})"
PLACES = [
    (LOOP + "out.append(h[batch == g].sum(0))" + STACK, "return " + SUM.format("h")),
    (LOOP + "out.append(torch.sum(h[g == batch], dim=0))" + STACK, "return " + SUM.format("h")),
    (
        LOOP + "hg = h[batch == g]\n    a = torch.sigmoid(self.gate(hg))\n"
        "    out.append((a * self.proj(hg)).sum(dim=0))" + STACK,
        "a = torch.sigmoid(self.gate(h))\nweighted = a * self.proj(h)\nreturn "
        + SUM.format("weighted"),
    ),
    (
        LOOP + "mine = batch == g\n    out.append(self.proj(h[mine]).sum(0, keepdim=True))\n"
        "return torch.cat(out, dim=0)",
        "rows = self.proj(h)\nreturn " + SUM.format("rows"),
    ),
    (
        LOOP + "out.append(self.out(self.proj(h[batch == g]).sum(0)) * 0.1)" + STACK,
        "rows = self.proj(h)\nreturn self.out(" + SUM.format("rows") + ") * 0.1",
    ),
    (
        "s = (w * h.sum(1)).view(-1)\n"
        + LOOP.replace("range(n)", "range(batch.max().item() + 1)")
        + "out.append(s[batch == g].tanh().mean(0) + 1)"
        + STACK,
        "s = (w * h.sum(1)).view(-1)\nrows = s.tanh()\nreturn (rows.new_zeros(batch.max().item() + 1)"
        ".index_add_(0, batch, rows) / torch.bincount(batch)) + 1",
    ),
    (
        "h = h.view(x.size(0), 5)\n" + LOOP + "out.append(h[batch == g].mean(dim=0))" + STACK,
        "return h.new_zeros(n, h.size(1)).index_add_(0, batch, h) / torch.bincount(batch).unsqueeze(1)",
    ),
    (
        "s = torch.tanh(h).sum(1).view(-1, 1)\ns = s.view(x.size(0), 1)\n"
        + LOOP
        + "out.append(s[batch == g].sum(0))"
        + STACK,
        "return s.new_zeros(n, s.size(1)).index_add_(0, batch, s)",
    ),
]


def written(lines: list[str]) -> str:
    return "".join("".join(lines).split())


@pytest.mark.parametrize(("body", "lines"), PLACES)
def test_sums_of_all_groups(body: str, lines: str) -> None:
    text = script(body)
    found = apply("python-loop", text)
    new = [line for line in lines.splitlines() if line not in body.splitlines()]
    assert written(found.lines) == written(new)
    assert [f.effect for f in found.fixes] == [Effect.ROUNDING]
    same_but_rounding(found.text, text)


@pytest.mark.parametrize(
    "change",
    [
        {"size": 1},  # one group
        {"number": "torch.randint(0, 5, (x.size(0),))"},  # in no order
        {"number": "torch.full((x.size(0),), 3 * k, dtype=torch.long)"},  # some groups have no rows
        {"number": "torch.zeros(x.size(0), dtype=torch.int64)"},
    ],
)
def test_any_order_and_number_of_groups(change: dict[str, str]) -> None:
    text = script(PLACES[2][0], **change)  # type: ignore[arg-type]
    found = apply("python-loop", text)
    assert "index_add_" in found.text
    same_but_rounding(found.text, text)


def test_means_of_no_rows_are_nan() -> None:
    text = script(PLACES[6][0], number="torch.full((x.size(0),), 3 * k, dtype=torch.long)")
    shown = '" ".join(str(p.sum().item()) for p in model.parameters())'
    text = text.replace(shown, "*out.isnan().float().sum(1).tolist()")
    found = apply("python-loop", text)
    assert "index_add_" in found.text
    same_but_rounding(found.text.replace("loss.item(), ", ""), text.replace("loss.item(), ", ""))


@pytest.mark.parametrize(
    ("body", "change", "reason"),
    [
        (
            PLACES[0][0],
            {"number": "torch.full((x.size(0),), k - 1, dtype=torch.long)"},
            "never negative",
        ),
        (PLACES[0][0], {"number": "torch.full((x.size(0),), float(k))"}, "whole numbers"),
        (
            PLACES[0][0],
            {"number": "torch.full((x.size(0), 1), k, dtype=torch.long)[:, 0]"},
            "one dimension",
        ),
        (
            LOOP.replace("range(n)", "range(2)") + "out.append(h[batch == g].sum(0))" + STACK,
            {},
            "below `2`",
        ),
        ("n = n - 1\n" + PLACES[0][0], {}, "below `n`"),
        (LOOP + "out.append(h[batch == g].mean(0))" + STACK, {}, "how many dimensions"),
        (LOOP + "out.append((h > 0)[batch == g].sum(0))" + STACK, {}, ""),
        (
            "h = (h > 0).view(x.size(0), 5)\n"
            + LOOP
            + "out.append(h[batch == g].sum(0))"
            + STACK
            + " + 0.0 * self.embed(x).sum()",
            {},
            "floating-point",
        ),
        (LOOP + "out.append(self.norm(h[batch == g]).sum(0))" + STACK, {}, ""),
        (LOOP + "out.append(self.drop(h[batch == g]).sum(0))" + STACK, {}, ""),
        (LOOP + "out.append(h[batch == g].sum(1))" + STACK, {"size": 1, "most": 1}, ""),
        (LOOP + "out.append(h[batch == g].sum())" + STACK, {}, ""),
        (LOOP + "out.append(h[batch == g].sum(0) * g)" + STACK, {}, ""),
        (LOOP + "out.append(h[batch != g].sum(0))" + STACK, {}, ""),
        (LOOP + "out.append(h[batch == g].sum(0))\n    h = h * 2" + STACK, {}, ""),
        (LOOP + "out.append(h[batch == g].sum(0))\nh.mul_(2)" + STACK, {}, ""),
        (LOOP + "out.append(h[batch == g].sum(0))\nreturn torch.stack(out, 1)", {}, ""),
        (LOOP + "out.append(h[batch == g].sum(0))\nreturn torch.stack(out) * g", {}, "last turn"),
        (
            LOOP + "out.append((h[batch == g] * w[batch == g]).sum(0))" + STACK,
            {"size": 1, "most": 1},
            "",
        ),
    ],
)
def test_what_stays(body: str, change: dict[str, str], reason: str) -> None:
    text = script(body, **change)  # type: ignore[arg-type]
    found = apply("python-loop", text)
    assert not found.fixes
    assert reason in found.refusals


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("torch.backends.cudnn.deterministic = True", True),
        ("torch.use_deterministic_algorithms(True)", False),
    ],
)
def test_runs_that_are_to_be_the_same(line: str, stays: bool) -> None:
    """There, `index_add_` adds in one order where torch is told that all have to."""
    text = script(PLACES[0][0]).replace("model = ", f"{line}\nmodel = ", 1)
    found = apply("python-loop", text)
    assert bool(found.fixes) is not stays and ("in any order" in found.refusals) is stays


def test_under_autocast_sums_have_32_bits() -> None:
    text = script(PLACES[2][0]).replace(
        "        out = model(x, w, batch)\n",
        "        with torch.autocast('cuda', torch.bfloat16):\n            out = model(x, w, batch)\n",
    )
    found = apply("python-loop", text)
    assert "weighted = (a * self.proj(h)).float()" in found.lines
    same_but_rounding(found.text, text)


def test_sums_have_32_bits_where_autocast_comes_with_them() -> None:
    text = script(PLACES[2][0]).replace("nn.Linear(4, 5)", "nn.Linear(4, 600)")
    text = text.replace(
        "nn.Linear(5, 1), nn.Linear(5, 3)", "nn.Linear(600, 1), nn.Linear(600, 600)"
    )
    assert "(a * self.proj(h)).float()" in apply("python-loop autocast", text).text
    assert ".float()" not in apply("python-loop", text).text


def test_groups_that_the_host_keeps() -> None:
    """Its masks pick rows of the device, too; `index_add_` wants all on one."""
    text = script(PLACES[6][0]).replace(
        "x, w, batch, y = to_device(data)",
        "x, w, batch, y = data\n        x, w, y = x.to(device), w.to(device), y.to(device)",
    )
    found = apply("python-loop", text)
    assert "index_add_(0,batch.to(h.device),h)" in written(found.lines)
    assert "bincount(batch.to(h.device))" in written(found.lines)
    same_but_rounding(found.text, text)
