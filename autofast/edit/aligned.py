"""Lines broken as many files break them: the rest of the arguments below the first, behind the
bracket that is open.
"""

from __future__ import annotations

import io
import tokenize
from functools import lru_cache

from autofast.edit.spans import blanks

OPEN, CLOSED = "([{", ")]}"


@lru_cache(maxsize=32)
def is_habit(text: str) -> bool:
    """Whether a file breaks its lines like this, and more often than behind the bracket itself, as
    black does.
    """
    aligned = hanging = 0
    stack: list[tuple[int, int]] = []  # row and column of open brackets
    begun = True  # the next token is the first of its line
    for token in _tokens(text):
        row, column = token.start
        if begun and stack:
            opened, where = stack[-1]
            aligned += row > opened and column == where + 1
        begun = token.type in (tokenize.NL, tokenize.NEWLINE)
        if token.type == tokenize.OP and token.string in OPEN:
            stack.append(token.start)
        elif token.type == tokenize.OP and token.string in CLOSED and stack:
            stack.pop()
        line = token.line[token.end[1] :].split("#")[0]
        hanging += token.type == tokenize.OP and token.string in OPEN and not line.strip()
    return aligned > hanging


def broken_lines(line: str, limit: int) -> list[str] | None:
    """A statement of one line, broken after commas of its last outer bracket; None where that does
    not make it short enough.
    """
    if "\t" in blanks(line):
        return None
    place, commas = _commas(line)
    if not commas or place > limit // 2:
        return None
    lines, start = [], 0
    while len(line) - start + (place if start else 0) > limit:
        room = limit - (place if start else 0)
        fitting = [c for c in commas if start < c and c + 1 - start <= room]
        if not fitting:
            return None
        lines.append(line[start : fitting[-1] + 1])
        start = fitting[-1] + 1
        start += len(line[start:]) - len(line[start:].lstrip())
    lines.append(line[start:])
    return [lines[0], *(" " * place + rest for rest in lines[1:])]


def hangs(text: str) -> bool:
    """Whether a file puts the arguments of a call between brackets that end a line and begin one,
    as black does.
    """
    stack: list[bool] = []  # whether each open bracket is of a call, and ends its line
    last, before = "", ""
    for token in _tokens(text):
        if token.type == tokenize.NL and last == "(" and stack:
            stack[-1] = before.isidentifier() or before in CLOSED
        if token.type == tokenize.OP and token.string in OPEN:
            stack.append(False)
        elif token.type == tokenize.OP and token.string in CLOSED and stack and stack.pop():
            if last == "":
                return True
        if token.type != tokenize.COMMENT:
            last, before = "" if token.type == tokenize.NL else token.string, last or before
    return False


def carried_on(line: str, limit: int) -> list[str] | None:
    """A line inside brackets that began further up, broken after its commas; None where that does
    not make it short enough.
    """
    indent = blanks(line)
    lines, rest = [], line
    while len(rest) > limit:
        fitting = [c for c in _outer_commas(rest) if c + 1 <= limit and rest[c + 1 :].strip()]
        if not fitting:
            return None
        lines.append(rest[: fitting[-1] + 1])
        rest = indent + rest[fitting[-1] + 1 :].lstrip()
    return [*lines, rest]


def _outer_commas(line: str) -> list[int]:
    """The columns of the commas in a part of an expression that no bracket of it is around."""
    depth, quote, found = 0, "", list[int]()
    for column, sign in enumerate(line):
        if quote:
            if sign == quote and line[column - 1] != "\\":
                quote = ""
        elif sign in "\"'":
            quote = sign
        elif sign == "#" or depth < 0:
            break
        elif sign == "," and depth == 0:
            found.append(column)
        else:
            depth += (sign in OPEN) - (sign in CLOSED)
    return found


def _commas(line: str) -> tuple[int, list[int]]:
    """The column behind the last bracket that nothing is around, and those of the commas directly
    in it.
    """
    place, depth, commas = 0, 0, list[int]()
    names = False  # between `for` and `in`, or of a lambda
    indent = len(blanks(line))
    for token in _tokens(line[indent:]):
        column = token.start[1] + indent
        if token.type != tokenize.OP:
            names = token.string in ("for", "lambda") or (names and token.string != "in")
            continue
        names = names and token.string != ":"
        if token.string in OPEN:
            depth += 1
            if depth == 1:
                place, commas = column + 1, []
        elif token.string in CLOSED:
            depth -= 1
        elif token.string == "," and depth == 1 and not names:
            commas.append(column)
        elif token.string == "," and depth == 0:
            return 0, []  # a tuple without brackets
    return place, commas


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    found = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            found.append(token)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        pass  # the head of a compound statement; what came before counts
    return found
