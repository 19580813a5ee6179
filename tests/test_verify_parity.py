"""Sameness: every seeded fault is flagged, whatever the rewrite claims to be; no sound pair is."""

from __future__ import annotations

import ast
import importlib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings as tried, strategies as st

from autofast.verify import judging
from autofast.verify.evidence import alike, figures
from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import FULL, NORMS, Call, Checkpoint, Pass, Run, TensorPrint
from autofast.verify.judging import invariants, parity, printed, samples, settings, table, tensors
from autofast.verify.result import Check, Sameness, differs, holds, unclear
from tests.verify_runs import record, run, step
from tests.verify_training import Script, faulty, train, verification

SEEDS = int(os.environ.get("PARITY_SEEDS", "4"))  # sets of seeds of each sound pair; 30 by hand
GOOD = {Sameness.IDENTICAL, Sameness.EQUIVALENT}
BASE = Script()
ADAM = replace(BASE, optimizer="adam", lr=0.03)
SHORT = replace(BASE, steps=12)
WINDOWS = replace(BASE, accumulate=4)
DROPOUT = replace(BASE, dropout=0.3)

# (effect, original, what the sound rewrite changes, applied rules)
SOUND: list[tuple[str, Script, dict[str, Any], tuple[str, ...] | None]] = [
    ("exact", BASE, {}, None),
    ("exact", replace(BASE, noise=1e-7), {}, None),
    ("exact", replace(ADAM, noise=1e-7), {}, None),
    ("rounding", BASE, {"sums": "reversed"}, ("fused-optimizer",)),
    ("rounding", ADAM, {"sums": "reversed"}, None),
    ("rounding", SHORT, {"precision": "half"}, ("autocast",)),
    ("rounding", ADAM, {"precision": "half"}, None),
    ("rounding", replace(BASE, noise=1e-7), {"sums": "reversed"}, None),
    ("rounding", DROPOUT, {"masks": 3, "precision": "half"}, ("autocast",)),
    ("rounding", replace(WINDOWS, augment=True), {"precision": "half"}, None),
    ("rounding", replace(BASE, lr=1.2), {"sums": "reversed"}, None),
    ("sampling", BASE, {"draws": 5}, None),
    ("sampling", replace(DROPOUT, augment=True, batch=32), {"draws": 5}, None),
    ("sampling", replace(ADAM, clip=1.0), {"draws": 5}, None),
    ("sampling", replace(BASE, accumulate=5, decimals=3), {"draws": 5}, None),
    ("sampling", replace(DROPOUT, shuffle=False), {"masks": 5}, None),
    ("recipe", BASE, {"draws": 5}, None),
    ("unknown", BASE, {}, None),
    ("unknown", BASE, {"sums": "reversed"}, None),
    ("unknown", BASE, {"precision": "half"}, None),
]
TOO_SHORT = ("unknown", SHORT, {"draws": 5}, None)
"""In a dozen steps the loss hardly falls, and no more than a share of that is allowed: seeds do not
tell.
"""

FAULTS: list[tuple[str, Script]] = [
    ("division dropped", WINDOWS),
    ("division dropped", replace(WINDOWS, optimizer="adam", lr=0.03)),
    ("no zero_grad", BASE),
    ("no zero_grad", ADAM),
    ("zero_grad in the window", WINDOWS),
    ("zero_grad in the window", replace(WINDOWS, optimizer="adam", lr=0.03)),
    ("scheduler twice", BASE),
    ("scheduler each step", BASE),
    ("one in ten skipped", BASE),
    ("shuffle lost", BASE),
    ("same order each epoch", BASE),
    ("shuffle per seed lost", BASE),
    ("batch frozen", BASE),
    ("batches twice", BASE),
    ("data scaled", BASE),
    ("evaluation mode", DROPOUT),
    ("half evaluation", BASE),
    ("last loss logged", BASE),
    ("last loss logged", replace(BASE, decimals=2)),
    ("dead parameters", BASE),
    ("frozen layer", BASE),
    ("clip before unscale", replace(BASE, clip=1.0)),
    ("clip before unscale", replace(ADAM, clip=1.0)),
    ("stale weights", BASE),
    ("stale weights", ADAM),
    ("last window dropped", replace(BASE, accumulate=5)),
    ("checkpoint keys", BASE),
    ("labels leak", BASE),
    ("scaled by 4", BASE),
    ("scaled by 4", ADAM),
    ("nan", BASE),
    ("crash", BASE),
]

NOT_BY_RECIPE = {
    "division dropped",
    "scheduler twice",
    "scheduler each step",
    "one in ten skipped",
    "clip before unscale",
    "last window dropped",
    "scaled by 4",
}
"""A recipe may change exactly these: what is left is the loss, which does not always show them."""


@pytest.mark.parametrize("effect, original, changes, rules", [*SOUND, TOO_SHORT])
def test_nothing_is_held_against_sound_pairs(
    effect: str, original: Script, changes: dict[str, Any], rules: tuple[str, ...] | None
) -> None:
    for base in range(3):
        found, runs = verification(effect, original, replace(original, **changes), rules, base)
        bad = [f"{c.name}: {c.text}" for c in found.checks if c.passed is False]
        assert not bad
        assert found.verdict in GOOD or (
            found.verdict is Sameness.UNCLEAR and found.more_runs and len(runs) > 20
        )
        assert found.summary and (found.verdict is Sameness.IDENTICAL) == (
            not changes and not original.noise
        )


@pytest.mark.parametrize("effect, original, changes, rules", SOUND)
def test_sound_pairs_pass(
    effect: str, original: Script, changes: dict[str, Any], rules: tuple[str, ...] | None
) -> None:
    found = [
        verification(effect, original, replace(original, **changes), rules, base)[0]
        for base in range(10, 10 + SEEDS)
    ]
    assert not [f.summary for f in found if f.verdict not in GOOD | {Sameness.UNCLEAR}]
    unclear = [f for f in found if f.verdict is Sameness.UNCLEAR]
    assert len(unclear) <= max(1, len(found) // 15) and all(f.more_runs for f in unclear)


def test_too_few_steps_are_unclear_and_not_equivalent() -> None:
    effect, original, changes, rules = TOO_SHORT
    found, runs = verification(effect, original, replace(original, **changes), rules, 10)
    assert found.verdict is Sameness.UNCLEAR and found.more_runs and len(runs) > 20
    assert "not yet clear" in found.summary


@pytest.mark.parametrize("effect", ["sampling", "unknown"])
def test_what_coincides_to_the_end_need_not_learn(
    effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where rounding alone tells two runs apart it does not matter whether the loss falls, nor
    whether the models are called otherwise.
    """
    monkeypatch.setattr(alike, "steps", lambda ev: 0)
    still = replace(SHORT, lr=1e-5)
    found, runs = verification(effect, still, replace(still, sums="reversed"), base=10)
    assert found.verdict is Sameness.EQUIVALENT and "equal up to rounding" in found.summary
    assert len(runs) < 15
    for changes in ({"draws": 5}, {"faults": frozenset({"scaled by 4"})}, {"lr": 1.02e-5}):
        found, _ = verification(effect, still, replace(still, **changes), base=10)
        assert found.verdict not in GOOD, changes


@pytest.mark.parametrize("fault, original", FAULTS)
def test_faults_are_flagged(fault: str, original: Script) -> None:
    for effect, changes in (
        ("exact", {}),
        ("rounding", {"sums": "reversed"}),
        ("rounding", {"precision": "half"}),
        ("sampling", {"draws": 5}),
        ("unknown", {}),
        ("unknown", {"draws": 5}),
        ("recipe", {"draws": 5}),
    ):
        if effect == "recipe" and fault in NOT_BY_RECIPE:
            continue
        found, _ = verification(
            effect, original, replace(faulty(original, fault), **changes), base=2
        )
        assert found.verdict not in GOOD, f"{fault} passes as {effect}"
        if effect != "recipe":
            assert found.verdict in (Sameness.DIFFERENT, Sameness.BROKEN, Sameness.SUSPICIOUS)


def test_better_than_seeds_allow_is_suspicious() -> None:
    found, _ = verification("recipe", BASE, faulty(replace(BASE, draws=3), "labels leak"))
    assert found.verdict is Sameness.SUSPICIOUS and "lower than seeds allow" in found.summary


def test_runs_are_asked_for_until_they_decide() -> None:
    first = parity.wanted("sampling", [])
    assert [(w.arm, w.seed, w.detail) for w in first] == [
        ("original", 0, FULL),
        ("original", 0, FULL),
        ("rewritten", 0, FULL),
    ]
    assert all(w.reason for w in first)
    runs: list[Run] = []
    for wishes in (first, [replace(w, detail=replace(FULL, common=True)) for w in first]):
        assert [replace(w, reason="") for w in parity.wanted("sampling", runs)] == [
            replace(w, reason="") for w in wishes
        ]
        runs += [
            train(replace(BASE, draws=2 * (w.arm != "original")), w.arm, w.seed, w.detail)
            for w in wishes
        ]
    assert {(w.arm, w.seed, w.detail) for w in parity.wanted("sampling", runs)} == {
        (arm, s, FULL) for arm in ("original", "rewritten") for s in (1, 2, 3)
    }
    assert parity.wanted("sampling", runs, seeds=2) and not parity.wanted("sampling", runs, seeds=1)
    early = parity.judge("sampling", runs)
    assert (
        early.verdict is Sameness.UNCLEAR
        and early.more_runs == 3
        and "3 more seeds" in early.summary
    )
    crashed = [*runs[:2], train(faulty(BASE, "crash"), "rewritten", 0, FULL)]
    assert parity.wanted("sampling", crashed) == []
    assert parity.judge("sampling", crashed).verdict is Sameness.BROKEN


def test_a_crash_under_another_seed_is_a_crash() -> None:
    runs = [train(BASE, arm, seed, FULL) for seed in range(4) for arm in ("original", "rewritten")]
    runs.append(train(BASE, "original", 0, FULL))
    runs[-2] = train(faulty(BASE, "crash"), "rewritten", 3, FULL)
    found = parity.judge("sampling", runs)
    assert found.verdict is Sameness.BROKEN and "RuntimeError" in found.summary


def test_runs_that_cannot_be_made_are_not_asked_for_again() -> None:
    """Double precision fails; so does seed 2 of the original."""
    runs: list[Run] = []
    for _ in range(12):
        wishes = parity.wanted("rounding", runs)
        if not wishes:
            break
        for w in wishes:
            bad = w.detail.double or (w.arm, w.seed) == ("original", 2)
            runs.append(
                train(
                    faulty(BASE, "crash")
                    if bad
                    else replace(BASE, sums="forward" if w.arm == "original" else "reversed"),
                    w.arm,
                    w.seed,
                    w.detail,
                )
            )
    assert not wishes and parity.judge("rounding", runs).verdict is Sameness.EQUIVALENT


# hand-made runs


def two(a: Run, b: Run, effect: str = "exact") -> parity.Evidence:
    return gather(effect, [a, a, replace(b, arm="rewritten")])


def simple(count: int = 6, **more: Any) -> Run:
    return run(
        record(
            [
                step(
                    i,
                    0.01,
                    samples=4,
                    batches=1,
                    backwards=1,
                    losses=(1.0 / (i + 1),),
                    lr=(0.1,),
                    grad_norm=1.0,
                    update_norm=0.1,
                )
                for i in range(count)
            ],
            **more,
        )
    )


def check(found: Check | None) -> Check:
    assert found is not None
    return found


@pytest.mark.parametrize("effect", ["exact", "rounding", "sampling", "recipe", "unknown"])
@pytest.mark.parametrize(
    "made",
    [
        run([]),
        run(record([])),
        run(record([], losses=(1.0, 2.0), backwards=2)),
        run(record([step(0, 0.01)])),
        run(record([step(0, 0.01, losses=(1.0,), backwards=1)])),
        run(record([step(i, 0.01, losses=(math.nan,), backwards=1, grad_norm=math.inf) for i in range(4)])),
        run(record([step(i, 0.01, backwards=2, losses=(0.0, 0.0), update_norm=0.0, grad_norm=0.0) for i in range(4)])),
        run([simple().record, simple().record]),
        simple(),
    ],
)  # fmt: skip
def test_nothing_is_taken_for_granted(effect: str, made: Run) -> None:
    """Little or nothing was recorded: no exception, and no sameness out of nothing."""
    other = replace(made, arm="rewritten")
    for runs in (
        [],
        [made],
        [made, made],
        [made, made, other],
        [other],
        [made, made, other, *(replace(r, seed=s) for s in (1, 2, 3) for r in (made, other))],
    ):
        parity.wanted(effect, runs)
        found = parity.judge(effect, runs)
        if not made.ok or len(runs) < 3:
            assert found.verdict not in GOOD
        elif made.record.losses:
            assert found.verdict is Sameness.IDENTICAL
        else:
            assert found.verdict is Sameness.UNCLEAR


def test_ranks_are_summed() -> None:
    one = simple().record
    short = replace(one, rank=1, steps=tuple(replace(s, samples=2) for s in one.steps))
    assert check(invariants.samples(two(run([one, one]), run([one, one])))).passed
    found = check(invariants.samples(two(run([one, one]), run([one, short]))))
    assert (
        found.passed is False
        and "6 training samples" in found.text
        and found.verdict is Sameness.BROKEN
    )
    assert (
        parity.judge(
            "exact",
            [run([one, one])] * 2 + [run([one, replace(one, losses=(9.0,) * 6)], "rewritten")],
        ).verdict
        is Sameness.DIFFERENT
    )


@pytest.mark.parametrize(
    ("taken", "given_", "passed"),
    [
        ((12, 4, 4, 4, 0, 0), 4, True),  # two ahead, and no more in the end
        ((8, 4, 4, 4, 4, 4), 4, True),  # one ahead, the last of which is never trained on
        ((8, 8, 8, 8, 8, 8), 4, False),  # every second batch is lost
        ((8, 4, 4, 4, 4, 0), 8, False),
        ((8, 0, 8, 0, 4, 4), 4, True),
    ],
)
def test_batches_that_are_taken_ahead(taken: tuple[int, ...], given_: int, passed: bool) -> None:
    def taking(samples: Sequence[int], each: int) -> Run:
        steps = [step(i, 0.01, samples=n, backwards=1) for i, n in enumerate(samples)]
        calls = tuple(Call(0, each, {}, i) for i in range(6))
        return run(record(steps, calls=calls))

    found = check(invariants.samples(two(taking((4,) * 6, 4), taking(taken, given_))))
    assert found.passed is passed and (passed or found.verdict is Sameness.BROKEN), found


def test_steps_that_a_scaler_leaves_out() -> None:
    """The first step is skipped, so a scheduler that waits for it is one step behind: no fault.
    Many skipped steps are.
    """
    rates = [0.1 * 0.9**i for i in range(8)]
    a = run(record([step(i, 0.01, backwards=1, losses=(1.0,), lr=(rates[i],)) for i in range(8)]))
    b = run(
        record(
            [
                step(
                    i, 0.01, backwards=1, losses=(1.0,), lr=(rates[max(0, i - 1)],), skipped=i == 0
                )
                for i in range(8)
            ]
        )
    )
    assert check(settings.learning_rates(two(a, b, "rounding"))).passed
    assert check(invariants.steps(two(a, b, "rounding"))).passed
    assert check(invariants.steps(two(a, b, "exact"))).passed is False
    ahead = run(
        record([step(i, 0.01, backwards=1, losses=(1.0,), lr=(rates[i] * 0.9,)) for i in range(8)])
    )
    found = check(settings.learning_rates(two(a, ahead, "rounding")))
    assert found.passed is False and "0.09 at step 1, 0.1" in found.text


def test_a_rate_that_follows_the_loss_is_not_held_against_it() -> None:
    a, other = simple(), simple()
    other = replace(
        other,
        seed=1,
        records=(
            replace(other.record, steps=tuple(replace(s, lr=(0.05,)) for s in other.record.steps)),
        ),
    )
    ev = gather("sampling", [a, a, replace(other, seed=0, arm="rewritten"), other])
    assert check(settings.learning_rates(ev)).passed is None


def test_names_may_get_the_prefixes_of_wrappers_in_the_model_but_not_in_checkpoints() -> None:
    assert invariants.plain("0/_orig_mod.module.layer.weight") == invariants.plain("0/layer.weight")
    old, new, other = (TensorPrint((2,), "float32", sha, 1.0, (0.1,) * 4) for sha in "abc")
    moved = TensorPrint((2,), "float32", "d", 1.0, (0.3,) * 4)
    a = simple(start={"0/l.w": old, "0/m.w": old}, model={"0/l.w": moved, "0/m.w": moved})
    b = simple(
        start={"0/_orig_mod.l.w": old, "0/_orig_mod.m.w": old},
        model={"0/_orig_mod.l.w": moved, "0/_orig_mod.m.w": moved},
    )
    assert check(tensors.movement(two(a, b))).passed and check(tensors.tensors(two(a, b))).passed
    dead = simple(start={"0/l.w": old, "0/m.w": old}, model={"0/l.w": moved, "0/m.w": old})
    found = check(tensors.movement(two(a, dead)))
    assert found.passed is False and "1 of 2" in found.text
    assert check(tensors.movement(two(dead, a))).passed is False
    assert check(tensors.movement(two(a, simple(trainable_unused=("m.w",))))).passed is False
    assert new.sha != other.sha


@pytest.mark.parametrize(
    "saved, passed",
    [
        ({"model/l": "Tensor float32 (2,)", "epoch": "int"}, True),
        ({"model/l": "Tensor float32 (2,)", "epoch": "int", "scaler/scale": "float"}, True),
        ({"model/module.l": "Tensor float32 (2,)", "epoch": "int"}, False),
        ({"model/l": "Tensor float16 (2,)", "epoch": "int"}, False),
        (
            {"model/l": "Tensor float32 (2,)", "model/bias": "Tensor float32 (2,)", "epoch": "int"},
            False,
        ),
        ({"model/l": "Tensor float32 (2,)"}, False),
    ],
)
def test_checkpoints(saved: dict[str, str], passed: bool) -> None:
    a = simple(
        checkpoints=(
            Checkpoint("a_17.pt", {"model/l": "Tensor float32 (2,)", "epoch": "int"}, True),
        )
    )
    again = simple(checkpoints=(Checkpoint("a_18.pt", a.record.checkpoints[0].keys, True),))
    b = simple(checkpoints=(Checkpoint("a_19.pt", saved, True),))
    assert (
        check(samples.checkpoints(gather("exact", [a, again, replace(b, arm="rewritten")]))).passed
        is passed
    )
    gone = check(samples.checkpoints(two(a, simple())))
    assert gone.passed is False
    assert row_of("checkpoints").named(gone).verdict is Sameness.BROKEN
    broken = simple(checkpoints=(replace(a.record.checkpoints[0], loads=False, error="EOF"),))
    assert check(samples.checkpoints(two(a, broken))).passed is False


def test_settings_that_a_scheduler_leaves_in_an_optimizer() -> None:
    keys = {"opt/param_groups/0/lr": "float", "opt/state/0/step": "Tensor float32 ()"}
    a = simple(checkpoints=(Checkpoint("a.pt", keys, True),))
    for more, passed in (("param_groups/0/initial_lr", True), ("state/0/initial_lr", False)):
        b = simple(checkpoints=(Checkpoint("a.pt", {**keys, f"opt/{more}": "float"}, True),))
        assert check(samples.checkpoints(two(a, b))).passed is passed
        assert check(samples.checkpoints(two(b, a))).passed is False, "a resumed schedule asks"


# what is printed


@pytest.mark.parametrize(
    "line, kind, kept",
    [
        ("Epoch 3/10, loss: 0.1234 (12.3 s)", "Epoch #/#, loss: # (# s)", ["3", "10", "0.1234"]),
        (
            "[2026-11-21 15:00:01] step 5 lr 1e-05 time 0.12",
            "[# #] step # lr # time #",
            ["5", "1e-05"],
        ),
        ("acc nan, 250.0 images/sec, 3 GiB", "acc #, # images/sec, # GiB", ["nan"]),
        ("saved to run/train_fast.py.log layer1.weight", "saved to @.py.log layer1.weight", []),
        ("took 3.5s for 12 steps", "took #s for # steps", ["12"]),
        (
            "| 3/9 batches | ms/batch 5.32 | loss 2.5",
            "| #/# batches | ms/batch # | loss #",
            ["3", "9", "2.5"],
        ),
    ],
)
def test_lines(line: str, kind: str, kept: list[str]) -> None:
    assert figures.skeleton(line) == kind
    assert [v for values in figures.printed(line).values() for v in values] == kept


@given(st.text(max_size=200))
@tried(max_examples=80, deadline=None)
def test_any_text_can_be_read(text: str) -> None:
    for values in figures.printed(text).values():
        assert all(figures.unit(v) >= 0 and isinstance(float(v), float) for v in values)


def printing(text: str) -> Run:
    return replace(simple(), stdout=text)


def test_printed_text() -> None:
    a = printing("start\nepoch 1 loss 0.50 in 3.1 s\nepoch 2 loss 0.40 in 3.2 s\ndone\n")
    assert check(
        printed.text_of(
            two(a, printing("start\nepoch 1 loss 0.5 in 9 s\nepoch 2 loss 0.4 in 8.2 s\ndone\n"))
        )
    ).passed
    lost = check(printed.text_of(two(a, printing("start\ndone\n"))))
    assert lost.passed is False and "epoch" in lost.text
    wrong = check(
        printed.numbers(
            two(a, printing("start\nepoch 1 loss 0.50 in 2 s\nepoch 2 loss 0.41 in 2 s\ndone\n"))
        )
    )
    assert wrong.passed is False and "0.41 instead of 0.40" in wrong.text


def test_words_that_a_model_makes() -> None:
    a = printing("step 1 loss 0.5\nO God, what then\ndone\n")
    for effect, passed in (("exact", False), ("rounding", None), ("sampling", None)):
        other = check(
            printed.text_of(two(a, printing("step 1 loss 0.5\nO dog, what hten\ndone\n"), effect))
        )
        assert other.passed is passed and "O God" in other.text
        assert (
            check(printed.text_of(two(a, printing("step 1 loss 0.5\ndone\n"), effect))).passed
            is False
        )  # nothing in its place
        assert (
            check(
                printed.text_of(two(a, printing("O God, what then\nO dog\ndone\n"), effect))
            ).passed
            is False
        )  # a line with numbers
    moved = replace(
        two(a, printing("step 1 loss 0.5\ndone\n"), "rounding"),
        perturbed=printing("step 1 loss 0.5\nO cat\ndone\n"),
    )
    assert check(printed.text_of(moved)).passed  # rounding alone makes other words of it


def test_the_meaning_of_the_printed_loss() -> None:
    losses = (1.0, 0.9, 0.7, 0.6, 0.5, 0.3)
    mean, last = (
        "epoch 1 loss 0.8667\nepoch 2 loss 0.4667\n",
        "epoch 1 loss 0.7000\nepoch 2 loss 0.3000\n",
    )

    def script(text: str) -> Run:
        return replace(
            run(record([step(i, 0.01, losses=(x,), backwards=1) for i, x in enumerate(losses)])),
            stdout=text,
        )

    assert (
        "mean of the losses"
        in check(printed.meaning(two(script(mean), script(mean), "sampling"))).text
    )
    found = check(printed.meaning(two(script(mean), script(last), "sampling")))
    assert found.passed is False and "now the last loss" in found.text
    assert check(printed.meaning(two(script(last), script(mean), "sampling"))).passed is False
    assert (
        printed.meaning(two(script("epoch 1 x 5.1\nepoch 2 x 7.2\n"), script(mean), "sampling"))
        is None
    )


def test_long_lines_and_digests_are_read() -> None:
    """Lines of 300,000 characters: what looks at each from every other would take hours."""
    text = f"{'x' * 300_000}\n{'7' * 300_000}\nat a/b.py:x.py and (c.py)\nsha 5e91234f 1e999\n"
    assert figures.skeleton("at a/b.py:x.py and (c.py)") == "at @.py and @.py)"
    found = two(printing(text), printing(text), "sampling")
    assert check(printed.text_of(found)).passed and figures.unit("5e91234") == 0.0
    assert printed.meaning(found) is None


def test_a_number_without_digits_means_nothing() -> None:
    """Every loss below one half is "epoch 0" when it is rounded so."""

    def script(*losses: float) -> Run:
        made = run(record([step(i, 0.01, losses=(x,), backwards=1) for i, x in enumerate(losses)]))
        return replace(made, stdout="epoch 0\n")

    assert printed.meaning(two(script(1.0, 0.2), script(1.0, 0.8), "sampling")) is None


@pytest.mark.parametrize(
    ("count", "ending", "verdict"),
    [(1, "steps", "unclear"), (1, "end", "identical"), (2, "steps", "identical")],
)
def test_one_step_of_many_shows_nothing(count: int, ending: Any, verdict: str) -> None:
    made = simple(count, ending=ending, optimizers=("Adam",))
    found = parity.judge("exact", [made, made, replace(made, arm="rewritten")])
    assert found.verdict.value == verdict, found


def test_what_is_printed_of_a_divided_loss() -> None:
    """Two backwards a step, of half the loss each; and training that is equal to the bit does not
    excuse a wrong print.
    """
    losses = [0.5, 0.45, 0.35, 0.3, 0.25, 0.15, 0.2, 0.1]

    def script(text: str) -> Run:
        return replace(
            run(
                record(
                    [
                        step(i, 0.01, losses=tuple(losses[2 * i : 2 * i + 2]), backwards=2)
                        for i in range(4)
                    ]
                )
            ),
            stdout=text,
        )

    mean, last = (
        "epoch 1 loss 0.8000\nepoch 2 loss 0.3500\n",
        "epoch 1 loss 0.6000\nepoch 2 loss 0.2000\n",
    )
    assert (
        "losses of steps"
        in check(printed.meaning(two(script(mean), script(mean), "sampling"))).text
    )
    assert check(printed.meaning(two(script(mean), script(last), "sampling"))).passed is False
    for effect in ("exact", "rounding", "sampling", "recipe", "unknown"):
        runs = [script(mean), script(mean), replace(script(last), arm="rewritten")]
        assert parity.judge(effect, runs).verdict is Sameness.DIFFERENT and not parity.wanted(
            effect, runs
        )


@pytest.mark.parametrize(
    ("key", "kind", "good"),
    [
        ("scaler", "dict", True),  # of a GradScaler that is switched off
        ("scaler/scale", "float", True),
        ("net/more", "dict", False),
        ("weight", "Tensor float32 [4]", False),
    ],
)
def test_a_further_part_of_a_checkpoint(key: str, kind: str, good: bool) -> None:
    keys = {"net/weight": "Tensor float32 [4]"}
    a, b = (
        simple(checkpoints=(Checkpoint("a.pt", known, True),))
        for known in (keys, {**keys, key: kind})
    )
    assert check(samples.checkpoints(two(a, b))).passed is good


def test_settings_of_an_optimizer_may_change_their_kind() -> None:
    a = simple(
        checkpoints=(Checkpoint("a.pt", {"opt/fused": "NoneType", "opt/lr": "float"}, True),)
    )
    b = simple(checkpoints=(Checkpoint("a.pt", {"opt/fused": "bool", "opt/lr": "float"}, True),))
    c = simple(
        checkpoints=(
            Checkpoint("a.pt", {"opt/fused": "NoneType", "opt/lr": "Tensor float32 []"}, True),
        )
    )
    assert (
        check(samples.checkpoints(two(a, b))).passed
        and check(samples.checkpoints(two(a, c))).passed is False
    )


# what optimizers, batches and counters tell


def row_of(name: str) -> table.Row:
    return next(row for row in table.STRUCTURE if row.name == name)


SAYING = {"Check": 0, "unclear": 1}  # the place of the name


def names_of_checks() -> Iterator[str]:
    """What the modules of judging call checks that their rows do not name: an argument of
    ``Check`` and ``unclear``, as a text, a constant of the module, or a variable that has one."""
    for file in Path(judging.__file__).parent.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if not isinstance(function, ast.FunctionDef):
                continue
            arguments = function.args
            given = arguments.args[len(arguments.args) - len(arguments.defaults) :]
            known = {a.arg: v for a, v in zip(given, arguments.defaults, strict=True)}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "name":
                    known["name"] = node.value
            for node in ast.walk(function):
                place = isinstance(node, ast.Call) and SAYING.get(ast.unparse(node.func), 99)
                if isinstance(node, ast.Call) and len(node.args) > place:
                    said = known.get(ast.unparse(node.args[place]), node.args[place])
                    for one in (said.body, said.orelse) if isinstance(said, ast.IfExp) else (said,):
                        if isinstance(one, ast.Constant):
                            yield one.value
                        elif isinstance(one, ast.Name) and one.id.isupper():
                            module = f"{judging.__name__}.{file.stem}"
                            yield getattr(importlib.import_module(module), one.id)


def test_every_check_has_a_row() -> None:
    rows = [*table.STRUCTURE, *table.NUMBERS]
    names = {row.name for row in rows}
    assert len(names) == len(rows)
    asks = [row.ask for row in table.STRUCTURE]
    several = {row.name for row in table.STRUCTURE if asks.count(row.ask) > 1}
    made = {*names_of_checks()} - {parity.COMMON, "data"}  # beside: an order that is lost
    assert made <= names, made - names
    told = several | {row.name for row in table.NUMBERS}
    assert told - made == {f"{words} over seeds" for words in NORMS.values()}


@pytest.mark.parametrize("says", [table.DIFFERENT, table.BROKEN, table.UNCLEAR])
def test_a_check_has_the_name_of_its_row_and_says_what_that_says(says: Sameness) -> None:
    row = table.Row(samples.order, "order", "batches", says=says)
    assert row.named(differs("other")) == Check("order", False, "other", verdict=says)
    assert row.named(holds("equal")) == Check("order", True, "equal")
    assert row.named(unclear("unseen")) == unclear("unseen", "order")
    own = Check("its own", False, "other")
    assert row.named(own) is own


def test_many_optimizers_are_counted() -> None:
    found = settings.optimizers(two(simple(optimizers=("SGD",) * 300), simple(optimizers=("SGD",))))
    assert check(found).text == "SGD; in the original 300 × SGD"


def test_settings_of_optimizers() -> None:
    kept = {
        "0/first/0/weight_decay": "0.05",
        "0/last/0/weight_decay": "0.05",
        "0/first/0/betas": "0.9, 0.999",
        "0/first/0/nesterov": "False",
    }
    a = simple(optimizers=("AdamW",), settings=kept)
    same = simple(
        optimizers=("AdamW",),
        settings={
            **kept,
            "0/first/0/betas": "0.9, 0.9990000001",
            "0/first/0/bias_correction": "True",
        },
    )
    assert check(settings.settings(two(a, same))).passed
    found = check(
        settings.settings(
            two(
                a, simple(optimizers=("AdamW",), settings={**kept, "0/first/0/weight_decay": "0.0"})
            )
        )
    )
    assert (
        found.passed is False
        and found.text == "weight_decay 0.0 in group 0 at the first step, 0.05 in the original"
    )
    late = {**kept, "0/last/0/weight_decay": "0.1"}
    assert (
        check(settings.settings(two(a, simple(optimizers=("AdamW",), settings=late)))).passed
        is False
    )
    assert (
        check(
            settings.settings(
                two(a, simple(optimizers=("AdamW",), settings={**kept, "0/first/1/eps": "1.0"}))
            )
        ).passed
        is False
    )
    other = two(a, simple(optimizers=("AdamW",), settings=late), "recipe")
    assert not table.asked([row_of("optimizer settings")], other)
    assert settings.settings(two(a, simple(optimizers=("AdamW",)))) is None


def normed(*values: float) -> Run:
    return run(
        record(
            [
                step(i, 0.01, backwards=1, losses=(1.0,), grad_norm=x, optimizer=0)
                for i, x in enumerate(values)
            ]
        )
    )


def test_clipping_leaves_a_fingerprint() -> None:
    free, clipped, tighter = (
        normed(3.0, 2.0, 1.5, 0.9, 0.7),
        normed(1.0, 1.0, 1.0, 0.9, 0.7),
        normed(0.5, 0.5, 0.5, 0.5, 0.5),
    )
    assert check(settings.clipping(two(clipped, normed(1.0, 1.0, 0.999999, 0.8, 0.3)))).passed
    assert settings.clipping(two(free, normed(3.1, 1.9, 1.4, 0.8, 0.7))) is None
    lost = check(settings.clipping(two(clipped, free)))
    assert lost.passed is False and "3 of 5 gradient norms exceed 1, up to 3" in lost.text
    new = check(settings.clipping(two(free, clipped)))
    assert new.passed is False and "3 of 5 of the original's exceed that" in new.text
    assert check(settings.clipping(two(clipped, tighter))).passed is False
    assert not table.asked([row_of("gradient clipping")], two(clipped, free, "recipe"))


def test_norms_that_happen_to_be_near_their_greatest_are_not_clipped() -> None:
    def left(norms: Sequence[float], lefts: Sequence[float]) -> Run:
        made = normed(*norms)
        steps = [replace(s, left_norm=x) for s, x in zip(made.record.steps, lefts, strict=True)]
        return replace(made, records=(replace(made.record, steps=tuple(steps)),))

    level = (0.2423, 0.24229, 0.24228, 0.21, 0.2)
    more = (0.2453, 0.2421, 0.2419, 0.21, 0.2)
    assert settings.clipping(two(left(more, more), left(level, level))) is None
    clipped = check(
        settings.clipping(two(left(more, more), left(level, (0.3, 0.26, 0.25, 0.21, 0.2))))
    )
    assert clipped.passed is False


def test_counters() -> None:
    def counted(number: float, **more: Any) -> Run:
        return simple(
            model={
                "0/bn.num_batches_tracked": TensorPrint(
                    (), "int64", str(number), number, (number,), True
                )
            },
            **more,
        )

    assert check(settings.counters(two(counted(6), counted(6)))).passed
    assert check(settings.counters(two(counted(6), counted(12)))).passed is False
    assert (
        settings.counters(
            gather("exact", [counted(6), counted(7), replace(counted(12), arm="rewritten")])
        )
        is None
    )


def test_training_mode_is_that_of_calls_with_and_without_gradients() -> None:
    def modes(training: float | None, evaluating: float | None, *shares: float) -> Run:
        return run(
            record(
                [
                    step(
                        0,
                        0.01,
                        backwards=1,
                        losses=(1.0,),
                        training=training,
                        evaluating=evaluating,
                        modes=shares,
                    )
                ]
            )
        )

    a = modes(1.0, 0.0, 0.0, 1.0)
    assert check(tensors.training_mode(two(a, a))).passed
    assert check(tensors.training_mode(two(a, modes(1.0, 1.0, 1.0)))).passed is False
    assert check(tensors.training_mode(two(a, modes(0.6, None, 0.0, 1.0)))).passed, (
        "evaluated with gradients"
    )
    assert check(tensors.training_mode(two(a, modes(0.0, 0.0, 0.0)))).passed is False
    alone = modes(None, 0.0, 0.0)  # parts of the model are called to train, which are not seen
    assert tensors.training_mode(two(a, alone)) is None
    assert check(tensors.training_mode(two(a, modes(None, 1.0, 1.0, 0.5)))).passed is False
    assert check(tensors.training_mode(two(a, modes(1.0, 1.0, 1.0), "recipe"))).passed is False


def drawn(images: list[list[float]], labels: list[list[float]], **more: Any) -> Run:
    """A run of passes over two items, images and labels."""
    passes = [
        Pass(
            0,
            True,
            len(x),
            4 * len(x),
            True,
            0,
            tuple(p + q for p, q in zip(x, y, strict=True)),
            (tuple(x), tuple(y)),
        )
        for x, y in zip(images, labels, strict=True)
    ]
    return simple(passes=tuple(passes), **more)


def test_labels_tell_of_the_order_where_images_are_random() -> None:
    images = [[k + 0.37 * i + 0.01 * (7 * i * k % 5) for i in range(6)] for k in range(5)]
    labels = [[float((i * (k + 2) + k * k) % 11) for i in range(6)] for k in range(5)]
    a = drawn(images, labels)
    assert check(
        samples.shuffled(two(a, drawn(images, labels[1:] + labels[:1]), "sampling"))
    ).passed
    lost = check(samples.shuffled(two(a, drawn(images, [labels[0]] * 5), "sampling")))
    assert lost.passed is False and "item 2" in lost.text
    coarse = [[1.0, 1.0, 1.0], [1.0, 0.0, 2.0]]
    few = drawn([[0.1, 0.2, 0.3], [0.5, 0.4, 0.1]], coarse)
    lucky = drawn([[0.4, 0.2, 0.3], [0.5, 0.4, 0.7]], [coarse[0]] * 2)
    found = samples.shuffled(two(few, lucky, "sampling"))
    assert found is None or found.passed, "three small integers may be equal by accident"


def test_random_items_that_drift() -> None:
    labels = [[1.0, 2.0, 3.0, 4.0]] * 6
    images = [[10.0 + 0.1 * ((5 * k + 3 * i) % 7) for i in range(4)] for k in range(6)]
    a = drawn(images, labels)
    assert check(samples.level(two(a, a, "sampling"))).passed
    drifting = drawn([[x - 3 * k for x in row] for k, row in enumerate(images)], labels)
    assert check(samples.level(two(a, drifting, "sampling"))).passed is False


def test_batches_of_other_tensors_have_no_mean_in_common() -> None:
    """A column that the loader gave is drawn behind it: what models are given tells."""
    images = [[10.0 + 0.1 * ((5 * k + 3 * i) % 7) for i in range(4)] for k in range(6)]
    a = drawn(images, [[1.0, 2.0, 3.0, 4.0]] * 6)
    less = [replace(p, checksums=p.leaves[0], leaves=p.leaves[:1]) for p in a.record.passes]
    assert samples.level(two(a, simple(passes=tuple(less)), "sampling")) is None


def test_batches_that_scatter_otherwise() -> None:
    def scattered(wide: float) -> Run:
        return drawn(
            [[wide * math.sin(37.0 * (k * 10 + i) ** 1.5) for i in range(10)] for k in range(6)],
            [[1.0] * 10] * 6,
        )

    assert check(samples.scatter(two(scattered(1.0), scattered(1.1), "sampling"))).passed
    assert check(samples.scatter(two(scattered(1.0), scattered(3.0), "sampling"))).passed is False
    assert check(samples.scatter(two(scattered(1.0), scattered(0.2), "sampling"))).passed is False
