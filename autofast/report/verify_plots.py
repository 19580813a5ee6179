"""The plots of the page: step times by round with their ratios, loss curves, where the time of a
step goes, what each rule does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from autofast.report import verify_facts as facts, verify_words as words
from autofast.report.verify_curves import Curves, curves
from autofast.report.verify_svg import INK, STYLE, inline
from autofast.report.verify_words import ORIGINAL
from autofast.verify.evidence.record import PHASES, Numbers, Run
from autofast.verify.result import Contribution, Ratio, Verification

WIDTH = 960
_ARM = {True: INK["original"], False: INK["rewritten"]}
Plot = tuple[Figure, str] | None


def plots(v: Verification) -> dict[str, str]:
    """All that can be drawn, as SVG by name."""
    made = {}
    with matplotlib.rc_context(dict(STYLE)):  # type: ignore[arg-type]
        for name, draw in (
            ("times", _times),
            ("losses", _losses),
            ("phases", _phases),
            ("rules", _rules),
        ):
            found = draw(v)
            if found is not None:
                made[name] = inline(found[0], name, found[1])
    return made


def _figure(height: float) -> Figure:
    return Figure(figsize=(WIDTH / 72, height / 72), dpi=72, layout="constrained")


# ---------------------------------------------------------------------------- step times and ratios
def _times(v: Verification) -> Plot:
    """Above, for each run, how its step times are spread; below, the ratio of each round, with the
    interval and the noise floor.
    """
    s = v.speed
    if s is None:
        return None
    rounds = facts.rounds(v)
    spread = [
        [
            (run.arm == ORIGINAL, found)
            for run in one
            if (found := _spread(run, s.warm_up, s.statistic))
        ]
        for one in rounds
    ]
    spread = [one for one in spread if one]
    ratios = [r for r in s.ratio.of_pairs if math.isfinite(r)]
    if not spread and not ratios:
        return None
    figure = _figure((250 if spread else 0) + (190 if ratios else 0))
    heights = [1.35] * bool(spread) + [1.0] * bool(ratios)
    axes: Any = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    if spread:
        _boxes(axes[0], spread, grouped=bool(v.rounds))
    if ratios:
        _ratios(axes[-1], s.ratio, s.noise, max(len(ratios), len(spread) if v.rounds else 0))
    low, high = words.ratio(s.ratio)[1].split("–") if math.isfinite(s.ratio.value) else ("?", "?")
    return (
        figure,
        f"Step times of each run, and the ratio of each round; 95 % interval of the ratio {low} to {high}",
    )


def _spread(run: Run, warm_up: int, statistic: str) -> Numbers:
    """Quantiles 5, 25, 75, 95 of the milliseconds of a step, and the statistic that is compared."""
    if not run.records:
        return ()
    walls = numpy.array(
        [1e3 * step.wall for step in run.record.steps[warm_up:] if math.isfinite(step.wall)]
    )
    if not walls.size:
        return ()
    return (
        *numpy.quantile(walls, (0.05, 0.25, 0.75, 0.95)).tolist(),
        float(walls.mean() if "mean" in statistic else numpy.median(walls)),
    )


def _boxes(axes: Axes, rounds: Sequence[Sequence[tuple[bool, Numbers]]], *, grouped: bool) -> None:
    wide = 480 / len(rounds)  # room for a round, in pixels of half the plot
    for n, one in enumerate(rounds, 1):
        for k, (original, (low, first, third, high, middle)) in enumerate(one):
            x = n + (k - (len(one) - 1) / 2) * 0.24
            axes.vlines(x, low, high, color=_ARM[original], lw=1.5)
            axes.vlines(x, first, third, color=_ARM[original], lw=min(9, max(3, wide * 0.2)))
            axes.plot(
                [x],
                [middle],
                "o",
                color=INK["paper"],
                mec=_ARM[original],
                mew=1.5,
                ms=min(6, max(3.5, wide * 0.15)),
            )
    top = max(max(found[3], found[4]) for one in rounds for _, found in one)
    axes.set(
        xlim=(0.4, len(rounds) + 0.6),
        ylim=(0, 1.06 * top),
        ylabel="step time, ms",
        xlabel="round" if grouped else "run",
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=15, min_n_ticks=1))


def _ratios(axes: Axes, ratio: Ratio, noise: Ratio, number: int) -> None:
    pairs = [(n, r) for n, r in enumerate(ratio.of_pairs, 1) if math.isfinite(r)]
    spread = max(1.0, *(r for _, r in pairs)) - min(1.0, *(r for _, r in pairs))
    floor = words.floor_of(noise)
    if floor is not None:
        axes.axhspan(1 / (1 + floor), 1 + floor, color=INK["original"], alpha=0.28, lw=0)
    axes.axhline(1, color=INK["muted"], lw=1, ls=(0, (3, 3)))
    beside: Any = {"transform": axes.get_yaxis_transform(), "va": "center", "fontsize": 13}
    axes.text(
        1.008,
        ratio.value,
        words.ratio(ratio)[0] + "×",
        color=INK["rewritten"],
        fontweight="bold",
        **beside,
    )
    if floor is not None and abs(ratio.value - 1) > 0.15 * spread:
        axes.text(1.008, 1, words.floor(noise), color=INK["muted"], **beside)
    if math.isfinite(ratio.high - ratio.low):
        axes.axhspan(ratio.low, ratio.high, color=INK["rewritten"], alpha=0.22, lw=0)
    axes.axhline(ratio.value, color=INK["rewritten"], lw=1.5)
    axes.plot(
        [n for n, _ in pairs],
        [r for _, r in pairs],
        "o",
        color=INK["rewritten"],
        ms=6,
        mec=INK["paper"],
        mew=1,
    )
    axes.set(xlim=(0.4, number + 0.6), ylabel="original ÷ rewritten", xlabel="round")
    axes.margins(y=0.12)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=15, min_n_ticks=1))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))


# ------------------------------------------------------------------------------------------- losses
def _losses(v: Verification) -> Plot:
    """Loss curves of both scripts over the band of the original's seeds, and their difference for
    the same seed.
    """
    found = curves(v)
    if found is None:
        return None
    figure = _figure(300)
    if found.differences:
        left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
        _difference(right, found)
    else:
        left = figure.subplots()
    if found.band is not None:
        left.fill_between(found.steps, *found.band, color=INK["original"], alpha=0.28, lw=0)
    for loss in found.rewritten if len(found.rewritten) > 1 else ():
        left.plot(found.steps, loss, color=INK["rewritten"], lw=0.8, alpha=0.45)
    left.plot(found.steps, found.mean(found.original), color=INK["original"], lw=3)
    left.plot(found.steps, found.mean(found.rewritten), color=INK["rewritten"], lw=1.6)
    left.set(xlabel="optimizer step", ylabel="loss")
    left.margins(x=0.01)
    return figure, "Loss of both scripts by optimizer step"


def _difference(axes: Axes, found: Curves) -> None:
    if found.stray is not None:
        axes.fill_between(found.steps, *found.stray, color=INK["original"], alpha=0.28, lw=0)
    axes.axhline(0, color=INK["muted"], lw=1)
    for line in found.differences:
        axes.plot(
            found.steps,
            line,
            color=INK["rewritten"],
            lw=0.8,
            alpha=0.5 if len(found.differences) > 1 else 1,
        )
    if len(found.differences) > 1:
        axes.plot(found.steps, found.mean(found.differences), color=INK["rewritten"], lw=1.8)
    axes.set(xlabel="optimizer step", ylabel="rewritten − original")
    axes.margins(x=0.01)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=False)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6))


# ------------------------------------------------------------------------------------------- phases
def _phases(v: Verification) -> Plot:
    """A bar for each script, as long as its step."""
    d = v.diagnosis
    if d is None or not any((*d.before.values(), *d.after.values())):
        return None
    if v.speed is not None:
        lengths = 1e3 * v.speed.step_before, 1e3 * v.speed.step_after
    else:
        lengths = 100.0, 100.0
    if not all(math.isfinite(x) and x > 0 for x in lengths):
        lengths = (100.0, 100.0)
    figure = _figure(165)
    axes = figure.subplots()
    for row, (shares, length) in enumerate(zip((d.before, d.after), lengths, strict=True)):
        _bar(axes, row, shares, length, max(lengths))
    unit = "milliseconds of a step" if v.speed is not None else "per cent of a step"
    axes.set(ylim=(1.5, -0.5), xlim=(0, max(lengths) * 1.001), xlabel=unit)
    axes.set_yticks((0, 1), labels=("original", "rewritten"))
    axes.tick_params(axis="y", labelcolor=INK["ink"])
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x")
    return figure, "Where the time of a step goes in both scripts"


def _bar(axes: Axes, row: int, shares: Mapping[str, float], length: float, longest: float) -> None:
    start = 0.0
    for phase in PHASES:
        wide = shares.get(phase, 0.0) * length
        if not wide > 0:
            continue
        axes.barh(
            row,
            wide,
            left=start,
            height=0.66,
            color=INK[f"phase-{phase}"],
            edgecolor=INK["paper"],
            linewidth=1.5,
        )
        room = wide / longest * (WIDTH - 90)
        label = f"{phase} {words.percent(shares[phase])}"
        text = (
            label if room > 8.5 * len(label) else words.percent(shares[phase]) if room > 40 else ""
        )
        axes.text(
            start + wide / 2, row, text, ha="center", va="center", color=INK["white"], fontsize=13
        )
        start += wide


# -------------------------------------------------------------------------------------------- rules
def contributions(made: Sequence[Contribution], noise: Ratio | None) -> str:
    """What each rule does, as SVG; empty where nothing was measured."""
    with matplotlib.rc_context(dict(STYLE)):  # type: ignore[arg-type]
        found = _drawn(made, noise)
        return inline(found[0], "rules", found[1]) if found is not None else ""


def _rules(v: Verification) -> Plot:
    return _drawn(v.contributions, v.speed.noise if v.speed is not None else None)


def _drawn(made: Sequence[Contribution], noise: Ratio | None) -> Plot:
    """The interval of each rule's ratio, alone and among all, over the noise floor."""
    rows = [
        c
        for c in made
        if any(r is not None and math.isfinite(r.value) for r in (c.alone, c.left_out))
    ]
    if not rows:
        return None
    figure = _figure(64 + 30 * len(rows))
    axes = figure.subplots()
    if noise is not None and (floor := words.floor_of(noise)) is not None:
        axes.axvspan(1 / (1 + floor), 1 + floor, color=INK["original"], alpha=0.28, lw=0)
    axes.axvline(1, color=INK["muted"], lw=1)
    for n, c in enumerate(rows):
        for r, shift, full in ((c.alone, -0.15, True), (c.left_out, 0.15, False)):
            if r is not None and math.isfinite(r.value):
                if math.isfinite(r.high - r.low):
                    axes.hlines(
                        n + shift, r.low, r.high, color=INK["rewritten"], lw=2 if full else 1.2
                    )
                fill = INK["rewritten"] if full else INK["paper"]
                axes.plot(
                    [r.value], [n + shift], "o", color=fill, mec=INK["rewritten"], mew=1.4, ms=6
                )
    axes.set(ylim=(len(rows) - 0.4, -0.6), xlabel="time without the rule ÷ time with it")
    axes.set_yticks(range(len(rows)), labels=[words.one_line(c.rule, 40) for c in rows])
    axes.tick_params(axis="y", labelcolor=INK["ink"])
    axes.grid(axis="x")
    return figure, "What each rule contributes, with 95 % intervals"
