"""Which runs are made, in which order, and when it is enough.

1. A pilot: the original, timed, decides how many steps a run takes, and that it runs at all.
2. Sameness: the runs that ``parity.wanted`` asks for, until it asks for none. They look closely and
   are not timed.
3. Speed: as many pairs as ``speed.following`` asks for, shuffled. Where it wants both kinds, three
   runs in random order make two pairs: the original twice and the rewritten script once. So the
   noise floor comes from the same minutes of the same machine.
4. With subsets of rules (``--by-rule``): rounds with one run of every variant.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from autofast.report.progress import Tell
from autofast.verify import blame, speed
from autofast.verify.estimates import median
from autofast.verify.evidence.gathered import Wish
from autofast.verify.evidence.record import FACTS, Detail, Run, Words
from autofast.verify.judging import parity, seeded
from autofast.verify.result import Contribution, Parity, Ratio, Speed
from autofast.verify.running.runs import OutOfTime, Program, Runner

PILOT_SECONDS = 6.0
PILOT_STEPS = 2000  # a run takes no more steps than this unless asked
LEAST_STEPS = 12
ENDS = 2  # passes that a run sees the end of, if need be because they are shortened
LEAST_BATCHES = 4  # of a pass that is shortened
LEAST_RUNS = 3  # the original twice and the rewritten script once are run whatever the budget says
FIRST_PAIRS = 3 * speed.FIRST  # runs, of pairs with a run that shows the noise
LEAST_LIMIT, LIMIT_FACTOR = 900.0, 20.0  # see ``_limit``
GRACE = 15.0  # seconds, or half the budget, after which a run that is still going is ended
BUSY_REPEATS = 6  # so many pairs are repeated at most, because something else kept the machine busy
LIGHT = Detail()
ORIGINAL, REWRITTEN = "original", "rewritten"
BY_USER = "ended by Ctrl-C"
Variant = tuple[str, "Program | None", "Program | None"]  # with one rule alone, and all but that


class NoRun(Exception):
    """The original itself does not run: there is nothing to compare with.

    ``run`` has its error; ``budget``: the seconds for everything, where these ended it.
    """

    def __init__(self, run: Run, budget: float = 0.0):
        super().__init__("the original script did not run")
        self.run = run
        self.budget = budget


@dataclass(frozen=True)
class Wanted:
    """What the user asked for.

    Attributes:
        effect: the strongest effect of the applied rules, or "unknown".
        rules: their names; None where they are not known.
        steps: optimizer steps of a run; None: as many as the pilot takes in a few seconds; 0: to
            the script's own end.
        budget: seconds for everything; 0 for no limit.
        seed: random generators of the scripts start from it.
        seeds: how many seeds are tried at most.
        margin: see ``parity``.
        share: of the budget that the steps of one run may take, where their number is not given.
        facts: the original is also run once to see what happens at which line.
    """

    effect: str
    rules: Words | None = None
    steps: int | None = None
    budget: float = 900.0
    seed: int = 0
    seeds: int = 12
    margin: float = 0.02
    share: float = 0.05
    facts: bool = False


@dataclass
class Series:
    """Makes the runs and keeps them. ``tell`` gets a line of progress before and after each."""

    runner: Runner
    original: Program
    rewritten: Program
    wanted: Wanted
    tell: Tell = lambda line: None
    runs: list[Run] = field(default_factory=list)
    pilot: Run | None = None
    watched: Run | None = None  # none of ``runs``: it is neither compared nor timed
    steps: int = 0
    dropped: int = 0
    interrupted: str = ""
    parity: Parity | None = None
    speed: Speed | None = None
    contributions: list[Contribution] = field(default_factory=list)
    rounds: list[tuple[int, ...]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    _aa: list[tuple[Run, Run]] = field(default_factory=list)
    _ab: list[tuple[Run, Run]] = field(default_factory=list)
    _order: random.Random = field(default_factory=lambda: random.Random(0))

    # --------------------------------------------------------------------------------------- stages
    def make(self, variants: Sequence[Variant] = ()) -> None:
        """All stages; ``variants`` are (rule, this rule alone, all without it). Raises ``NoRun``.
        Ctrl-C ends it with what is known.
        """
        with self._ending():
            self.begin()
            self._watch()
            self._sameness()
            if self.parity is not None and all(run.ok for run in self.runs if run.arm == REWRITTEN):
                self._speed()
                if variants:
                    self._by_rule(variants)

    def confirm(
        self, pilot: Run, steps: int, close: Sequence[Run], noise: Sequence[tuple[Run, Run]]
    ) -> None:
        """Pairs of runs for a rewritten script whose sameness the runs in ``close`` have told,
        beside pairs of the original with itself that were made just before; Ctrl-C ends it with
        what is known."""
        with self._ending():
            self.pilot, self.steps = pilot, steps
            self.runs += close
            self._aa += noise
            self._judge()
            self._speed()

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        """Ctrl-C, and the end of the time, leave a judgement of the runs there are."""
        try:
            yield
        except KeyboardInterrupt:
            if self.pilot is None:
                raise
            self.interrupted = BY_USER
            self._judge()
        except OutOfTime as late:
            if self.pilot is None:
                raise NoRun(late.run, self.wanted.budget) from None
            self.interrupted = (
                f"the time budget of {self.wanted.budget:.0f} s is used up, within a run of the "
                f"{late.run.arm} script that had taken {late.run.seconds:.0f} s (the original alone: {self.pilot.seconds:.0f} s)"
                f"{self._enough(late.run, self.pilot)}"
            )
            self._judge()

    def sameness_of(self, program: Program, rules: Sequence[str]) -> Parity | None:
        """Of another program, with the runs of the original that there are; None where the time is
        up.
        """
        wanted = self.wanted
        samples = max((run.samples for run in self.runs if run.detail != LIGHT), default=0)

        def make(wish: Wish, arm: str) -> Run | None:
            if self._out_of_time():
                return None
            self.tell(f"sameness of {arm}: {wish.arm}, {wish.reason}")
            one = self.original if wish.arm == ORIGINAL else program
            return self._run(one, wish.detail, shift=wish.seed, samples=samples)

        known = [run for run in self.runs if run.arm == ORIGINAL and run.detail != LIGHT]
        return blame.judge(
            make, known, program.arm, wanted.effect, rules, wanted.seeds, wanted.margin
        )

    def measure(self) -> None:
        """The pilot and the speed alone."""
        self.begin()
        self._speed()

    def begin(self) -> None:
        """The pilot, which decides how many steps a run takes. Raises ``NoRun``."""
        self.tell("pilot: the original alone")
        steps = self.wanted.steps
        limited = steps is None
        run = self._run(
            self.original,
            LIGHT,
            steps=PILOT_STEPS if steps is None else steps,
            seconds=self._pilot_seconds() if limited else 0.0,
        )
        if not run.ok or run.resume and not _resumed(run):
            raise NoRun(run)
        self.pilot = run
        self._limit(run)
        self.tell(f"pilot: a run takes {run.seconds:.0f} s{self._left(LEAST_RUNS + FIRST_PAIRS)}")
        if steps is not None:
            self.steps = steps
        else:
            ended_itself = all(record.ending != "steps" for record in run.records)
            self.steps = 0 if ended_itself else max(LEAST_STEPS, run.steps_made)

    def _pilot_seconds(self) -> float:
        """Of steps: a few, and less where little time is given."""
        budget = self.wanted.budget
        return min(PILOT_SECONDS, budget * self.wanted.share) if budget else PILOT_SECONDS

    def _deadline(self) -> float:
        """When a run is ended whatever it does: half as much again as the budget, and ``GRACE`` at
        the least. Where the user says how many steps a run takes, the runs without which nothing
        can be said get the time that the first one took, and some more."""
        wanted = self.wanted
        if not wanted.budget:
            return math.inf
        allowed = wanted.budget + max(GRACE, wanted.budget / 2)
        if wanted.steps is not None:
            if self.pilot is None:
                return math.inf
            allowed = max(allowed, 2 * (LEAST_RUNS + 1) * self.pilot.seconds)
        return self.began + allowed

    def _enough(self, late: Run, pilot: Run) -> str:
        """With which budget a first answer can be had; for a rewritten script that hangs there is
        none.
        """
        longest = max([late.seconds, *(run.seconds for run in self.runs if run.ok)])
        if late.arm != ORIGINAL and longest > LIMIT_FACTOR * pilot.seconds:
            return ""
        runs = LEAST_RUNS + seeded.LEAST + FIRST_PAIRS
        fewer = f"--steps {max(2, self.steps // 4)}" if self.steps > 2 else "a shorter script"
        budget = math.ceil(runs * longest / 10) * 10
        return f"; --time-budget {budget} would do for a first answer, or {fewer}"

    def _left(self, runs: int) -> str:
        """How long it will take from here on, at the least, for so many more runs."""
        times = [run.seconds for run in self.runs if run.ok]
        if not times:
            return ""
        seconds = runs * median(times)
        budget = self.wanted.budget
        if budget:
            # The run that is being made goes on beyond the budget, up to its deadline.
            now = time.monotonic()
            seconds = min(
                seconds,
                max(budget - (now - self.began), min(median(times), self._deadline() - now), 0.0),
            )
        return f", about {seconds:.0f} s to go"

    def _limit(self, pilot: Run) -> None:
        """A rewritten script that hangs must not hold the verification for ever: without a limit of
        the user's, a run ends after a quarter of an hour, which is enough to compile, or after many
        times what the original takes, or after the budget, whichever comes last."""
        setup = self.runner.setup
        if not setup.limit and self.wanted.budget:
            longest = max(LEAST_LIMIT, self.wanted.budget, LIMIT_FACTOR * pilot.seconds)
            self.runner.setup = replace(setup, limit=longest)

    def _watch(self) -> None:
        if self.wanted.facts:
            self.tell("facts: the original, line by line")
            run = self._run(self.original, FACTS)
            self.runs.remove(run)
            self.watched = run if run.ok else None

    def _sameness(self) -> None:
        wanted = self.wanted
        made: list[Run] = []
        samples = self._shortened()
        while wishes := parity.wanted(
            wanted.effect, made, rules=wanted.rules, seeds=wanted.seeds, margin=wanted.margin
        ):
            for wish in wishes:
                if len(made) >= LEAST_RUNS and self._out_of_time(share=0.6):
                    self._judge()
                    return
                program = self.original if wish.arm == ORIGINAL else self.rewritten
                left = self._left(max(1, LEAST_RUNS - len(made)) + FIRST_PAIRS)
                self.tell(f"sameness: run {len(made) + 1}, {wish.arm}, {wish.reason}{left}")
                made.append(self._run(program, wish.detail, shift=wish.seed, samples=samples))
            if samples and _no_loader(made):
                # It takes its batches from elsewhere, and would go through all of them: passes stay
                # what they are.
                self.runs = [run for run in self.runs if run not in made]
                samples = 0
                made.clear()
        self._judge()
        if self.parity is not None:
            self.tell(f"sameness so far: {self.parity.verdict.value} ({self.parity.summary})")

    def _shortened(self) -> int:
        """To how many samples passes over loaders are shortened in the runs that are compared, so
        that these see what comes at the end of a pass:
        evaluations, saves, schedules. 0: they are not, where the user said how many steps a run
        takes, or the steps of the pilot reach that anyway.
        """
        if self.wanted.steps is not None or not self.steps or self.pilot is None:
            return 0
        passes = [
            one for r in self.pilot.records for one in r.passes if one.training and one.batches
        ]
        if not passes or sum(one.complete for one in passes) >= ENDS:
            return 0
        size = max(round(one.samples / one.batches) for one in passes)
        ranks = max(1, len(self.pilot.records))
        batches = sum(one.batches for one in passes) // ranks
        return size * max(LEAST_BATCHES, batches // (ENDS + 1)) if size else 0

    def _speed(self) -> None:
        while any(asked := speed.following(self._aa, self._ab)):
            both = min(asked)
            batch = (
                [(True, True)] * both
                + [(True, False)] * (asked[0] - both)
                + [(False, True)] * (asked[1] - both)
            )
            self._order.shuffle(batch)
            for made, (noise, effect) in enumerate(batch):
                if self._ab and self._out_of_time():
                    self.interrupted = f"the time budget of {self.wanted.budget:.0f} s is used up"
                    return self._judge()
                left = sum(1 + sum(pair) for pair in batch[made:])
                self.tell(f"speed: pair {len(self._ab) + 1}{self._estimate()}{self._left(left)}")
                if not self._round(noise, effect):
                    return self._judge()
        self._judge()

    def _round(self, noise: bool, effect: bool) -> bool:
        """Two or three runs in random order, and the pairs they make; whether all went well."""
        programs = [self.original] + [self.rewritten] * effect + [self.original] * noise
        order = list(range(len(programs)))
        self._order.shuffle(order)
        made: dict[int, Run] = {}
        first = len(self.runs)
        for place in order:
            made[place] = self._run(programs[place], LIGHT)
            if not made[place].ok:
                self.interrupted = f"a run of the {made[place].arm} script failed"
                return False
        if self.dropped < BUSY_REPEATS and any(map(self._busy, made.values())):
            self.dropped += 1
            return True
        if effect:
            self._ab.append((made[0], made[1]))
            self.rounds.append(tuple(range(first, len(self.runs))))
        if noise:
            self._aa.append((made[0], made[len(programs) - 1]))
        return True

    def _by_rule(self, variants: Sequence[Variant]) -> None:
        programs: dict[str, Program] = {ORIGINAL: self.original, REWRITTEN: self.rewritten}
        for rule, alone, without in variants:
            if alone is not None:
                programs[f"{rule} alone"] = alone
            if without is not None:
                programs[f"without {rule}"] = without
        rounds: list[dict[str, Run]] = []
        failed: dict[str, str] = {}
        for number in range(speed.FIRST):
            if rounds and self._out_of_time():
                self.interrupted = f"the time budget of {self.wanted.budget:.0f} s is used up"
                break
            names = [name for name in programs if name not in failed]
            self._order.shuffle(names)
            made = {}
            for place, name in enumerate(names):
                self.tell(
                    f"rules: round {number + 1} of {speed.FIRST}, run {place + 1} of {len(names)}"
                )
                run = self._run(programs[name], LIGHT)
                if run.ok:
                    made[name] = run
                else:
                    failed[name] = run.record.error if run.records else "it did not start"
            rounds.append(made)
        for rule, _, _ in variants:
            only, rest = f"{rule} alone", f"without {rule}"
            self.contributions.append(
                Contribution(
                    rule,
                    _ratio([(r[ORIGINAL], r[only]) for r in rounds if only in r and ORIGINAL in r]),
                    _ratio(
                        [(r[rest], r[REWRITTEN]) for r in rounds if rest in r and REWRITTEN in r]
                    ),
                    "; ".join(f"{name}: {failed[name]}" for name in (only, rest) if name in failed),
                )
            )

    # ---------------------------------------------------------------------------------------- parts
    def _run(
        self,
        program: Program,
        detail: Detail,
        *,
        shift: int = 0,
        steps: int | None = None,
        seconds: float = 0.0,
        samples: int = 0,
    ) -> Run:
        steps = self.steps if steps is None else steps
        run = self.runner.run(
            program,
            seed=self.wanted.seed + shift,
            shift=shift,
            detail=detail,
            steps=steps,
            seconds=seconds,
            samples=samples,
            deadline=self._deadline(),
        )
        self.runs.append(run)
        return run

    def _busy(self, run: Run) -> bool:
        return speed.busy(
            run, [other for other in self.runs if other.arm == run.arm and other.detail == LIGHT]
        )

    def _out_of_time(self, share: float = 1.0) -> bool:
        budget = self.wanted.budget
        return bool(budget) and time.monotonic() - self.began > share * budget

    def _estimate(self) -> str:
        if len(self._ab) < 3:  # too few for an interval
            return ""
        found = speed.judge(self._aa, self._ab).ratio
        return f", so far {found.value:.2f}x ({found.low:.2f} to {found.high:.2f})"

    def _judge(self) -> None:
        """From the runs there are."""
        close = [run for run in self.runs if run.detail != LIGHT]
        wanted = self.wanted
        if close:
            self.parity = parity.judge(
                wanted.effect, close, rules=wanted.rules, seeds=wanted.seeds, margin=wanted.margin
            )
        if self._ab:
            self.speed = speed.judge(self._aa, self._ab)


def _no_loader(runs: Sequence[Run]) -> bool:
    """Of the two, one alone takes its training batches from DataLoaders."""
    found = {
        run.arm: any(one.training for r in run.records for one in r.passes)
        for run in runs
        if run.ok
    }
    return len(set(found.values())) > 1


def _resumed(run: Run) -> bool:
    """The checkpoint from which it was to go on was read before the first step."""
    return any(record.resumed is not None and record.resumed.read for record in run.records)


def _ratio(pairs: Sequence[tuple[Run, Run]]) -> Ratio | None:
    return speed.judge((), pairs).ratio if pairs else None
