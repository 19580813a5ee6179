"""The figures of a verification as rows of text, for every report alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from autofast.report import verify_words as words
from autofast.report.style import count
from autofast.report.verify_words import NONE, ORIGINAL, REWRITTEN
from autofast.verify.evidence.record import PHASES, Detail, Run
from autofast.verify.result import (
    Answer,
    Check,
    Contribution,
    Parity,
    Ratio,
    Sameness,
    Verification,
)
from autofast.verify.speed import FIRST, MINIMUM


@dataclass(frozen=True)
class Row:
    """One figure of both scripts, and what is to be said of the change; ``main`` where a decision
    needs it.
    """

    label: str
    before: str
    after: str
    change: str = ""
    main: bool = True


@dataclass(frozen=True)
class Part:
    """Of the details: rows of a table, ``right`` the columns of figures, and what is said first."""

    title: str
    rows: Sequence[Sequence[str]]
    columns: Sequence[str] = ()
    right: Sequence[int] = ()
    said: str = ""


def details(v: Verification) -> Iterator[Part]:
    """What a decision does not need, but its reader may ask for."""
    if v.parity is not None:
        passed = Counter("passed" if c.passed else outcome(c) for c in v.parity.checks)
        tally = ", ".join(f"{n} {word}" for word, n in sorted(passed.items()))
        yield Part(
            f"Does it train the same? {tally}",
            [(c.name, how, c.text) for c, how in checks(v.parity)],
            ("check", "outcome", "figures"),
            said=f"Strongest effect of the rules: {v.parity.effect}.",
        )
    if v.speed is not None:
        yield Part("How sure the figure of speed is", evidence(v))
    if v.diagnosis is not None:
        rows = [(r.label, r.before, r.after) for r in shares(v)]
        columns = ("phase", "original", "rewritten")
        title = "Where the time of a step goes"
        yield Part(title, rows, columns, (1, 2), v.diagnosis.sentence)
        if told := answers(v):
            yield Part("What rules say to that", told, ("rule", "on this script"))
    yield from by_rule(v)
    yield Part("How it was measured", [*measured(v), *v.environment.items()])


def conclusions(v: Verification) -> Iterator[tuple[str, str]]:
    """What the first sentence leaves open: what else is not as it was, where to look, what to do,
    what bounds the script, what the figures do not say."""
    checks, said = v.parity.checks if v.parity else (), words.sentence(v)
    weighs = (("Also failed", False, Sameness), ("Also open", None, (Sameness.UNCLEAR,)))
    for label, passed, kinds in weighs:
        here = [c.name for c in checks if c.passed is passed and c.verdict in kinds]
        found = [name for name in here if name not in said]
        yield label, ", ".join(found[:5]) + f" and {len(found) - 5} more" * (len(found) > 5)
    yield "Where to look", v.parity.lead if v.parity else ""
    yield "Next", words.advice(v)
    d = v.diagnosis
    if d is not None and v.speed is not None:
        rules = [a for a in d.answers if a.state in ("possible", "advised", "on request")]
        told = f"by hand: {d.by_hand}" * bool(d.by_hand)
        told = f"{rules[0].rule}: {_answered(rules[0])}" if rules else told
        yield "Bottleneck", f"{d.sentence} {told}"
    for warning in v.warnings:
        yield "Note", warning
    yield (
        "More",
        f"--verbose: {count(len(checks), 'check')}, phases, runs, machine; --report FILE: plots",
    )


def by_rule(v: Verification) -> Iterator[Part]:
    """What each rule gives alone and among all, where that was asked for."""
    if v.contributions:
        rows = [
            (c.rule, words.interval(c.alone), words.interval(c.left_out), finding(v, c), c.note)
            for c in v.contributions
        ]
        columns = ("rule", "alone", "among all", "finding", "note")
        title = "What each rule contributes: time without it ÷ time with it (95 % interval)"
        yield Part(title, rows, columns, (1, 2))


def timed(v: Verification, arm: str) -> list[Run]:
    """The runs that the figures of speed come from."""
    return [run for run in v.runs if run.arm == arm and run.detail == Detail() and run.ok]


def comparisons(v: Verification) -> list[Row]:
    """What was measured of both scripts: times, throughput, memory, waits."""
    return [*_times(v), *_resources(v)]


def _times(v: Verification) -> Iterator[Row]:
    s = v.speed
    if s is None:
        return
    yield Row(
        f"Time per step ({s.statistic})",
        words.seconds(s.step_before),
        words.seconds(s.step_after),
    )
    samples = [_of(v, arm, _samples) for arm in (ORIGINAL, REWRITTEN)]
    if all(samples) and s.step_before > 0 and s.step_after > 0:
        rates = [
            words.number((n or 0) / t)
            for n, t in zip(samples, (s.step_before, s.step_after), strict=True)
        ]
        yield Row("Samples per second", rates[0], rates[1], main=samples[0] != samples[1])
    yield Row(
        "Start to end of first step",
        words.seconds(s.first_step_before),
        words.seconds(s.first_step_after),
    )
    if s.compiling:
        yield Row("  of this, torch.compile", NONE, words.seconds(s.compiling))
    if s.whole is not None and math.isfinite(s.whole.value):
        length = count(s.own_steps, "step") if s.own_steps is not None else count(v.steps, "step")
        yield Row(
            f"Whole run of {length}, start-up included",
            words.seconds(s.whole_before),
            words.seconds(s.whole_after),
            _whole_change(s.whole),
        )


def _whole_change(whole: Ratio) -> str:
    """No gain is read from fewer pairs than a verdict needs, or from an interval that holds 1."""
    if whole.pairs < FIRST:
        return "unclear"
    if whole.low <= 1 <= whole.high:
        return "no difference shown"
    return f"{words.interval(whole)}×"


def _resources(v: Verification) -> Iterator[Row]:
    if not timed(v, ORIGINAL) or not timed(v, REWRITTEN):
        return
    readings: list[tuple[str, Callable[[Run], float | None], Callable[[float], str], bool]] = [
        ("Peak memory, GPU", _device_memory, words.memory, True),
        (
            "Peak memory, host",
            lambda run: sum(r.peak_memory for r in run.records),
            words.memory,
            True,
        ),
        (
            "  largest worker process",
            lambda run: max(r.peak_memory_children for r in run.records),
            words.memory,
            False,
        ),
        (
            "GPU utilisation",
            lambda run: _mean(
                [x for r in run.records for d in r.devices for x in d.utilisation], 0.01
            ),
            words.percent,
            True,
        ),
        ("Host waits for the GPU, per step", _syncs, lambda x: f"{x:.1f}", False),
    ]
    for label, reading, shown, main in readings:
        before, after = _of(v, ORIGINAL, reading), _of(v, REWRITTEN, reading)
        if before or after:
            texts = [NONE if x is None else shown(x) for x in (before, after)]
            change = _relative(before, after) if shown is words.memory else ""
            yield Row(label, texts[0], texts[1], change, main)


def _of(v: Verification, arm: str, reading: Callable[[Run], float | None]) -> float | None:
    """The median over the timed runs of one script."""
    values = [x for x in map(reading, timed(v, arm)) if x is not None and math.isfinite(x)]
    return median(values) if values else None


def _samples(run: Run) -> float | None:
    """Of one step, over all ranks."""
    per_rank = [
        median(n) for n in ([s.samples for s in r.steps if s.samples] for r in run.records) if n
    ]
    return float(sum(per_rank)) or None


def _device_memory(run: Run) -> float | None:
    return max((d.peak_memory for r in run.records for d in r.devices), default=None)


def _syncs(run: Run) -> float | None:
    steps = sum(len(r.steps) for r in run.records)
    waits = sum(n for r in run.records for n in r.syncs.values())
    return waits / steps if steps and any(r.devices for r in run.records) else None


def _mean(values: list[float], scale: float = 1.0) -> float | None:
    return scale * sum(values) / len(values) if values else None


def _relative(before: float | None, after: float | None) -> str:
    if not before or after is None:
        return ""
    change = after / before - 1
    return "" if abs(change) < 0.005 else f"{'+' if change > 0 else '−'}{100 * abs(change):.0f} %"


def evidence(v: Verification) -> list[tuple[str, str]]:
    """How sure the figure of speed is, and what it costs."""
    s = v.speed
    if s is None:
        return []
    rows = [
        (
            "Original ÷ rewritten",
            f"{words.ratio(s.ratio)[0]}, {words.evidence(s.ratio, '95 % interval')}",
        )
    ]
    against = "not measured"
    if s.noise.pairs:
        against = f"{words.ratio(s.noise)[0]}, {words.evidence(s.noise, '95 % interval')}: noise floor {words.floor(s.noise)}"
    rows.append(("Original against itself", against))
    rows.append(("Warm-up", f"{count(s.warm_up, 'step')} left out at the start of each run"))
    return rows


def answers(v: Verification) -> list[tuple[str, str]]:
    """Each rule that addresses what bounds the script, and what became of it there; then what a
    person can do.
    """
    d = v.diagnosis
    if d is None:
        return []
    rows = [(answer.rule, _answered(answer)) for answer in d.answers]
    left = not any(answer.state in ("applied", "possible") for answer in d.answers)
    return rows + ([("by hand", d.by_hand)] if d.by_hand and left else [])


def _answered(answer: Answer) -> str:
    more = f" and {answer.places - 1} more" if answer.places > 1 else ""
    at = f" at {answer.place}{more}" if answer.place else ""
    return {
        "applied": f"applied{at}",
        "possible": f"would change the original{at}",
        "refused": f"refused{at}: {answer.reason}",
        "advised": f"advice{at}: {answer.reason}",
        "on request": f"on request: {answer.reason}",
        "nothing": "finds nothing to change",
        "unknown": "the original could not be read",
    }[answer.state]


def checks(parity: Parity) -> list[tuple[Check, str]]:
    """With their outcomes; what did not pass stands first."""
    return [(c, outcome(c)) for c in sorted(parity.checks, key=lambda c: bool(c.passed))]


def outcome(check: Check) -> str:
    """``passed``, ``failed``, ``not decided``, ``identical``."""
    if check.passed is None:
        return "not decided"
    return "failed" if not check.passed else "identical" if check.identical else "passed"


def shares(v: Verification) -> list[Row]:
    """Where the time of a step goes, before and after; times where speed was measured. Phases below
    half a per cent in both are left out.
    """
    d = v.diagnosis
    if d is None:
        return []
    rows = []
    for phase in [p for p in PHASES if p in d.before or p in d.after]:
        before, after = d.before.get(phase, 0.0), d.after.get(phase, 0.0)
        if max(before, after) >= 0.005:
            times = (v.speed.step_before, v.speed.step_after) if v.speed else (None, None)
            known = [
                _share(share, time) if of else NONE
                for share, time, of in zip((before, after), times, (d.before, d.after), strict=True)
            ]
            rows.append(Row(phase, known[0], known[1]))
    return rows


def _share(share: float, step: float | None) -> str:
    return words.percent(share) + (
        f" ({words.seconds(share * step)})"
        if step is not None and math.isfinite(step) and share
        else ""
    )


def finding(v: Verification, c: Contribution) -> str:
    """What one rule was shown to do, against the noise floor: ``helps``, ``costs``, ``no effect
    shown``, ``unclear``.
    """
    known = [r for r in (c.alone, c.left_out) if r is not None and math.isfinite(r.value)]
    if not known:
        return "not measured"
    noise = words.floor_of(v.speed.noise) if v.speed is not None else None
    if noise is None:
        return "unclear"
    floor = 1 + max(noise, MINIMUM)  # as for the verdict
    helps = any(r.low > floor for r in known)
    costs = any(r.high < 1 / floor for r in known)
    if helps and costs:
        return "unclear"
    if helps:
        return "helps"
    if costs:
        return "costs"
    return "no effect shown"


def measured(v: Verification) -> list[tuple[str, str]]:
    """How it was measured."""
    rows = [("Steps per run", str(v.steps or ""))]
    if v.runs:
        kinds = Counter(
            (_purpose(run), run.arm if run.arm in (ORIGINAL, REWRITTEN) else "subsets of rules")
            for run in v.runs
        )
        rows.append(("Runs", "; ".join(f"{kind}: {n} × {arm}" for (kind, arm), n in kinds.items())))
        ranks = max((len(run.records) for run in v.runs), default=1)
        if ranks > 1:
            rows.append(("Processes per run", str(ranks)))
        waits = [run.pressure for run in v.runs if run.pressure is not None]
        if waits:
            rows.append(
                (
                    "Processes waited for a CPU",
                    f"{median(waits):.1f} % of the time (median run), {max(waits):.1f} % (worst)",
                )
            )
    if v.dropped:
        rows.append(("Repeated", f"{count(v.dropped, 'round')}, as the machine was busy"))
    rows += [("Command, original", v.original.command), ("Command, rewritten", v.rewritten.command)]
    return [(label, text) for label, text in rows if text]


def _purpose(run: Run) -> str:
    if run.detail == Detail():
        return "timed"
    if run.detail.double:
        return "in double precision"
    if run.detail.perturb:
        return "perturbed"
    if run.detail.common:
        return "with common random numbers"
    return "compared"


def rounds(v: Verification) -> list[tuple[Run, ...]]:
    """The timed runs, those of one round together; a round for each run where it is not known."""
    known = [tuple(v.runs[n] for n in places if n < len(v.runs)) for places in v.rounds]
    return known or [
        (run,)
        for run in v.runs
        if run.detail == Detail() and run.arm in (ORIGINAL, REWRITTEN) and run.ok
    ]


def errors(v: Verification) -> list[tuple[str, str]]:
    """The last lines that failed runs left behind, one for each arm: (what, text)."""
    found: dict[str, tuple[str, str]] = {}
    for run in v.runs:
        if not run.ok and run.arm not in found:
            traces = [r.traceback for r in run.records if r.traceback]
            found[run.arm] = (
                f"{run.arm}, exit code {run.exit_code}",
                words.clean((traces or [run.stderr or "no output"])[0].strip()),
            )
    return list(found.values())
