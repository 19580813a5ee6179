"""What a search amounts to: plain data, made by the search and shown by the reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from autofast.tune.setting import ORIGINAL, Setting, Unit
from autofast.verify.result import Ratio, Sameness, SpeedVerdict, Verification


class Fate(Enum):
    """What became of a unit, and why."""

    KEPT = "kept"
    NEEDED = "kept, as another needs it"
    SLOWER = "slower"
    NO_GAIN = "no measurable gain"
    DIFFERENT = "trains differently"
    UNPROVEN = "not shown to train the same"
    FAILED = "does not run"
    UNCONFIRMED = "gain not confirmed"
    UNMEASURED = "not measured for lack of time"


KEPT = (Fate.KEPT, Fate.NEEDED)


@dataclass(frozen=True)
class Decision:
    """One row of the table.

    Attributes:
        alone: time of the original over time with this unit alone.
        on_top: time of what was kept before over the time with it.
        left_out: time of all that is kept but this over that of all, where that was measured.
        note: a reason in words.
    """

    unit: Unit
    fate: Fate
    alone: Ratio | None = None
    on_top: Ratio | None = None
    left_out: Ratio | None = None
    note: str = ""


@dataclass(frozen=True)
class Confirmation:
    """Fresh pairs of the original and what is kept. ``ended``: by the user, before it could say
    anything.
    """

    speed: SpeedVerdict
    ratio: Ratio | None
    sameness: Sameness
    note: str = ""
    ended: bool = False

    @property
    def holds(self) -> bool:
        return self.speed is SpeedVerdict.FASTER and trains_the_same(self.sameness)


def trains_the_same(sameness: Sameness) -> bool:
    return sameness in (Sameness.IDENTICAL, Sameness.EQUIVALENT)


@dataclass(frozen=True)
class Found:
    """What the search says.

    Attributes:
        kept: empty where nothing pays.
        decisions: one for each unit, in the order of the units.
        claim: the ratio of the confirmation; None where there is none to be claimed.
        interrupted: why it ended early; empty where it did not.
        by_user: Ctrl-C did it: then ``kept`` is the best so far.
    """

    kept: Setting = ORIGINAL
    decisions: tuple[Decision, ...] = ()
    claim: Ratio | None = None
    interrupted: str = ""
    by_user: bool = False


@dataclass(frozen=True)
class Tuned:
    """Everything that the reports show.

    Attributes:
        script, command: what was tuned, and what ran it.
        found: what the search says.
        confirmation: of what is kept, or of what was not confirmed; None where nothing came so far.
        noise: the original against itself, in the rounds of the search.
        diff: what is kept, as a unified diff for each file.
        steps: optimizer steps of a run; 0: to the script's own end.
        runs: how many were made.
        seconds: that all took.
        budget: that were given.
    """

    script: str
    command: str
    found: Found
    confirmation: Verification | None
    noise: Ratio | None
    diff: Mapping[str, str] = field(default_factory=dict)
    steps: int = 0
    runs: int = 0
    seconds: float = 0.0
    budget: float = 0.0
    warnings: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
