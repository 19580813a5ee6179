"""How much faster: the ratio of the times of a step from pairs of runs, its interval, and the noise
floor it has to clear.

**Estimator.** A pair is one run of each script, one right after the other, in an order drawn by
chance. Its ratio is time of the original over time of the other; the estimate is exp of the
Hodges-Lehmann centre of the log ratios with the interval of Wilcoxon's signed-rank test. Because
the order in a pair is drawn, the log ratio of two equal scripts is symmetric about 0 whatever the
noise looks like and however the machine drifts between pairs, and symmetry is all this test asks
for: its 95 % is exact from six pairs on, where a bootstrap over so few pairs covers too little
(Hollander, Wolfe, Chicken: Nonparametric Statistical Methods, 3rd ed., sections 3.1 to 3.3; pairs
in random order and fresh processes: Kalibera, Jones, Rigorous benchmarking in reasonable time, ISMM
2013).

**Noise floor.** The original against itself (A/A), measured in the same series, gives the same
interval; folded to above 1 it says how large a ratio this machine makes out of nothing. FASTER
needs the whole interval above that, and above 1 + MINIMUM; SLOWER is the mirror image. SAME needs
the whole interval within the larger of 3 % and the floor, but never more than 5 %: a machine too
noisy to tell would otherwise call everything the same. All else is UNCLEAR.

**Looking again and again.** ``following`` asks for 6 pairs of each kind, then 4 of A/B with 2 of
A/A, up to 40; each of up to ten looks is a chance for a false claim. Simulated with equal scripts,
20,000 verifications each for normal noise, heavy tails (Student's t with 2 degrees of freedom),
drift (autoregressive, 0.97 from run to run) and bursts, at 3, 8, 15 and 30 % per pair: FASTER or
SLOWER came out in 0.015 % of them at worst. SAME came out in over 95 % at 3 %, in half to five
sixths at 8 %; the rest is UNCLEAR. A true 1.3x was FASTER in all of 5,000 at 8 % (median 10 pairs,
nine in ten with 14) and in 99.9 % at 15 % (26 pairs), 1.1x in 91 % at 8 % (26) and in all at 3 % (6
pairs).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from autofast.model.several import grouped
from autofast.verify.estimates import fmean, hodges_lehmann, median
from autofast.verify.evidence.record import Record, Run, Step
from autofast.verify.result import Ratio, Speed, SpeedVerdict

Kind = Literal["median step", "mean of the window"]
Pair = tuple[Run, Run]

AGREE = 0.02  # logs of mean over median step: beyond, the median is not what a script takes
MINIMUM = 0.01
SAME, SAME_MOST = 0.03, 0.05
FIRST, MORE, MORE_NOISE, MOST = 6, 4, 2, 40
NARROW = 0.05
BUSY = 10.0  # per cent of the time in which a process waited for a CPU


@dataclass(frozen=True)
class Window:
    """What is compared, chosen once for all runs of both scripts."""

    warm_up: int
    kind: Kind
    per_sample: bool


def _compiled(record: Record) -> int:
    """The steps over which torch.compile was at work: the first so many whose excess over the
    median makes up 90 % of its time.
    """
    if record.moments.compiling <= 0 or len(record.steps) < 4:
        return 0
    usual = median(s.wall for s in record.steps)
    excess = 0.0
    for number, step in enumerate(record.steps[: len(record.steps) // 2], 1):
        excess += max(0.0, step.wall - usual)
        if excess >= 0.9 * record.moments.compiling:
            return number
    return min(3, len(record.steps) // 2)


def _uneven(steps: Sequence[Step], record: Record) -> bool:
    """Evaluations, and steps in which a pass over the data ends or begins, take 5 % or more of the
    window beyond a usual step.
    """
    whole, usual = sum(s.wall for s in steps), median(s.wall for s in steps)
    ends, total = set(), 0
    for one in record.passes:
        if one.training:
            total += one.batches
            ends.add(total)
    taken, extra = 0, 0.0
    first = steps[0].index
    for step in record.steps:
        before, taken = taken, taken + step.batches
        if step.index < first:
            continue
        if step.phases.get("evaluation", 0.0) > 0 or any(
            before <= end < taken or end == taken for end in ends
        ):
            extra += max(step.phases.get("evaluation", 0.0), step.wall - usual)
    return extra >= 0.05 * whole


def _whole(record: Record) -> bool:
    """It came to the script's own end: what its first pass takes and what follows its last step are
    parts of the training.
    """
    return record.ending != "steps"


def _tail(record: Record) -> float:
    """Seconds from the last step to the script's own end: the last evaluation, the last save."""
    return max(0.0, record.moments.ended - record.steps[-1].end) if _whole(record) else 0.0


def _agree(runs: Sequence[Run], left_out: int) -> bool:
    """The whole window is as much longer than its median steps in one script as in the other:
    logging, checkpoints and stalls that come now and then, and take other shares of the two, are in
    the mean alone."""
    shares: dict[str, list[float]] = {}
    for run in runs:
        for record in run.records:
            walls = [s.wall for s in record.steps[left_out:]]
            if walls and median(walls) > 0:
                shares.setdefault(run.arm, []).append(math.log(fmean(walls) / median(walls)))
    found = [median(values) for values in shares.values()]
    return not found or max(found) - min(found) <= AGREE


def _samples(record: Record, warm_up: int) -> float:
    steps = record.steps[warm_up:]
    return sum(s.samples for s in steps) / len(steps) if steps else 0.0


def window(runs: Sequence[Run], warm_up: int | None = None) -> Window:
    """Choose warm-up (the larger of 3 steps and a tenth, at least until torch.compile is done, at
    most half) and statistic.

    Where uneven steps are averaged and the runs come to the script's own end, only the first step,
    which starts with the script, is left out.
    """
    records = [r.record for r in runs if r.records and r.record.steps]
    if not records:
        return Window(warm_up or 0, "median step", False)
    count = min(len(r.steps) for r in records)
    wanted = max(3, math.ceil(count / 10), *map(_compiled, records)) if warm_up is None else warm_up
    left_out = min(wanted, count // 2)
    kind: Kind = "median step"
    for record in records:
        steps = record.steps[left_out:]
        several = len({s.optimizer for s in record.steps}) > 1
        if several or any(p.workers for p in record.passes) or _uneven(steps, record):
            kind = "mean of the window"
            break
    if not _agree(runs, left_out):
        kind = "mean of the window"
    if kind == "mean of the window" and warm_up is None and all(map(_whole, records)):
        left_out = min(max(1, *map(_compiled, records)), count // 2)
    by_arm = grouped(
        (run.arm, _samples(run.record, left_out))
        for run in runs
        if run.records and run.record.steps
    )
    sizes = [median(v) for v in by_arm.values()]
    return Window(left_out, kind, min(sizes) > 0 and max(sizes) > 1.01 * min(sizes))


def statistic(run: Run, warm_up: int, kind: Kind, per_sample: bool = False) -> float:
    """Seconds for each optimizer step (or sample) after the warm-up; of several ranks, the slowest
    one's. nan where no step was seen.
    """
    values = []
    for record in run.records:
        steps = record.steps[warm_up:]
        if not steps:
            continue
        walls = [s.wall for s in steps]
        seconds = (
            median(walls) if kind == "median step" else fmean(walls) + _tail(record) / len(walls)
        )
        size = _samples(record, warm_up) if per_sample else 1.0
        values.append(seconds / size if size else math.nan)
    return max(values) if values else math.nan


def ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Time before over time after, from pairs of seconds: exp of the Hodges-Lehmann centre of the
    log ratios and of its 95 % bounds.

    See the head of this module. Below six pairs the interval is Student's and claims less than it
    says; below three it is infinite.
    """
    good = [(a, b) for a, b in pairs if a > 0 and b > 0]
    logs = [math.log(a / b) for a, b in good]
    if not logs:
        return Ratio(math.nan, 0.0, math.inf, 0)
    value, low, high = hodges_lehmann(logs)
    return Ratio(
        math.exp(value),
        math.exp(low),
        math.exp(high) if high < 700 else math.inf,
        len(logs),
        tuple(map(math.exp, logs)),
    )


def floor_of(noise: Ratio) -> float:
    """The A/A interval folded to above 1: the ratio that this machine makes out of nothing."""
    return max(noise.high, 1 / noise.low if noise.low > 0 else math.inf)


def half_width(found: Ratio) -> float:
    """Half the width of the interval as a share of the ratio (on the log scale)."""
    known = found.low > 0 and found.high < math.inf
    return math.log(found.high / found.low) / 2 if known else math.inf


def verdict_of(noise: Ratio, found: Ratio) -> SpeedVerdict:
    """What an interval says beside the noise of the machine."""
    if min(found.pairs, noise.pairs) < FIRST:
        return SpeedVerdict.UNCLEAR
    floor = max(floor_of(noise), 1 + MINIMUM)
    same = 1 + min(max(SAME, floor_of(noise) - 1), SAME_MOST)
    if found.low > floor:
        return SpeedVerdict.FASTER
    if found.high < 1 / floor:
        return SpeedVerdict.SLOWER
    if 1 / same <= found.low and found.high <= same:
        return SpeedVerdict.SAME
    return SpeedVerdict.UNCLEAR


def _wanting(noise: Ratio, found: Ratio) -> int:
    """Pairs in all until the verdict is clear, if the centre stays where it is: both half-widths
    shrink with the root of their number.
    """
    effect, own, other = abs(math.log(found.value)), half_width(found), half_width(noise)
    if math.isinf(own + other) or found.pairs < 3:
        return FIRST
    claim = (
        found.pairs * ((own + other) / effect) ** 2 if effect > math.log1p(MINIMUM) else math.inf
    )
    room = math.log1p(SAME) - effect
    same = found.pairs * (own / room) ** 2 if room > 0 else math.inf
    needed = min(claim, same)
    return 10**6 if needed > 10**6 else max(found.pairs + 1, math.ceil(needed))


def _reason(noise: Ratio, found: Ratio) -> str:
    if not found.pairs:
        return "no pair of runs was completed"
    if not noise.pairs:
        return "the original was not run against itself, so the noise of this machine is not known"
    floor = floor_of(noise)
    if math.isinf(floor) or math.isinf(half_width(found)) or min(found.pairs, noise.pairs) < FIRST:
        return f"too few pairs: {found.pairs} and {noise.pairs} of the original against itself, at least {FIRST} of each are needed"
    more = _wanting(noise, found) - found.pairs
    ask = (
        f"about {more} more pair{'s' * (more != 1)} would make it clear"
        if more <= 400
        else "more pairs would hardly help: steadier conditions are needed"
    )
    if floor - 1 > SAME_MOST:
        return f"the machine is too noisy: the original against itself alone varies by ±{100 * (floor - 1):.0f} %; {ask}"
    return f"the interval reaches from {found.low:.2f} to {found.high:.2f}, too wide to call; {ask}"


def _start(run: Run, warm_up: int, seconds: float) -> tuple[float, float]:
    """Seconds to the end of the first step, and seconds spent until the warm-up is over beyond what
    its other steps usually take.
    """
    record = run.record
    moments = record.moments
    first = (
        moments.first_step if moments.first_step is not None else moments.ended
    ) - moments.script_started
    slow = sum(s.wall for s in record.steps[1:warm_up]) - seconds * max(
        0, min(warm_up, len(record.steps)) - 1
    )
    return first, first + max(0.0, slow)


def _values(pairs: Sequence[Pair], how: Window) -> list[tuple[float, float]]:
    asked = how.warm_up, how.kind, how.per_sample
    return [(statistic(a, *asked), statistic(b, *asked)) for a, b in pairs]


def judge(aa: Sequence[Pair], ab: Sequence[Pair], warm_up: int | None = None) -> Speed:
    """``aa``: pairs of two runs of the original; ``ab``: pairs (original, rewritten). Pairs with a
    run that was not ``ok`` do not count.
    """
    aa, ab = [p for p in aa if p[0].ok and p[1].ok], [p for p in ab if p[0].ok and p[1].ok]
    how = window([run for pair in (*aa, *ab) for run in pair], warm_up)
    noise, found = ratio(_values(aa, how)), ratio(_values(ab, how))
    verdict = verdict_of(noise, found)
    seconds = [[statistic(pair[arm], how.warm_up, how.kind) for pair in ab] for arm in (0, 1)]
    before, after = (median(v) if v else math.nan for v in seconds)
    starts = [
        [_start(pair[arm], how.warm_up, (before, after)[arm]) for pair in ab] for arm in (0, 1)
    ]
    first = [median(s[0] for s in arm) if arm else math.nan for arm in starts]
    lost = median(s[1] for s in starts[1]) - median(s[1] for s in starts[0]) if ab else 0.0
    # The ratio of pairs is steadier than the difference of two medians.
    saved = before - before / found.value if found.pairs else 0.0
    if lost <= 0:
        even: int | None = 0
    else:
        even = math.ceil(lost / saved) if saved > 0 and verdict is not SpeedVerdict.SLOWER else None
    compiling = median(p[1].record.moments.compiling for p in ab) if ab else 0.0
    reason = _reason(noise, found) if verdict is SpeedVerdict.UNCLEAR else ""
    whole = [(a.seconds, b.seconds) for a, b in ab]
    return Speed(
        verdict,
        found,
        noise,
        how.kind,
        before,
        after,
        first[0],
        first[1],
        how.warm_up,
        compiling,
        even,
        reason,
        ratio(whole) if whole else None,
        median(a for a, _ in whole) if whole else math.nan,
        median(b for _, b in whole) if whole else math.nan,
        _own_steps([a for a, _ in ab]),
    )


def _own_steps(runs: Sequence[Run]) -> int | None:
    """Optimizer steps of a script whose runs were not cut; None where they were."""
    records = [record for run in runs for record in run.records]
    if not records or any(record.ending == "steps" for record in records):
        return None
    return max(len(record.steps) for record in records)


def enough(aa: Sequence[Pair], ab: Sequence[Pair], warm_up: int | None = None) -> str:
    """Why no more pairs are needed; empty: go on.

    A claim may stop at an interval of a quarter of its effect: nobody needs 1.93x to the last 5 %.
    Looks only at 6, 10, 14 ... pairs however often it is asked.
    """
    if FIRST <= len(ab) < MOST and (len(ab) - FIRST) % MORE:
        return ""
    speed = judge(aa, ab, warm_up)
    noise, found = speed.noise, speed.ratio
    if found.pairs < FIRST or noise.pairs < FIRST:
        return f"{len(ab)} pairs made, too many of them failed" if len(ab) >= MOST else ""
    width = half_width(found)
    if speed.verdict is SpeedVerdict.SAME:
        return f"no difference beyond {100 * max(found.high - 1, 1 - found.low):.1f} % after {found.pairs} pairs"
    if speed.verdict is not SpeedVerdict.UNCLEAR and width <= max(
        NARROW, abs(math.log(found.value)) / 4
    ):
        return f"the interval is narrow enough (±{100 * width:.1f} %) after {found.pairs} pairs"
    if found.pairs >= MOST:
        return f"{found.pairs} pairs are made"
    if (
        speed.verdict is SpeedVerdict.UNCLEAR
        and found.pairs >= FIRST + 2 * MORE
        and _wanting(noise, found) > 10 * MOST
    ):
        return f"the machine is too noisy: ±{100 * width:.0f} % after {found.pairs} pairs"
    return ""


def following(
    aa: Sequence[Pair], ab: Sequence[Pair], warm_up: int | None = None
) -> tuple[int, int]:
    """How many pairs to make next: (A/A, A/B), in one shuffled batch; (0, 0) when ``enough`` has a
    reason.
    """
    if enough(aa, ab, warm_up):
        return 0, 0
    total = FIRST if len(ab) < FIRST else min(MOST, len(ab) + MORE - (len(ab) - FIRST) % MORE)
    noise = FIRST + (total - FIRST) * MORE_NOISE // MORE
    return max(0, noise - len(aa)), max(1, total - len(ab))


def busy(run: Run, others: Sequence[Run] = ()) -> bool:
    """The machine was busy with something else in this run: processes waited for a CPU in over 10 %
    of the time, which is not usual for this script (median of ``others``, runs of the same arm).
    Such a pair may be repeated; the caller limits how often."""
    if run.pressure is None or run.pressure <= BUSY:
        return False
    usual = [o.pressure for o in others if o is not run and o.pressure is not None]
    return not usual or median(usual) <= BUSY
