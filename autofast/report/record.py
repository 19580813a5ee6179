"""A finding as reports show it: plain data, free of syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from autofast.model.source import Source, source_of
from autofast.rule import Effect, Finding, Gain

_STRENGTH = {"fix": 0, "small": 1, "advice": 2, "refused": 3}


@dataclass(frozen=True, order=True)
class Record:
    """One finding. Positions are those of the call or statement to be changed, counted from 1; columns in characters.

    ``status`` is that of the finding; ``gain`` what a fix (``small``: one that is not worth its lines) is expected to save.
    """

    path: str
    line: int
    column: int
    rule: str
    effect: str
    end_line: int
    message: str
    status: str
    reason: str
    file: Path
    gain: Gain | None = field(default=None, compare=False)

    @classmethod
    def of(cls, finding: Finding, effect: Effect) -> Record:
        """The record of ``finding``; ``effect`` is its rule's, which the finding may narrow down."""
        node = finding.node
        source = source_of(node)
        line = getattr(node, "lineno", 1)
        return cls(
            path=source.rel,
            line=source.shown(line),
            column=_column(source, node, line),
            rule=finding.rule,
            effect=(effect if finding.effect is None else finding.effect).name.lower(),
            end_line=source.shown(getattr(node, "end_lineno", None) or line),
            message=finding.message,
            status=finding.status,
            reason=finding.refusal or finding.advice,
            file=source.path,
            gain=finding.gain,
        )

    @property
    def place(self) -> tuple[str, int, int, str, str]:
        """What makes two records the same finding, whichever script it was found from: a rule may find several things at one place."""
        return self.path, self.line, self.column, self.rule, self.message


def merged(records: Iterable[Record]) -> list[Record]:
    """Each place once, in order. Where scripts that share a file disagree, what can be done is said rather than what cannot."""
    best: dict[tuple[str, int, int, str, str], Record] = {}
    for record in records:
        other = best.get(record.place)
        if other is None or _STRENGTH[record.status] < _STRENGTH[other.status]:
            best[record.place] = record
    return sorted(best.values())


def _column(source: Source, node: ast.AST, line: int) -> int:
    """``ast`` counts bytes of UTF-8; people and editors count characters."""
    text = source.lines[line - 1] if line <= len(source.lines) else ""
    return len(text.encode()[: getattr(node, "col_offset", 0)].decode(errors="replace")) + 1
