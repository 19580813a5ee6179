"""Dropout that drops less or is left out in one place, and strata that are lost, behind other
draws: where nothing but counts and spacings tell. On made-up runs and on real ones.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import FULL, Call, Run
from autofast.verify.judging import dropout, inputs
from autofast.verify.probe.inputs import evenness
from autofast.verify.result import Check
from autofast.verify.running import scratch
from autofast.verify.running.runs import Program, Setup
from tests.forked import ForkRunner
from tests.test_verify_judge import MOVED, made

Masks = tuple[tuple[int, float], ...]
USUAL: Masks = ((64, 0.1), (64, 0.1), (32, 0.3))


def dropping(arm: str, seed: int, masks: Masks, words: int = 0) -> Run:
    calls = tuple(Call(0, 8, {"0": float(i)}, i) for i in range(2))
    drawn = {"0": {"calls": 2, "drew": 2}, "whole": {f"numbers {words}": 1}}
    sizes, rates = ([one[k] for one in masks] for k in (0, 1))
    return made(
        arm, seed=seed, masks=tuple(sizes), mask_rates=tuple(rates), calls=calls, drawn=drawn
    )


@pytest.mark.parametrize(
    ("masks", "text"),
    [
        (USUAL[::-1], ""),
        (((64, 0.1), (64, 0.1), (32, 0.1)), "drops 10 % of the entries"),
        (((64, 0.1), (64, 0.05), (32, 0.3)), "drops 12 % of the entries"),
        (((64, 0.1), (64, 0.1)), "1 of the original's masks of 32 entries that drop 30 %"),
        (((64, 0.1), (32, 0.3)), "1 of the original's masks of 64 entries that drop 10 %"),
        (((128, 0.1), (32, 0.3)), ""),  # both at once
        (((60, 0.1), (60, 0.1), (34, 0.3)), ""),  # sentences of other lengths
    ],
)
def test_rates_and_places_of_dropout(masks: Masks, text: str) -> None:
    def wrong(seeds: int, words: int = 0) -> str:
        runs = [dropping("original", seed, USUAL) for seed in range(seeds)]
        runs += [dropping("rewritten", seed, masks, words) for seed in range(seeds)]
        return dropout.wrong(gather("unknown", runs))

    assert wrong(1) == ""  # a layer may be left out at random
    assert text in wrong(4) and bool(wrong(4)) == bool(text)
    if "no longer" in text:
        assert wrong(4, words=9) == ""  # drawn in another way


@pytest.mark.parametrize(("words", "wrong"), [(320, False), (160, True), (0, True)])
def test_masks_that_the_script_makes_by_itself(words: int, wrong: bool) -> None:
    """One for both layers is none of either."""
    runs = [dropping("original", seed, USUAL) for seed in range(4)]
    runs += [dropping("rewritten", seed, (), words) for seed in range(4)]
    assert bool(dropout.wrong(gather("unknown", runs))) is wrong


@pytest.mark.parametrize(
    ("rows", "wrong"),
    [
        ([(3, 2), (8, 9), (4, 7), (9, 1)], False),  # other bags
        ([(1, 1)] * 4, True),  # one mask for the cells of a bag
        ([(1, 1)], False),  # may be chance
    ],
)
def test_masks_whose_sizes_hang_on_what_a_batch_holds(
    rows: list[tuple[int, int]], wrong: bool
) -> None:
    def masked(arm: str, seed: int, rows: tuple[int, int]) -> Run:
        run = dropping(arm, seed, tuple((32 * n, 0.1) for n in rows))
        calls = tuple(
            Call(0, 4, {"0": float(n + 9 * (arm == "original"))}, i) for i, n in enumerate(rows)
        )
        return replace(run, records=(replace(run.record, calls=calls),))

    bags = [(9, 2), (4, 9), (7, 7), (3, 8)][: len(rows)]
    runs = [masked("original", seed, some) for seed, some in enumerate(bags)]
    runs += [masked("rewritten", seed, some) for seed, some in enumerate(rows)]
    assert bool(dropout.wrong(gather("unknown", runs))) is wrong


def test_layers_that_are_left_out_at_random() -> None:
    runs = [dropping("original", seed, USUAL[: 3 - seed % 2]) for seed in range(4)]
    runs += [dropping("rewritten", seed, USUAL[:2]) for seed in range(4)]
    assert dropout.wrong(gather("unknown", runs)) == ""


def test_a_rate_where_the_number_of_masks_hangs_on_the_seed() -> None:
    def wrong(rate: float) -> str:
        runs = [dropping("original", seed, ((64, 0.2),) * (3 + seed % 2)) for seed in range(4)]
        runs += [dropping("rewritten", seed, ((64, rate),) * (5 - seed % 2)) for seed in range(4)]
        return dropout.wrong(gather("unknown", runs))

    assert wrong(0.2) == "" and "drops 15 %" in wrong(0.15)


def test_how_evenly_values_lie() -> None:
    torch.manual_seed(0)
    n, every = 4000, torch.arange(1000)
    strata = (every + torch.rand(1000)) / 1000
    mean = [evenness(one)[0] for one in (torch.rand(n), torch.randn(n), strata, every.double())]
    assert mean == pytest.approx([0.386, 0.386, 0.57, 1.0], abs=0.04)
    rows = strata.reshape(10, 100)  # in order: even within a sample
    assert evenness(rows)[1] == pytest.approx(0.57, abs=0.06)
    assert evenness(torch.rand(5)) == evenness(torch.tensor(1.0)) == (0.0, 0.0)
    assert evenness(torch.empty(0, 3)) == (0.0, 0.0) and evenness(torch.zeros(64)) == (0.0, 0.0)


def test_strata_that_are_lost() -> None:
    def calls(seed: int, even: float, many: int) -> tuple[Call, ...]:
        draw = random.Random(seed)
        looks = [(draw.gauss(1, 0.1), 0.0, draw.gauss(even, 0.03), 0.0) for _ in range(many)]
        return tuple(
            Call(0, 40, {"0": draw.gauss(0, 1)}, i, looks={"0": one}) for i, one in enumerate(looks)
        )

    def given(even: float, *lengths: int) -> Check | None:
        runs = [made(seed=s, calls=calls(s, 0.57, 30 + s)) for s in range(4)]
        runs += [
            made("rewritten", seed=s, calls=calls(50 + s, even, n)) for s, n in enumerate(lengths)
        ]
        return inputs.given(
            gather("unknown", [*runs, made(detail=MOVED, calls=calls(0, 0.57, 30))])
        )

    for lengths in ((30, 31, 32, 33), (35, 34, 30, 30)):
        same, lost = given(0.57, *lengths), given(0.39, *lengths)
        assert same is not None and same.passed, same
        assert lost is not None and lost.passed is False and "how evenly" in lost.text


SCRIPT = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.last, self.out = nn.Linear(1, 8), nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        h = F.dropout(torch.tanh(self.one(x)), 0.15, self.training)
        h = F.dropout(torch.tanh(self.two(h)), 0.1, self.training)
        h = F.dropout(torch.tanh(self.last(h)), 0.1, self.training)
        return self.out(h)


model = Net()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)
for step in range(12):
    x = ((torch.arange(40) + torch.rand(40)) / 40)[torch.randperm(40), None]
    y = torch.rand(40, 1)
    for _ in range(step > 1 and int(torch.randint(1, 3, (1,)))):
        model(y)

    def closure():
        optimizer.zero_grad()
        loss = (model(x) - x.sin()).pow(2).mean()
        loss.backward()
        return loss

    optimizer.step(closure)
"""
OTHERWISE = ("model = Net()", "torch.rand(1)\nmodel = Net()")
Compare = Callable[..., tuple[Check, Check]]


@pytest.fixture
def compare(tmp_path: Path) -> Iterator[Compare]:
    folder = tmp_path / "project"
    folder.mkdir()
    path = folder / "train.py"
    path.write_text(SCRIPT)
    runner = ForkRunner(Setup(cwd=folder, threads=1), scratch.make([folder], parent=tmp_path))  # fmt: skip

    def run(arm: str, text: str, seed: int, detail: Any = FULL) -> Run:
        program = Program(arm, path, {path: text.encode()})
        return runner.run(program, seed=seed, shift=seed, detail=detail, steps=0)

    @functools.cache
    def originals() -> tuple[Run, ...]:
        moved = replace(FULL, perturb=MOVED.perturb)
        return *(run("original", SCRIPT, seed) for seed in range(4)), run(
            "original", SCRIPT, 0, moved
        )

    def judged(*edits: tuple[str, str]) -> tuple[Check, Check]:
        changed = SCRIPT
        for old, new in (OTHERWISE, *edits):
            assert changed.count(old) == 1
            changed = changed.replace(old, new)
        runs = [*originals(), *(run("rewritten", changed, seed) for seed in range(4))]
        ev = gather("unknown", runs)
        assert len(ev.pairs) == 4, [one.stderr for one in runs]
        found = inputs.modules(ev), inputs.given(ev)
        assert found[0] is not None and found[1] is not None
        return found

    yield judged
    runner.scratch.close()


def test_behind_other_draws(compare: Compare) -> None:
    modules, given = compare()
    assert modules.passed and given.passed, (modules.text, given.text)
    modules, _ = compare((", 0.15, ", ", 0.05, "))
    assert modules.passed is False and "of the entries" in modules.text
    modules, _ = compare(
        ("F.dropout(torch.tanh(self.two(h)), 0.1, self.training)", "torch.tanh(self.two(h))")
    )
    assert modules.passed is False and "no longer drawn" in modules.text
    modules, given = compare(("((torch.arange(40) + torch.rand(40)) / 40)", "torch.rand(40)"))
    assert modules.passed and given.passed is False, given.text
