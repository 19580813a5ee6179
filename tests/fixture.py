"""The training scripts in ``fixtures/`` and what must become of them, from their ``fixture.toml``.

what            one line: what the script is about
args, then      arguments of the run, and of a second run in the same folder
steps           optimizer steps of the first run
other_samples   a pass over a loader need not bring the same values again (random items,
                drop_last, a fixed number of steps)
rounding, half  tolerances that differ from those of ``harness.ROUNDING``, and of
                ``harness.HALF`` where products are done in 16 bits
also            rules that are off unless asked for, and are asked for here
precision       where it is not ``auto``
pretend         a library that stands in for one that is not installed: tests/pretend/NAME.py,
                which is run first
gone            words that must not be left in the rewritten script
precise_args    arguments without mixed precision, for a script that has it: with a scaler that
                is right, both train the same
[[expect]]      a fix that must be found: ``rule``, ``file``, and ``line_contains`` (of the
                finding's first line) or ``near`` (within three lines); ``count`` where several
                lines are meant; ``becomes``: what is written there, see :func:`written`. A
                change that several of these fixes make together is said once, at the first
[[forbid]]      a fix that must not be found, and ``why``: ``rule`` (``*``: any, ``but`` that
                one), ``line_contains`` or ``near`` (nothing: nowhere in the script),
                ``effect`` (forbidden up to this effect; default sampling), ``target``
                (default: both)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from autofast.edit.plan import Hunk, Plan
from autofast.model.source import Source, source_of
from autofast.rule import Effect, Finding

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parent.parent / "fixtures"
# Also what mostly shows the same once more: by hand, as the long tables of docs/verify-evidence.md.
EVERYTHING = os.environ.get("AUTOFAST_TESTS") == "all"


@dataclass(frozen=True)
class Label:
    """A line of ``expect`` or ``forbid``."""

    rule: str
    file: str = ""
    line_contains: str = ""
    near: str = ""
    count: int = 1
    effect: str = "sampling"
    target: str = ""
    why: str = ""
    but: str = ""
    becomes: Sequence[str] = field(default=(), hash=False)

    def matches(self, finding: Finding) -> bool:
        source = source_of(finding.node)
        if (
            self.rule not in (finding.rule, "*")
            or finding.rule == self.but
            or self.file not in ("", source.rel)
        ):
            return False
        line = getattr(finding.node, "lineno", 1)
        if self.line_contains:
            return self.line_contains in source.lines[line - 1]
        return not self.near or any(abs(line - n) <= 3 for n in _lines(source, self.near))

    def __str__(self) -> str:
        place = self.line_contains or (f"near {self.near}" if self.near else "anywhere")
        return f"{self.rule} at {self.file or 'any file'}: {place}{f' ({self.why})' if self.why else ''}"


def _lines(source: Source, text: str) -> list[int]:
    return [n for n, line in enumerate(source.lines, 1) if text in line]


@dataclass(frozen=True)
class Fixture:
    """One folder of ``fixtures/``."""

    name: str
    spec: dict[str, Any] = field(repr=False, hash=False)

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def entry(self) -> Path:
        return self.folder / "train.py"

    @property
    def args(self) -> tuple[str, ...]:
        return tuple(self.spec.get("args", ()))

    @property
    def then(self) -> tuple[str, ...] | None:
        return tuple(self.spec["then"]) if "then" in self.spec else None

    @property
    def also(self) -> tuple[str, ...]:
        return tuple(self.spec.get("also", ()))

    @property
    def precision(self) -> str:
        return str(self.spec.get("precision", "auto"))

    @property
    def before(self) -> str:
        """The file that is run first."""
        return (
            str(Path(__file__).with_name("pretend") / f"{self.spec['pretend']}.py")
            if "pretend" in self.spec
            else ""
        )

    @property
    def same_samples(self) -> bool:
        return not self.spec.get("other_samples", False)

    @cached_property
    def expect(self) -> list[Label]:
        return [Label(**label) for label in self.spec["expect"]] if "expect" in self.spec else []

    @cached_property
    def forbid(self) -> list[Label]:
        return [Label(**label) for label in self.spec["forbid"]] if "forbid" in self.spec else []


def _load(folder: Path) -> Fixture:
    return Fixture(
        folder.name, tomllib.loads((folder / "fixture.toml").read_text(encoding="utf-8"))
    )


def written(hunk: Hunk) -> list[str]:
    """The new lines of a hunk, without indentation and blank lines; of a function that is added,
    the first line.
    """
    old = {line[1:].split("(")[0] for line in hunk.lines if line.startswith("-def ")}
    lines: list[str] = []
    added = False
    for line in (line[1:] for line in hunk.lines if line.startswith("+") and line[1:].strip()):
        if not line[0].isspace():
            added = line.startswith("def ") and line.split("(")[0] not in old
        if not (added and line[0].isspace()):
            lines.append(line.strip())
    return lines


def strongest(plan: Plan) -> Effect:
    """The strongest effect of what a plan applies."""
    of_rule = {rule.name: rule.effect for rule in plan.rules}
    return max(
        (of_rule[f.rule] if f.effect is None else f.effect for f in plan.fixes),
        default=Effect.EXACT,
    )


ALL = [_load(path.parent) for path in sorted(FOLDER.glob("*/fixture.toml"))]
KEYS = {
    "what",
    "args",
    "then",
    "steps",
    "also",
    "precision",
    "pretend",
    "other_samples",
    "rounding",
    "half",
    "gone",
    "precise_args",
    "expect",
    "forbid",
}
EFFECTS = {effect.name.lower(): effect for effect in Effect}
