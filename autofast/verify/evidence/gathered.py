"""The runs that sameness is judged from, sorted, and which are wanted next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autofast.registry import all_rules
from autofast.verify.evidence.figures import shown
from autofast.verify.evidence.numbered import aligned
from autofast.verify.evidence.ranks import compared
from autofast.verify.evidence.record import FULL, Detail, Record, Run, Step, Words
from autofast.verify.result import Check

ORIGINAL, REWRITTEN = "original", "rewritten"
DOUBLE = replace(FULL, double=True)
# Spacing of bfloat16 and of float32 around 1: the size of one rounding.
HALF_STEP, SINGLE_STEP = (2.0**-8, 2.0**-23)


@dataclass(frozen=True)
class Wish:
    """A run to make: which script, seed (a shift: 0 is the script as it is), how closely to look,
    and why, for the line of progress."""

    arm: str
    seed: int
    detail: Detail
    reason: str


@dataclass(frozen=True)
class Evidence:
    """Attributes:
    effect: "exact", "rounding", "sampling", "recipe" or "unknown".
    originals: of the original at seed 0, nothing changed: what is reproducible at all is seen from
    the first two.
    rewritten: of the rewritten script at seed 0.
    double, perturbed: of the original at seed 0 in double precision, and with its parameters moved
        by one rounding; None: not made or failed.
    pairs: (original, rewritten) at equal seeds, seed 0 first; only where both came through.
    others: the original at every seed, one run each.
    half: the rewrite computes in 16 bits or TF32; None: not known.
    failed: of the rewritten script at any seed.
    tried: (arm, seed, detail) of all runs.
    made: ``rewritten`` with a record for each of its processes, where the comparison takes them
    together (``ranks``).
    uncut: where runs of unequal length were cut to what they share (``shared``), the same evidence
    with all of them.
    driven: runs of both with weights that move by themselves.
    common: runs of both with common random numbers, as if they were any others. told: what these
    say, where it is not all that is asked.
    margin: smallest difference in loss that matters, as a share of the loss.
    seeds: how many pairs are made at most. rules: names of those applied. arm: of rewritten runs.
    """

    effect: str
    originals: tuple[Run, ...] = ()
    rewritten: tuple[Run, ...] = ()
    double: Run | None = None
    perturbed: Run | None = None
    pairs: tuple[tuple[Run, Run], ...] = ()
    others: tuple[Run, ...] = ()
    half: bool | None = None
    margin: float = 0.02
    seeds: int = 12
    failed: tuple[Run, ...] = ()
    tried: frozenset[tuple[str, int, Detail]] = frozenset()
    made: tuple[Run, ...] = ()
    uncut: Evidence | None = None
    common: tuple[Run, ...] = ()
    driven: tuple[Run, ...] = ()
    told: Check | None = None
    rules: Words | None = None
    arm: str = REWRITTEN

    @property
    def both(self) -> tuple[Run, Run]:
        """The first run of each script."""
        return self.a, self.b

    @property
    def records(self) -> tuple[Record, Record]:
        return self.a.record, self.b.record

    @property
    def a(self) -> Run:
        return self.originals[0]

    @property
    def b(self) -> Run:
        return self.rewritten[0]


def gather(
    effect: str,
    runs: Sequence[Run],
    *,
    rules: Iterable[str] | None = None,
    arm: str = REWRITTEN,
    margin: float = 0.02,
    seeds: int = 12,
) -> Evidence:
    """Sort ``runs``; ``arm`` is the one compared with the original. ``rules``: names of those
    applied, which tell the precision to expect."""
    driven = [r for r in runs if r.detail.driven]
    driven = [_as_in(driven[:1], r) if r.arm == arm else r for r in driven]
    common = tuple(
        replace(r, detail=replace(r.detail, common=False))
        for r in runs
        if r.detail.common and not r.detail.driven
    )
    runs = [r for r in runs if not r.detail.common]
    made = tuple(r for r in runs if r.arm == arm and r.seed == 0)
    runs = compared(runs)
    plain = [r for r in runs if not r.detail.double and not r.detail.perturb]
    arms = {name: [r for r in plain if r.arm == name] for name in (ORIGINAL, arm)}
    arms[arm] = [_as_in(arms[ORIGINAL], run) for run in arms[arm]]
    good: dict[str, dict[int, Run]] = {ORIGINAL: {}, arm: {}}
    for name, some in arms.items():
        for run in some:
            if run.ok:
                good[name].setdefault(run.seed, run)
    special = [r for r in runs if r.arm == ORIGINAL and r.ok and r not in plain]
    lower = {name for name, rule in all_rules().items() if rule.lowers_precision}
    half = None if rules is None else bool(lower & {*rules})
    return Evidence(
        effect,
        tuple(r for r in arms[ORIGINAL] if r.seed == 0),
        tuple(r for r in arms[arm] if r.seed == 0),
        next((r for r in special if r.detail.double), None),
        next((r for r in special if r.detail.perturb and not r.detail.double), None),
        tuple((good[ORIGINAL][s], good[arm][s]) for s in sorted(good[ORIGINAL]) if s in good[arm]),
        tuple(good[ORIGINAL][s] for s in sorted(good[ORIGINAL])),
        half,
        margin,
        seeds,
        tuple(r for r in arms[arm] if not r.ok),
        frozenset((r.arm, r.seed, r.detail) for r in runs),
        made,
        common=common,
        driven=tuple(driven),
        rules=None if rules is None else tuple(rules),
        arm=arm,
    )


def _as_in(originals: Sequence[Run], run: Run) -> Run:
    """With the numbers that its models have in the first of these."""
    records = [
        aligned(record, first.record)
        for first in originals[:1]
        if first.records
        for record in run.records
    ]
    return replace(run, records=tuple(records)) if records else run


def given(run: Run) -> Counter[int]:
    """Samples that the models are given in each step."""
    found = Counter[int]()
    for call in run.record.calls:
        found[call.step] += call.samples
    return found


def summed(run: Run, name: str) -> list[float]:
    """An attribute of every step, summed over ranks."""
    rows = [[float(getattr(step, name)) for step in record.steps] for record in run.records]
    return [sum(values) for values in zip(*rows, strict=False)]


def curve(run: Run) -> list[float]:
    """The loss of every optimizer step of rank 0: the sum of what its backwards were called on,
    whose gradient is the step's, however many they are; nan where it had none. Without steps: every
    backward's. Where no loss was seen: as it is printed."""
    steps = run.record.steps
    if not any(s.losses for s in steps):
        return list(run.record.losses) or shown(run)
    return [sum(s.losses) if s.losses else float("nan") for s in steps]


def norms(run: Run, name: str) -> list[float | None]:
    """``grad_norm``, ``left_norm`` or ``update_norm`` of every step that was not skipped."""
    return [getattr(s, name) for s in run.record.steps if not s.skipped]


def taken(run: Run) -> list[Step]:
    """Steps that were not skipped."""
    return [s for s in run.record.steps if not s.skipped]
