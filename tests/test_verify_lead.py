"""Where to look when a rewrite trains differently: the step in which two runs part, changed places,
the rule.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofast.config import Config
from autofast.model.source import Source
from autofast.verify import blame, command
from autofast.verify.command import Pair
from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import Call, Lines, Run
from autofast.verify.judging.parity import judge
from autofast.verify.judging.parting import lead
from autofast.verify.request import Request
from autofast.verify.result import Parity, Sameness
from autofast.verify.running.runs import Program
from autofast.verify.series import Series
from tests.forked import ForkRunner
from tests.test_verify_judge import LOSSES, made

SCRIPT = """import torch

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(12):
    x = torch.randn(8, 4)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def changed(place: int, **entries: Any) -> Run:
    run = made("rewritten")
    steps = list(run.record.steps)
    steps[place] = replace(steps[place], **entries)
    return replace(run, records=(replace(run.record, steps=tuple(steps)),))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (changed(2, losses=(0.85,)), "part in step 3 of 4, first in the loss; all before"),
        (changed(1, grad_norm=2.0), "step 2 of 4, first in the gradient (the loss is the same)"),
        (changed(0, update_norm=0.3), "step 1 of 4, first in the update (loss and gradient"),
        (changed(3, lr=(0.2,)), "step 4 of 4, first in the learning rate"),
        (changed(1, random="z"), "step 2 of 4, first in the random numbers that are drawn"),
        (changed(1, random="z", losses=(0.5,)), "in the loss and in the random numbers"),
        (
            made("rewritten", calls=tuple(Call(0, 8, {"0": i + 0.5 * (i > 1)}, i) for i in range(4)), losses=(1.0, 0.9, 0.6, 0.5)),
            "step 3 of 4, first in what the models are given",
        ),
        (made("rewritten", LOSSES[:3]), "all of the 3 steps that both take are the same"),
        (made("rewritten"), "look at what is made of them beside"),
    ],
)  # fmt: skip
def test_where_two_runs_part(other: Run, words: str) -> None:
    assert words in lead(gather("unknown", [made(), made(), other]))


def test_changed_places_that_ran_are_named() -> None:
    before = ("/p/train.py", "a = 1\nb = 2\nc = 3\n")
    after = ("/p/fast.py", "a = 1\nb = 5\nc = 3\n")
    ran = Lines((1, 2, 3), (1, 2, 3))
    one = made(script=before, lines={"train.py": ran})
    two = made("rewritten", (1.0, 0.9, 0.7, 0.6), script=after, lines={"fast.py": ran})
    found = judge("unknown", [one, one, two])
    assert found.verdict is Sameness.DIFFERENT
    assert "the one changed place that ran is line 2 of fast.py" in found.lead


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"c"}, "c alone makes the difference (it differs): --ignore c leaves it out"),
        ({"a", "b"}, "a, b together makes the difference (it differs): --ignore a --ignore b"),
        ({"b", "d"}, "no half of the rules differs by itself"),
    ],
)
def test_halves_of_the_rules_are_judged(wrong: set[str], said: str) -> None:
    def judged(rules: tuple[str, ...]) -> Parity:
        verdict = Sameness.DIFFERENT if wrong <= set(rules) else Sameness.IDENTICAL
        return Parity(verdict, "exact", (), "it differs")

    assert said in blame.suspected("abcd", judged)


def test_the_rule_that_makes_the_difference_is_found_by_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = {"right": ("zero_grad()", "zero_grad(set_to_none=True)"), "wrong": ("lr=0.1", "lr=0.2"), "idle": ("x.sum(1", "x.sum(-1")}  # fmt: skip
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    source = Source(script, "train.py", SCRIPT.encode())

    def subset(rules: Any) -> Any:
        text = SCRIPT
        for name in rules:
            text = text.replace(*edits[name])
        return SimpleNamespace(texts=lambda: {source: text})

    def pair(request: Request, config: Config) -> Pair:
        overlay = {script: subset(edits).texts()[source].encode()}
        programs = Program.of("original", script), Program.of("rewritten", script, overlay)
        plan: Any = SimpleNamespace(subset=subset)
        return Pair(*programs, "exact", tuple(edits), {}, plan=plan, found=[])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_pair", pair)
    monkeypatch.setattr(command, "Runner", ForkRunner)
    monkeypatch.setattr(Series, "_speed", lambda series: None)
    known = {"device": "cpu", "python": "3", "torch": "2", "gpu": "", "executable": "python"}
    monkeypatch.setattr(command, "ask", lambda python: known)
    done = command.verify(Request(script, None, tmp_path, Config(), steps=0), lambda line: None)
    assert done.parity is not None and done.parity.verdict is Sameness.DIFFERENT
    assert done.parity.lead.startswith("wrong alone makes the difference")
    assert "--ignore wrong leaves it out; the two part in step 1 of 12" in done.parity.lead
