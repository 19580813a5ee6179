"""What losses are given beside outputs: the law of labels, and whether they come again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import FULL, Run, Target
from autofast.verify.judging import targets
from autofast.verify.result import Check
from tests import probing
from tests.faults import Case
from tests.test_verify_faults import Bench
from tests.test_verify_judge import made

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
own = torch.Generator().manual_seed(1)
x = torch.randn(240, 8, generator=own)
clean = (x[:, :3] * x[:, 3:6]).argmax(1)
other = (clean + torch.randint(1, 3, (240,), generator=own)) % 3
y = torch.where(torch.rand(240, generator=own) < 0.3, other, clean)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
loss_of = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), 0.01)
for epoch in range(6):
    for rows in torch.randperm(240).split(20):
        out = net(x[rows])
        labels = y[rows]
        soft = 0.1 * torch.rand(len(rows), 3)
        loss = loss_of(out, labels) + F.binary_cross_entropy_with_logits(out, soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
DRAWN = ("torch.randperm(240)", "torch.rand(240).argsort()")  # no number is common to both
LABELS = "        labels = y[rows]\n"
ANEW = """        moved = (clean[rows] + torch.randint(1, 3, (len(rows),))) % 3
        labels = torch.where(torch.rand(len(rows)) < 0.3, moved, clean[rows])
"""
SOFT = "0.1 * torch.rand(len(rows), 3)"


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([(LABELS, ANEW)], "comes again"),
        ([(SOFT, "0.1 * torch.rand(len(rows), 3) ** 2")], "another law"),
        ([(SOFT, "0.1 * torch.rand(len(rows), 1).expand(-1, 3)")], "another law"),
        ([(LABELS, "        labels = y.index_select(0, rows)\n"), (SOFT, "torch.empty(len(rows), 3).uniform_(0, 0.1)")], ""),
        ([("loss_of(out, labels)", "F.nll_loss(F.log_softmax(out, 1), labels)"), (SOFT, "(0.1 * torch.rand(3, len(rows))).T")], ""),
        ([("+ F.binary_cross_entropy_with_logits(out, soft)", "+ F.binary_cross_entropy(torch.sigmoid(out), soft)")], ""),
    ],
    ids=["noise drawn anew", "of another shape", "one for all kinds", "the same by other calls", "another loss function", "shares"],
)  # fmt: skip
def test_labels_are_compared_behind_other_draws(
    tmp_path: Path, edits: list[tuple[str, str]], said: str
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    bench = Bench(tmp_path, folder)
    found = bench.judge(Case("", "train", "unknown", (DRAWN, *edits), folder=folder), seeds=4)
    bench.close()
    check = next(one for one in found.checks if one.name == targets.NAME)
    assert check.passed is not bool(said) and said in check.text, check


def judged(before: list[Target], after: list[Target]) -> Check | None:
    runs = [with_target(made(seed=seed), one) for seed, one in enumerate(before)]
    losses = (1.01, 0.9, 0.8, 0.7)
    runs += [with_target(made("rewritten", losses, seed=s), one) for s, one in enumerate(after)]
    return targets.check(gather("unknown", [runs[0], *runs]))


def with_target(run: Run, target: Target) -> Run:
    return replace(run, records=(replace(run.record, targets={"classes": target}),))


@pytest.mark.parametrize(
    ("after", "passed"),
    [
        (Target(40, 800, (), 600, 300), False),
        (Target(40, 800, (), 600, 590), True),
        (Target(40, 700, (), 600, 300), None),  # pads cut off
        (Target(20, 800, (), 600, 300), None),  # two at once
        (Target(40, 800, (), 40, 0), True),  # hardly any came again
        (Target(1, 800, (), 600, 600, 160), False),  # pads, in one call
        (Target(1, 800, (), 600, 600, 160, 400), None),  # the script leaves out others by itself
        (Target(1, 640, (), 600, 600, 160), None),
    ],
)
def test_what_can_be_compared_of_labels(after: Target, passed: bool | None) -> None:
    check = judged([Target(40, 800, (), 600, 600)] * 4, [after] * 4)
    assert (check and check.passed) is passed, check


LOSSES = """
import torch
import torch.nn.functional as F


@torch.jit.script
def scripted(x, y):
    return F.smooth_l1_loss(x, y) + F.cross_entropy(x, y.argmax(1))


model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(6, 4), torch.rand(6, 4)
per_sample = torch.func.vmap(lambda a, b: F.mse_loss(a, b))
for step in range(4):
    out = model(x)
    loss = F.mse_loss(out, y) + F.mse_loss(y, target=out) + F.mse_loss(y, y)
    loss = loss + F.l1_loss(model(x), out) + F.cross_entropy(out, torch.arange(6) % 4 + step // 3 - step // 3)
    loss = loss + F.cross_entropy(out, y)
    loss = loss + scripted(out, y) + per_sample(out, y).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        F.cross_entropy(model(x), y)
"""


PADS = """
import torch
import torch.nn.functional as F

model = torch.nn.Linear(4, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(6, 4), torch.tensor([1, 2, 0, 3, 0, 4])
for step in range(3):
    out = model(x)
    loss = F.cross_entropy(out, y, ignore_index=0) + torch.nn.NLLLoss(ignore_index=0)(out, y)
    optimizer.zero_grad()
    (loss + {more}).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ("F.cross_entropy(out, y)", Target(9, 54, left_out=12)),
        ("F.cross_entropy(out, y, torch.ones(5))", Target(9, 54, left_out=12, by_hand=18)),
        (
            "(F.cross_entropy(out, y, reduction='none') * y.ne(0)).sum()",
            Target(9, 54, left_out=12, by_hand=18),
        ),
    ],
)
def test_pads_that_losses_leave_out(more: str, found: Target, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PADS.replace("{more}", more))
    seen = probing.run(tmp_path, str(tmp_path / "train.py"), detail=FULL).record.targets["classes"]
    assert replace(seen, again=0, same=0) == found


def test_targets_of_a_run(tmp_path: Path) -> None:
    """Not of what is compared without gradients, nor of two outputs, or none."""
    (tmp_path / "train.py").write_text(LOSSES)
    found = probing.run(tmp_path, str(tmp_path / "train.py"), detail=FULL).record.targets
    assert found["classes"] == Target(4, 24, (), 18, 18)
    assert found["classes as shares"] == Target(4, 96, (), 18, 18)
    assert (found["values"].calls, found["values"].again) == (8, 42), found
