"""Runs of settings, in fresh processes by verify's engine, and what they say by verify's
statistics.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from autofast.edit.plan import PostConditionError
from autofast.report.progress import Tell
from autofast.tune.result import Confirmation
from autofast.tune.search import Spent
from autofast.tune.setting import ORIGINAL, Setting
from autofast.verify import speed
from autofast.verify.estimates import median
from autofast.verify.evidence.record import Detail, Run
from autofast.verify.judging import parity
from autofast.verify.result import Ratio, Sameness, SpeedVerdict, Verification
from autofast.verify.running.runs import OutOfTime, Program, Runner, last_line
from autofast.verify.series import (
    BY_USER,
    LIGHT,
    ORIGINAL as OF_ORIGINAL,
    REWRITTEN,
    Series,
    Wanted,
)

RESERVED = 0.25  # of the budget, for the confirmation
CONFIRMING = 2 * speed.FIRST + 2  # runs that it takes at the least, and some more
REPEATS = 2  # rounds that are made again, because something else kept the machine busy
LONGEST, FACTOR, PARTS = (
    30.0,
    3.0,
    8.0,
)  # of a run: seconds, runs of the original, parts of the budget


class Choices(Protocol):
    """The part of a ``Space`` that is needed here."""

    def program(self, setting: Setting, arm: str) -> Program: ...

    def effect(self, setting: Setting) -> str: ...


@dataclass
class Measuring:
    """A :class:`~autofast.tune.search.Measurer`. ``begin`` comes first.

    Attributes:
        amount: what a finished series amounts to, for the setting that it was made for.
        confirmation: the last one that was made.
    """

    runner: Runner
    choices: Choices
    wanted: Wanted
    amount: Callable[[Series, Setting], Verification]
    tell: Tell
    began: float = field(default_factory=time.monotonic)
    runs: list[Run] = field(default_factory=list)
    steps: int = 0
    dropped: int = 0
    pilot: Run | None = None
    confirmation: Verification | None = None
    _rounds: list[dict[Setting, list[Run]]] = field(default_factory=list)
    _failed: dict[Setting, str] = field(default_factory=dict)
    _originals: list[Run] = field(default_factory=list)  # that look closely, shared by all tests
    _close: dict[Setting, list[Run]] = field(default_factory=dict)
    _order: random.Random = field(default_factory=lambda: random.Random(0))

    def begin(self) -> None:
        """The pilot. Raises ``NoRun`` where the original does not run."""
        setup = self.runner.setup
        series = self._series(ORIGINAL)
        series.begin()
        self.pilot, self.steps = series.pilot, series.steps
        self.runs += series.runs
        # One choice that hangs, or compiles for minutes, must not use up the time of all others.
        budget = self.wanted.budget
        limit = max(LONGEST, FACTOR * self._seconds(), budget / PARTS) if budget else 0.0
        self.runner.setup = replace(setup, limit=setup.limit or limit)

    # ------------------------------------------------------------------------------- for the search
    def round(self, settings: Sequence[Setting]) -> None:
        order = list(range(len(settings)))
        self._order.shuffle(order)
        made: dict[Setting, dict[int, Run]] = {}
        for place in order:
            setting = settings[place]
            if setting in self._failed:
                continue
            run = self._run(setting, LIGHT, str(setting))
            if run is not None:
                made.setdefault(setting, {})[place] = run
        if self.dropped < REPEATS and any(
            self._busy(run) for runs in made.values() for run in runs.values()
        ):
            self.dropped += 1
            return
        self._rounds.append(
            {setting: [runs[n] for n in sorted(runs)] for setting, runs in made.items()}
        )

    def ratio(self, base: Setting, other: Setting) -> Ratio | None:
        pairs = [(r[base][0], r[other][0]) for r in self._rounds if base in r and other in r]
        return speed.judge((), pairs).ratio if pairs else None

    def noise(self) -> Ratio | None:
        twice = [
            pair
            for setting in dict.fromkeys(x for r in self._rounds for x in r)
            for pair in self._twice(setting)
        ]
        return speed.judge(twice, ()).noise if twice else None

    def _twice(self, setting: Setting) -> list[tuple[Run, Run]]:
        found = [r[setting] for r in self._rounds if len(r.get(setting, ())) > 1]
        return [(runs[0], runs[1]) for runs in found]

    def failure(self, setting: Setting) -> str:
        return self._failed.get(setting, "")

    def sameness(self, setting: Setting) -> tuple[Sameness, str]:
        """By the runs of verify's tests; those of the original are made once for all settings."""
        wanted = self.wanted
        effect, rules = self.choices.effect(setting), sorted(setting.rules)
        asked: dict[str, Any] = {"rules": rules, "seeds": wanted.seeds, "margin": wanted.margin}
        made = self._close[setting] = []
        spare = list(self._originals)
        with contextlib.suppress(Spent):  # what there is, is judged
            while wishes := parity.wanted(effect, made, **asked):
                for wish in wishes:
                    made.append(self._granted(wish, setting, spare, len(made) + 1))
        found = parity.judge(effect, made, **asked)
        return found.verdict, found.summary

    def _granted(self, wish: parity.Wish, setting: Setting, spare: list[Run], number: int) -> Run:
        """A run of the original that was made for another setting, where there is one; else a new
        run.
        """
        if wish.arm != OF_ORIGINAL:
            self.tell(f"sameness: run {number}, {setting}, {wish.reason}")
            return self._closely(setting, wish.detail, REWRITTEN, wish.seed)
        for run in spare:
            if run.seed == wish.seed and run.detail == wish.detail:
                spare.remove(run)
                return run
        self.tell(f"sameness: run {number}, original, {wish.reason}")
        return self._closely(ORIGINAL, wish.detail, OF_ORIGINAL, wish.seed)

    def confirm(self, setting: Setting) -> Confirmation:
        """Fresh pairs, until verify's test has its answer or the budget is used up."""
        assert self.pilot is not None
        series = self._series(setting)
        made = len(self._close.get(setting, ()))
        series.confirm(self.pilot, self.steps, self._close.get(setting, ()), self._twice(ORIGINAL))
        self.runs += series.runs[made:]
        self.confirmation = found = self.amount(series, setting)
        verdict = found.speed.verdict if found.speed else SpeedVerdict.UNCLEAR
        return Confirmation(
            verdict,
            found.speed.ratio if found.speed else None,
            found.parity.verdict if found.parity else Sameness.UNCLEAR,
            (found.speed.reason if found.speed else "") or found.interrupted,
            ended=found.interrupted == BY_USER,
        )

    # ----------------------------------------------------------------------------------------- runs
    def _run(self, setting: Setting, detail: Detail, arm: str, shift: int = 0) -> Run | None:
        """One run; None where it failed, which is remembered. Raises ``Spent``."""
        if time.monotonic() > self._end():
            raise Spent
        try:
            run = self.runner.run(
                self.choices.program(setting, arm),
                seed=self.wanted.seed + shift,
                shift=shift,
                detail=detail,
                steps=self.steps,
                deadline=self._end() + self._seconds(),
            )
        except PostConditionError as error:
            self._failed[setting] = str(error)
            return None
        except OutOfTime:
            raise Spent from None
        self.runs.append(run)
        if run.ok:
            return run
        if setting:
            self._failed[setting] = _why(run)
        return None

    def _busy(self, run: Run) -> bool:
        """Something else kept the machine busy, as verify asks it of a round."""
        usual = [r for r in self.runs if r.arm == run.arm and r.detail == LIGHT]
        return speed.busy(run, usual)

    def _closely(self, setting: Setting, detail: Detail, arm: str, shift: int) -> Run:
        before = len(self.runs)
        self._run(setting, detail, arm, shift)
        run = self.runs[before]  # one that failed tells something, too
        if not setting:
            self._originals.append(run)
        return run

    def _series(self, setting: Setting) -> Series:
        """Of the original and ``setting``, ending early enough for the runs that are then under
        way.
        """
        budget = self.wanted.budget
        if budget and self.pilot is not None:
            budget = max(budget - 2 * self._seconds(), 1.0)
        effect, rules = self.choices.effect(setting), tuple(sorted(setting.rules))
        return Series(
            self.runner,
            self.choices.program(ORIGINAL, OF_ORIGINAL),
            self.choices.program(setting, REWRITTEN),
            replace(self.wanted, effect=effect, rules=rules, budget=budget),
            self.tell,
            began=self.began,
        )

    def _seconds(self) -> float:
        """What a run of the original takes; the first one also compiles the byte code of all that
        is imported.
        """
        made = [run.seconds for r in self._rounds for run in r.get(ORIGINAL, ())]
        return median(made) if made else self.pilot.seconds if self.pilot is not None else 0.0

    def _end(self) -> float:
        """When the search has to stop, so that the confirmation has its share."""
        budget = self.wanted.budget
        if not budget:
            return math.inf
        return self.began + budget - min(budget / 2, self._reserved())

    def _reserved(self) -> float:
        return max(RESERVED * self.wanted.budget, CONFIRMING * self._seconds())


def _why(run: Run) -> str:
    if run.timed_out:
        return f"a run did not end within {run.seconds:.0f} s"
    if run.records and run.record.error:
        return run.record.error
    last = last_line(run.stderr)
    return f"exit code {run.exit_code}: {last}"
