"""What a verdict rests on: precision, random draws and data of two runs, checkpoints and outputs,
items, inputs, coverage. On made-up runs.
"""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofast.report.verify_words import parity_clause
from autofast.verify import series
from autofast.verify.estimates import fmean, gap
from autofast.verify.evidence import alike, outputs
from autofast.verify.evidence.gathered import DOUBLE, Evidence, gather
from autofast.verify.evidence.record import (
    FULL,
    Call,
    Detail,
    Lines,
    Pass,
    Run,
    Saved,
    Step,
    TensorPrint,
)
from autofast.verify.judging import (
    coverage,
    exact,
    inputs,
    invariants,
    items,
    printed,
    rounding,
    samples,
    saves,
    seeded,
    tensors,
    together,
)
from autofast.verify.judging.parity import judge
from autofast.verify.judging.rounding import first_step, parting_step, single
from autofast.verify.result import Parity, Sameness
from autofast.verify.running import runs
from autofast.verify.running.runs import Program
from tests.verify_runs import record, run

MOVED = replace(FULL, perturb=2.0**-23)
LOSSES = (1.0, 0.9, 0.8, 0.7)
NAN, INF = float("nan"), float("inf")


def made(arm: str = "original", losses: tuple[float, ...] = LOSSES, **more: Any) -> Run:
    """A run of a few steps in float32 that drew the same numbers as every other."""
    updates = more.pop("updates", (0.1,) * len(losses))
    states = more.pop("states", tuple("abcdefghijklmnop"[: len(losses)]))
    outside = {k: more.pop(k) for k in ("seed", "detail", "stdout", "log", "files", "script", "changed") if k in more}  # fmt: skip
    steps = [
        Step(i, 0, 0.0, 1.0, {}, 8, 1, 0, 1, (loss,), (0.1,), grad_norm=1.0, update_norm=updates[i], random=states[i])
        for i, loss in enumerate(losses)
    ]  # fmt: skip
    given: dict[str, Any] = {
        "precision": ("forward float32",),
        "calls": tuple(Call(0, 8, {"0": float(i)}, i) for i in range(len(losses))),
        "start": {"0/w": tensor(1.0)},
        **more,
    }
    return run(record(steps, **given), arm, **outside)


def tensor(value: float, norm: float | None = None) -> TensorPrint:
    return TensorPrint(
        (4,), "float32", str(value), abs(value) if norm is None else norm, (value,) * 16
    )


def against(effect: str, other: Run, *more: Run) -> Evidence:
    return gather(effect, [made(), made(), other, *more])


# ------------------------------------------------------------------------------ precision and draws
def test_a_large_difference_is_no_proof_of_16_bits() -> None:
    off = made("rewritten", (1.01, 0.9, 0.8, 0.7))
    assert single(against("unknown", off))
    check = first_step(against("unknown", off))
    assert check.passed is False and "float32" in check.text
    low = replace(off, records=(replace(off.record, precision=("forward bfloat16",)),))
    assert not single(against("unknown", low)) and first_step(against("unknown", low)).passed


def test_the_rules_are_believed_only_where_nothing_was_recorded() -> None:
    off, bare = made("rewritten"), made(precision=())
    assert alike.known_low(gather("rounding", [made(), off], rules=["autocast"])) is False
    assert alike.known_low(gather("rounding", [bare, off], rules=["autocast"])) is True


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        ({}, 4),
        ({"states": tuple("abxd")}, 2),
        ({"calls": (Call(0, 8, {"0": 0.0}, 0), Call(0, 8, {"0": 7.0}, 1))}, 1),
        ({"states": ("", "", "", "")}, 0),
    ],
)
def test_how_far_draws_and_data_agree(change: dict[str, Any], steps: int) -> None:
    assert alike.steps(against("unknown", made("rewritten", **change))) == steps


def test_inputs_that_rounding_moves_are_no_data() -> None:
    """A hidden state that is carried along differs in the run with moved parameters."""
    moved = made(detail=MOVED, calls=tuple(Call(0, 8, {"0": i + 0.1}, i) for i in range(4)))
    other = made("rewritten", calls=tuple(Call(0, 8, {"0": i + 5.0}, i) for i in range(4)))
    assert alike.steps(against("unknown", other)) == 0
    assert alike.steps(against("unknown", other, moved)) == 4


def test_masks_may_differ_in_another_layout_only() -> None:
    drawn = tuple(Call(0, 8, {"0": float(i)}, i, "before" if not i else "") for i in range(4))
    other = made("rewritten", calls=drawn, precision=("channels_last", "forward float32"))
    plain = made(calls=drawn)
    assert alike.agreeing_steps(gather("unknown", [plain, plain, other])) == 0
    same = made("rewritten", calls=drawn)
    assert alike.agreeing_steps(gather("unknown", [plain, plain, same])) == 4


@pytest.mark.parametrize("carried", [True, False])
def test_what_a_model_computed_itself_tells_nothing_of_the_order(carried: bool) -> None:
    """A hidden state stands in its own order wherever the samples stand in theirs."""

    def calls(state: float | None, off: float = 0.0) -> tuple[Call, ...]:
        given = {} if state is None else {"1": state + off}
        return tuple(
            Call(0, 8, {"0": float(i), **given}, i, "" if i else "before", {} if i else {"0": 3.0, **given})
            for i in range(4)
        )  # fmt: skip

    plain, moved = made(calls=calls(2.0)), made(detail=MOVED, calls=calls(2.0, 0.1))
    other = made("rewritten", calls=calls(5.0 if carried else None))
    assert alike.determined(gather("unknown", [plain, plain, other, moved]))


def test_models_are_known_by_what_they_are_and_not_by_the_order_of_first_calls() -> None:
    def run_of(arm: str, model: int, scale: int, drops: str) -> Run:
        weights = {f"{model}/w": tensor(1.0), f"{scale}/mean": replace(tensor(2.0), shape=(), buffer=True)}  # fmt: skip
        given = [Call(n, 8, {"0": value}, i) for i in range(4) for n, value in ((model, i + 0.5), (scale, 7.0 * i))]  # fmt: skip
        return made(
            arm,
            model=weights,
            start=weights,
            calls=tuple(given),
            modules={f"{drops}/drop": "Dropout(p=0.1)"},
            dropouts=(f"{drops}/drop",),
        )

    plain = run_of("original", 0, 1, "0")
    ev = gather("unknown", [plain, plain, run_of("rewritten", 1, 0, "1")])
    assert ev.b.record.model == plain.record.model
    assert ev.b.record.calls == plain.record.calls
    check = inputs.modules(ev)
    assert check is not None and check.passed
    lost = gather("unknown", [plain, plain, run_of("rewritten", 1, 0, "0")])
    check = inputs.modules(lost)
    assert check is not None and check.passed is False, "the other one's"


def test_items_in_other_places_of_their_batch() -> None:
    """A collate function that sorts: the place no longer tells which item it is; another item does
    not belong to the batch.
    """

    def of(*values: float) -> items.Items:
        found = items.Items()
        for number in range(2):
            for place, value in enumerate(values if number else sorted(values)):
                found.values.setdefault(place, []).append(value)
                found.placed[number, 0, place] = (place, value)
        found.finish()
        return found

    plain, turned, other = of(1.0, 2.0, 4.0), of(2.0, 1.0, 4.0), of(2.0, 1.0, 5.0)
    assert not plain.scale and turned.scale
    assert items._reordered([plain], [turned])
    assert not items._reordered([plain], [other])
    assert not items._reordered([turned], [turned]), "random items"


def test_masks_meet_other_samples_in_another_order() -> None:
    drawn, turned = (
        tuple(
            Call(0, 8, {"0": float(i)}, i, "" if i else "before", {} if i else {"0": order})
            for i in range(4)
        )
        for order in (3.0, 5.0)
    )
    plain, other = made(calls=drawn), made("rewritten", calls=turned)
    ev = gather("unknown", [plain, plain, other])
    assert alike.throughout(ev) and not alike.determined(ev) and alike.agreeing_steps(ev) == 0
    same = gather("unknown", [plain, plain, made("rewritten", calls=drawn)])
    assert alike.determined(same)


def test_an_average_that_is_no_longer_called() -> None:
    weights = {"0/w": tensor(1.0), "1/w": tensor(1.0)}
    plain, other = made(model=weights), made("rewritten", model={"0/w": tensor(1.0)})
    check = tensors.tensors(gather("unknown", [plain, plain, other]))
    assert check is not None and check.passed is None
    steps = [replace(step, modes=(0.0, 1.0)) for step in plain.record.steps]
    plain = replace(plain, records=(replace(plain.record, steps=tuple(steps)),))
    steps = [replace(step, modes=(1.0,)) for step in plain.record.steps]
    for model, passed in (({"0/w": tensor(1.0)}, None), (weights, False)):
        other = made("rewritten", model=model)
        other = replace(other, records=(replace(other.record, steps=tuple(steps)),))
        check = tensors.training_mode(gather("unknown", [plain, plain, other]))
        assert (check and check.passed) is passed, "only what is not called any more"
    less = made("rewritten", model={"1/w": replace(tensor(1.0), shape=(3,))})
    check = tensors.tensors(gather("unknown", [plain, plain, less]))
    assert check is not None and check.passed is False


def test_with_the_same_draws_rounding_decides_and_not_the_seeds() -> None:
    other = [made("rewritten", tuple(x * 1.004 for x in LOSSES), seed=s) for s in range(4)]
    runs = [made(), *(made(seed=s) for s in range(4)), *other, made(detail=MOVED)]
    found = judge("unknown", runs)
    assert found.verdict is Sameness.DIFFERENT and "the same random numbers" in found.summary


def test_updates_count_as_far_as_draws_agree() -> None:
    """Two workers in place of one: the first batch is the same, what comes later is drawn
    otherwise.
    """
    later = made("rewritten", updates=(0.1, 0.2, 0.2, 0.2), states=tuple("axyz"))
    assert first_step(against("unknown", later)).passed
    same = made("rewritten", updates=(0.1, 0.2, 0.2, 0.2))
    assert first_step(against("unknown", same)).passed is False


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"losses": (1.0, 0.9, 0.802, 0.7)}, "loss differs by 0.24 %"),
        ({"updates": (0.1, 0.1, 0.11, 0.1)}, "update differs by 9.1 %"),
        ({"losses": (1.0, 0.9, 0.80000001, 0.71)}, ""),
        ({"losses": (1.0, 0.9, 0.802, 0.7), "states": tuple("abyz")}, ""),
        ({}, ""),
    ],
)
def test_what_acts_later_meets_equal_weights(other: dict[str, Any], words: str) -> None:
    """Rounding has not grown where all steps before are the same bits, however wild the training is
    afterwards.
    """
    wild = made(losses=(1.0, 0.9, 0.6, 0.4), detail=MOVED)
    ev = against("unknown", made("rewritten", **other), wild)
    check = parting_step(ev)
    assert bool(words) == (check is not None and check.passed is False)
    if check is not None and words:
        assert words in check.text and "before 3 are equal" in check.text
        assert check in rounding.judge(ev)


def test_a_loss_that_crosses_zero_may_part_by_a_rounding_of_its_usual_size() -> None:
    one, two = ((1.0, -0.9, near, -0.7) for near in (1e-8, 3e-8))
    plain, other = made(losses=one), made("rewritten", two)
    check = parting_step(gather("unknown", [plain, plain, other]))
    assert check is not None and check.passed
    holed = made("rewritten", (1.0, -0.9, 1e-8, NAN))
    check = parting_step(gather("unknown", [plain, plain, holed]))
    assert check is not None and check.passed is False


def test_16_bits_may_part_by_as_much_as_they_round() -> None:
    low = made("rewritten", (1.0, 0.9, 0.805, 0.7), precision=("forward bfloat16",))
    check = parting_step(against("unknown", low))
    assert check is None or check.passed


@pytest.mark.parametrize(
    ("off", "precision", "passed"),
    [(0.0005, "bfloat16", True), (0.03, "bfloat16", False), (0.03, "float32", None)],
    ids=["rounding", "more than rounding", "another precision"],
)
def test_16_bits_stay_near_what_16_bits_make(
    off: float, precision: str, passed: bool | None
) -> None:
    """No single loss is far off, and all together are too far: the yardstick is a whole rounding of
    16 bits.
    """
    low = (f"forward {precision}",)
    losses = tuple(1.0 - 0.01 * i for i in range(12))
    moved = [x + 0.0008 * (-1) ** i for i, x in enumerate(losses)]
    other = [x + off * (-1) ** i for i, x in enumerate(losses)]
    plain = made(losses=losses, precision=("forward bfloat16",))
    ruler = made(losses=tuple(moved), precision=("forward bfloat16",), detail=replace(FULL, perturb=2.0**-8))  # fmt: skip
    ev = gather("unknown", [plain, plain, made("rewritten", tuple(other), precision=low), ruler])
    check = rounding.departs(ev)
    assert (check is None) is (passed is not False)
    assert check is None or "on average" in check.text


@pytest.mark.parametrize(
    ("begin", "off", "seen"),
    [(3, 2e-4, True), (3, 8e-5, False), (35, 2e-4, False)],
    ids=["before rounding grows", "too little", "where rounding grows"],
)
def test_what_leaves_before_rounding_has_grown(begin: int, off: float, seen: bool) -> None:
    """The yardstick is what rounding has done by then, not what it does later."""
    states, still = tuple(map(str, range(60))), [1.0] * 60
    grown = [1.0 + 8e-5 * (i > 45) for i in range(60)]
    left = tuple(1.0 + off * (i >= begin) for i in range(60))
    plain = made(losses=tuple(still), states=states)
    other = made("rewritten", left, states=states)
    ev = gather("unknown", [plain, plain, other, made(losses=tuple(grown), states=states, detail=MOVED)])  # fmt: skip
    check = rounding.departs(ev)
    assert (check is not None and check.passed is False and f"loss {begin + 1} " in check.text) is seen  # fmt: skip


def test_other_data_from_the_same_random_numbers_are_never_equivalent() -> None:
    """Noise that is drawn, and not used: neither the first step nor, over few seeds, the loss has
    to show it.
    """
    losses = falling(1.0, 0.0, 0)
    state, moved = tuple(map(str, range(30))), {1: 5.0}
    runs = []
    for seed in range(4):
        given = [tuple(Call(0, 8, {"0": float(i) + (moved.get(i, 0.0) if arm else 0)}, i) for i in range(30)) for arm in (0, 1)]  # fmt: skip
        runs.append(made(losses=losses, states=state, seed=seed, calls=given[0]))
        near = (*losses[:1], *(x * 1.0005 for x in losses[1:]))
        runs.append(made("rewritten", near, states=state, seed=seed, calls=given[1]))
    runs += [runs[0], made(losses=losses, states=state, detail=MOVED, calls=given[0])]
    found = judge("unknown", runs)
    assert found.verdict is Sameness.DIFFERENT and "the next the same is drawn" in found.summary


# ------------------------------------------------------------------------------------------ margins
def falling(scale: float, noise: float, seed: int, shift: float = 0.0) -> tuple[float, ...]:
    draw = random.Random(seed)
    return tuple(shift + scale * (1 - i / 30) + noise * draw.gauss(0, 1) for i in range(30))


def pairs(
    make: Callable[[int], tuple[float, ...]], off: float, noise: float, number: int = 8
) -> Evidence:
    runs = []
    for seed in range(number):
        state = tuple(f"{seed} {i}" for i in range(30))
        runs.append(made(losses=make(seed), seed=seed, states=state))
        draw = random.Random(1000 + seed)
        moved = tuple(x + off + noise * draw.gauss(0, 1) for x in make(seed))
        runs.append(made("rewritten", moved, seed=seed, states=state))
    return gather("sampling", runs)


def test_no_margin_is_larger_than_a_share_of_the_drop() -> None:
    wide = seeded.tost(pairs(lambda seed: falling(1.0, 0.5, seed), 0.0, 0.0))
    assert 0 < wide.margin <= 0.05 * 0.9
    noisy = pairs(lambda seed: falling(1.0, 0.5, seed), 0.0, 0.5)
    check, more = seeded.equivalence(noisy)
    assert check.verdict is Sameness.UNCLEAR and check.passed is None and more > 0


def test_a_loss_that_crosses_zero_is_no_measure() -> None:
    found = seeded.tost(pairs(lambda seed: falling(1.0, 0.01, seed, -0.5), 0.0, 0.001))
    assert found.margin <= 0.05 * 0.9 and found.outcome == "inside"
    flat = pairs(lambda seed: tuple(random.Random(seed).gauss(0, 1) for _ in range(30)), 0.0, 0.0)
    assert seeded.tost(flat).margin == 0.0


def test_margin_seeds_and_coverage_stand_in_the_summary() -> None:
    ev = pairs(lambda seed: falling(1.0, 0.01, seed), 0.0, 0.001)
    runs = [run for pair in ev.pairs for run in pair] + [ev.a]
    found = judge("sampling", runs)
    assert found.verdict is Sameness.EQUIVALENT
    assert "±" in found.summary and "8 seeds" in found.summary and "30 steps" in found.summary


# -------------------------------------------------------------------------- checkpoints and outputs
def saved(*values: float, steps: tuple[int, ...] = (2, 4), **plain: str) -> dict[str, Any]:
    return {
        "saves": tuple(
            Saved("best.pt", step, {"w": tensor(value)}, plain)
            for step, value in zip(steps, values, strict=True)
        )
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (saved(1.0, 9.0), "w is another tensor"),
        (saved(9.0, 2.0), "w is another tensor"),
        (saved(1.0, 2.0, 2.0, steps=(2, 4, 6)), "save 3"),
        (saved(1.0, 2.0, steps=(2, 6)), "after step 6"),
        (saved(1.0, 2.0, epoch="3"), "epoch is 3"),
        (saved(1.0, 0.0), "all zero"),
        (saved(1.0, 2.0, epoch="2"), ""),
    ],
)
def test_checkpoints_are_compared_by_value(change: dict[str, Any], words: str) -> None:
    plain = made(**saved(1.0, 2.0, epoch="2"))
    ev = gather("unknown", [plain, plain, made("rewritten", **change)])
    check = saves.values(ev)
    assert check is not None and check.passed is (not words) and words in check.text


def test_checkpoints_differ_by_rounding_as_far_as_it_carries() -> None:
    plain, moved = made(**saved(1.0, 2.0)), made(detail=MOVED, **saved(1.0, 2.000001))
    near, far = (
        made("rewritten", (1.00001, *LOSSES[1:]), **saved(1.0, v)) for v in (2.000002, 2.1)
    )
    for other, passed in ((near, None), (far, False)):
        check = saves.values(gather("unknown", [plain, plain, other, moved]))
        assert check is not None and check.passed is passed


def test_checkpoints_differ_no_further_than_the_training_that_ends_apart() -> None:
    """Where ReLUs flip, a memory layout moves weights further than one run that was moved."""
    held, ended = {"0/w": tensor(1.0)}, {"0/w": tensor(1.0002)}
    plain = made(**saved(1.0, 2.0), model=held)
    moved = made(detail=MOVED, **saved(1.0, 2.000001), model=held)
    for value, passed in ((2.006, None), (2.1, False)):
        other = made("rewritten", (1.00001, *LOSSES[1:]), **saved(1.0, value), model=ended)
        check = saves.values(gather("unknown", [plain, plain, other, moved]))
        assert check is not None and check.passed is passed


def test_an_average_of_equal_weights_differs_by_no_more_than_its_own_rounding() -> None:
    """What follows a training that is the same to the bit: an average that takes in a little
    less.
    """
    held = {"0/w": tensor(1.0), "1/w": tensor(1.0)}
    plain = made(**saved(1.0, 2.0), model=held)
    moved = made(detail=MOVED, **saved(1.0, 2.0000001), model=held)
    for off, passed in ((2e-7, None), (2e-4, False)):
        now = {**held, "1/w": tensor(1.0 + off)}
        other = made("rewritten", **saved(1.0, 2.0 + off), model=now)
        check = saves.values(gather("unknown", [plain, plain, other, moved]))
        assert check is not None and check.passed is passed


def test_a_group_whose_gradient_is_rounding_tells_nothing() -> None:
    """A bias before a normalisation: its gradient is 0 but for rounding, which another memory
    layout doubles.
    """
    for small, passed in ((1e-7, True), (1e-2, False)):
        runs = []
        for seed in range(4):
            for arm, factor in (("original", 1.0), ("rewritten", 2.2)):
                one = made(
                    arm, falling(1.0, 0.01, seed), states=tuple(map(str, range(30))), seed=seed
                )
                steps = tuple(
                    replace(s, grad_norms=(1.0, small * factor, 0.5), update_norms=(1.0, 1.0, 1.0))
                    for s in one.record.steps
                )
                runs.append(replace(one, records=(replace(one.record, steps=steps),)))
        check = seeded.parts(gather("unknown", runs))
        assert check is not None and check.passed is passed


CSV = "epoch,time,loss\n0,{:.2f},0.51\n1,{:.2f},{}\n"


@pytest.mark.parametrize(
    ("files", "log", "words"),
    [
        ({"log.csv": CSV.format(7.0, 8.0, 0.41)}, "", ""),
        ({"log.csv": CSV.format(7.0, 8.0, 0.42)}, "", "0.42 instead of 0.41"),
        ({"h.json": '{"epochs": [{"loss": 0.5}]}'}, "", "0.5 instead of 0.6"),
        ({"log.csv": CSV.format(7.0, 8.0, 0.41)}, "2026-11-22 10:00:00,123 loss 0.8\n", "0.8 instead of 0.7"),
        ({}, "  3%|# | loss=0.9\r100%|##| 5/5 [00:03<00:00, 1.2it/s, loss=0.3]\n", "0.3 instead of 0.2"),
        ({}, "train.py:17: UserWarning: 5 of 8\n", ""),
    ],
)  # fmt: skip
def test_what_is_logged_and_written_counts_as_printed(
    files: dict[str, str], log: str, words: str
) -> None:
    known = {
        "log.csv": CSV.format(1.0, 2.0, 0.41),
        "h.json": '{"epochs": [{"loss": 0.6}]}',
    }
    logged = "2026-11-22 09:00:00,456 loss 0.7\n100%|##| 5/5 [00:01<00:00, 4.2it/s, loss=0.2]\ntrain.py:12: UserWarning: 4 of 8\n"
    plain = made(files=known, log=logged)
    slower = made(files={**known, "log.csv": CSV.format(3.0, 4.0, 0.41)}, log=logged)
    other = made("rewritten", files={**known, **files}, log=log or logged)
    found = judge("unknown", [plain, slower, other])
    assert (found.verdict is Sameness.IDENTICAL) == (not words) and words in found.summary


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.25, ""), (0.5, "0.5 instead of 0.25"), (NAN, "nan instead of 0.25"), (None, "not printed")],
)
def test_what_tensorboard_is_given_counts_as_printed(value: float | None, words: str) -> None:
    known = (("val/acc", 0, 0.125), ("val/loss", 1, 0.25), ("time/step", 1, 3.0))
    plain, slower = made(scalars=known), made(scalars=(*known[:2], ("time/step", 1, 4.0)))
    now = (("val/loss", 1, value),) if value is not None else ()
    other = made("rewritten", scalars=(known[0], *now, ("time/step", 1, 9.0)))
    found = judge("exact", [plain, slower, other])
    assert (found.verdict is Sameness.IDENTICAL) == (not words) and words in found.summary


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("train.py:31 - INFO - loss 0.31", "train.py - INFO - loss 0.31"),
        ("[train.py(31)] loss 0.31", "[train.py] loss 0.31"),
        ("2026 | INFO | __main__:main:31 - loss 0.31", "2026 | INFO | __main__:main - loss 0.31"),
        ("10:00:31 - epoch:3 - loss 0.31", "10:00:31 - epoch:3 - loss 0.31"),
        ("no Warning: loss 0.31", "no Warning: loss 0.31"),
        ("epoch 1\n  loss 0.31", "epoch 1\n  loss 0.31"),
        ("a/b.py:31: UserWarning: 3 of 4\n  warn(3)\nloss 0.31", "loss 0.31"),
        ("Traceback (most recent call last):\n  File 'b.py', line 3\nError: 5", "Error: 5"),
        ("  50%|##| 3/6 [00:01<00:01, loss=0.3]\r", ""),
        ("[W1122 10:00:00.12 Context.cpp:45] Warning: 3", ""),
    ],
)
def test_places_in_the_source_and_warnings_are_no_numbers(line: str, kept: str) -> None:
    assert outputs.said(made(log=line)).strip("\n") == kept.strip("\n")


@pytest.mark.parametrize(
    ("wide", "astray", "words"),
    [(1.0, 0.0, ""), (1.0, 9.0, ""), (0.1, 0.0, "scatters by"), (9.0, 0.0, "scatters by")],
    ids=["alike", "one goes astray", "lost", "more"],
)
def test_how_far_printed_numbers_scatter_over_seeds(wide: float, astray: float, words: str) -> None:
    """Of four trainings one may go astray, in either script."""
    runs, draw = [], random.Random(4)
    for seed in range(4):
        for arm, size in (("original", 1.0), ("rewritten", wide)):
            shown = [size * draw.gauss(0, 1) + astray * (seed == 2) * (arm == "original") for _ in range(12)]  # fmt: skip
            text = "\n".join(f"epoch {i} held {10 + x:.4f}" for i, x in enumerate(shown))
            runs.append(made(arm, seed=seed, states=tuple("abcd"[:3] + arm[0]), stdout=text))
    check = printed.levels(gather("unknown", [*runs, runs[0]]))
    assert check is not None and check.passed is not bool(words) and words in check.text


def test_a_table_that_is_none() -> None:
    files = {"a.csv": 'x,y\n1,2\n"' + "z" * 140_000 + "\n3,4\n"}
    assert "a.csv: 3,4" in outputs.written(made(files=files))


@pytest.mark.parametrize(("value", "passed"), [(1.05, False), (1.0000001, None)])
def test_an_average_beside_a_training_that_is_the_same_to_the_bit(
    value: float, passed: bool | None
) -> None:
    """However far rounding carries the training, nothing of it is in what follows the same
    weights.
    """

    def script(
        arm: str, average: float, losses: tuple[float, ...] = LOSSES, detail: Detail = FULL
    ) -> Run:
        state = {"0/w": tensor(1.0), "1/average": tensor(average)}
        return made(arm, losses, detail=detail, model=state, **saved(average, 2.0))

    plain, wild = script("original", 1.0), script("original", 1.4, (1.0, 0.9, 0.5, 0.6), MOVED)
    check = saves.values(gather("unknown", [plain, plain, script("rewritten", value), wild]))
    assert check is not None and check.passed is passed, check.text


@pytest.mark.parametrize(
    ("best", "shown", "verdict"),
    [
        ("1.8892396", "0.5123456", Sameness.IDENTICAL),
        ("1.8892398", "0.5123456", Sameness.EQUIVALENT),
        ("1.8892396", "0.5123457", Sameness.EQUIVALENT),
        ("1.8892896", "0.5123456", Sameness.DIFFERENT),
        ("1.8892396", "0.5124", Sameness.DIFFERENT),
    ],
)
def test_an_evaluation_in_other_batches_is_summed_in_another_order(
    best: str, shown: str, verdict: Sameness
) -> None:
    """The training is the same to the bit; what is saved and printed of the evaluation is so up to
    rounding, and no longer IDENTICAL.
    """

    def script(arm: str, best: str, shown: str) -> Run:
        return made(arm, stdout=f"valid {shown}\n", **saved(1.0, 2.0, best=best))

    plain = script("original", "1.8892396", "0.5123456")
    found = judge("unknown", [plain, plain, script("rewritten", best, shown)])
    assert found.verdict is verdict, found.summary
    strict = judge("exact", [plain, plain, script("rewritten", "1.8892396", shown)])
    assert (strict.verdict is Sameness.IDENTICAL) == (shown == "0.5123456")


def test_a_checkpoint_that_is_written_beside_and_put_in_place() -> None:
    beside = [Saved(path, 4, {"w": tensor(2.0)}, {}) for path in ("best.pt.new", "best.pt")]
    plain = made(**saved(2.0, steps=(4,)))
    check = saves.values(gather("exact", [plain, plain, made("rewritten", saves=tuple(beside))]))
    assert check is not None and check.passed is True and "1 save," in check.text


def test_of_a_progress_bar_the_last_state_is_kept(tmp_path: Path) -> None:
    """Which of the others are shown is a matter of time."""
    file = tmp_path / "stderr"
    file.write_bytes(b"\r 0%| 0/9 loss=3\r 50%| 4/9 loss=2\r100%| 9/9 loss=1\nepoch 1\n")
    assert outputs.log(runs._log(file)).splitlines() == ["100%| 9/9 loss=1", "epoch 1"]


def test_a_file_that_is_not_written_any_more() -> None:
    plain = made(files={"log.csv": "1,2\n"})
    assert judge("exact", [plain, plain, made("rewritten")]).verdict is Sameness.BROKEN
    assert outputs.said(plain).strip() == "log.csv: 1, 2"


# -------------------------------------------------------------------------------------------- items
def images(
    seed: int,
    flip: str = "item",
    gain: str = "item",
    passes: int = 6,
    items: int = 64,
    batch: int = 16,
) -> tuple[Pass, ...]:
    """Items with two values, by a flip, and a gain: drawn for every item, for the batch, by its
    place, or not at all.
    """
    draw, fixed = random.Random(seed), random.Random(3)
    values = [(fixed.gauss(0, 1), fixed.gauss(0, 1)) for _ in range(items)]
    gains = [fixed.uniform(0.4, 1.6) for _ in range(items)]
    found = []
    for _ in range(passes):
        order = draw.sample(range(items), items)
        rows = []
        for start in range(0, items, batch):
            chosen = order[start : start + batch]
            one, factor, row = draw.random() < 0.5, draw.uniform(0.4, 1.6), []
            for place, index in enumerate(chosen):
                side = {"item": draw.random() < 0.5, "batch": one}.get(flip, False)
                own = {
                    "item": draw.uniform(0.4, 1.6),
                    "batch": factor,
                    "place": gains[start + place],
                }.get(gain, 1.0)
                row.append((3 + values[index][side]) * own)
            rows.append((tuple(chosen), (tuple(row),)))
        shown = tuple((tuple((x,) for x in row),) for _, (row,) in rows)
        found.append(Pass(0, True, len(rows), items, True, items=tuple(rows), sketches=shown))
    return tuple(found)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({}, ""),
        ({"flip": "batch", "gain": "none"}, "alike or unlike together"),
        ({"gain": "batch", "flip": "none"}, "alike or unlike together"),
        ({"gain": "place", "flip": "none"}, "comes again in the next pass"),
        ({"gain": "none"}, "items change from pass to pass"),
        ({"gain": "none", "flip": "none"}, "items are the same in every pass"),
    ],
)
def test_random_changes_of_single_items(how: dict[str, str], words: str) -> None:
    base = {} if how in ({}, {"gain": "none"}) else dict(how)
    base = {name: "none" if value == "none" else "item" for name, value in base.items()}
    if how == {"gain": "none", "flip": "none"}:
        base = {}
    runs = [made(seed=s, passes=images(s, **base)) for s in range(4)]
    runs += [made("rewritten", seed=s, passes=images(50 + s, **{**base, **how})) for s in range(4)]
    check = items.drawn(gather("unknown", runs))
    assert check is not None and check.passed is (not words) and words in check.text


def test_items_that_are_kept_from_the_second_pass_on() -> None:
    """A cache is filled in the first pass."""
    runs = [made(seed=s, passes=images(s)) for s in range(4)]
    for s in range(4):
        first, second, *rest = images(50 + s)
        runs.append(made("rewritten", seed=s, passes=(first, *[second] * (1 + len(rest)))))
    check = items.drawn(gather("unknown", runs))
    assert check is not None and check.passed is False, check


@pytest.mark.parametrize(("share", "seen"), [(0.7, True), (1.0, False)])
def test_noise_of_another_size_shows_over_many_runs_that_overlap(share: float, seen: bool) -> None:
    """Of twelve runs each, one of either kind lies among the others."""
    draw = random.Random(1)
    usual = [1 + 0.01 * place for place in range(-5, 6)]
    runs = [
        [
            items.Items(scale=1.0, squares=[level * draw.uniform(0.5, 1.5) for _ in range(160)])
            for level in levels
        ]
        for levels in ([*usual, 0.8], [*(share * level for level in usual), 0.9])
    ]  # fmt: skip
    one, two = ([fmean(x.squares) for x in some] for some in runs)
    assert max(two) > min(one)
    assert bool(items._amount(*runs)) == seen


def test_items_of_the_same_kind_pass_under_many_seeds() -> None:
    for base in range(100, 140, 4):
        runs = [
            made(arm, seed=s, passes=images(base + s + shift, items=32, passes=4, batch=8))
            for s in range(4)
            for arm, shift in (("original", 0), ("rewritten", 500))
        ]
        check = items.drawn(gather("unknown", runs))
        assert check is not None and check.passed, check.text


def waves(seed: int, shift: str, again: bool = False) -> tuple[Pass, ...]:
    """Items that are turned round, by an amount that is drawn for every item or for the batch, with
    noise; ``again``: rows with replacement.
    """
    draw, fixed = random.Random(seed), random.Random(3)
    signs = [[fixed.choice((-1, 1)) for _ in range(12)] for _ in range(12)]
    rows = [[fixed.gauss(0, 1) for _ in range(12)] for _ in range(64)]
    found = []
    for _ in range(5):
        order = draw.choices(range(64), k=64) if again else draw.sample(range(64), 64)
        items, sketches = [], []
        for chosen in (tuple(order[i : i + 16]) for i in range(0, 64, 16)):
            common, shown = draw.randrange(12), []
            for index in chosen:
                by = common if shift == "batch" else draw.randrange(12)
                row = [x + 0.2 * draw.uniform(-1, 1) for x in rows[index][by:] + rows[index][:by]]
                shown.append(tuple(sum(map(operator.mul, row, one)) for one in signs))
            items.append((chosen, ()))
            sketches.append((tuple(shown),))
        found.append(Pass(0, True, 4, 64, True, items=tuple(items), sketches=tuple(sketches)))
    return tuple(found)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("shift", ["item", "batch"])
def test_one_draw_of_many_values_for_the_whole_batch(shift: str, again: bool) -> None:
    for base in (0, 40):
        runs = [made(seed=s, passes=waves(base + s, "item", again)) for s in range(4)]
        runs += [made("rewritten", seed=s, passes=waves(base + 20 + s, shift, again)) for s in range(4)]  # fmt: skip
        check = items.drawn(gather("unknown", runs))
        assert check is not None and check.passed is (shift == "item"), check.text
        turned = [replace(run, arm="rewritten" if run.arm == "original" else "original") for run in runs]  # fmt: skip
        check = items.drawn(gather("unknown", turned))
        assert check is not None and check.passed is (shift == "item"), check.text


def test_items_that_never_change_do_not_go_together() -> None:
    still = [Pass(0, True, 1, 2, True, items=(((0, 1), ()),), sketches=((((1.0,), (2.0,)),),))] * 3
    assert together.together([made(passes=tuple(still))], 0) == (0.0, 0)
    assert together.leaves([made(passes=tuple(still)), made()]) == 0


# ----------------------------------------------------------------------------- inputs of the models
def uneven(seed: int, how: str) -> tuple[Call, ...]:
    """Rows in memory, two models by turns, a last batch of half the size, and as many batches in a
    pass as the seed has it.
    """
    draw = random.Random(seed)
    rows = [draw.gauss(5, 1) for _ in range(84 if seed % 2 else 76)]
    once, found = draw.sample(rows, len(rows)), []
    for _ in range(6):
        order = once if how == "once" else draw.sample(rows, len(rows))
        for i in range(0, len(rows), 8):
            found += [Call(0, 8, {"0": sum(order[i : i + 8])}, 0)]
            found += [Call(0, 8, {"0": 4 * sum(order[i : i + 8]) + draw.gauss(0, 1)}, 0)]
    return tuple(found)


@pytest.mark.parametrize("how", ["shuffled", "once"])
def test_an_order_drawn_once_where_passes_are_uneven(how: str) -> None:
    for base in (0, 20):
        runs = [made(seed=s, calls=uneven(base + s, "shuffled")) for s in range(4)]
        runs += [made("rewritten", seed=s, calls=uneven(base + s, how)) for s in range(4)]
        runs.append(made(detail=MOVED, calls=uneven(base, "shuffled")))
        check = inputs.given(gather("unknown", runs))
        assert check is not None and check.passed is (how == "shuffled"), check.text


@pytest.mark.parametrize("how", ["each", "batch scale", "batch mask", "once"])
def test_what_is_drawn_for_a_batch_and_an_order_under_noise(how: str) -> None:
    """Rows in memory, changed anew at every call: sums tell little of a scale or a mask that is one
    for all, or of an order that comes again.
    """

    def calls(seed: int, how: str) -> tuple[Call, ...]:
        draw = random.Random(seed)
        rows = [[draw.gauss(0, 1) for _ in range(12)] for _ in range(160)]
        order, found = draw.sample(range(160), 160), []
        for _ in range(5):
            order = order if how == "once" else draw.sample(range(160), 160)
            for at in range(0, 160, 8):
                scale, mask = draw.uniform(0.7, 1.3), [draw.random() < 0.2 for _ in range(12)]
                made_of = []
                for number in order[at : at + 8]:
                    if how != "batch scale":
                        scale = draw.uniform(0.7, 1.3)
                    if how != "batch mask":
                        mask = [draw.random() < 0.2 for _ in range(12)]
                    made_of += [0.0 if off else scale * (x + 0.2 * draw.gauss(0, 1)) for x, off in zip(rows[number], mask, strict=True)]  # fmt: skip
                look = fmean(x * x for x in made_of), fmean(x == 0 for x in made_of)
                total = sum((1 + i % 12 / 12) * x for i, x in enumerate(made_of))
                found.append(Call(0, 8, {"0": total}, 0, looks={"0": look}))
        return tuple(found)

    runs = [made(seed=s, calls=calls(s, "each")) for s in range(4)]
    runs += [made("rewritten", seed=s, calls=calls(50 + s, how)) for s in range(4)]
    runs.append(made(detail=MOVED, calls=calls(0, "each")))
    check = inputs.given(gather("unknown", runs))
    words = {
        "batch scale": "mean of squares: batches scatter",
        "batch mask": "share of zeros: batches scatter",
        "once": "comes again every 20 calls",
    }
    assert check is not None and check.passed is (how == "each"), check.text
    assert words.get(how, "") in check.text


def table(seed: int, how: str) -> tuple[Call, ...]:
    """Sums over batches of rows that are indexed in memory."""
    draw, fixed = random.Random(seed), random.Random(5)
    rows = [fixed.gauss(0, 1) for _ in range(80)]
    once, found = draw.sample(rows, 80), []
    for _ in range(6):
        order = {"once": once, "lost": rows, "again": draw.choices(rows, k=80)}.get(how) or draw.sample(rows, 80)  # fmt: skip
        noise = 0.0 if how == "quiet" else 0.05
        sums = [sum(order[i : i + 8]) + noise * draw.gauss(0, 1) for i in range(0, 80, 8)]
        found += [Call(0, 8, {"0": value}, 0) for value in sums]
    return tuple(found)


@pytest.mark.parametrize("often", [1, 3])
def test_one_draw_for_several_calls(often: int) -> None:
    def noise(seed: int, same: int) -> tuple[Call, ...]:
        draw = random.Random(seed)
        found: list[Call] = []
        for _ in range(12):
            values = [draw.gauss(0, 1) for _ in range(4)]
            values[:same] = values[:1] * same
            found += [Call(0, 8, {"0": value}, 0) for value in values]
        return tuple(found)

    runs = [made(seed=s, calls=noise(s, 1)) for s in range(4)]
    runs += [made("rewritten", seed=s, calls=noise(90 + s, often)) for s in range(4)]
    runs.append(made(detail=MOVED, calls=noise(0, 1)))
    check = inputs.given(gather("unknown", runs))
    assert check is not None and check.passed is (often == 1)
    assert often == 1 or "51 % of the calls" in check.text


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("shuffled", ""),
        ("once", "comes again every 10 calls"),
        ("lost", "comes again every 10 calls"),
        ("again", "sums over a pass scatter"),
        ("quiet", "sums over a pass scatter"),
    ],
)
def test_data_that_are_indexed_in_memory(how: str, words: str) -> None:
    runs = [made(seed=s, calls=table(s, "shuffled")) for s in range(6)]
    runs += [made("rewritten", seed=s, calls=table(90 + s, how)) for s in range(6)]
    runs.append(made(detail=MOVED, calls=table(0, "shuffled")))
    check = inputs.given(gather("unknown", runs))
    assert check is not None and check.passed is (not words) and words in check.text


def test_gap_of_what_is_no_number() -> None:
    assert [gap(x, y) for x, y in ((NAN, NAN), (INF, INF), (2.0, 1.5))] == [0.0, 0.0, 0.5]
    assert {gap(x, y) for x, y in ((NAN, 1.0), (1.0, NAN), (INF, -INF), (INF, NAN))} == {INF}


@pytest.mark.parametrize(("shown", "words"), [("nan", "no number"), ("0.51", "")])
@pytest.mark.parametrize("effect", ["unknown", "rounding", "sampling"])
def test_a_printed_nan_is_no_number_near_another(effect: str, shown: str, words: str) -> None:
    def script(arm: str, seed: int, text: str, off: float = 0.0, detail: Detail = FULL) -> Run:
        losses = tuple(x + off for x in falling(1.0, 0.01, seed))
        states = tuple(f"{seed} {i}" for i in range(30))
        out = f"epoch 0 acc {text}\nepoch 1 acc {text}\n"
        return made(arm, losses, seed=seed, states=states, stdout=out, detail=detail)

    runs = [script("original", seed, "0.51") for seed in (0, *range(8))]
    runs += [script("rewritten", seed, shown, 1e-6) for seed in range(8)]
    runs += [script("original", 0, "0.51", 1e-6, MOVED), script("original", 0, "0.51", 1e-7, DOUBLE)]  # fmt: skip
    found = judge(effect, runs)
    assert (found.verdict is Sameness.EQUIVALENT) == (not words), found.summary
    levels = printed.levels(gather(effect, runs))
    assert levels is not None and levels.passed is (not words) and words in levels.text
    if effect != "sampling":
        rounded = printed.rounded(gather(effect, runs))
        assert rounded is not None and rounded.passed is (not words)


def test_a_nan_that_the_original_prints_too_is_no_fault() -> None:
    ev = [[NAN, 0.5], [NAN, 0.4]] * 2
    assert printed._quantity(ev, ev) == ""
    assert "a number" in printed._quantity(ev, [[0.3, 0.5]] * 4)
    assert printed._quantity([[NAN], [0.5], [0.4], [0.6]], [[0.5], [NAN], [0.4], [0.6]]) == ""


BROKEN = TensorPrint((4,), "float32", "nan", NAN, (NAN,) * 16)


def test_a_nan_in_a_checkpoint_or_in_the_final_model() -> None:
    plain, moved = made(**saved(1.0, 2.0)), made(detail=MOVED, **saved(1.0, 2.000001))
    holed = saved(1.0, 2.0)["saves"]
    holed = (holed[0], replace(holed[1], tensors={"w": BROKEN}))
    other = made("rewritten", (1.00001, *LOSSES[1:]), saves=holed)
    check = saves.values(gather("unknown", [plain, plain, other, moved]))
    assert check is not None and check.passed is False and "w is not finite" in check.text
    same = [replace(other, arm="original")] * 2
    check = saves.values(gather("unknown", [*same, other]))
    assert check is not None and check.passed is True
    one, two = (made(arm, model={"0/w": t}) for arm, t in (("original", tensor(1.0)), ("rewritten", BROKEN)))  # fmt: skip
    assert exact.state_apart(one, two) == INF and exact.state_apart(two, two) == 0
    found = judge("sampling", [one, one, two])
    assert found.verdict is Sameness.BROKEN and "0/w of the final model" in found.summary


def test_a_buffer_that_never_changes_may_be_kept_in_the_model() -> None:
    """A table of places made once; one that training changes is another matter, and so is one that
    gets another value.
    """
    table, moved = (replace(tensor(value), buffer=True, shape=(9,)) for value in (3.0, 4.0))
    plain = made(model={"0/w": tensor(1.0)})
    for end, verdict in ((table, Sameness.IDENTICAL), (moved, Sameness.DIFFERENT)):
        start = {"0/w": tensor(1.0), "0/places": table}
        other = made("rewritten", model={"0/w": tensor(1.0), "0/places": end}, start=start)
        assert judge("exact", [plain, plain, other]).verdict is verdict
        turned = [replace(other, arm="original")] * 2 + [replace(plain, arm="rewritten")]
        assert judge("exact", turned).verdict is verdict
    a, b = (made(arm, model={"0/m": t}, start={"0/m": t}) for arm, t in (("original", table), ("rewritten", moved)))  # fmt: skip
    assert not exact.equal(a, b)


def test_sums_of_batches_that_are_no_numbers() -> None:
    def script(arm: str, *sums: float) -> Run:
        passes = tuple(Pass(0, True, 3, 12, True, checksums=(1.0, 2.0, x)) for x in sums)
        return made(arm, passes=passes)

    plain, holed = script("original", 3.0, 3.0), script("original", NAN, NAN)
    for a, b, passed in ((plain, holed, False), (holed, holed, True), (holed, plain, False)):
        ev = gather("exact", [a, a, replace(b, arm="rewritten")])
        for test in (samples.content, samples.order):
            check = test(ev)
            assert check is not None and check.passed is passed
    assert not alike._close(INF, 5.0, 1e-6) and alike._close(NAN, NAN, 1e-6)


def test_inputs_and_items_that_are_no_numbers() -> None:
    def given(arm: str, seed: int, value: float | None = None) -> Run:
        calls = table(seed, "shuffled")
        calls = (*calls[:-1], replace(calls[-1], sums={"0": value})) if value else calls
        passes = images(seed)
        chosen, ((first, *rest),) = passes[0].items[0]
        row = (chosen, ((value or first, *rest),))
        passes = (replace(passes[0], items=(row, *passes[0].items[1:])), *passes[1:])
        return made(arm, seed=seed, calls=calls, passes=passes)

    runs = [given("original", seed) for seed in range(4)]
    runs += [given("rewritten", seed, NAN) for seed in range(4)]
    runs.append(made(detail=MOVED, calls=table(0, "shuffled")))
    for test in (inputs.given, items.drawn):
        check = test(gather("unknown", runs))
        assert check is not None and check.passed is False and "no number" in check.text


def test_passes_are_counted_for_each_loader() -> None:
    """The loader of a second data set is gone over between the passes of the first."""
    other = Pass(1, True, 1, 4, True, items=(((0, 1, 2, 3), ((1.0, 2.0, 3.0, 4.0),)),))

    def script(arm: str, seed: int, gain: str) -> Run:
        passes = images(seed, "none", gain)
        return made(arm, seed=seed % 50, passes=tuple(x for p in passes for x in (p, other)))

    runs = [script("original", seed, "item") for seed in range(4)]
    runs += [script("rewritten", 50 + seed, "place") for seed in range(4)]
    check = items.drawn(gather("unknown", runs))
    assert check is not None and check.passed is False
    assert "comes again in the next pass" in check.text


CONV = "Conv2d(3, 4, kernel_size=({}, {}), stride=({}, {}), padding=(0, 1))"


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        (CONV.format(3, 5, 1, 2), CONV.format(3, 2, 1, 5), False),
        (CONV.format(3, 5, 1, 2), CONV.format(3, 5, 1, 2), True),
        ("Linear(in_features=3, out_features=4)", "Linear(out_features=4, in_features=3)", True),
        ("Embedding(3, 4)", "Embedding(4, 3)", False),
        ("GRU(3, 4, batch_first=True)", "GRU(3, 4)", True),
        ("Own(a: 1, inplace=True)", "Own(a: 1, inplace=False)", True),
        ("Embedding(3, 4, sparse=True)", "Embedding(3, 4)", True),
        ("Own(a: 1, 2)", "Own(a: 2, 1)", False),
    ],
)
def test_arguments_of_modules(before: str, after: str, same: bool) -> None:
    assert (inputs._arguments(before) == inputs._arguments(after)) == same


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"modules": {"0/d": "Dropout(p=0.2, inplace=True)"}}, ""),
        ({"modules": {"0/d": "Dropout(p=0.0, inplace=False)"}}, "in the original"),
        ({"dropouts": ()}, "no longer called"),
    ],
)
def test_settings_of_modules(change: dict[str, Any], words: str) -> None:
    known = {
        "modules": {"0/d": "Dropout(p=0.2, inplace=False)"},
        "dropouts": ("0/d",),
    }
    plain, other = made(**known), made("rewritten", **{**known, **change})
    check = inputs.modules(gather("unknown", [plain, plain, other]))
    assert check is not None and check.passed is (not words) and words in check.text


# ----------------------------------------------------------------------------------------- coverage
OLD, NEW = "a = 1\nb = 2\nif a:\n    c = 3\nd = 4\n", "a = 1\nb = 5\nif a:\n    c = 6\nd = 4\n"


@pytest.mark.parametrize(
    ("ran", "ending", "verdict", "words"),
    [
        ((1, 2, 3, 4, 5), "steps", Sameness.IDENTICAL, "of the first 4 steps"),
        ((1, 2, 3, 4, 5), "end", Sameness.IDENTICAL, "4 steps, to the end"),
        ((1, 2, 3, 5), "steps", Sameness.UNCLEAR, "never ran: line 4 of train.py"),
        ((1, 2, 3, 5), "end", Sameness.UNCLEAR, "line 4 of train.py (not with these arguments"),
    ],
)
def test_what_was_not_run_is_not_judged(
    ran: tuple[int, ...], ending: str, verdict: Sameness, words: str
) -> None:
    lines = {"train.py": Lines((1, 2, 3, 4, 5), ran)}
    plain = made(lines=lines, ending=ending, script=("/p/train.py", OLD))
    changed = {"/p/train.py": (OLD, NEW)}
    other = made("rewritten", lines=lines, ending=ending, script=("/p/train.py", NEW), changed=changed)  # fmt: skip
    found = judge("unknown", [plain, plain, other])
    assert found.verdict is verdict and words in found.summary


WHOLE = """import torch
model.train()
if done:
    model.eval()
    torch.save(model, "last.pt")
"""


@pytest.mark.parametrize(
    ("ran", "ending", "more", "words"),
    [
        ((1, 2, 3), "steps", {}, "no evaluation (line 4 of train.py) and no save (line 5 of"),
        ((1, 2, 3), "steps", {"passes": (Pass(1, False, 2, 8, True),)}, "no save (line 5"),
        ((1, 2, 3, 4, 5), "steps", {}, ""),
        ((1, 2, 3), "end", {}, ""),
    ],
)
def test_an_evaluation_that_was_not_reached_is_not_judged(
    ran: tuple[int, ...], ending: str, more: dict[str, Any], words: str
) -> None:
    known = {"lines": {"train.py": Lines((1, 2, 3, 4, 5), ran)}, "ending": ending, **more}
    plain = made(script=("/p/train.py", WHOLE), **known)
    found = judge(
        "unknown", [plain, plain, made("rewritten", script=("/p/train.py", WHOLE), **known)]
    )
    assert found.verdict is (Sameness.UNCLEAR if words else Sameness.IDENTICAL)
    assert words in found.summary


def test_a_loss_that_does_not_fall_for_certain_makes_nothing_equivalent() -> None:
    flat = pairs(lambda seed: falling(0.0, 0.01, seed, 1.0), 0.0, 1e-4)
    runs = [run for pair in flat.pairs for run in pair] + [flat.a]
    found = judge("sampling", runs)
    assert seeded.equivalence(flat)[0].passed  # within the margin, and yet
    assert found.verdict is Sameness.UNCLEAR
    assert "not for certain" in found.summary


def test_nobody_is_told_to_run_a_thousand_seeds() -> None:
    near = pairs(lambda seed: falling(1.0, 0.01, seed), 0.03, 0.05, 4)
    runs = [run for pair in near.pairs for run in pair] + [near.a]
    few, many = (judge("sampling", runs, margin=m, seeds=4) for m in (0.02, 1e-6))
    for found in (few, many):
        assert found.verdict is Sameness.UNCLEAR and "margin ±" in found.summary
        told = f"--seeds {4 + found.more_runs}" if found.more_runs <= 50 else "a longer training"
        assert told in found.summary
        assert found.summary in parity_clause(Parity(found.verdict, "sampling", (), found.summary))
    # Seeds that are allowed already, and for which there was no time.
    early = judge("sampling", runs, margin=0.02).summary
    assert "--time-budget" in early and "--seeds" not in early


def test_hunks_of_two_files_and_of_lines_taken_out() -> None:
    lines = {"train.py": Lines((1, 2, 3, 4, 5), (1, 2, 3, 4, 5)), "fast.py": Lines((1, 2), (1,))}
    plain = made(lines=lines, script=("/p/train.py", "a = 1\nb = 2\nc = 3\n"))
    other = made("rewritten", lines=lines, script=("/p/fast.py", "a = 1\nc = 3\n"))
    ev = gather("unknown", [plain, plain, other])
    (hunk,) = coverage.hunks(ev)
    assert hunk.words == "line 2 of train.py (taken out)"
    assert coverage.unreached(ev) == ([], 1)


def test_other_batches_of_the_same_evaluation_are_no_fault() -> None:
    one, two = (
        made(arm, passes=(Pass(1, False, batches, 40, True),))
        for arm, batches in (("original", 4), ("rewritten", 2))
    )
    found = judge("unknown", [one, one, two])
    assert found.verdict is Sameness.IDENTICAL


# ----------------------------------------------------------------------------------------- progress
@pytest.mark.parametrize(
    ("spent", "words"),
    [(0.0, "about 60 s to go"), (59.5, "about 30 s to go"), (200.0, "about 0 s to go")],
)
def test_what_is_still_to_go_is_no_less_than_the_run_that_is_being_made(
    monkeypatch: pytest.MonkeyPatch, spent: float, words: str
) -> None:
    """A budget of a minute; a run takes 47 seconds, and is ended after half a minute more."""
    monkeypatch.setattr(series.time, "monotonic", lambda: 1000.0 + spent)
    plain = Program("original", Path("train.py"))
    wanted = series.Wanted("exact", budget=60.0)
    made_so_far = [replace(made(), seconds=47.0)]
    slow = series.Series(Any, plain, plain, wanted, runs=made_so_far, began=1000.0)  # type: ignore[arg-type]
    assert words in slow._left(3)


def test_items_of_another_data_set_are_not_drawn() -> None:
    """A fold scales all items anew: they change all at once, or not at all. Where they are drawn,
    some change and some do not, or all in every pass.
    """

    def of(values: list[list[float]]) -> items.Items:
        made = items.Items()
        for number, row in enumerate(values):
            for index, value in enumerate(row):
                made.placed[number, index // 4, index % 4] = (index, value)
        return made

    first, second = [float(i) for i in range(8)], [0.5 * i + 1.25 for i in range(8)]
    assert items._other_data(of([first, first, second, second]))
    assert not items._other_data(of([first, first, first]))
    assert not items._other_data(of([first, second, first, second]))
    flipped = [-x if i % 2 else x for i, x in enumerate(first)]
    assert not items._other_data(of([first, flipped, second, second]))


@pytest.mark.parametrize(("called", "passed"), [(1, None), (3, False)], ids=["a part", "gradients"])
def test_a_model_that_is_no_longer_evaluated_as_a_whole(called: int, passed: bool | None) -> None:
    """What it was asked for may come of a part of it; called with gradients in training mode
    instead, it is not the same.
    """

    def run_of(arm: str, evaluating: float | None, calls: int) -> Run:
        one = made(arm, calls=tuple(Call(0, 8, {}, i) for i in range(12) for _ in range(calls)))
        modes = (1.0,) if evaluating is None else (0.0, 1.0)
        steps = [replace(s, modes=modes, evaluating=evaluating, training=None) for s in one.record.steps]  # fmt: skip
        return replace(one, records=(replace(one.record, steps=tuple(steps)),))

    plain, other = run_of("original", 0.0, 1), run_of("rewritten", None, called)
    check = tensors.training_mode(gather("unknown", [plain, plain, other]))
    assert (check and check.passed) is passed


def test_the_losses_of_two_stages_fall_each_by_itself() -> None:
    plain = made()
    count = len(plain.record.steps)
    losses = [1 - 0.1 * i if i < count // 2 else 9 - 0.1 * i for i in range(count)]
    steps = [
        replace(step, losses=(loss,), optimizer=int(i >= count // 2))
        for i, (step, loss) in enumerate(zip(plain.record.steps, losses, strict=True))
    ]
    staged = replace(plain, records=(replace(plain.record, steps=tuple(steps)),))
    assert 0 < seeded.drop(staged) < 1


@pytest.mark.parametrize(
    ("own", "other", "passed"),
    [
        ((1, 2, 1), 3, True),  # the original's passes are as long as draws have it
        ((1, 1, 1), 3, False),
        ((1, 2, 1), 0, False),  # it trains in evaluation mode
    ],
)
def test_evaluations_stand_where_draws_have_them(
    own: tuple[int, ...], other: int, passed: bool
) -> None:
    def moded(arm: str, seed: int, place: int) -> Run:
        one = made(arm, tuple(x + seed / 10 + (arm != "original") / 100 for x in LOSSES), seed=seed)
        steps = [
            replace(
                s,
                training=0.5 if i and not place else 1.0,
                modes=(0.0, 1.0) if i and i == place else (1.0,),
            )
            for i, s in enumerate(one.record.steps)
        ]
        return replace(one, records=(replace(one.record, steps=tuple(steps)),))

    first = [moded("original", 0, own[0]) for _ in (0, 1)] + [moded("rewritten", 0, other)]
    check = tensors.training_mode(gather("unknown", first))
    assert check is not None and check.passed is None and "not yet known" in check.text
    more = [moded(arm, s, own[s % 3]) for s in (1, 2, 3) for arm in ("original", "rewritten")]
    check = tensors.training_mode(gather("unknown", [*first, *more]))
    assert check is not None and check.passed is passed, check


@pytest.mark.parametrize(("kind", "passed"), [("bfloat16", True), ("float32", False)])
def test_a_gradient_that_is_rounding_is_more_in_16_bits(kind: str, passed: bool) -> None:
    """A bias before a normalisation: 1e-7 of the largest gradient in float32, 1e-3 in 16 bits."""
    runs = []
    for seed in range(4):
        for arm, size, what in (("original", 1e-7, "float32"), ("rewritten", 1e-3, kind)):
            one = made(arm, LOSSES, seed=seed, precision=(f"forward {what}",))
            steps = tuple(
                replace(s, grad_norms=(1.0, size, 0.5), update_norms=(1.0, 1.0, 1.0))
                for s in one.record.steps
            )
            runs.append(replace(one, records=(replace(one.record, steps=steps),)))
    check = seeded.parts(gather("unknown", runs))
    assert check is not None and check.passed is passed


def test_masks_where_calls_are_put_together() -> None:
    """One mask of all rows is none of those of two calls, which need not show in a loss."""

    def ran(arm: str, drew: int, from_step: int) -> Run:
        calls = [
            Call(0, 8 // parts, {"0": i / parts}, i)
            for i in range(4)
            for parts in (2 if i < from_step else 1,)
            for _ in range(parts)
        ]
        drawn = {"0": {"calls": len(calls), "drew": drew}}
        return made(arm, calls=tuple(calls), drawn=drawn, masks=())

    for drew, steps in ((6, 2), (0, 4)):
        runs = [ran("original", drew, 4), ran("original", drew, 4), ran("rewritten", drew, 2)]
        ev = gather("unknown", runs)
        assert alike.steps(ev) == 4 and alike.agreeing_steps(ev) == steps


@pytest.mark.parametrize(("off", "passed"), [(0.0, True), (0.2, False)])
def test_inputs_that_are_cut_off_and_change_nothing(off: float, passed: bool) -> None:
    """Pads of other rows have no part in anything where only rounding parts the two."""
    losses = tuple(1.0 - 0.02 * i for i in range(12))

    def ran(arm: str, seed: int, **more: Any) -> Run:
        wide = 9.0 if arm == "rewritten" else 1.0
        calls = tuple(Call(0, 8, {"0": wide * (1 + (7 * i + seed) % 5)}, i) for i in range(12))
        rounded = 1e-7 * (arm == "rewritten" or "detail" in more)
        values = tuple(x + off * (arm == "rewritten") + rounded for x in losses)
        states = tuple(f"{i} {seed}" for i in range(12))
        return made(arm, values, calls=calls, states=states, seed=seed, **more)

    runs = [ran(arm, seed) for seed in range(4) for arm in ("original", "rewritten")]
    moved = [ran("original", 0, detail=detail, model={}) for detail in (MOVED, DOUBLE)]
    check = inputs.given(gather("unknown", [ran("original", 0), *runs, *moved]))
    assert check is not None and check.passed is passed, check


@pytest.mark.parametrize(
    ("places", "passed"),
    [((9, 9, 9, 9), False), ((9, 4, 9, 9), True), ((-1, -1, -1, -1), True)],
    ids=["the same step", "another under one seed", "none"],
)
def test_what_differs_in_the_same_step_under_every_seed(
    places: tuple[int, ...], passed: bool
) -> None:
    def ran(arm: str, seed: int, at: int = -1, off: float = 0.0, **more: Any) -> Run:
        losses = [2 - 0.05 * i + off * ((seed + i) % 3) for i in range(14)]
        losses = [x * (0.8 if i == at else 1) for i, x in enumerate(losses)]
        return made(arm, tuple(losses), seed=seed, masks=(), drawn={"0": {"drew": 0}}, **more)

    runs = [ran("original", seed) for seed in (0, 0, 1, 2, 3)]
    runs += [ran("original", 0, off=1e-6, detail=MOVED)]
    runs += [ran("rewritten", seed, at, 1e-6) for seed, at in enumerate(places)]
    check = seeded.strokes(gather("unknown", runs))
    assert check is not None and check.passed is passed, check


@pytest.mark.parametrize(
    ("bad", "states", "passed"),
    [
        (1, "wxyz", None),  # chance may do that
        (3, "wxyz", False),
        (1, "abcd", False),  # the same numbers were drawn
        (1, "abxy", False),  # and others later
    ],
)
def test_a_loss_that_is_no_number_by_chance(bad: int, states: str, passed: bool | None) -> None:
    runs = [made(seed=seed) for seed in (0, 0, 1, 2, 3)]
    for seed in range(4):
        losses = (1.0, math.nan, 0.8, 0.7) if seed < bad else LOSSES
        runs.append(made("rewritten", losses, seed=seed, states=tuple(states)))
    check = invariants.finite(gather("unknown", runs))
    assert check is not None and check.passed is passed, check
