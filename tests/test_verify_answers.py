"""Behind other draws, what the models compute is compared with weights and inputs of the probe's
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofast.verify.evidence.record import ANSWERS, Run
from autofast.verify.judging import answers
from autofast.verify.result import Check, Sameness
from autofast.verify.running import scratch
from autofast.verify.running.runs import Program, Setup
from tests.faults import Case
from tests.forked import ForkRunner
from tests.test_verify_faults import Bench

SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(12, 8)
        self.body = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.side = nn.Linear(16, 1)
        self.head = nn.Linear(16, 1)

    def forward(self, words, mask=None):
        h = F.relu(self.norm(self.body(self.words(words).mean(1))))
        h = 1.5 * torch.tanh(h / 1.5)
        return torch.sigmoid(self.head(h)).squeeze(1), self.side(h).squeeze(1)


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
words = torch.randint(0, 12, (64, 5))
goal = (words.sum(1) > 28).float()
for epoch in range(6):
    for rows in torch.randperm(64).split(16):
        p, size = model(words[rows])
        loss = F.binary_cross_entropy(p, goal[rows]) + 0.1 * F.mse_loss(size, words[rows].float().mean(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
OTHERWISE = ("words = torch.randint", "torch.rand(1)\nwords = torch.randint")
Compare = Callable[..., "Check | None"]


@pytest.fixture
def compare(tmp_path: Path) -> Iterator[Compare]:
    folder = tmp_path / "project"
    folder.mkdir()
    path = folder / "train.py"
    made = scratch.make([folder], parent=tmp_path)
    runner = ForkRunner(Setup(cwd=folder, threads=1), made)

    def judged(*edits: tuple[str, str], both: tuple[str, str] | None = None) -> Check | None:
        text = SCRIPT.replace(*both) if both else SCRIPT
        path.write_text(text)
        changed = text
        for old, new in (OTHERWISE, *edits):
            assert changed.count(old) == 1
            changed = changed.replace(old, new)

        def run(arm: str, seed: int) -> Run:
            program = Program(arm, path, {path: changed.encode()} if arm == "rewritten" else {})
            return runner.run(program, seed=seed, shift=seed, detail=ANSWERS, steps=0)

        runs = tuple(run(arm, seed) for seed in (0, 1) for arm in ("original", "rewritten"))
        evidence: Any = SimpleNamespace(answers=runs)
        assert all(run.ok and len(run.record.steps) == 1 for run in runs)
        return answers.check(evidence, False)

    yield judged
    made.close()


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [("self.words(words).mean(1)", "self.words(words).sum(1) / 5")],
        [  # a last function moves from the model to the loss
            ("torch.sigmoid(self.head(h))", "self.head(h)"),
            ("F.binary_cross_entropy(", "F.binary_cross_entropy_with_logits("),
        ],
    ],
    ids=["no more", "rounding", "logits"],
)
def test_models_that_compute_the_same(compare: Compare, edits: list[tuple[str, str]]) -> None:
    found = compare(*edits)
    assert found is not None and found.passed, found


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([("1.5 * torch.tanh(h / 1.5)", "torch.tanh(h)")], "result"),
        ([("self.side(h)", "self.side(h.detach())")], "gradient"),
    ],
    ids=["another function", "detached"],
)
def test_models_that_do_not(compare: Compare, edits: list[tuple[str, str]], said: str) -> None:
    found = compare(*edits)
    assert found is not None and found.passed is False and said in found.text, found


@pytest.mark.parametrize(
    ("edits", "both"),
    [
        (
            [
                (
                    "        self.head = ",
                    "        self.table = torch.randn(16)\n        self.head = ",
                )
            ],
            None,
        ),
        ([], ("h = 1.5 *", "h = h * (0.5 + torch.rand(1)) + 1.5 *")),
        ([("self.side = nn.Linear(16, 1)", "self.side = nn.Linear(16, 1, bias=False)")], None),
    ],
    ids=["held beside parameters", "drawn in evaluation", "other parameters"],
)
def test_what_cannot_be_asked(
    compare: Compare, edits: list[tuple[str, str]], both: tuple[str, str] | None
) -> None:
    assert compare(*edits, both=both) is None


def test_the_verdict_names_it(tmp_path: Path) -> None:
    """The loss over seeds is the same but for a few per cent of what is learned."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    bench = Bench(tmp_path, folder)
    edits = (OTHERWISE, ("1.5 * torch.tanh(h / 1.5)", "torch.tanh(h)"))
    found = bench.judge(Case("bounded", "train", "unknown", edits, folder=folder))
    bench.close()
    assert found.verdict is Sameness.DIFFERENT and answers.NAME in found.summary, found
