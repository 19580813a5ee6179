"""What a verification amounts to: plain data, made by the judges and shown by the reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from autofast.model import measured
from autofast.verify.evidence.record import Numbers, Run, Words


class SpeedVerdict(Enum):
    FASTER = "faster"
    SAME = "same"
    SLOWER = "slower"
    UNCLEAR = "unclear"


class Sameness(Enum):
    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    DIFFERENT = "different"
    SUSPICIOUS = "suspicious"
    BROKEN = "broken"
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Ratio:
    """Time of the original over time of the other (above 1: the other is faster), with its 95 %
    interval, from ``pairs`` pairs of runs.
    """

    value: float
    low: float
    high: float
    pairs: int
    of_pairs: Numbers = ()


@dataclass(frozen=True)
class Speed:
    """How much faster.

    Attributes:
        verdict: against ``noise``, the same ratio for the original against itself.
        statistic: what is compared, in words: "median step" or "mean of the window".
        step_before, step_after: seconds per optimizer step (the statistic's median over runs).
        first_step_before, first_step_after: seconds from the start of the script to the end of its
            first step.
        warm_up: steps left out at the start of each run.
        compiling: seconds of torch.compile in the rewritten script.
        break_even: optimizer steps after which the time that the rewritten script loses at its
            start is won back; 0 where it loses none, None where it never is.
        reason: for UNCLEAR, what would make it clear.
        whole: the ratio of whole runs, from the start of the process to its end, start-up included.
        whole_before, whole_after: their seconds, in the median.
        own_steps: optimizer steps of the original where the timed runs came to the script's own
            end; None where they were cut.
    """

    verdict: SpeedVerdict
    ratio: Ratio
    noise: Ratio
    statistic: str
    step_before: float
    step_after: float
    first_step_before: float
    first_step_after: float
    warm_up: int
    compiling: float
    break_even: int | None
    reason: str = ""
    whole: Ratio | None = None
    whole_before: float = math.nan
    whole_after: float = math.nan
    own_steps: int | None = None


@dataclass(frozen=True)
class Check:
    """One test of sameness: what was compared, what came out, with figures.

    ``passed`` is None where it could not be said; ``identical`` says that not a bit differed.
    ``verdict`` is what a failure means.
    """

    name: str
    passed: bool | None
    text: str
    identical: bool = False
    verdict: Sameness = Sameness.DIFFERENT


# What a check of ``judging/table.py`` says; its row there has the name, and what a difference is.
def answer(passed: bool | None, text: str) -> Check:
    return Check("", passed, text)


def holds(text: str) -> Check:
    """What was compared is as it should be."""
    return answer(True, text)


def differs(text: str) -> Check:
    """It is not."""
    return answer(False, text)


def untold(text: str) -> Check:
    """It could not be said, which is shown and held against nobody."""
    return answer(None, text)


def unclear(text: str, name: str = "") -> Check:
    """It could not be said, and without it nothing is."""
    return Check(name, None, text, verdict=Sameness.UNCLEAR)


@dataclass(frozen=True)
class Parity:
    """Does it still train the same.

    Attributes:
        effect: the strongest effect of the applied rules, by which the tests were chosen; "unknown"
            where the second script is not autofast's.
        checks: in the order in which they are shown.
        more_runs: for UNCLEAR, how many more runs of each script it is estimated to need.
        summary: one clause, for the first sentence of the report: "loss within seed noise".
        lead: for DIFFERENT and BROKEN, where to look next: where the two part, which rule or
            changed place is suspected.
    """

    verdict: Sameness
    effect: str
    checks: tuple[Check, ...]
    summary: str
    more_runs: int = 0
    lead: str = ""


@dataclass(frozen=True)
class Answer:
    """What autofast says of one rule on the original script.

    Attributes:
        state: "applied" (the rewritten script has it), "possible" (a fix that the second script
            need not have), "refused", "advised", "on request" (of the option in ``reason``), or
            "nothing" (it found no place). "unknown" where the script was not looked at.
        place: the first such place, ``file:line``.
        places: how many there are.
        reason: why it was refused, or the advice.
    """

    rule: str
    state: str
    place: str = ""
    places: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """Shares of a step by phase (sum 1), before and after; one sentence on what bounds the script,
    and the rules that address it.

    Attributes:
        answers: what became of each of ``rules`` on this script.
        by_hand: what a person can do about such a bound, in words.
    """

    before: Mapping[str, float]
    after: Mapping[str, float]
    bound: str
    sentence: str
    rules: Words = ()
    answers: tuple[Answer, ...] = ()
    by_hand: str = ""


@dataclass(frozen=True)
class Contribution:
    """What one rule does: alone (original over original with this rule) and left out (all without
    it over all).
    """

    rule: str
    alone: Ratio | None
    left_out: Ratio | None
    note: str = ""


@dataclass(frozen=True)
class Arm:
    """One of the two scripts, as shown in reports: its name and the command that ran it."""

    name: str
    path: str
    command: str


@dataclass(frozen=True)
class Verification:
    """Everything that the reports show.

    Attributes:
        diff: unified diff of the two scripts, as one text per file.
        rules: of each hunk, where autofast wrote it.
        runs: all runs that count, in the order in which they were made.
        dropped: how many were repeated because the machine was busy.
        rounds: the timed runs that the ratio comes from, as places in ``runs``: those of one round
            together, in the order in which they were made. The n-th round is the n-th of
            ``speed.ratio.of_pairs``.
        interrupted: ended early by the user or the time budget: judged on what there is.
        facts: of the original, where they were asked for.
        warnings: what the reader of the figures has to know ("this machine has no GPU: ...").
    """

    original: Arm
    rewritten: Arm
    speed: Speed | None
    parity: Parity | None
    diagnosis: Diagnosis | None
    contributions: tuple[Contribution, ...] = ()
    diff: Mapping[str, str] = field(default_factory=dict)
    rules: Words = ()
    runs: tuple[Run, ...] = ()
    dropped: int = 0
    steps: int = 0
    interrupted: str = ""
    warnings: Words = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    rounds: tuple[tuple[int, ...], ...] = ()
    facts: measured.Facts | None = None

    @property
    def passed(self) -> bool:
        """(FASTER or SAME) and (IDENTICAL or EQUIVALENT)."""
        fast = self.speed is not None and self.speed.verdict in (
            SpeedVerdict.FASTER,
            SpeedVerdict.SAME,
        )
        return (
            fast
            and self.parity is not None
            and self.parity.verdict in (Sameness.IDENTICAL, Sameness.EQUIVALENT)
        )
