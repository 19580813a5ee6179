"""Unified diffs: coloured for people, byte for byte for ``git apply``. Each hunk names the rules it
comes from.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autofast.model.source import BadInput, Source
from autofast.report.style import Style

CONTEXT = 3
NO_NEWLINE = "\\ No newline at end of file"


@dataclass(frozen=True)
class Change:
    """Lines ``old`` (counted from 0, end excluded) become lines ``new``, on behalf of ``rules``."""

    old: tuple[int, int]
    new: tuple[int, int]
    rules: tuple[str, ...]


@dataclass(frozen=True)
class FileDiff:
    """One file before and after."""

    source: Source
    text: str
    changes: Sequence[Change]

    @property
    def paths(self) -> tuple[str, str]:
        return _quoted(f"a/{self.source.rel}"), _quoted(f"b/{self.source.rel}")


@dataclass(frozen=True)
class _Line:
    kind: str  # ' ', '-', '+', '@' or '\\'
    text: str
    first: bool = False  # of its file: where a byte order mark stands


def shown(files: Iterable[FileDiff], style: Style, said: Mapping[str, str] | None = None) -> str:
    """The diff as text; ``said`` is what stands behind the name of a rule at each hunk."""
    colour = {"-": ("red",), "+": ("green",), "\\": ("dim",), " ": ()}
    out: list[str] = []
    for file in files:
        old, new = file.paths
        out += [style(f"--- {old}", "bold"), style(f"+++ {new}", "bold")]
        for line in _lines(file):
            if line.kind == "@":
                ranges, _, rules = line.text.rpartition("  ")
                if said:
                    rules = ", ".join(f"{r} {said.get(r, '')}".strip() for r in rules.split(", "))
                out.append(f"{style(ranges, 'cyan')}  {style(rules, 'yellow')}")
            else:
                text = line.text if line.kind == "\\" else line.kind + line.text
                out.append(style(text, *colour[line.kind]))
    return "".join(line + "\n" for line in out)


def patch(files: Iterable[FileDiff]) -> bytes:
    """The diff in the bytes of the files, as ``git apply`` wants it (from the folder that is the
    root).
    """
    out: list[bytes] = []
    for file in files:
        source = file.source
        if source.newline == "\r":
            raise BadInput(
                f"{source.rel}: ends its lines with a bare carriage return, which no patch can say; use -o FILE"
            )
        old, new = file.paths
        head = f"diff --git {old.rstrip()} {new.rstrip()}\n--- {old}\n+++ {new}\n"
        out.append(head.encode("utf-8", "surrogateescape"))
        for line in _lines(file):
            if line.kind in "@\\":
                out.append(line.text.encode() + b"\n")
            else:
                mark = codecs.BOM_UTF8 if line.first and source.bom else b""
                out.append(
                    line.kind.encode()
                    + mark
                    + line.text.encode(source.encoding)
                    + source.newline.encode()
                )
    return _without_last_ends(out)


def _without_last_ends(pieces: list[bytes]) -> bytes:
    """A line before the remark that it has no end is ended as the patch's own lines are: by a line
    feed alone.
    """
    for n, piece in enumerate(pieces[1:]):
        if piece == NO_NEWLINE.encode() + b"\n" and pieces[n].endswith(b"\r\n"):
            pieces[n] = pieces[n][:-2] + b"\n"
    return b"".join(pieces)


def _lines(file: FileDiff) -> Iterator[_Line]:
    before, old_end = _split(file.source.text)
    after, new_end = _split(file.text)
    for group in _grouped(file.changes):
        lead = min(CONTEXT, group[0].old[0])
        trail = min(CONTEXT, len(before) - group[-1].old[1])
        old = (group[0].old[0] - lead, group[-1].old[1] + trail)
        new = (group[0].new[0] - lead, group[-1].new[1] + trail)
        names = dict.fromkeys(name for change in group for name in change.rules)
        yield _Line("@", f"@@ -{_range(*old)} +{_range(*new)} @@  {', '.join(names)}")
        here = old[0]
        for change in group:
            yield from _side(" ", before, here, change.old[0], old_end)
            yield from _side("-", before, *change.old, old_end)
            yield from _side("+", after, *change.new, new_end)
            here = change.old[1]
        yield from _side(" ", before, here, old[1], old_end)


def _side(kind: str, lines: list[str], start: int, stop: int, ended: bool) -> Iterator[_Line]:
    for number in range(start, stop):
        yield _Line(kind, lines[number], first=number == 0)
        if number == len(lines) - 1 and not ended:
            yield _Line("\\", NO_NEWLINE)


def _grouped(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Changes whose context lines touch stand in one hunk."""
    group: list[Change] = []
    for change in sorted(changes, key=lambda c: c.old):
        if group and change.old[0] - group[-1].old[1] > 2 * CONTEXT:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _split(text: str) -> tuple[list[str], bool]:
    """The lines, and whether the last one is ended."""
    lines = text.split("\n")
    ended = lines[-1] == ""
    return (lines[:-1] if ended else lines), ended


def _range(start: int, stop: int) -> str:
    length = stop - start
    return f"{start + 1 if length else start},{length}"


def _quoted(name: str) -> str:
    """A file name as git writes it: in C quotes where it must be, with a tab behind one that has
    spaces.
    """
    if any(c in '"\\' or ord(c) < 32 for c in name):
        escapes = {'"': '\\"', "\\": "\\\\", "\t": "\\t", "\n": "\\n"}
        return (
            '"'
            + "".join(escapes.get(c, c if ord(c) >= 32 else f"\\{ord(c):03o}") for c in name)
            + '"'
        )
    return name + "\t" if " " in name else name
