"""What a rule is and what it returns."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from autofast.edit.edits import Edits
from autofast.model.source import Placed, at

if TYPE_CHECKING:
    from autofast.model.script import Script


class Effect(IntEnum):
    """How far a rewrite may go; each level includes the ones before it."""

    EXACT = 0  # the same numbers under the same seed
    ROUNDING = 1  # the same mathematics, other rounding
    SAMPLING = 2  # other random draws of the same distribution
    RECIPE = 3  # the training itself changes: only on request


@dataclass(frozen=True)
class Options:
    """What the user asked for, and which other rules take part in the plan, as far as a rule may
    know.

    Attributes:
        precision: of autocast: auto, bf16, fp16 or either.
        target: cuda or cpu.
        selected: the names of the rules that take part in this plan.
        asked: those that are off by default and were asked for by name; they may do what they do,
            whatever the level of effect.
        decisions: what is decided by the rule that is given these options, and by those that it
            uses; ``requested``: the user named it.
        accumulate: micro-batches for each optimizer step; 0 where the user named no number.
        workers: of each loader that gets workers; 0: what the machine has cores for.
        any_workers: a number of workers was asked for, be it ``auto``: numbers that the script
            writes out give way.
        keep_batch: accumulation divides the loader's batch size instead of enlarging the effective
            batch.
        sync_batchnorm: DDP turns BatchNorm into SyncBatchNorm.
        named: the rules that the user named: what they find is written, whatever it is expected to
            gain.
        min_gain: the least share of a training that a fix must be expected to save to be written;
            0: everything is.
        effect: how far the rewrite may go, for a rule that would write something else at a place
            the farther it may.
    """

    precision: str = "auto"
    target: str = "cuda"
    selected: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    accumulate: int = 0
    workers: int = 0
    any_workers: bool = False
    keep_batch: bool = False
    sync_batchnorm: bool = False
    named: frozenset[str] = frozenset()
    min_gain: float = 0.0
    effect: Effect = Effect.SAMPLING
    decisions: frozenset[type] = frozenset()
    requested: bool = False

    def decides(self, decision: type) -> bool:
        """Whether a rule of the plan takes this decision: this rule itself, or one that it declares
        with ``uses=``.
        """
        return decision in self.decisions


@dataclass(frozen=True)
class Gain:
    """What a fix is expected to save: an estimate, never a measurement of the fix.

    Attributes:
        share: of the time of the training (0.02: two hundredths).
        reason: in words, from what.
        known: it follows from figures of this script; else it is what is usual, and decides
            nothing.
        measured: these figures were measured in a run of the script.
        slower: it costs more than it saves, as casts do where the host is what a step waits for.
        joins: it is written all the same where its rule writes elsewhere in the file: a reader
            would ask why one arm of a condition, or one loader, is left.
    """

    share: float
    reason: str
    known: bool = True
    measured: bool = False
    slower: bool = False
    joins: bool = False

    def is_below(self, least: float) -> bool:
        """Whether it is known to be less than is asked for."""
        return self.known and self.share < least


# A string is the name of a rule: the plan puts it in the place of the decision.
Need = type | str | tuple[type | str | None, object]


@dataclass(frozen=True, eq=False)
class Finding:
    """One place. With edits it is a fix; with ``refusal`` a place left alone, and why; with
    ``advice`` work for a human.

    ``node`` is the call or statement to be changed. ``needs`` are decisions (see :class:`Rule`)
    without whose fix at the same ``key`` this one would be wrong (``persistent_workers`` without
    workers): the plan drops it when they are not applied. A decision with another key stands
    together with it; None is the rule's own.
    """

    node: ast.AST
    message: str
    edits: Edits = ()
    refusal: str = ""
    advice: str = ""
    effect: Effect | None = None  # where this place differs from the rule's own effect
    key: object = None
    needs: tuple[Need, ...] = ()
    asks: Question | None = (
        None  # where another question decides about this place than about its rule
    )
    rule: str = ""  # filled in by the plan
    ignored: bool = False  # by a comment of the user; filled in by the plan
    torch: tuple[int, int] | None = None  # the oldest torch that runs this; None: the rule's
    renews: bool = (
        False  # newer versions of torch than before can run what it writes in the place of ``node``
    )
    gain: Gain | None = None  # of a fix; filled in by the plan
    worth: bool = True  # its lines; where it is not, the plan takes the edits away

    @property
    def status(self) -> str:
        """``ignored``, ``small`` (a fix that is not worth its lines), ``fix``, ``refused`` or
        ``advice``.
        """
        if self.ignored:
            return "ignored"
        if not self.worth:
            return "small"
        if self.edits:
            return "fix"
        if self.refusal:
            return "refused"
        return "advice"


class Refusal(Exception):
    """A place stays as it is. ``str()`` says why, in words for the user, which may begin with the
    ``place`` that speaks against."""

    def __init__(self, why: str = "", place: ast.AST | Placed | None = None):
        super().__init__(why if place is None else f"{at(place)} {why}")


Find = Callable[["Script", Options], Iterator[Finding]]
# What a finding is expected to gain, given all that the rules have found; None where that is not
# asked.
Question = Callable[["Script", Options, Finding, tuple[Finding, ...]], Gain | None]


@dataclass(frozen=True)
class Rule:
    """A rule: ``find`` is called with the script and the options and yields findings; the card is
    ``rules/<name>.md``.

    Attributes:
        option: asks for a rule that is off by default, where it has one of its own; ``--select
            NAME`` always does.
        decides: the class of what the rule plans
            (:class:`~autofast.techniques.precision.scaling.Scaling`), by which others ask for it.
        uses: the names of the rules whose decisions it asks for.
        relieves: what bounds a training (see :mod:`autofast.verify.diagnosis`) -> how promising the
            rule is then; 1 comes first.
        asks: the question of the cost model (:mod:`autofast.facts.cost.gains`) that decides whether
            its fixes are worth their lines.
        lowers_precision: what it writes computes with fewer bits than float32 has.
        several_processes: what it writes can be started in several processes.
        torch: the oldest torch that runs what it writes (:attr:`Finding.torch`: of one place).
        told: of a rule that is off by default: where it is not asked for, its places are told in
            advice, with how to ask.
    """

    name: str
    effect: Effect
    summary: str
    find: Find
    groups: tuple[str, ...] = ()
    default: bool = True
    option: str = ""
    decides: type | None = None
    uses: tuple[str, ...] = ()
    relieves: Mapping[str, int] = field(default_factory=dict)
    asks: Question | None = None
    lowers_precision: bool = False
    several_processes: bool = False
    torch: tuple[int, int] = (0, 4)
    told: bool = False

    @property
    def request(self) -> str:
        """How to ask for it; empty for those that are on."""
        return "" if self.default else self.option or f"--select {self.name}"

    def in_advice(self) -> Rule:
        """The rule as it is where it is not asked for: it changes nothing, and says at its first
        place what asks for it.
        """

        def find(script: Script, options: Options) -> Iterator[Finding]:
            mine = frozenset() if self.decides is None else frozenset({self.decides})
            asked = replace(options, decisions=options.decisions | mine, requested=True)
            found = list(self.find(script, asked))
            would = [f for f in found if f.edits]
            yield from (f for f in found if not f.edits)
            if would:
                advice = f"ask for it: `autofast rewrite {self.request}` writes it"
                yield Finding(would[0].node, would[0].message, advice=advice)

        return replace(self, find=find, decides=None, several_processes=False)

    def is_asked_by(self, given: Iterable[str]) -> bool:
        """Whether its own option is among those that the user has given (without their values)."""
        return bool(self.option) and self.option.split()[0] in given


REGISTRY: dict[str, Rule] = {}


def rule(name: str, effect: Effect, **properties: Any) -> Callable[[Find], Find]:
    """Register ``find`` (a generator of findings) under ``name``; its docstring's first
    paragraph is its summary.

    ``properties`` are those of :class:`Rule` from ``groups`` on.
    """

    def register(find: Find) -> Find:
        summary = " ".join((find.__doc__ or "").split("\n\n")[0].split())
        REGISTRY[name] = Rule(name, effect, summary, find, **properties)
        return find

    return register
