"""Averages of the weights: the law by which they follow, however a script keeps them, and what it
means for the verdict.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import FULL, Followed
from autofast.verify.judging import averages
from autofast.verify.result import Sameness
from tests.faults import Case
from tests.probing import run
from tests.test_verify_faults import Bench
from tests.test_verify_judge import LOSSES, made

SCRIPT = """
import copy
import torch
from torch import nn

torch.manual_seed(0)
torch.rand({draws})
net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(net.parameters(), 0.01)
{kept}
for step in range(9):
    optimizer.zero_grad()
    nn.functional.mse_loss(net(torch.randn(32, 8)), torch.randn(32, 4)).backward()
    {first}
    optimizer.step()
    {then}
"""
COPY = "shadow = copy.deepcopy(net).requires_grad_(False)"
INPLACE = "[s.data.lerp_(p.data, 0.1) for s, p in zip(shadow.parameters(), net.parameters())]"
FORMS = {
    "in place": (COPY, INPLACE),
    "made anew": (
        "shadow = {k: v.detach().clone() for k, v in net.named_parameters()}",
        "shadow = {k: 0.9 * shadow[k] + 0.1 * v.detach() for k, v in net.named_parameters()}",
    ),
    "foreach": (
        COPY + "; mine, theirs = list(shadow.parameters()), [p.data for p in net.parameters()]",
        "torch._foreach_mul_(mine, 0.9); torch._foreach_add_(mine, theirs, alpha=0.1)",
    ),
    "by torch": (
        "shadow = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))",
        "shadow.update_parameters(net)",
    ),
}


def followed(
    folder: Path, kept: str, first: str = "pass", then: str = "pass", draws: int = 1
) -> tuple[Followed, ...]:
    (folder / "script.py").write_text(SCRIPT.format(kept=kept, first=first, then=then, draws=draws))
    ran = run(folder, "script.py", detail=FULL)
    assert ran.code == 0, ran.stderr
    return ran.record.averages


@pytest.mark.parametrize(("kept", "update"), FORMS.values(), ids=FORMS.keys())
def test_the_law_is_seen_in_every_form_and_order(tmp_path: Path, kept: str, update: str) -> None:
    after = followed(tmp_path, kept, then=update)
    before = followed(tmp_path, kept, first=update, draws=2)
    for late, rows in ((False, after), (True, before)):
        assert len(rows) >= 8 and {row.late for row in rows} == {late}
        assert all(row.rate == pytest.approx(0.1, rel=0.01) for row in rows)


@pytest.mark.parametrize("kept", ["pass", COPY, "copies = []"])
def test_where_there_is_none(tmp_path: Path, kept: str) -> None:
    """Nor are copies of the weights, of any step, averages."""
    then = (
        "copies.append([p.detach().clone() for p in net.parameters()])"
        if "copies" in kept
        else "pass"
    )
    assert followed(tmp_path, kept, then=then) == ()


def rows(late: bool = False, rate: float = 0.1, parameters: int = 4) -> tuple[Followed, ...]:
    return tuple(Followed(step, p, late, rate) for step in (1, 2, 3) for p in range(parameters))


@pytest.mark.parametrize(
    ("other", "passed", "words"),
    [
        ({"averages": rows()}, True, "0.1"),
        ({"averages": rows(late=True)}, False, "before a step, after it"),
        ({"averages": rows(rate=0.2)}, False, "rate of 0.2, 0.1"),
        ({"averages": rows(parameters=2)}, True, ""),
        ({"averages": rows(parameters=1) * 2}, False, "1 of the parameters"),
        ({"losses": (1.01, 0.9, 0.8, 0.7), "states": ("q", "r", "s", "t")}, None, "not seen"),
    ],
)
def test_laws_are_compared_whatever_was_drawn(
    other: dict[str, Any], passed: bool | None, words: str
) -> None:
    plain = made(averages=rows())
    check = averages.check(gather("unknown", [plain, plain, made("rewritten", **other)]))
    assert check is not None and check.passed is passed and words in check.text
    assert passed is not None or check.verdict is Sameness.UNCLEAR


def test_of_few_nothing_is_said() -> None:
    plain = made(averages=rows()[:3])
    assert averages.check(gather("unknown", [plain, plain, made("rewritten")])) is None
    same = made("rewritten", LOSSES)
    assert averages.check(gather("unknown", [made(averages=rows())] * 2 + [same])) is None


SAVED = """
import copy
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(3)
x = torch.randn(240, 8, generator=torch.Generator().manual_seed(1))
y = (x[:, :3] * x[:, 3:6]).argmax(1)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
slow, best = copy.deepcopy(net), 9.0
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for epoch in range(6):
    for rows in torch.randperm(160).split(20):
        loss = F.cross_entropy(net(x[rows] + 0.1 * torch.randn(len(rows), 8)), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for s, p in zip(slow.parameters(), net.parameters()):
                s.lerp_(p, 0.1)
    with torch.no_grad():
        held = F.cross_entropy(slow(x[160:]), y[160:]).item()
    print(f"epoch {epoch} held {held:.4f}")
    torch.save({"net": net.state_dict(), "slow": slow.state_dict()}, "last.pt")
    if held < best:
        best = held
        torch.save(slow.state_dict(), "best.pt")
"""
DRAWN = ("        loss = F", "        torch.rand(5)\n        loss = F")  # and nothing repeats


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        (
            "torch.save(slow.state_dict()",
            "torch.save(net.state_dict()",
            "best.pt",
        ),
        ('"net": net', '"net": slow', "last.pt"),
        ("torch.save(slow.state_dict()", "torch.save(dict(slow.state_dict())", ""),
    ],
)
def test_which_weights_are_saved_whatever_is_drawn(
    tmp_path: Path, old: str, new: str, wrong: str
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "saved.py").write_text(SAVED)
    bench = Bench(tmp_path, folder)
    found = bench.judge(Case("", "saved", "unknown", (DRAWN, (old, new)), folder=folder), seeds=4)
    bench.close()
    assert (found.verdict is Sameness.DIFFERENT) == bool(wrong), found.summary
    assert wrong in found.summary
