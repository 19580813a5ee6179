"""A finding as reports show it: plain data, free of syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from autofast.model.source import Source, line_of, source_of
from autofast.rule import Effect, Finding, Gain

_STRENGTH = {"fix": 0, "small": 1, "advice": 2, "refused": 3}


@dataclass(frozen=True, order=True)
class Record:
    """One finding. Positions are those of the call or statement to be changed, counted from 1;
    columns in characters.

    ``status`` is that of the finding; ``gain`` what a fix (``small``: one that is not worth its
    lines) is expected to save. ``cell`` is the cell of a notebook and the line in it, ``code`` the
    line as it stands there.
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
    end_column: int = field(default=1, compare=False)
    cell: tuple[int, int] | None = field(default=None, compare=False)
    code: str = field(default="", compare=False)

    @classmethod
    def of(cls, finding: Finding, effect: Effect) -> Record:
        """The record of ``finding``; ``effect`` is its rule's, which the finding may narrow
        down.
        """
        node = finding.node
        source = source_of(node)
        line = line_of(node)

        def said(text: str) -> str:
            return text.replace(f" of {source.rel}", "")  # of a line in the file that it is about

        gain = finding.gain
        return cls(
            path=source.rel,
            line=source.shown(line),
            column=_column(source, node, line),
            rule=finding.rule,
            effect=(effect if finding.effect is None else finding.effect).name.lower(),
            end_line=source.shown(getattr(node, "end_lineno", None) or line),
            message=said(finding.message),
            status=finding.status,
            reason=said(finding.refusal or finding.advice),
            file=source.path,
            gain=gain and replace(gain, reason=said(gain.reason)),
            end_column=_column(source, node, line, end=True),
            cell=source.cell(line),
            code=source.lines[line - 1] if line <= len(source.lines) else "",
        )

    @property
    def shown(self) -> str:
        """The line as people are told of it: ``12``, or ``cell 3:5``."""
        return f"cell {self.cell[0]}:{self.cell[1]}" if self.cell else str(self.line)

    @property
    def place(self) -> tuple[str, int, int, str, str]:
        """What makes two records the same finding, whichever script it was found from: a rule may
        find several things at one place.
        """
        return self.path, self.line, self.column, self.rule, self.message


def merged(records: Iterable[Record]) -> list[Record]:
    """Each place once, in order. Where scripts that share a file disagree, what can be done is said
    rather than what cannot.
    """
    best: dict[tuple[str, int, int, str, str], Record] = {}
    for record in records:
        other = best.get(record.place)
        if other is None or _STRENGTH[record.status] < _STRENGTH[other.status]:
            best[record.place] = record
    return sorted(best.values())


def _column(source: Source, node: ast.AST, line: int, end: bool = False) -> int:
    """``ast`` counts bytes of UTF-8; people and editors count characters. The end is that of the
    last line, and stands behind it.
    """
    if end:
        line = getattr(node, "end_lineno", None) or line
    text = source.lines[line - 1] if line <= len(source.lines) else ""
    offset = getattr(node, "end_col_offset" if end else "col_offset", None) or 0
    return len(text.encode()[:offset].decode(errors="replace")) + 1
