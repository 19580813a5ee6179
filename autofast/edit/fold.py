"""Lines that new code has made too long are broken, by black; what the user wrote keeps its shape.

``x, y = x.to(device, ...), y.to(device, ...)`` becomes two assignments where that is the same.

Only one statement at a time is given to black, without its indentation: nothing else can change,
and what comes back is put in the user's own indentation, whether that is tabs or two spaces.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterator
from difflib import SequenceMatcher
from functools import lru_cache

from autofast.edit.aligned import broken_lines, carried_on, hangs, is_habit
from autofast.edit.spans import BLOCKS, blanks, own_lines
from autofast.edit.tuples import split_assignment

DEFAULT_LIMIT = 88
BLACK_UNIT = 4
ROOM = 24  # columns by which a call may outgrow one like it that was too long before
TRAILING = re.compile(r",\n\s*[)\]}]")  # what black leaves behind the last argument
SHORT = 3  # lines of a folded statement; black may make one of each argument


def fold(text: str, original: str, limit: int, unit: str, formatted: bool = False) -> str:
    """``text`` with the lines broken that are longer than ``limit`` and are not a user's line; one
    that was only indented, too, where no line of the user's was as long.

    A project that is ``formatted`` has the limit in its settings: where the file has no way of its
    own, it is black's.

    A statement that had a line too long already stays as it is: its author does not mind.
    """
    folded = _folded_lines(text, original, limit, unit, formatted)
    return "\n".join(_with_remarks(folded, original.split("\n"), limit))


def _folded_lines(text: str, original: str, limit: int, unit: str, formatted: bool) -> list[str]:
    known = {line.strip() for line in original.split("\n")}
    lines = text.split("\n")
    wide = [line.strip() for line in original.split("\n") if len(line) > limit]
    remarks = {remark for line in original.split("\n") if (remark := _remark(line))}
    long = {
        n
        for n, line in enumerate(lines, 1)
        if len(line) > limit
        and (line.strip() not in known or not wide)
        and not _only_by(line, remarks, limit)
    }
    if not long:
        return lines
    known -= {lines[n - 1].strip() for n in long}
    spans = sorted(set(_spans(text, long)), reverse=True)
    grown = {
        (first, last)
        for first, last in spans
        if any(_grown_from(line.strip(), wide) for line in lines[first - 1 : last])
    }
    left = {_call(lines[first - 1].strip()) for first, _ in grown} - {""}
    spans = [s for s in spans if s not in grown and _call(lines[s[0] - 1].strip()) not in left]
    # Calls of one function are broken in one way.
    large = {
        _call(lines[first - 1].strip())
        for first, last in spans
        if first == last and not _is_short(broken_lines(lines[first - 1], limit))
    }
    tall = {
        _call(lines[first - 1].strip())
        for first, last in spans
        if first == last and len(_folded((lines[first - 1],), limit, unit)) > SHORT
    }
    for first, last in spans:
        code = lines[first - 1 : last]
        call = _call(code[0].strip())
        alike = bool(call) and call in large
        parts = [[line] for line in split_assignment(code)] or [code]
        folded = [
            line
            for part in parts
            for line in (
                part
                if _fits(part, limit)
                else _broken(
                    part, original, limit, unit, formatted or alike, bool(call) and call in tall
                )
            )
        ]
        if _keeps(known, code, folded):
            lines[first - 1 : last] = folded
    return lines


def _with_remarks(lines: list[str], original: list[str], limit: int) -> list[str]:
    """``lines`` with each remark behind what the user had written before it, where new arguments
    have come in between.
    """
    known = {line.strip() for line in original}
    owners = {remark: line for line in original if (remark := _remark(line))}
    for n in reversed(range(1, len(lines))):
        remark = _remark(lines[n])
        if remark not in owners or lines[n].strip() in known:
            continue
        words = owners[remark].removesuffix(remark).strip().rstrip(")]}")
        new = next((k for k in range(n, 0, -1) if lines[k - 1].strip() in known), 0)
        k = next((k for k in range(new, n) if lines[k].strip().startswith(f"{words},")), n)
        if not words or k == n:
            continue  # it stands there
        end = lines[k].index(words) + len(words) + 1
        head, rest = lines[k][:end] + remark, lines[k][end:].strip()
        following = [*lines[k + 1 : n], lines[n].removesuffix(remark)]
        if "#" in rest or len(head) > max(limit, len(owners[remark])):
            continue
        if rest:
            indent = blanks(following[0])
            whole = f"{indent}{rest} {following[0].lstrip()}"
            is_narrow = len(whole) <= limit
            following = [whole, *following[1:]] if is_narrow else [indent + rest, *following]
        lines[k : n + 1] = [head, *following]
    return lines


def _remark(line: str) -> str:
    """The comment at the end of a line, with the spaces before it; empty where there is none."""
    match = re.search(r"\s+#[^#\"']*$", line)
    return match[0] if match else ""


def _only_by(line: str, remarks: set[str], limit: int) -> bool:
    """Whether a line is too long by a remark of the user's alone."""
    remark = _remark(line)
    return remark in remarks and len(line) - len(remark) <= limit


def _fits(code: list[str], limit: int) -> bool:
    return all(len(line) <= limit for line in code)


def _broken(
    code: list[str], original: str, limit: int, unit: str, formatted: bool, is_tall: bool
) -> list[str]:
    """One statement as the file itself breaks its lines, or else as black does.

    ``is_tall``: black would make many lines of it, or of a call of the same function.
    """
    if len(code) > 1:
        if _hugs(code) and (formatted or TRAILING.search(original)):
            return _folded(tuple(code), limit, unit)
        return (
            _continued(code, limit)
            or _before_backslash(code, limit)
            or _folded(tuple(code), limit, unit)
        )
    own = broken_lines(code[0], limit)
    if own and is_habit(original):
        return own
    folded = _folded(tuple(code), limit, unit)
    is_shorter = _is_short(own) and (is_tall or len(folded) > SHORT)
    return own if own and is_shorter and not formatted and not hangs(original) else folded


def _hugs(code: list[str]) -> bool:
    """Whether all arguments stand on one line between the brackets: black gives each its own where
    that is too long.
    """
    ends = code[0].rstrip()[-1:], code[-1].strip()[:1]
    return len(code) == SHORT and ends in (("(", ")"), ("[", "]"), ("{", "}"))


def _is_short(lines: list[str] | None) -> bool:
    return lines is not None and len(lines) < SHORT


def _continued(code: list[str], limit: int) -> list[str] | None:
    """A statement of several lines with those broken that are too long, if they are none of its
    first; else None.
    """
    found = [code[0]]
    for line in code[1:]:
        parts = [line] if len(line) <= limit else carried_on(line, limit)
        if parts is None:
            return None
        found += parts
    return found if len(code[0]) <= limit and not _has_text_over_lines(code) else None


def _before_backslash(code: list[str], limit: int) -> list[str] | None:
    """A statement whose first line is too long and goes on behind a backslash: that line broken, if
    it is a whole call; else None.
    """
    first = code[0].removesuffix("\\").rstrip()
    own = (
        broken_lines(first, limit - 2)
        if first != code[0].rstrip() and _fits(code[1:], limit)
        else None
    )
    return [*own[:-1], f"{own[-1]} \\", *code[1:]] if own else None


def _has_text_over_lines(code: list[str]) -> bool:
    return any(quotes in line for line in code for quotes in ("'''", '"""'))


def _keeps(known: set[str], code: list[str], folded: list[str]) -> bool:
    """Whether the user's own lines and comments in a statement are still there after folding it."""
    after = {line.strip() for line in folded}
    ends = [line.split("#", 1)[1] for line in code if "#" in line]
    return all(line.strip() in after for line in code if line.strip() in known) and all(
        any(line.endswith(end) for line in folded) for end in ends
    )


def _grown_from(line: str, wide: list[str]) -> bool:
    """Whether ``line`` looks like one of the user's long lines, or is the same call and hardly
    longer, or has become shorter.
    """
    target = line[: line.find(" = ") + 3]
    return any(
        line[:20] == other[:20]
        or (len(target) > 2 and other.startswith(target) and len(line) <= len(other))
        or (_call(line) and _call(line) == _call(other) and len(line) <= len(other) + ROOM)
        for other in wide
    )


def _call(line: str) -> str:
    """What is called on the right of an assignment, or to be returned; empty for any other line."""
    match = re.match(r"(?:[\w., ]+ = |return )([\w.]+\()", line)
    return match[1] if match else ""


def _spans(text: str, long: set[int]) -> Iterator[tuple[int, int]]:
    """First and last line of each simple statement, or head of a compound one, that has a line
    among ``long``.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError:  # for the post-conditions to report
        return
    for node in _around(tree, long):
        if isinstance(node, ast.stmt):
            first, last = own_lines(node)
            if not long.isdisjoint(range(first, last + 1)) and not _shares_line(node, last):
                yield first, last


def _around(tree: ast.Module, lines: set[int]) -> Iterator[ast.AST]:
    """The statements that one of ``lines`` stands in, and what else holds statements there
    (handlers, cases).
    """
    todo: list[ast.AST] = [tree]
    while todo:
        node = todo.pop()
        first, last = (getattr(node, name, None) for name in ("lineno", "end_lineno"))
        decorators = [d.lineno for d in getattr(node, "decorator_list", ())]
        if first and last and lines.isdisjoint(range(min([first, *decorators]), last + 1)):
            continue
        yield node
        todo += [part for block in BLOCKS for part in getattr(node, block, ())]


def _shares_line(node: ast.stmt, last: int) -> bool:
    """Whether the body of a compound statement stands on the line of its head."""
    body: list[ast.stmt] = getattr(node, "body", [])
    return bool(body) and body[0].lineno == last


@lru_cache(maxsize=256)
def _folded(code: tuple[str, ...], limit: int, unit: str) -> list[str]:
    """The lines of one statement, broken; the very same where that is beyond black."""
    prefix = blanks(code[0])
    text = "\n".join([code[0][len(prefix) :], *code[1:]])
    opener = "el" if re.match(r"elif\b", text) else ""
    is_head = text.rstrip().endswith(":") or re.search(r":\s*#[^\"']*$", text) is not None
    width = limit - len(prefix.expandtabs(BLACK_UNIT)) - len(opener)
    whole = text[len(opener) :] + ("\n    pass\n" if is_head else "\n")
    spans_lines = "'''" in text or '"""' in text or re.search(r"\\\n", text)
    new = None if spans_lines else _black(_with_tuple_in_parentheses(whole), width)
    if new is None:
        return list(code)
    new = _with_numbers(text, opener + new)
    spaced = _spaced_like(text, new)
    lines = (
        (spaced if _widest(spaced) <= max(_widest(new), width) else new).rstrip("\n").split("\n")
    )
    lines = lines[:-1] if is_head else lines
    return (
        [_indented(line, prefix, unit) for line in lines] if len(lines) > len(code) else list(code)
    )


def _with_tuple_in_parentheses(text: str) -> str:
    """``x, y = f(x), g(y)`` is broken between its parts, not inside the last of them, if these have
    parentheses around them.
    """
    try:
        statement = ast.parse(text).body[0]
    except SyntaxError:  # a statement that can only stand inside another one
        return text
    value = statement.value if isinstance(statement, (ast.Assign, ast.Return)) else None
    if not isinstance(value, ast.Tuple) or value.lineno != value.end_lineno or not text.isascii():
        return text
    lines = text.split("\n")
    line, start, end = lines[value.lineno - 1], value.col_offset, value.end_col_offset or 0
    if line[start] != "(":
        lines[value.lineno - 1] = f"{line[:start]}({line[start:end]}){line[end:]}"
    return "\n".join(lines)


def _widest(text: str) -> int:
    return max(map(len, text.split("\n")))


def _indented(line: str, prefix: str, unit: str) -> str:
    bare = line.lstrip(" ")
    levels, rest = divmod(len(line) - len(bare), BLACK_UNIT)
    return (prefix + unit * levels + " " * rest + bare) if bare else ""


def _with_numbers(original: str, folded: str) -> str:
    """``folded`` with the numbers as the user writes them: ``0.``, which black makes ``0.0``."""
    old, new = ([t for t in _tokens(x) if t.type == tokenize.NUMBER] for x in (original, folded))
    lines = folded.split("\n")
    for was, now in reversed([*zip(old, new, strict=False)] if len(old) == len(new) else []):
        row, line = now.start[0] - 1, lines[now.start[0] - 1]
        lines[row] = line[: now.start[1]] + was.string + line[now.end[1] :]
    return "\n".join(lines)


def _spaced_like(original: str, folded: str) -> str:
    """``folded`` with the spaces that the user puts between two words, wherever these still stand
    on one line.
    """
    old, new = _tokens(original), _tokens(folded)
    before, lines = original.split("\n"), folded.split("\n")
    same = SequenceMatcher(None, [t.string for t in old], [t.string for t in new], autojunk=False)
    for i, j, length in reversed(same.get_matching_blocks()):
        for k in range(length - 2, -1, -1):  # from behind, so that columns stay right
            was, now = _gap(before, *old[i + k : i + k + 2]), _gap(lines, *new[j + k : j + k + 2])
            if was is not None and now is not None and was != now:
                (row, end), (_, start) = new[j + k].end, new[j + k + 1].start
                lines[row - 1] = lines[row - 1][:end] + was + lines[row - 1][start:]
    return "\n".join(lines)


def _gap(lines: list[str], left: tokenize.TokenInfo, right: tokenize.TokenInfo) -> str | None:
    """The spaces between two tokens of one line."""
    gap = lines[left.end[0] - 1][left.end[1] : right.start[1]]
    return gap if left.end[0] == right.start[0] and not gap.strip() else None


def _tokens(text: str) -> list[tokenize.TokenInfo]:
    try:
        found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, IndentationError, SyntaxError):
        return []
    return [
        t
        for t in found
        if t.type
        not in (tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    ]


def _black(text: str, width: int) -> str | None:
    import black.parsing  # takes a while to import, and is rarely needed

    mode = black.Mode(line_length=max(width, 20), string_normalization=False)
    try:
        return black.format_str(text, mode=mode)
    except (black.parsing.InvalidInput, ValueError):
        return None
