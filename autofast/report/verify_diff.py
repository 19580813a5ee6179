"""A unified diff taken apart, so that a page can show each hunk with the rules it comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)")


@dataclass(frozen=True)
class Line:
    """One line: kind is ' ', '-', '+' or '\\\\'; its numbers before and after, where it has
    them.
    """

    kind: str
    text: str
    old: int | None = None
    new: int | None = None


@dataclass(frozen=True)
class Hunk:
    place: str
    rules: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class File:
    """The changes of one file."""

    path: str
    hunks: tuple[Hunk, ...]

    @property
    def added(self) -> int:
        return sum(line.kind == "+" for hunk in self.hunks for line in hunk.lines)

    @property
    def removed(self) -> int:
        return sum(line.kind == "-" for hunk in self.hunks for line in hunk.lines)

    @property
    def length(self) -> int:
        return sum(len(hunk.lines) for hunk in self.hunks)


def parsed(path: str, diff: str) -> File:
    """The hunks of a unified diff of one file; lines before the first hunk and after the length of
    one are passed over.
    """
    return File(path, tuple(_hunks(diff.split("\n"))))


def _hunks(lines: list[str]) -> Iterator[Hunk]:
    n = 0
    while n < len(lines):
        head = _HUNK.match(lines[n])
        n += 1
        if head is None:
            continue
        old, new = int(head[1]), int(head[3])
        old_left, new_left = (int(x) if x is not None else 1 for x in (head[2], head[4]))
        found: list[Line] = []
        while n < len(lines) and (old_left > 0 or new_left > 0 or lines[n].startswith("\\")):
            kind, text = lines[n][:1] or " ", lines[n][1:]
            if kind not in " -+\\" or lines[n].startswith("@@ "):
                break
            found.append(
                Line(kind, text, old if kind in " -" else None, new if kind in " +" else None)
            )
            old, old_left = (old + 1, old_left - 1) if kind in " -" else (old, old_left)
            new, new_left = (new + 1, new_left - 1) if kind in " +" else (new, new_left)
            n += 1
        yield Hunk(
            f"line {head[1]}",
            tuple(name for name in re.split(r",\s*", head[5].strip()) if name),
            tuple(found),
        )
