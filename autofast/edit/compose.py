"""The text of a file after a set of edits.

The file is parsed and its nodes are located once; composing another subset of its edits costs a
walk along the paths that lead to them (:mod:`autofast.edit.edit_pass`) and no more. That makes
attribution by leaving out one rule affordable. Lines that stood below the bracket they are in go
with it, where a change before the bracket has moved that.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache

import libcst as cst

from autofast.edit.edit_pass import EditPass, Ground
from autofast.edit.edits import Edit
from autofast.edit.fold import DEFAULT_LIMIT, fold
from autofast.edit.locate import Places, Unplaceable
from autofast.edit.merge import Pool, file_of
from autofast.edit.snippet import Style
from autofast.model.several import grouped
from autofast.model.source import Source

# ---------------------------------------------------------------------------- lines below a bracket
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
    old = _inside(original)
    if not any(line.is_below for line in old.values()):
        return text
    new = _inside(text)
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


@lru_cache(maxsize=8)  # what stands in the file is asked for with each composition
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


WIDEST = 120  # where the user has no limit of their own, lines this long are still taken as a habit

WIDEST_OF_ALL = 160  # and these, where several lines of code are longer than that
SEVERAL = 3
# Where lines come close to 79 columns, more than a few of them, and none goes past, that is meant.
PEP8, NEAR, FEW = 79, 10, 8
TEXT = re.compile(r"""\s*#.*|"[^"]*"|'[^']*'""")


class Document:
    """One file of the project that edits are composed for."""

    def __init__(self, source: Source, limit: int | None = None):
        self.source = source
        places = Places(source)
        self.limit = limit or _habit(source.lines)
        self._formatted = limit is not None
        self._ground = Ground(places, Style.of(source, places.module.default_indent), self.limit)
        # A statement at module level -> its text.
        self._pieces: dict[int, tuple[cst.CSTNode, str]] = {}
        self._lost = _lost(places.module.code, source.text) if "\f" in source.text else None

    def compose(self, edits: Iterable[Edit]) -> str:
        """The text after ``edits``, which must not contradict each other (see
        :class:`autofast.edit.merge.Pool`).
        """
        edits = list(edits)
        if not edits:
            return self.source.text
        try:
            text = self._code(EditPass(self._ground, edits).module())
        except RecursionError:
            raise Unplaceable(
                f"{self.source.rel}: expressions are nested too deeply to be rewritten"
            ) from None
        text = _restored(text, self._lost)
        text = realigned(text, self.source.text)
        unit = self._ground.style.unit
        return fold(text, self.source.text, self.limit, unit, formatted=self._formatted)

    def _code(self, module: cst.Module) -> str:
        """The text of ``module``. Statements that are the same as in another composition are not
        written out again.
        """
        frame = module.with_changes(header=[], footer=[], body=[], has_trailing_newline=True)
        text = "".join(self._piece(frame, statement) for statement in module.body)
        text = _lines(frame, module.header) + text + _lines(frame, module.footer)
        return text if module.has_trailing_newline else text.removesuffix("\n")

    def _piece(self, frame: cst.Module, statement: cst.CSTNode) -> str:
        node, text = self._pieces.get(id(statement), (None, ""))
        if node is not statement:
            text = frame.with_changes(body=[statement]).code
            self._pieces[id(statement)] = statement, text
        return text


def _habit(lines: Sequence[str]) -> int:
    """How long the author lets lines of code become; text alone says nothing of lines beyond what
    is usual.
    """
    widths = sorted((len(TEXT.sub("", line)) for line in lines), reverse=True)
    often = widths[SEVERAL - 1] if len(widths) >= SEVERAL else 0
    longest = max(map(len, lines), default=0)
    near = sum(len(line) > PEP8 - NEAR for line in lines)
    if longest <= PEP8 and near > FEW:
        return PEP8
    return max(DEFAULT_LIMIT, min(longest, WIDEST), min(often, WIDEST_OF_ALL))


def _lines(frame: cst.Module, lines: Sequence[cst.EmptyLine]) -> str:
    return "".join(frame.code_for_node(line) for line in lines)


def _lost(written: str, text: str) -> tuple[list[str], list[str]] | None:
    """The lines as LibCST writes them and as they are, where they differ: it drops form feeds
    before a statement.
    """
    if written == text:
        return None
    old, new = written.split("\n"), text.split("\n")
    return (old, new) if len(old) == len(new) else None


def _restored(text: str, lost: tuple[list[str], list[str]] | None) -> str:
    """``text`` with the lines that no edit touched as they were."""
    if lost is None:
        return text
    written, lines = lost
    result = text.split("\n")
    for a, b, size in SequenceMatcher(None, written, result, autojunk=False).get_matching_blocks():
        result[b : b + size] = lines[a : a + size]
    return "\n".join(result)


def compose(edits: Iterable[Edit], limit: int | None = None) -> dict[Source, str]:
    """The new text of each file that ``edits`` change. For one composition; a plan keeps the
    documents for the next.
    """
    pool = Pool()
    pool.add(list(edits))
    by_file = grouped((file_of(edit), edit) for edit in pool.edits)
    texts = {
        source: Document(source, limit).compose(members) for source, members in by_file.items()
    }
    return {source: text for source, text in texts.items() if text != source.text}
