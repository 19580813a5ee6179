"""What the numbers of a training decide themselves, early stopping and plateaus, is told from steps
that a rewrite loses; masks of dropout.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence, gather
from autofast.verify.evidence.record import (
    FULL,
    Call,
    Evaluation,
    Pass,
    Record,
    Run,
    Saved,
    Step,
    TensorPrint,
)
from autofast.verify.judging import inputs, invariants, parity, samples, seeded, settings, weights
from autofast.verify.judging.shared import shared
from autofast.verify.result import Check, Sameness
from autofast.verify.series import Series, Wanted
from tests import probing
from tests.verify_runs import record, run

LENGTHS = (8, 10, 6, 8, 12, 8, 10, 6, 8, 10, 12, 6)  # of the original, by seed


def trained(arm: str, length: int, seed: int = 0, off: float = 0.0, **more: Any) -> Run:
    """Passes of two steps, each with a line and a save; a line at the end. ``off``: what rounds
    otherwise, from the second step on.
    """
    rates = more.pop("rates", (0.1,) * length)
    losses = [1 / (i + 1) + 0.01 * ((seed * 7 + i) % 5) + (off if i else 0) for i in range(length)]
    steps = [
        Step(i, 0, 0.0, 1.0, {}, 8, 1, 0, 1, (loss,), (rates[i],), grad_norm=1.0, update_norm=0.1, random=f"{seed}:{i}")
        for i, loss in enumerate(losses)
    ]  # fmt: skip
    rows = [f"epoch {i // 2} loss {losses[i]:.4f}" for i in range(1, length, 2)]
    given: dict[str, Any] = {
        "precision": ("forward float32",),
        "calls": tuple(Call(0, 8, {"0": float(i + seed)}, i) for i in range(length)),
        "passes": tuple(Pass(0, True, 2, 16, True, begun=i, ended=i + 2) for i in range(0, length, 2)),
        "saves": tuple(Saved("best.pt", i, {}, {"epoch": str(i)}) for i in range(2, length + 1, 2)),
        **more,
    }  # fmt: skip
    text = "\n".join([*rows, f"best {min(losses):.4f}"])
    return run(record(steps, **given), arm, seed=seed, detail=FULL, stdout=text)


def evidence(count: int, other: int = 0, off: float = 1e-7, lengths: tuple[int, ...] = LENGTHS) -> Evidence:  # fmt: skip
    """Original and rewritten script under so many seeds, the latter so many steps longer; where
    these are 0, by turns two more and two fewer.
    """
    runs = [trained("original", lengths[0])]
    for seed in range(count):
        more = other or (2, -2)[seed % 2]
        runs.append(trained("original", lengths[seed], seed))
        runs.append(trained("rewritten", lengths[seed] + more, seed, off))
    return gather("unknown", runs)


def found(check: Check | None) -> Check:
    assert check is not None
    return check


def test_a_training_that_stops_by_its_own_numbers_may_stop_elsewhere() -> None:
    first = found(course.steps(evidence(1)))
    assert first.passed is None and first.verdict is Sameness.UNCLEAR
    assert "not yet known" in first.text
    many = found(course.steps(evidence(8)))
    assert many.passed is True and "whose numbers decide when it stops" in many.text
    assert found(invariants.steps(shared(evidence(8)))).passed is True
    assert all(made.steps for made in shared(evidence(8)).a.records)


def test_more_runs_are_asked_for_until_it_is_known() -> None:
    runs = [trained("original", 8), trained("original", 8), trained("rewritten", 10, off=1e-7)]
    assert parity.wanted("unknown", runs)  # what rounding does
    assert parity.wanted("sampling", runs)  # what seeds do
    assert not parity.wanted("exact", runs)
    assert parity.judge("exact", runs).verdict is Sameness.BROKEN


def test_steps_that_are_lost_or_gained_for_no_such_reason() -> None:
    same = found(course.steps(evidence(1, other=2, off=0.0)))
    assert same.passed is False and "until then not a bit differs" in same.text
    always = found(course.steps(evidence(4, other=2, lengths=(8,) * 12)))
    assert always.passed is False and "under 4 seeds" in always.text
    longer = found(course.steps(evidence(8, other=2)))
    assert longer.passed is False and "more than chance" in longer.text


def test_steps_that_are_now_and_then_more_and_never_fewer() -> None:
    """As by batches that wait for the next epoch: less than what seeds make of the number."""
    runs = [trained("original", LENGTHS[0])]
    for seed in range(8):
        length = LENGTHS[seed]
        runs.append(trained("original", length, seed))
        runs.append(trained("rewritten", length + (0, 2, 4, 2)[seed % 4], seed, 1e-7))
    check = found(course.steps(gather("unknown", runs)))
    assert check.verdict is Sameness.UNCLEAR and "--seeds" in check.text


def test_unequal_runs_are_compared_as_far_as_both_go() -> None:
    whole = evidence(8)
    ev = shared(whole)
    assert ev.uncut is whole and (len(ev.a.record.steps), len(ev.b.record.steps)) == (8, 8)
    b = ev.b.record
    assert (len(b.losses), len(b.passes), len(b.saves), len(b.calls)) == (8, 4, 4, 8)
    assert ev.b.stdout.splitlines()[3:] == ["epoch 3 loss 0.1450", "epoch # loss #", "best #"]
    assert ev.a.stdout.splitlines()[3:] == ["epoch 3 loss 0.1450", "best #"]
    again = evidence(4, other=2, lengths=(8,) * 12)
    equal = replace(again, pairs=tuple((a, replace(a, arm="rewritten")) for a, _ in again.pairs))
    assert shared(equal) is equal


def test_numbers_of_what_is_printed_once_are_not_compared() -> None:
    ev = evidence(1)
    runs = [replace(r, stdout=f"steps 7 loss {len(r.record.steps)}") for r in (*ev.originals, ev.b)]
    assert shared(gather("unknown", runs)).a.stdout == "steps # loss #"


def plateau(arm: str, seed: int, falls: int, factor: float = 0.5, off: float = 0.0) -> Run:
    rates = tuple(0.1 if i < falls else 0.1 * factor for i in range(8))
    return trained(arm, 8, seed, off, rates=rates)


def test_a_rate_that_falls_on_a_plateau() -> None:
    def check(count: int, off: float = 1e-7, factor: float = 0.5, fixed: bool = False) -> Check:
        runs = [plateau("original", 0, 4)]
        for seed in range(count):
            runs.append(plateau("original", seed, 4 if fixed else 4 + seed % 3))
            runs.append(plateau("rewritten", seed, 5 + seed % 2, factor, off))
        return found(settings.learning_rates(gather("unknown", runs)))

    assert check(1).verdict is Sameness.UNCLEAR and check(1).passed is None
    assert check(8).passed is None and "depend on the training" in check(8).text
    assert check(8, off=0.0).passed is False
    assert check(8, factor=0.2).passed is False
    assert check(8, fixed=True).passed is False


def test_more_seeds_where_one_run_is_the_same_to_the_bit() -> None:
    runs = [trained("original", 8), trained("original", 8), trained("rewritten", 8)]
    assert {wish.seed for wish in parity.wanted("unknown", runs)} == {1, 2}
    for seed in (1, 2):
        runs += [trained("original", 8 + seed, seed), trained("rewritten", 8, seed)]
    assert not parity.wanted("unknown", runs)
    judged = parity.judge("unknown", runs)
    assert judged.verdict is Sameness.BROKEN and "(seed 1)" in judged.summary


# ----------------------------------------------------------------------------- layers by themselves
def test_a_layer_whose_gradient_is_halved_shows_by_itself() -> None:
    def made(arm: str, seed: int, factor: float) -> Run:
        one = trained(arm, 6, seed)
        small = 0.01 * (1 + 0.02 * ((seed * 5) % 3))
        steps = tuple(
            replace(s, grad_norms=(1.0, small * factor), update_norms=(1.0, 0.01)) for s in one.record.steps
        )  # fmt: skip
        return replace(one, records=(replace(one.record, steps=steps),))

    def check(factor: float) -> Check:
        runs = [made("original", 0, 1.0)]
        for seed in range(4):
            runs += [made("original", seed, 1.0), made("rewritten", seed, factor)]
        return found(seeded.parts(gather("unknown", runs)))

    assert check(1.05).passed
    assert check(0.5).passed is False and "group 2" in check(0.5).text


def test_clipping_does_not_hide_what_was_clipped() -> None:
    def made(arm: str, seed: int, left: float) -> Run:
        one = trained(arm, 6, seed)
        size = left * (1 + 0.02 * ((seed * 5) % 3))
        steps = tuple(replace(s, grad_norm=0.5, left_norm=size) for s in one.record.steps)
        return replace(one, records=(replace(one.record, steps=steps),))

    def check(left: float) -> dict[str, Check]:
        runs = [made("original", 0, 1.5)]
        for seed in range(4):
            runs += [made("original", seed, 1.5), made("rewritten", seed, left)]
        return {c.name: c for c in seeded.levels(gather("unknown", runs))}

    assert all(c.passed for c in check(1.52).values())
    wrong = check(1.0)
    assert wrong["gradient norm over seeds"].passed
    assert wrong["gradient norm before clipping over seeds"].passed is False


# ------------------------------------------------------------------------------ passes that are cut
@pytest.mark.parametrize("workers", ["0", "2"])
def test_passes_are_cut_to_a_number_of_samples(tmp_path: Path, workers: str) -> None:
    pytest.importorskip("torch")
    more = ("--workers", workers, "--persistent", "--context", "fork") if workers != "0" else ()
    made = probing.run(tmp_path, "train.py", "--epochs", "3", *more, samples=20).record
    passes = [(one.training, one.batches, one.samples, one.complete) for one in made.passes]
    assert passes == [(True, 2, 20, True), (False, 3, 20, True)] * 3
    assert [(one.begun, one.ended) for one in made.passes][:3] == [(0, 2), (2, 2), (2, 4)]


CROPS = """
import torch
from torch.utils.data import DataLoader, TensorDataset
net = torch.nn.Linear(5, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 5)), 4)
for epoch in range(2):
    for x, in loader:
        opt.zero_grad()
        net(x CHANGED).sum().backward()
        opt.step()
"""


@pytest.mark.parametrize(("changed", "kept"), [("* torch.rand(4, 1)", 2), ("", 0), (".clone()", 0)])
def test_items_that_are_changed_after_loading(tmp_path: Path, changed: str, kept: int) -> None:
    pytest.importorskip("torch")
    made = probed(tmp_path, CROPS.replace("CHANGED", changed))
    assert len(made.fed) == kept
    if kept:
        assert [indices for indices, _ in made.fed[0].items] == [(0, 1, 2, 3), (4, 5, 6, 7)]
        assert (made.fed[1].loader, made.fed[1].begun, made.fed[1].ended) == (32, 2, 4)


def timed(steps: int, *passes: Pass) -> Run:
    made = trained("original", steps)
    return replace(made, records=(replace(made.record, passes=passes, ending="steps"),))


@pytest.mark.parametrize(
    ("run_", "steps", "samples"),
    [
        (timed(60, Pass(0, True, 60, 960, False)), 60, 320),
        (timed(60, Pass(0, True, 60, 960, False)), 0, 0),  # to the script's own end
        (timed(60, *[Pass(0, True, 20, 320, True)] * 3), 60, 0),
        (timed(60), 60, 0),  # no loader
        (timed(12, Pass(0, True, 8, 32, False), Pass(1, False, 9, 9, True)), 12, 16),
    ],
)
def test_how_far_passes_are_cut(run_: Run, steps: int, samples: int) -> None:
    series: Any = SimpleNamespace(wanted=Wanted("exact"), steps=steps, pilot=run_)
    assert Series._shortened(series) == samples
    series.wanted = Wanted("exact", steps=steps)
    assert Series._shortened(series) == 0


# --------------------------------------------------------------------------------- masks of dropout
def masked(arm: str, *sizes: int, **more: Any) -> Run:
    """One entry of a mask for each of 8 samples and 4 features, twice in a step."""
    rates = (0.1,) * len(sizes)
    more = {"masks": sizes, "mask_rates": rates, "modules": {"0/body": "Linear(4)"}, **more}
    return trained(arm, 4, **more)


@pytest.mark.parametrize(
    ("sizes", "passed"),
    [
        ((32, 64), True),
        ((64, 32), True),  # in another order
        ((32, 4), False),  # one for the batch
        ((32, 64, 32, 64), True),  # computed again in backward
        ((8,), False),
        ((), False),
        ((96,), True),  # both in one
    ],
)
def test_masks_of_dropout(sizes: tuple[int, ...], passed: bool) -> None:
    runs = [masked("original", 32, 64), masked("original", 32, 64), masked("rewritten", *sizes)]
    assert found(inputs.modules(gather("unknown", runs))).passed is passed


def test_dropout_may_be_called_by_other_means() -> None:
    runs = [masked("original", 32, dropouts=("0/drop",)), masked("original", 32, dropouts=("0/drop",))]  # fmt: skip
    for sizes, passed in (((32,), True), ((4,), False), ((16, 16), True)):  # or in parts
        ev = gather("unknown", [*runs, masked("rewritten", *sizes)])
        assert found(inputs.modules(ev)).passed is passed


@pytest.mark.parametrize(("left", "passed"), [(0, True), (1, True), (4, False)])
def test_a_mask_of_numbers_may_become_one_of_dropout(left: int, passed: bool) -> None:
    own = masked("original", drawn={"whole": {"numbers 32": 4}})
    other = masked("rewritten", 32, 32, drawn={"whole": {"numbers 32": left}})
    assert found(inputs.modules(gather("unknown", [own, own, other]))).passed is passed


@pytest.mark.parametrize(("coins", "passed"), [((3, 1), True), ((1, 1), False), ((0, 0), False)])
def test_dropout_may_become_a_mask_of_numbers(coins: tuple[int, int], passed: bool) -> None:
    """The last batch of the pass has 2 of 8 samples, and so has its mask."""
    calls = tuple(Call(0, size, {}, step) for step, size in enumerate((8, 8, 8, 2)))
    plain = masked("original", 32, 32, dropouts=("0/drop",), calls=calls)
    drawn = {"whole": {"coins 32": coins[0], "coins 8": coins[1]}}
    other = masked("rewritten", calls=calls, drawn=drawn)
    assert found(inputs.modules(gather("unknown", [plain, plain, other]))).passed is passed


def probed(folder: Path, text: str) -> Record:
    script = folder / "script.py"
    script.write_text(text)
    return probing.run(folder, str(script), detail=FULL).record


SCRIPT = """
import torch
import torch.nn.functional as F
net, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.5)), torch.ones(2, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
heads = torch.nn.MultiheadAttention(4, 2, dropout=0.1)
torch.jit.script(torch.nn.Dropout(0.5))
for step in range(3):
    h = F.dropout(net(x), 0.2) + F.dropout2d(torch.ones(2, 4, 5, 5), 0.2).mean() + F.dropout(torch.ones(4), 0.3, False)
    h = h + heads(h[None], h[None], h[None], need_weights=False)[0]
    opt.zero_grad()
    h.sum().backward()
    opt.step()
with torch.no_grad():
    F.dropout(x, 0.1)
"""


def test_the_probe_sees_masks_of_functions_and_modules(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    made = probed(tmp_path, SCRIPT)
    assert all(len(s.grad_norms) == len(s.update_norms) == 2 for s in made.steps)
    assert made.masks is not None and sorted(made.masks) == [4, 4, *[8] * 6]
    assert made.idle_masks == 1


# ---------------------------------------------------------- counters, weights and losses over seeds
SEEN = (
    40,
    60,
    40,
    80,
    60,
    40,
    80,
    60,
    40,
    60,
    80,
    40,
)  # batches that the best epoch had seen, by seed


def counted(seen: tuple[int, ...], now: tuple[int, ...], off: float = 1e-7) -> Evidence:
    """A model that ends as its best epoch left it: which that is hangs on the seed."""

    def model(count: int) -> dict[str, Any]:
        return {"0/norm.num_batches_tracked": TensorPrint((), "int64", str(count), float(count), buffer=True)}  # fmt: skip

    runs = [trained("original", 8, model=model(seen[0]))]
    for seed, (before, after) in enumerate(zip(seen, now, strict=True)):
        runs.append(trained("original", 8, seed, model=model(before)))
        runs.append(trained("rewritten", 8, seed, off, model=model(after)))
    return gather("unknown", runs)


def test_which_epoch_was_the_best_may_be_another() -> None:
    turned = (*SEEN[1:], SEEN[0])
    first = found(settings.counters(counted(SEEN[:1], turned[:1])))
    assert first.passed is None and first.verdict is Sameness.UNCLEAR and "seeds" in first.text
    assert found(settings.counters(counted(SEEN, turned))).passed


@pytest.mark.parametrize(
    ("seen", "now", "off"),
    [
        ((60,) * 8, (80,) * 8, 1e-7),  # never another in the original
        (SEEN[:8], tuple(count * 4 for count in SEEN[:8]), 1e-7),  # more than seeds explain
        (SEEN[:1], (80,), 0.0),  # not a bit differs before
    ],
    ids=["fixed", "seeds", "to the bit"],
)
def test_a_counter_that_no_choice_explains(
    seen: tuple[int, ...], now: tuple[int, ...], off: float
) -> None:
    assert found(settings.counters(counted(seen, now, off))).passed is False


def sized(begun: float, ended: float, late: float = 0.0) -> Evidence:
    """Tensors of the rewritten script so many times the original's, at the first step and at the
    end; ``late``: added to its first losses.
    """
    runs = []
    for seed in range(4):
        for arm, one, two, off in (("original", 1.0, 1.0, 0.0), ("rewritten", begun, ended, late)):
            chance = 1 + 0.01 * ((3 * seed + (arm == "original")) % 4)
            start, model = (
                {"0/body.weight": TensorPrint((8, 8), "float32", "", chance * size)}
                for size in (one, two)
            )
            made = trained(arm, 20, seed, start=start, model=model)
            steps = [replace(step, losses=(step.losses[0] + off * (i < 6),)) for i, step in enumerate(made.record.steps)]  # fmt: skip
            runs.append(replace(made, records=(replace(made.record, steps=tuple(steps)),)))
    return gather("sampling", runs)


@pytest.mark.parametrize(
    ("change", "passed"),
    [
        ({}, False),
        ({"model": {"0/w": TensorPrint((4,), "float32", "b", 2.0, (1.0,) * 15 + (1.001,))}}, None),
        ({"evaluations": (Evaluation(0, 2, 1, 8, {}, 0.7),)}, None),  # summed otherwise
        ({"saves": (Saved("best.pt", 2, {"w": TensorPrint((4,), "float32", "c", 2.0)}, {}),)}, None),
        ({"off": 1e-7}, None),
    ],
    ids=["the last", "averaged otherwise", "evaluated otherwise", "saved otherwise", "rounded"],
)  # fmt: skip
def test_weights_that_are_loaded_after_the_last_step(
    change: dict[str, Any], passed: bool | None
) -> None:
    """Where all before is the same to the bit, that is no choice that a rounding has changed."""

    def ran(arm: str, sketch: float, **more: Any) -> Run:
        end = {"0/w": TensorPrint((4,), "float32", str(sketch), 2.0, (sketch,) * 16)}
        seen = (Evaluation(0, 2, 1, 8, {}, 0.5), Evaluation(0, 8, 1, 8, {}, sketch))
        return trained(arm, 8, **{"model": end, "evaluations": seen, **more})

    runs = [ran("original", 1.0), ran("original", 1.0), ran("rewritten", 1.3, **change)]
    check = weights.loaded(gather("unknown", runs))
    assert (check.passed if check else None) is passed, check


def test_the_sizes_of_weights_over_seeds() -> None:
    assert [check.passed for check in weights.checks(sized(1.0, 1.0))] == [True, True]
    assert [check.passed for check in weights.checks(sized(1.5, 1.0))] == [False, True]
    ended = weights.checks(sized(1.0, 0.7))
    assert [check.passed for check in ended] == [True, False] and "body.weight" in ended[1].text
    assert "zero" in weights.checks(sized(0.0, 1.0))[0].text


def test_the_course_of_the_loss_over_seeds_and_not_its_end_alone() -> None:
    assert found(seeded.course(sized(1.0, 1.0))).passed
    late = sized(1.0, 1.0, 0.5)
    assert found(seeded.course(late)).passed is False
    assert seeded.equivalence(late)[0].passed


# ----------------------------------------------------------------------- batches of several loaders
def fed(order_of: Any, values: Any = lambda order: order) -> Evidence:
    """Two loaders by turns; ``order_of``: of the second one's batches in the rewritten script, by
    seed and pass.
    """

    def sums(seed: int, number: int) -> tuple[float, ...]:
        return tuple(float((7 * i + 3 * number + 5 * seed) % 11) for i in range(6))

    runs = []
    for seed in range(4):
        for arm in ("original", "rewritten"):
            passes = []
            for number in range(4):
                second = order_of(seed, number) if arm == "rewritten" else sums(seed, number)
                for loader, row in ((0, sums(seed + 1, number)), (1, values(second)[:4])):
                    passes.append(Pass(loader, True, len(row), 16, True, checksums=row))
            runs.append(trained(arm, 8, seed, passes=tuple(passes)))
    return gather("unknown", runs)


def test_one_of_two_loaders_no_longer_shuffles() -> None:
    first = (3.0, 1.0, 4.0, 1.5, 9.0, 2.0)
    lost = found(samples.shuffled(fed(lambda seed, number: first)))
    assert lost.passed is False and "loader 2" in lost.text

    def turned(seed: int, number: int) -> tuple[float, ...]:
        at = (2 * seed + number) % 6
        return first[at:] + first[:at]

    assert found(samples.shuffled(fed(turned))).passed


@pytest.mark.parametrize(
    ("original", "rewritten", "lost"),
    [
        ("shuffled", "shuffled", False),
        ("shuffled", "sorted", True),
        ("shuffled", "once", True),
        ("sorted", "shuffled", False),  # what the data set gives for a number may be shuffled
        ("sorted", "sorted", False),
    ],
)
def test_an_order_of_items_of_which_all_is_random(
    original: str, rewritten: str, lost: bool
) -> None:
    def order(how: str, seed: int, number: int) -> list[int]:
        places = list(range(48))
        if how != "sorted":
            random.Random(seed + 100 * number * (how == "shuffled")).shuffle(places)
        return places

    def passes(how: str, arm: str, seed: int) -> Any:
        noise = random.Random(f"{arm} {seed}")
        for number in range(3):
            places = order(how, seed, number)
            items = tuple((tuple(places[i : i + 8]), ()) for i in range(0, 48, 8))
            sums = tuple(noise.random() for _ in items)
            yield Pass(0, True, 6, 48, True, checksums=sums, items=items)

    arms = (("original", original), ("rewritten", rewritten))
    runs = [trained(arm, 8, s, passes=tuple(passes(how, arm, s))) for s in range(2) for arm, how in arms]  # fmt: skip
    check = found(samples.shuffled(gather("unknown", runs)))
    assert (check.passed is False) == lost and ("numbers of the items" in check.text) == lost


def test_batches_that_are_no_numbers_are_not_alike() -> None:
    """A missing value in every batch but one says nothing of an order."""
    nothing = (math.nan,) * 6

    def some(order: tuple[float, ...]) -> tuple[float, ...]:
        return nothing if order is nothing else (order[0], *nothing[1:])

    assert found(samples.shuffled(fed(lambda seed, number: nothing, some))).passed
