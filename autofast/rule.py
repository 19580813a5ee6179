"""What a rule is and what it returns."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from autofast.edit.edits import Edit
from autofast.model.source import line_of, source_of

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
    """What the user asked for.

    Attributes:
        precision: of autocast: auto, bf16 or fp16. target: cuda or cpu.
        selected: the names of the rules that take part in this plan.
        asked: those that are off by default and were asked for by name; they may do what they do, whatever the level of effect.
        accumulate: micro-batches for each optimizer step; 0 where the user named no number.
        keep_batch: accumulation divides the loader's batch size instead of enlarging the effective batch.
        sync_batchnorm: DDP turns BatchNorm into SyncBatchNorm.
    """

    precision: str = "auto"
    target: str = "cuda"
    selected: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    accumulate: int = 0
    keep_batch: bool = False
    sync_batchnorm: bool = False


@dataclass(frozen=True, eq=False)
class Finding:
    """One place. With edits it is a fix; with ``refusal`` a place left alone, and why; with ``advice`` work for a human.

    ``node`` is the call or statement to be changed. ``needs`` names rules without whose fix at the same ``key``
    this one would be wrong (``persistent_workers`` without workers): the plan drops it when they are not applied. A rule with another
    key is named together with it.
    """

    node: ast.AST
    message: str
    edits: tuple[Edit, ...] = ()
    refusal: str = ""
    advice: str = ""
    effect: Effect | None = None  # where this place differs from the rule's own effect
    key: object = None
    needs: tuple[str | tuple[str, object], ...] = ()
    rule: str = ""  # filled in by the plan
    ignored: bool = False  # by a comment of the user; filled in by the plan

    @property
    def status(self) -> str:
        """``ignored``, ``fix``, ``refused`` or ``advice``."""
        return "ignored" if self.ignored else "fix" if self.edits else "refused" if self.refusal else "advice"


class Refusal(Exception):
    """A place stays as it is. ``str()`` says why, in words for the user."""


def at(node: ast.AST) -> str:
    """A place in words."""
    return f"line {line_of(node)} of {source_of(node).rel}"


Find = Callable[["Script", Options], Iterator[Finding]]


@dataclass(frozen=True)
class Rule:
    """A rule: ``find`` is called with the script and the options and yields findings; the card is ``rules/<name>.md``.

    ``option`` asks for a rule that is off by default, where it has one of its own; ``--select NAME`` always does.
    """

    name: str
    effect: Effect
    summary: str
    find: Find
    groups: tuple[str, ...] = ()
    default: bool = True
    option: str = ""

    @property
    def request(self) -> str:
        """How to ask for it; empty for those that are on."""
        return "" if self.default else self.option or f"--select {self.name}"


REGISTRY: dict[str, Rule] = {}


def rule(name: str, effect: Effect, *, groups: tuple[str, ...] = (), default: bool = True, option: str = "") -> Callable[[Find], Find]:
    """Register ``find`` (a generator of findings) under ``name``; its docstring's first line is the summary."""

    def register(find: Find) -> Find:
        summary = (find.__doc__ or "").strip().splitlines()[0]
        REGISTRY[name] = Rule(name, effect, summary, find, groups, default, option)
        return find

    return register
