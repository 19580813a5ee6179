"""Lines that stood below the bracket they are in go with it, where a change before the bracket has
moved that.
"""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import dataclass
from difflib import SequenceMatcher

OPEN, CLOSED = "([{", ")]}"
BEGINNING = re.compile(r"[\w.]*(\([\w.]*)?")


@dataclass(frozen=True)
class Line:
    """A line that begins inside brackets: its column, and where the innermost of them stands (row
    and column, from 0).
    """

    column: int
    row: int
    bracket: int

    @property
    def is_below(self) -> bool:
        """Whether it stands right behind the bracket, as arguments below the first one do."""
        return self.column == self.bracket + 1


def realigned(text: str, original: str) -> str:
    """``text`` with the lines of the user moved that were below a bracket in ``original`` and no
    longer are, and with them what is new beside them.
    """
    old, new = _inside(original), _inside(text)
    if not old or not new:
        return text
    lines, before = text.split("\n"), original.split("\n")
    known = set(before)
    same = SequenceMatcher(None, [_key(x) for x in before], [_key(x) for x in lines], False)
    origin = {b + n: a + n for a, b, size in same.get_matching_blocks() for n in range(size)}
    moved: dict[int, int] = {}  # by how many columns a row has moved
    shifts: dict[tuple[int, int], int] = {}  # the same for the lines of a bracket
    for row, line in sorted(new.items()):
        bracket = line.row, line.bracket
        was = old.get(origin.get(row, -1))
        shift = shifts.get(bracket, 0)
        if was is not None and was.is_below and lines[line.row] not in known:
            shift = line.bracket + moved.get(line.row, 0) + 1 - line.column
            shifts[bracket] = shift
        elif was is not None or bracket not in shifts:
            shift = moved.get(line.row, 0) if was is not None and was.is_below else shift
        indent = lines[row][: line.column]
        if not shift or "\t" in indent or line.column + shift < 0:
            continue
        lines[row] = " " * (line.column + shift) + lines[row][line.column :]
        moved[row] = shift
    return "\n".join(lines)


def _key(line: str) -> str:
    """How a line begins, which says which one it is also where something is put behind it."""
    match = BEGINNING.match(line.strip())
    return (match[0] if match else "") or line.strip()


def _inside(text: str) -> dict[int, Line]:
    """The lines that begin inside brackets, by their rows; empty where the text is no Python."""
    found: dict[int, Line] = {}
    stack: list[tuple[int, int]] = []
    last = -1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            row, column = token.start[0] - 1, token.start[1]
            if row > last and stack and token.type != tokenize.NL:
                found[row] = Line(column, *stack[-1])
            last = max(last, token.end[0] - 1)
            if token.type == tokenize.OP and token.string in OPEN:
                stack.append((row, column))
            elif token.type == tokenize.OP and token.string in CLOSED and stack:
                stack.pop()
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return {}
    return found
