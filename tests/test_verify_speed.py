"""The ratio of step times: estimator, noise floor, when to stop."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from autofast.verify import speed
from autofast.verify.estimates import difference, hodges_lehmann, signed_rank_cut, t_quantile
from autofast.verify.evidence.record import Moments, Pass
from autofast.verify.result import SpeedVerdict
from tests.verify_runs import record, run, step, timed


def pairs(
    effect: float, sd: float, n: int, seed: int, arms: tuple[str, str] = ("original", "rewritten")
) -> list[speed.Pair]:
    draw = random.Random(seed)
    return [
        tuple(
            timed([0.01 * math.exp(draw.gauss(0, sd / math.sqrt(2))) / f] * 20, arm)
            for arm, f in zip(arms, (1, effect), strict=True)
        )
        for _ in range(n)
    ]  # type: ignore[misc]


def series(effect: float, sd: float, seed: int) -> tuple[speed.Speed, int]:
    """What the series of runs does."""
    aa, ab = pairs(1, sd, 60, seed, ("original", "original")), pairs(effect, sd, 60, seed + 1)
    noise = made = 0
    while True:
        more = speed.following(aa[:noise], ab[:made])
        if more == (0, 0):
            return speed.judge(aa[:noise], ab[:made]), made
        noise, made = noise + more[0], made + more[1]


# estimates


@pytest.mark.parametrize(
    "p, freedom, value",
    [
        (0.975, 1, 12.7062),
        (0.975, 5, 2.5706),
        (0.95, 10, 1.8125),
        (0.9995, 3, 12.9240),
        (0.975, 1e6, 1.95997),
    ],
)
def test_quantiles_of_student(p: float, freedom: float, value: float) -> None:
    assert t_quantile(p, freedom) == pytest.approx(value, rel=1e-4)
    assert t_quantile(1 - p, freedom) == pytest.approx(-value, rel=1e-4)


def test_quantiles_of_wilcoxon() -> None:
    """Critical values of the published table (two-sided, 5 %), plus one."""
    assert [signed_rank_cut(n) for n in (5, 6, 7, 8, 9, 10, 15, 20, 25)] == [
        0,
        1,
        3,
        4,
        6,
        9,
        26,
        53,
        90,
    ]


@given(st.lists(st.floats(-5, 5), min_size=6, max_size=25), st.floats(-3, 3))
@settings(max_examples=60, deadline=None)
def test_the_centre_moves_with_the_values(values: list[float], shift: float) -> None:
    value, low, high = hodges_lehmann(values)
    assert min(values) <= low <= value <= high <= max(values)
    assert hodges_lehmann([-v for v in values]) == pytest.approx((-value, -high, -low))
    assert hodges_lehmann([v + shift for v in values]) == pytest.approx(
        (value + shift, low + shift, high + shift), abs=1e-9
    )


def test_the_interval_covers() -> None:
    draw = random.Random(3)
    for n in (6, 12):
        missed = sum(
            not low <= 0 <= high
            for _, low, high in (
                hodges_lehmann([draw.gauss(0, 1) for _ in range(n)]) for _ in range(1500)
            )
        )
        assert missed / 1500 < 0.065


def test_few_values() -> None:
    assert hodges_lehmann([])[1:] == (-math.inf, math.inf)
    assert hodges_lehmann([1.0, 2.0])[1:] == (-math.inf, math.inf)
    assert hodges_lehmann([1.0, 2.0, 3.0])[2] == pytest.approx(2 + 4.3027 / math.sqrt(3), rel=1e-3)


def test_pairs_are_used_where_they_go_together() -> None:
    before = [1.0, 2.0, 3.0, 4.0]
    together = difference(before, [1.1, 2.1, 3.1, 4.11])
    assert together.paired and together.error < 0.01
    apart = difference(before, [4.0, 1.0, 3.5, 2.0])
    assert not apart.paired and apart.freedom > 3


# the statistic


def test_median_without_workers_mean_with() -> None:
    walls = [1.0] * 5 + [0.01] * 44 + [0.5]
    plain, workers = timed(walls), timed(walls, workers=2)
    assert speed.window([plain]) == speed.Window(5, "median step", False)
    assert speed.statistic(plain, 5, "median step") == 0.01
    assert speed.window([plain, workers]).kind == "mean of the window"
    assert speed.statistic(workers, 5, "mean of the window") == pytest.approx(
        (44 * 0.01 + 0.5) / 45
    )


def test_mean_where_evaluations_or_epochs_weigh() -> None:
    steps = [step(i, 0.01, samples=8, batches=1) for i in range(40)]
    steps[30] = step(30, 0.11, {"forward": 0.01, "evaluation": 0.1}, samples=8, batches=1)
    assert speed.window([run(record(steps))]).kind == "mean of the window"
    steps[30] = step(30, 0.011, {"forward": 0.01, "evaluation": 0.001}, samples=8, batches=1)
    assert speed.window([run(record(steps))]).kind == "median step"
    slow = [step(i, 0.1 if i % 10 == 0 else 0.01, samples=8, batches=1) for i in range(40)]
    passes = tuple(Pass(0, True, 10, 80, True) for _ in range(4))
    assert speed.window([run(record(slow, passes=passes))]).kind == "mean of the window"
    two = [step(i, 0.01, optimizer=i % 2) for i in range(40)]
    assert speed.window([run(record(two))]).kind == "mean of the window"


def test_warm_up_lasts_until_compiled() -> None:
    walls = [5.0] + [0.01] * 10 + [4.0] + [0.01] * 40
    assert speed.window([timed(walls)]).warm_up == 6
    assert speed.window([timed(walls, moments=Moments(1, 2, 7, 20, compiling=9.0))]).warm_up == 12
    assert speed.window([timed([1.0])]).warm_up == 0


def test_other_batch_size_is_compared_per_sample() -> None:
    one, other = timed([0.01] * 20, samples=8), timed([0.015] * 20, "rewritten", samples=16)
    found = speed.judge([(one, one)] * 6, [(one, other)] * 6)
    assert found.ratio.value == pytest.approx(2 * 0.01 / 0.015)
    assert (found.step_before, found.step_after) == (0.01, 0.015)
    assert found.verdict is SpeedVerdict.FASTER


def test_the_slowest_rank_counts() -> None:
    both = run([timed([0.01] * 9).record, timed([0.02] * 9).record])
    assert speed.statistic(both, 0, "median step") == 0.02


# verdicts


def test_real_effects_and_harm_are_found() -> None:
    for seed in range(0, 40, 2):
        found, made = series(1.3, 0.08, seed)
        assert found.verdict is SpeedVerdict.FASTER and made <= 22
        assert found.ratio.low < 1.3 * 1.1 and found.ratio.high > 1.3 / 1.1
        assert series(1 / 1.3, 0.08, seed)[0].verdict is SpeedVerdict.SLOWER
    assert sum(series(1.3, 0.08, s)[1] for s in range(0, 40, 2)) / 20 < 14


def test_equal_scripts_are_neither_faster_nor_slower() -> None:
    seen = {
        series(1.0, sd, seed)[0].verdict for sd in (0.03, 0.08, 0.3) for seed in range(0, 60, 2)
    }
    assert seen <= {SpeedVerdict.SAME, SpeedVerdict.UNCLEAR}


def test_noise_is_named() -> None:
    found, made = series(1.0, 0.3, 5)
    assert found.verdict is SpeedVerdict.UNCLEAR and "too noisy" in found.reason and made < 40
    assert "varies by ±" in found.reason


def test_no_claim_without_a_noise_floor() -> None:
    ab = pairs(2.0, 0.01, 8, 1)
    found = speed.judge([], ab)
    assert found.verdict is SpeedVerdict.UNCLEAR and "against itself" in found.reason
    assert speed.enough([], ab) == ""
    empty = speed.judge([], [])
    assert empty.verdict is SpeedVerdict.UNCLEAR and "no pair" in empty.reason


def test_an_effect_inside_the_noise_floor_is_no_effect() -> None:
    noisy = [(timed([0.01 * f] * 9), timed([0.01] * 9)) for f in (0.8, 1.3, 0.9, 1.25, 1.1, 0.85)]
    steady = [(timed([0.0115] * 9), timed([0.01] * 9, "rewritten"))] * 6
    assert speed.judge(noisy, steady).verdict is SpeedVerdict.UNCLEAR
    assert speed.judge([(timed([0.01] * 9),) * 2] * 6, steady).verdict is SpeedVerdict.FASTER


def test_failed_runs_do_not_count() -> None:
    good = (timed([0.01] * 9), timed([0.01] * 9, "rewritten"))
    bad = (good[0], timed([0.01] * 9, "rewritten", timed_out=True))
    assert speed.judge([good] * 6, [good] * 6 + [bad] * 3).ratio.pairs == 6
    assert speed.enough([good] * 6, [bad] * 40) != ""


def test_start_and_break_even() -> None:
    before = timed([0.02] * 100, moments=Moments(1, 2, 3, 9))
    after = timed([4.0, 1.0] + [0.01] * 98, "rewritten", moments=Moments(1, 2, 6, 9, compiling=5.0))
    found = speed.judge([(before, before)] * 6, [(before, after)] * 6)
    assert (found.first_step_before, found.first_step_after, found.compiling) == (1, 4, 5.0)
    assert (
        found.break_even == math.ceil((3 + 0.99) / 0.01)
        or found.break_even == math.ceil((3 + 0.99) / 0.01) + 1
    )
    assert speed.judge([(before, before)] * 6, [(before, before)] * 6).break_even == 0
    slower = timed([0.03] * 100, "rewritten", moments=Moments(1, 2, 6, 9))
    assert speed.judge([(before, before)] * 6, [(before, slower)] * 6).break_even is None


def test_what_comes_now_and_then_counts() -> None:
    """Every tenth step writes a checkpoint: faster steps, and yet a slower script."""
    before = timed([0.012] * 60)
    after = timed(([0.010] * 9 + [0.060]) * 6, "rewritten")
    found = speed.judge([(before, before)] * 6, [(before, after)] * 6)
    assert found.statistic.startswith("mean of the window")
    assert found.verdict is SpeedVerdict.SLOWER
    # 0.72 s against 0.9 s, but for the first step
    assert found.ratio.value == pytest.approx(0.708 / 0.89)
    both = timed(([0.012] * 9 + [0.072]) * 6)
    assert speed.window([both, after]).kind == "median step"


def test_what_follows_the_last_step_counts_where_it_is_reached() -> None:
    """An evaluation after each pass, the last one after the last step."""
    walls = ([0.01] * 9 + [0.2]) * 3
    whole, cut = timed(walls), timed(walls, ending="steps")
    late = [
        replace(r, records=(replace(r.record, moments=Moments(1, 1.5, 2, 9.2)),))
        for r in (whole, cut)
    ]
    usual = sum(walls[1:]) / 29
    assert speed.statistic(whole, 1, "mean of the window") == pytest.approx(usual)
    assert speed.statistic(late[0], 1, "mean of the window") == pytest.approx(usual + 0.2 / 29)
    assert speed.statistic(late[1], 1, "mean of the window") == pytest.approx(usual)
    assert speed.statistic(late[0], 1, "median step") == 0.01


@pytest.mark.parametrize("noise, effect", [(5, 6), (6, 5), (3, 3)])
def test_no_verdict_from_fewer_than_six_pairs(noise: int, effect: int) -> None:
    before, after = timed([0.02] * 40), timed([0.01] * 40, "rewritten")
    found = speed.judge([(before, before)] * noise, [(before, after)] * effect)
    assert found.verdict is SpeedVerdict.UNCLEAR and "too few pairs" in found.reason


def test_busy() -> None:
    calm, loaded = timed([1.0], pressure=1.0), timed([1.0], pressure=40.0)
    assert speed.busy(loaded, [calm, calm, loaded]) and not speed.busy(calm)
    assert not speed.busy(loaded, [timed([1.0], pressure=35.0), timed([1.0], pressure=30.0)]), (
        "this script does that by itself"
    )
    assert not speed.busy(timed([1.0]))


def test_following_keeps_both_kinds_growing() -> None:
    one, other = timed([0.01] * 9), timed([0.011] * 9, "rewritten")
    noisy = [(timed([0.01 * f] * 9), other) for f in (0.7, 1.3) * 20]
    assert speed.following([], []) == (6, 6)
    assert (
        speed.following([(one, one)] * 4, noisy[:6]) == (2, 4)
        or speed.following([(one, one)] * 4, noisy[:6])[0] >= 2
    )
    assert speed.following([(one, one)] * 6, noisy[:6]) == (2, 4)
    assert speed.following([(one, one)] * 7, noisy[:8]) == (1, 2), "after a pair was dropped"
    assert speed.following([(one, one)] * 23, noisy[:40]) == (0, 0)
