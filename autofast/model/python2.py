"""What a file that Python 3 cannot parse has left of Python 2, so that the error message can name
every place.
"""

from __future__ import annotations

import builtins
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import pairwise

SHOWN = 6  # lines named for each kind of leftover
OLD_NAMES = {
    "xrange": "range",
    "raw_input": "input",
    "unicode": "str",
    "basestring": "str",
    "iteritems": "items",
    "itervalues": "values",
    "iterkeys": "keys",
    "has_key": "in",
}
VALUES = (tokenize.STRING, tokenize.NUMBER, tokenize.NAME)


def leftovers(text: str) -> str:
    """``; Python 2: `async=` (line 2: write non_blocking=)``, all of them, in the order of the
    file; empty where there are none.
    """
    found: dict[tuple[str, str], list[int]] = {}
    certain = False
    for line in _statements(text):
        for number, what, instead in _in_line(line):
            found.setdefault((what, instead), []).append(number)
            certain |= what not in OLD_NAMES
    if not certain:
        return ""
    parts = [f"{what} ({_lines(numbers)}: {instead})" for (what, instead), numbers in found.items()]
    if len(found) > 1 or not any(what == "`async=`" for what, _ in found):
        run = " (or convert the file first, e.g. with 2to3)"
    else:
        run = ""
    return f"; left of Python 2: {', '.join(parts)}{run}"


def _lines(numbers: list[int]) -> str:
    numbers = sorted(set(numbers))
    more = f" and {len(numbers) - SHOWN} more" if len(numbers) > SHOWN else ""
    return f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:SHOWN]))}{more}"


def _statements(text: str) -> Iterator[list[tokenize.TokenInfo]]:
    """The tokens of each logical line; what cannot be split into tokens is left out."""
    lines = text.splitlines(keepends=True)
    start = 0
    while start < len(lines):
        here: list[tokenize.TokenInfo] = []
        last = start + 1
        try:
            for token in tokenize.generate_tokens(io.StringIO("".join(lines[start:])).readline):
                token = token._replace(
                    start=(token.start[0] + start, token.start[1]),
                    end=(token.end[0] + start, token.end[1]),
                )
                last = token.end[0]
                if token.type == tokenize.NEWLINE:
                    yield here
                    here = []
                elif token.type not in (
                    tokenize.NL,
                    tokenize.COMMENT,
                    tokenize.INDENT,
                    tokenize.DEDENT,
                    tokenize.ENDMARKER,
                ):
                    here.append(token)
            yield here
            return
        except (tokenize.TokenError, SyntaxError):
            yield here
            start = max(last, start + 1)


def _of_3_14(words: list[str]) -> bool:
    """``except ValueError, TypeError:``: both are classes, which Python 3.14 catches without
    parentheses.
    """
    return hasattr(builtins, words[words.index(":") - 1]) if ":" in words else False


def _in_line(tokens: list[tokenize.TokenInfo]) -> Iterator[tuple[int, str, str]]:
    """Line, leftover and what to write."""
    words = [t.string for t in tokens]
    first = words[0] if words else ""
    for n in _starts(words):
        if (
            n + 1 < len(tokens)
            and words[n] in ("print", "exec")
            and (tokens[n + 1].type in VALUES or words[n + 1] == ">>")
        ):
            if words[n + 1] not in ("in", "is", "and", "or", "not", "if"):
                yield tokens[n].start[0], f"{words[n]} statement", f"write {words[n]}(...)"
    if first == "except" and "," in _outside(words) and "as" not in words and not _of_3_14(words):
        yield tokens[0].start[0], "`except A, e:`", "write `except A as e:`"
    if first == "raise" and "," in _outside(words):
        yield tokens[0].start[0], "`raise A, message`", "write `raise A(message)`"
    for before, token in pairwise(tokens):
        touches = before.end == token.start
        if before.string == "async" and token.string == "=":
            yield before.start[0], "`async=`", "write non_blocking="
        elif touches and before.string == "<" and token.string == ">" or token.string == "<>":
            yield token.start[0], "`<>`", "write `!=`"
        elif touches and before.type == tokenize.NUMBER and token.string in ("L", "l"):
            yield before.start[0], "a long integer", "leave out the L"
        elif touches and re.fullmatch("0+", before.string) and token.type == tokenize.NUMBER:
            yield before.start[0], "an octal number", "write 0o..."
        elif touches and token.type == tokenize.STRING and before.string.lower() == "ur":
            yield before.start[0], 'ur"..."', 'write r"..."'
    for token in tokens:
        if token.string == "`":
            yield token.start[0], "backquotes", "write repr(...)"
        elif token.type == tokenize.NAME and token.string in OLD_NAMES:
            yield token.start[0], token.string, f"write {OLD_NAMES[token.string]}"


def _starts(words: list[str]) -> Iterator[int]:
    """Where a statement may begin: at the beginning, and behind ``:`` and ``;``."""
    return (n for n in range(len(words)) if n == 0 or words[n - 1] in (":", ";"))


def _outside(words: list[str]) -> list[str]:
    """The words that stand in no brackets."""
    found, depth = [], 0
    for word in words:
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if depth == 0:
            found.append(word)
    return found
