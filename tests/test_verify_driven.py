"""What is made of the weights, behind other draws: with weights that move by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.verify.judging import draws, driven
from autofast.verify.result import Sameness
from tests.faults import Case
from tests.test_verify_faults import Bench

SCRIPT = """
import copy
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
own = torch.Generator().manual_seed(1)
x = torch.randn(240, 8, generator=own)
y = (x[:, :3] * x[:, 3:6]).argmax(1)
net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
slow, best = copy.deepcopy(net).eval(), 9.0
seen = torch.no_grad()(slow)
optimizer = torch.optim.Adam(net.parameters(), 0.01)
for epoch in range(6):
    total = 0.0
    for rows in torch.randperm(160).split(20):
        noise = 0.1 * torch.randn(len(rows), 8)
        out, aim = net(x[rows] + noise), seen(x[rows])
        loss = F.cross_entropy(out, y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        with torch.no_grad():
            for s, p in zip(slow.parameters(), net.parameters()):
                s.lerp_(p, 0.1)
    net.eval()
    with torch.no_grad():
        out = net(x[160:])
        held = F.cross_entropy(out, y[160:]).item()
    net.train()
    print(f"epoch {epoch} loss {total / 8:.4f} held {held:.4f}")
    if held < best:
        best = held
        torch.save(slow.state_dict(), "best.pt")
"""
TERM = "100 * net[0].weight.square().mean()"
DRAWN = ("torch.randperm(160)", "torch.rand(160).argsort()")  # no number is common to both
HELD = "        held = F.cross_entropy(out, y[160:]).item()\n"


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("net(x[160:])", "net(x[160:].clamp(-2, 2))"), "held"),
        ((HELD, HELD.replace("(out, y[160:]", "(out[:70], y[160:230]")), "held"),
        (("s.lerp_(p, 0.1)", "s.lerp_(p, 0.103)"), "best.pt"),
        ((HELD, HELD.replace(").item()", ', reduction="none").double().mean().item()')), ""),
        (("net(x[160:])", "torch.cat([net(x[160:200]), net(x[200:])])"), ""),
        (("net.parameters(), 0.01)", "[*net[3].parameters(), *net[:3].parameters()], 0.01)"), ""),
        (("torch.randn(len(rows), 8)", "torch.empty(len(rows), 8).normal_()"), ""),
        (("loss.backward()", f"loss = loss + 0.1 * {TERM}; loss.backward()"), "the loss is"),
        (("loss.backward()", f"(loss + {TERM} - {TERM}.detach()).backward()"), "the gradient norm"),
        (("out, aim = net(x[rows] + noise), seen(x[rows])", "aim, out = seen(x[rows]), net(x[rows] + noise)"), ""),
    ],
    ids=[
        "other data", "some of the data", "another rate",
        "another sum", "two batches", "another order of the parameters", "other noise",
        "a term more", "other gradients", "another order of the models",
    ],
)  # fmt: skip
def test_faults_that_no_seed_shows(tmp_path: Path, edit: tuple[str, str], said: str) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    bench = Bench(tmp_path, folder)
    found = bench.judge(Case("", "train", "unknown", (DRAWN, edit), folder=folder), seeds=4)
    bench.close()
    check = next(one for one in found.checks if one.name == driven.NAME)
    assert check.passed is not bool(said) and said in check.text, check
    assert not said or found.verdict is Sameness.DIFFERENT, found


@pytest.mark.parametrize(
    ("noise", "wrong"),
    [
        ("torch.randn(80, 8)[:, :0].sum()", False),
        ("0.02 * torch.randn(80, 8)", True),
        ("torch.rand(80, 1).clamp(min=2) - 2", False),  # coins of a law that never falls
    ],
)
def test_draws_in_evaluations_count_where_they_have_a_part(
    tmp_path: Path, noise: str, wrong: bool
) -> None:
    """The original draws none there, and elsewhere both draw otherwise."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    text = SCRIPT.replace(
        "out, aim = net(x[rows] + noise), seen(x[rows])", "out = net(x[rows] + noise)"
    )
    (folder / "train.py").write_text(text)
    bench = Bench(tmp_path, folder)
    edit = ("net(x[160:])", f"net(x[160:] + ({noise}))")
    found = bench.judge(Case("", "train", "unknown", (DRAWN, edit), folder=folder), seeds=4)
    bench.close()
    check = next(one for one in found.checks if one.name == draws.NAME)
    assert (check.passed is False) == wrong, check
    assert not wrong or found.verdict is Sameness.DIFFERENT
