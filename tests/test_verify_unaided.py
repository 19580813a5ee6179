"""Trainings in which torch's backward, or its optimizers, have no part; what a forward in training
averages; checks that fail themselves.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autofast.verify.evidence.record import FULL
from autofast.verify.judging import parity, table
from autofast.verify.result import Sameness
from tests.faults import Case
from tests.probing import run
from tests.test_verify_faults import Bench
from tests.test_verify_judge import LOSSES, made

HEAD = """
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(1)
x, wide = torch.randn(256, 6), 0.5
y = (x[:, :1] * x[:, 1:2] + x[:, 2:3]).detach()
net = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
params, buffers = list(net.parameters()), dict(net.named_buffers())
"""
EVOLUTION = (
    HEAD
    + """
with torch.no_grad():
    for round in range(30):
        gains, moves = [], []
        for one in range(12):
            noise = [torch.randn_like(p) for p in params]
            for p, n in zip(params, noise):
                p.add_(0.1 * n)
            up = nn.functional.mse_loss(net(x), y)
            for p, n in zip(params, noise):
                p.sub_(0.2 * n)
            gains.append(nn.functional.mse_loss(net(x), y) - up)
            for p, n in zip(params, noise):
                p.add_(0.1 * n)
            moves.append(noise)
        for k, p in enumerate(params):
            p.add_(0.02 * sum(g * m[k] for g, m in zip(gains, moves)))
        print(f"round {round} loss {nn.functional.mse_loss(net(x), y):.5f}")
"""
)
BY_HAND = (
    HEAD
    + """
for step in range(60):
    rows = torch.randint(0, 256, (32,))
    slopes = torch.autograd.grad(nn.functional.mse_loss(net(x[rows]), y[rows]), params)
    with torch.no_grad():
        for p, g in zip(params, slopes):
            p -= 0.1 * g
"""
)
FUNCTIONAL = (
    HEAD
    + """
def loss(weights, a, b):
    return nn.functional.mse_loss(functional_call(net, (weights, buffers), (a[None],)), b[None])

optimizer = torch.optim.Adam(params, 0.01)
for step in range(60):
    rows = torch.randint(0, 256, (32,))
    weights = {k: p.detach() for k, p in net.named_parameters()}
    found = vmap(grad(loss), in_dims=(None, 0, 0))(weights, x[rows], y[rows])
    for name, p in net.named_parameters():
        p.grad = found[name].mean(0)
    optimizer.step()
"""
)
AVERAGED = (
    HEAD.replace("nn.Tanh()", "nn.BatchNorm1d(24), nn.Tanh()")
    + """
optimizer = torch.optim.SGD(params, 0.05)
for step in range(40):
    rows = torch.randint(0, 256, (32,))
    net(x[rows])
    net[1].momentum = 0.0
    optimizer.zero_grad()
    nn.functional.mse_loss(net(x[rows]), y[rows]).backward()
    optimizer.step()
    net[1].momentum = 0.1
"""
)
CASES = [
    ("evolution", EVOLUTION, "p.add_(0.02 * ", "p.add_(0.01 * ", False),
    ("evolution", EVOLUTION, "p.sub_(0.2 * n)", "p.sub_(0.1 * n)", False),
    ("evolution", EVOLUTION, "p.sub_(0.2 * n)", "p.add_(n, alpha=-0.2)", True),
    ("by_hand", BY_HAND, "p -= 0.1 * g", "p -= 0.1 * g.sign() * g.abs().mean()", False),
    ("by_hand", BY_HAND, "p -= 0.1 * g", "p.sub_(g, alpha=0.1)", True),
    ("functional", FUNCTIONAL, "found[name].mean(0)", "found[name].sum(0).sign()", False),
    ("functional", FUNCTIONAL, "found[name].mean(0)", "found[name].sum(0) / 32", True),
    ("functional", FUNCTIONAL, "None, 0, 0))", "None, 0, 0), chunk_size=8)", True),
    ("averaged", AVERAGED, "    net[1].momentum = 0.0\n", "", False),
    ("averaged", AVERAGED, "torch.optim.SGD(params, 0.05)", "torch.optim.SGD(params, 0.05, foreach=True)", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "old", "new", "sound"), CASES, ids=[f"{one[0]}: {one[3]}" for one in CASES]
)
def test_trainings_without_a_backward_are_judged(
    tmp_path: Path, name: str, text: str, old: str, new: str, sound: bool
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / f"{name}.py").write_text(text)
    bench = Bench(tmp_path, tmp_path / "scripts")
    found = bench.judge(
        Case(new, name, "unknown", ((old, new),), sound=sound, folder=tmp_path / "scripts")
    )
    bench.close()
    right = (
        (Sameness.IDENTICAL, Sameness.EQUIVALENT)
        if sound
        else (Sameness.DIFFERENT, Sameness.BROKEN)
    )
    assert found.verdict in right, (found.summary, found.checks)


AT_ONCE = """        moves = [[torch.randn_like(p) for p in params] for one in range(12)]
        names = [name for name, _ in net.named_parameters()]
        def lost(sign, *noise):
            moved = {k: p + sign * 0.1 * n for k, p, n in zip(names, params, noise)}
            return nn.functional.mse_loss(functional_call(net, moved, (x,)), y)
        noises = [torch.stack(some) for some in zip(*moves)]
        up, down = (vmap(lambda *noise, s=s: lost(s, *noise))(*noises) for s in (1, -1))
        gains = list(down - up)
"""


def test_calls_that_are_put_together_are_other_steps(tmp_path: Path) -> None:
    """No rewrite is broken by that, nor are the numbers of other steps held against it."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "evolution.py").write_text(EVOLUTION)
    start, end = (EVOLUTION.index(word) for word in ("        gains, ", "        for k, p in"))
    bench = Bench(tmp_path, folder)
    edit = (EVOLUTION[start:end], AT_ONCE)
    found = bench.judge(Case("", "evolution", "unknown", (edit,), folder=folder), seeds=4)
    bench.close()
    assert found.verdict is Sameness.UNCLEAR, found.summary
    assert "87 calls of a model by other parameters, 747 in the original" in found.summary


def test_a_change_of_parameters_is_a_step(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(EVOLUTION)
    record = run(tmp_path, "script.py", detail=FULL).record
    assert len(record.steps) > 700 and all(step.update_norm for step in record.steps[1:])
    assert not record.losses and record.start and record.start != record.model


def test_a_check_that_fails_is_no_check_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one for which nothing could be recorded."""

    def broken(ev: object) -> None:
        raise ZeroDivisionError("nothing there")

    runs = [made("original", LOSSES), made("original", LOSSES), made("rewritten", LOSSES)]
    fine = parity.judge("exact", runs)
    assert fine.verdict is Sameness.IDENTICAL
    for place in ("_structure", "_numeric"):
        with monkeypatch.context() as patch:
            patch.setattr(parity, place, broken)
            found = parity.judge("exact", runs)
        assert found.verdict is Sameness.UNCLEAR and "ZeroDivisionError: nothing" in found.summary
    rows = (*table.STRUCTURE, table.Row(broken, "broken", "nothing"))
    monkeypatch.setattr(table, "STRUCTURE", rows)
    found = parity.judge("exact", runs)
    assert found.verdict is Sameness.UNCLEAR and "broken: the check itself failed" in found.summary
    monkeypatch.undo()
    lost = replace(runs[2].record, notes=("averages of the weights not recorded: no memory",))
    found = parity.judge("exact", [*runs[:2], replace(runs[2], records=(lost,))])
    assert found.verdict is Sameness.UNCLEAR and "no memory" in found.summary
