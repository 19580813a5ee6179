"""Which units to keep, from measurements that somebody else makes.

1. **Screening.** Every unit alone against the original, in rounds of one run each in random order,
   with the original twice: so all see the same minutes of the machine, and the noise floor comes
   with them. Alone, and not left out of the whole: what one rule breaks or slows down then hides
   nothing of the others. After ``LOOK`` rounds those that show no gain make no more of them.
2. **Greedy.** The surest gain first (the lower end of its interval), each unit on top of what is
   kept so far. Kept is what verify's own test calls FASTER over six pairs and more, and what then
   passes the tests of sameness, against the original, together with all that is kept already. Those
   without a gain alone are tried last, on top of what is kept: what bounded the step before may be
   gone.
3. **Leaving out.** Of several that are kept, each is left out once: what no longer pays beside the
   others goes.
4. **Confirmation.** Fresh pairs of the original and what is kept. Without FASTER and the same
   training there, the set kept before the last one is tried, and at the end the original is what is
   kept. The claim is the ratio of these pairs, and no other.

With equal measurements it decides equally: ties are broken by name, and chance only orders the runs
of a round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from autofast.report.progress import Tell
from autofast.tune.result import Confirmation, Decision, Fate, Found, trains_the_same
from autofast.tune.setting import ORIGINAL, Setting, Unit
from autofast.verify import speed
from autofast.verify.result import Ratio, Sameness, SpeedVerdict

LOOK = 3  # rounds after which a unit without a gain is left alone
MOST = 14  # pairs for one decision
LEAST_GAIN = 1 + speed.MINIMUM


class Spent(Exception):
    """The time for the search is used up."""


class Measurer(Protocol):
    """Makes runs; all but ``confirm`` raise ``Spent`` where the time for the search is used up."""

    def round(self, settings: Sequence[Setting]) -> None:
        """One run of each, in random order; a setting may stand there twice."""

    def ratio(self, base: Setting, other: Setting) -> Ratio | None:
        """Time of ``base`` over time of ``other``, from all rounds that had both."""

    def noise(self) -> Ratio | None:
        """What was run twice in a round, against itself."""

    def failure(self, setting: Setting) -> str:
        """Why it does not run; empty where it does, or was not run."""

    def sameness(self, setting: Setting) -> tuple[Sameness, str]:
        """Whether it trains as the original does, and why."""

    def confirm(self, setting: Setting) -> Confirmation: ...


@dataclass
class Search:
    """``effective`` gives the setting that really comes of one: two that write the same are one."""

    units: Sequence[Unit]
    measurer: Measurer
    tell: Tell = lambda line: None
    kept: Setting = ORIGINAL
    history: list[tuple[Setting, Unit]] = field(default_factory=list)
    decisions: dict[Unit, Decision] = field(default_factory=dict)

    def make(self) -> Found:
        """All stages. Ctrl-C and the end of the time leave what was kept by then."""
        interrupted, by_user = "", False
        try:
            waiting = self._greedy(self._screened(), last=False)
            if self.kept:
                self._greedy(waiting, last=True)
            self._leave_out()
        except Spent:
            interrupted = "the time for the search was used up"
        except KeyboardInterrupt:
            interrupted, by_user = "ended by Ctrl-C", True
        self._undecided()
        claim = None
        if not by_user:
            claim, by_user = self._confirmed()
            interrupted = "ended by Ctrl-C" if by_user else interrupted
        return Found(self.kept, self._rows(), claim, interrupted, by_user)

    # --------------------------------------------------------------------------------------- stages
    def _screened(self) -> list[Unit]:
        """All units that run and are not slower alone, the surest gain first."""
        alive = list(self.units)
        for number in range(speed.FIRST):
            self.tell(f"screening: round {number + 1} of {speed.FIRST}, each of {len(alive)} alone")
            self.measurer.round([ORIGINAL, ORIGINAL, *(unit.setting for unit in alive)])
            if number + 1 >= LOOK:
                alive = [unit for unit in alive if self._promising(unit)]
            else:
                alive = [unit for unit in alive if not self.measurer.failure(unit.setting)]
            if not alive:
                break
        for unit in self.units:
            found = self._alone(unit)
            if why := self.measurer.failure(unit.setting):
                self._decide(unit, Fate.FAILED, note=why)
            elif found is not None and _slower(found):
                self._decide(unit, Fate.SLOWER)
        return self._by_gain([unit for unit in self.units if unit not in self.decisions])

    def _greedy(self, units: Sequence[Unit], *, last: bool) -> list[Unit]:
        """Try each on top of what is kept; those without a gain alone are returned, untried, unless
        this is their ``last`` chance.
        """
        waiting = []
        for unit in units:
            found = self._alone(unit)
            if not last and found is not None and found.value <= LEAST_GAIN:
                waiting.append(unit)
            else:
                self._try(unit)
        return waiting

    def _try(self, unit: Unit) -> None:
        trial = self.kept.with_(unit.setting)
        if trial == self.kept:
            return  # another needs it, and is kept
        self.tell(f"{unit.name} on top of {self.kept}: pairs of runs")
        verdict = self._contest(self.kept, trial)
        on_top = self.measurer.ratio(self.kept, trial)
        if why := self.measurer.failure(trial):
            return self._decide(unit, Fate.FAILED, on_top, why)
        if verdict is not SpeedVerdict.FASTER:
            slower = on_top is not None and _slower(on_top)
            return self._decide(unit, Fate.SLOWER if slower else Fate.NO_GAIN, on_top)
        self.tell(f"{unit.name} on top of {self.kept}: does it train the same?")
        sameness, why = self.measurer.sameness(trial)
        if not trains_the_same(sameness):
            open_ = sameness is Sameness.UNCLEAR
            return self._decide(unit, Fate.UNPROVEN if open_ else Fate.DIFFERENT, on_top, why)
        self.kept = trial
        self.history.append((trial, unit))
        self._decide(unit, Fate.KEPT, on_top)

    def _leave_out(self) -> None:
        """Each unit that is kept beside others, once."""
        for _, unit in list(self.history):
            others = {r for u in self._kept_units() if u is not unit for r in u.setting.rules}
            rest = self.kept.without(unit.setting.rules - others)
            if not rest or rest == self.kept or self._has_value(unit):
                continue
            self.tell(f"{unit.name} left out of {self.kept}: pairs of runs")
            verdict = self._contest(self.kept, rest)
            found = self.measurer.ratio(self.kept, rest)
            row = self.decisions[unit]
            self.decisions[unit] = replace(row, left_out=_turned(found))
            if verdict is SpeedVerdict.FASTER and trains_the_same(self.measurer.sameness(rest)[0]):
                self.kept = rest
                self.history[-1] = (rest, self.history[-1][1])
                note = "pays alone, and no longer beside what was kept after it"
                self.decisions[unit] = replace(self.decisions[unit], fate=Fate.SLOWER, note=note)

    def _confirmed(self) -> tuple[Ratio | None, bool]:
        """The claim for what is kept, after going back to what holds; and whether the user ended
        it.
        """
        while self.kept:
            self.tell(f"confirmation: {self.kept}")
            found = self.measurer.confirm(self.kept)
            if found.ended:
                return None, True
            if found.holds:
                return found.ratio, False
            self._go_back(found)
        return None, False

    def _go_back(self, failed: Confirmation) -> None:
        gone = self.history.pop()[1]
        self.kept = self.history[-1][0] if self.history else ORIGINAL
        row = self.decisions[gone]
        self.decisions[gone] = replace(row, fate=Fate.UNCONFIRMED, note=failed.note)

    # ---------------------------------------------------------------------------------------- parts
    def _contest(self, base: Setting, trial: Setting) -> SpeedVerdict:
        """More rounds of the two until verify's test has an answer, or none is to be hoped for."""
        for number in range(MOST + 1):
            found, noise = self.measurer.ratio(base, trial), self.measurer.noise()
            if found is not None and noise is not None and _look(found):
                verdict = speed.verdict_of(noise, found)
                if verdict is not SpeedVerdict.UNCLEAR or _hopeless(found):
                    return verdict
            if self.measurer.failure(trial):
                return SpeedVerdict.UNCLEAR
            # The floor has to get surer with the pairs, or one bad minute of the screening decides
            # them all.
            self.measurer.round([base, trial, *[base] * (number % 2 == 0)])
        return SpeedVerdict.UNCLEAR  # runs of the base fail

    def _promising(self, unit: Unit) -> bool:
        found = self._alone(unit)
        return (
            found is not None
            and found.value > LEAST_GAIN
            and not self.measurer.failure(unit.setting)
        )

    def _by_gain(self, units: Sequence[Unit]) -> list[Unit]:
        def gain(unit: Unit) -> tuple[float, float, str]:
            found = self._alone(unit)
            return (-found.low, -found.value, unit.name) if found else (0.0, 0.0, unit.name)

        return sorted(units, key=gain)

    def _alone(self, unit: Unit) -> Ratio | None:
        return self.measurer.ratio(ORIGINAL, unit.setting)

    def _has_value(self, unit: Unit) -> bool:
        """It replaced the same rule with another value: leaving it out would take both away."""
        return sum(u.rule == unit.rule for u in self._kept_units()) > 1

    def _kept_units(self) -> list[Unit]:
        return [unit for unit, row in self.decisions.items() if row.fate is Fate.KEPT]

    def _decide(self, unit: Unit, fate: Fate, on_top: Ratio | None = None, note: str = "") -> None:
        self.decisions[unit] = Decision(unit, fate, self._alone(unit), on_top, None, note)

    def _undecided(self) -> None:
        """Those that no decision was made on: nothing was kept that they could help, or the time
        was used up.
        """
        for unit in self.units:
            found = self._alone(unit)
            if unit in self.decisions:
                continue
            if found is not None and found.pairs > 1 and found.value <= LEAST_GAIN:
                self._decide(unit, Fate.NO_GAIN)
            else:
                unclear = found is not None and found.pairs >= LOOK
                self._decide(unit, Fate.UNMEASURED, note="not clear yet" * unclear)

    def _rows(self) -> tuple[Decision, ...]:
        """In the order of the units; what was kept and is not any more says so, and what is there
        for the sake of another.
        """
        inside = [u for u in self.units if u.setting and self.kept.with_(u.setting) == self.kept]
        own = [u for u in inside if self.decisions[u].fate is Fate.KEPT]
        rows = []
        for unit in self.units:
            row = self.decisions[unit]
            needs = [u.name for u in own if unit.rule in u.needed]
            other = [u.name for u in own if u.rule == unit.rule and u.setting.values]
            if unit in inside and other and unit.name not in other:
                row = replace(row, fate=Fate.NO_GAIN, note=f"{other[0]} is faster")
            elif unit in inside and needs and row.fate is not Fate.KEPT:
                row = replace(row, fate=Fate.NEEDED, note=f"needed by {', '.join(needs)}")
            elif unit in inside:
                row = replace(row, fate=Fate.KEPT, note="")
            elif row.fate is Fate.KEPT:
                row = replace(row, fate=Fate.UNCONFIRMED)
            rows.append(row)
        return tuple(rows)


def _slower(found: Ratio) -> bool:
    return found.pairs >= LOOK and found.high < 1.0


def _look(found: Ratio) -> bool:
    """Decided is at a few numbers of pairs only: each look is a chance for a false claim."""
    return LOOK <= found.pairs <= speed.FIRST or (found.pairs - speed.FIRST) % speed.MORE == 0


def _hopeless(found: Ratio) -> bool:
    """So many pairs without an answer, or no gain after a first look."""
    return found.pairs >= MOST or (found.pairs >= LOOK and found.value <= LEAST_GAIN)


def _turned(found: Ratio | None) -> Ratio | None:
    """The same pairs, the other way round."""
    if found is None or found.low <= 0:
        return found
    return Ratio(
        1 / found.value,
        1 / found.high,
        1 / found.low,
        found.pairs,
        tuple(1 / one for one in found.of_pairs),
    )
