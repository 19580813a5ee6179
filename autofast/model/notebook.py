"""Jupyter notebooks: their code cells are read as one script, and only the cells that change are
written back.

Outputs, metadata and the layout of the JSON stay as they are, whatever wrote it. Places in messages
are a code cell and a line in it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from autofast.model.source import BadInput, Source, shown_path

CELL = "# %% cell "  # stands before each code cell in the text
MAGIC = re.compile(r"\s*[%!?]|\s*[\w.]+\?\??\s*$|\s*\w+(\s*,\s*\w+)*\s*=\s*[!%]")
HIDDEN = "#autofast-magic# "
SHOWN = re.compile(rf"^([ \t]*)(?:pass  )?{HIDDEN}", re.MULTILINE)
# What matters for where a statement begins: comments, quotes, brackets, and what is escaped.
MARKS = re.compile(r"#|\\.|\'\'\'|\"\"\"|[\'\"()\[\]{}]")
DECODER = json.JSONDecoder()


class Notebook(Source):
    """A notebook, as the script that running its cells from top to bottom is."""

    is_notebook = True

    def __init__(self, path: Path, rel: str, raw: bytes):
        self.json, cells = _load(raw, shown_path(path) if path.is_absolute() else rel)
        self.cells = [cell for cell in cells if cell.is_code]
        texts = (f"{CELL}{n}\n{_hide(cell.text)}\n" for n, cell in enumerate(self.cells))
        super().__init__(path, rel, "".join(texts).encode("utf-8"))
        self.heads = [n for n, row in enumerate(self.lines, 1) if row.startswith(CELL)]
        self.raw = raw

    def shown(self, line: int) -> int:
        """The line of the ``.ipynb`` file where line ``line`` of the script stands."""
        number = bisect_right(self.heads, line)
        if not number:
            return 1
        cell, inner = self.cells[number - 1], line - self.heads[number - 1] - 1
        starts = [cell.source[0], *(start for start, _ in cell.rows)]
        return self.json.count("\n", 0, starts[min(inner + 1, len(starts) - 1)]) + 1

    def cell(self, line: int) -> tuple[int, int] | None:
        """The code cell, counted from 1 as in the notebook, and the line in it."""
        number = bisect_right(self.heads, line)
        return (number, max(line - self.heads[number - 1], 1)) if number else None

    def encode(self, text: str) -> bytes:
        """The notebook with the code of ``text``."""
        parts = re.split(rf"^{re.escape(CELL)}(\d+)\n", text, flags=re.MULTILINE)
        lead, found = parts[0], dict(zip(map(int, parts[1::2]), parts[2::2], strict=True))
        if lead.strip() or sorted(found) != list(range(len(self.cells))):
            raise BadInput(f"{self.rel}: the change does not fit into the notebook's cells")
        out, end = [], 0
        for number, cell in enumerate(self.cells):
            if (new := _show(found[number].removesuffix("\n"))) != cell.text:
                out += [self.json[end : cell.source[0]], cell.written(new, self.json)]
                end = cell.source[1]
        return "".join([*out, self.json[end:]]).encode("utf-8")


@dataclass
class Cell:
    """A cell, and where it stands in the file's JSON.

    Attributes:
        is_code: it holds code.
        source: where the value of ``"source"`` begins and ends.
        value: the strings of which its text is made, one a line as Jupyter writes them.
        rows: where these stand; none where the value is one string, and no list.
    """

    is_code: bool
    source: tuple[int, int]
    value: list[str]
    rows: list[tuple[int, int]]

    @property
    def text(self) -> str:
        return "".join(self.value).replace("\r\n", "\n").replace("\r", "\n")

    def written(self, text: str, file: str) -> str:
        """The JSON of this cell's source with another text: laid out as it was in the file, and the
        lines that stay as they are written there.
        """
        if "\r\n" in "".join(self.value):
            text = text.replace("\n", "\r\n")
        if file[self.source[0]] != "[":
            return json.dumps(text, ensure_ascii=file.isascii())
        known = {row: file[a:b] for row, (a, b) in zip(self.value, self.rows, strict=True)}
        lines = [
            known.get(row) or json.dumps(row, ensure_ascii=file.isascii())
            for row in text.splitlines(keepends=True)
        ]
        if not self.rows:
            return f"[{', '.join(lines)}]"
        begin, end = self.source
        before, behind = file[begin : self.rows[0][0]], file[self.rows[-1][1] : end]
        several = len(self.rows) > 1
        between = file[self.rows[0][1] : self.rows[1][0]] if several else f",{before[1:] or ' '}"
        return before + between.join(lines) + behind


def _load(raw: bytes, rel: str) -> tuple[str, list[Cell]]:
    """The text of a notebook, and its cells."""
    try:
        text = raw.decode("utf-8")
        json.loads(text.removeprefix("\ufeff"))
        parts = dict(_parts(text, int(text.startswith("\ufeff")), "{"))
        return text, [_cell(text, *span) for _, span in _parts(text, parts["cells"][0], "[")]
    except (ValueError, KeyError, TypeError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        is_json = not isinstance(error, ValueError)
        why = "no list of cells" if is_json else "its JSON breaks off or is not valid here"
        raise BadInput(
            f"{rel}:{line}: not a Jupyter notebook of format 4 ({why}); open and save it with Jupyter"
        ) from None


def _cell(text: str, start: int, end: int) -> Cell:
    found = {key: (*span, json.loads(text[slice(*span)])) for key, span in _parts(text, start, "{")}
    begin, end, value = found.get("source", (end, end, ""))
    rows = [] if isinstance(value, str) else [span for _, span in _parts(text, begin, "[")]
    value = [value] if isinstance(value, str) else value
    "".join(value)  # strings, all of them
    is_code = "source" in found and found.get("cell_type", ("",))[-1] == "code"
    return Cell(is_code, (begin, end), value, rows)


def _parts(text: str, at: int, bracket: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The values in a JSON object, with their keys, or in an array: where they begin and end."""
    at = _behind(text, at)
    if text[at] != bracket:
        raise TypeError(f"no {bracket}")
    at = _behind(text, at + 1)
    while text[at] not in "]}":
        key = ""
        if bracket == "{":
            key, at = DECODER.raw_decode(text, at)
            at = _behind(text, _behind(text, at) + 1)
        yield key, (at, end := DECODER.raw_decode(text, at)[1])
        at = _behind(text, end)
        at = _behind(text, at + 1) if text[at] == "," else at


def _behind(text: str, at: int) -> int:
    """Behind the white space at a place."""
    while text[at] in " \t\r\n":
        at += 1
    return at


def _hide(code: str) -> str:
    """Magics become comments, in a block behind a ``pass`` that keeps their place in it; a cell
    that is all magic (``%%bash``) is hidden whole.
    """
    lines = code.split("\n")
    if re.match(r"%%(?!(time|timeit|capture|prun)\b)", code):
        return "\n".join(HIDDEN + line for line in lines)
    quote, depth, goes_on, is_magic = "", 0, False, False
    for number, line in enumerate(lines):
        if not goes_on:
            is_magic = not quote and not depth and MAGIC.match(line) is not None
        if is_magic and goes_on:
            lines[number] = HIDDEN + line
        elif is_magic:
            rest = line.lstrip(" \t")
            indent = line[: len(line) - len(rest)]
            lines[number] = f"{indent}{'pass  ' if indent else ''}{HIDDEN}{rest}"
        else:
            quote, depth = _open_behind(line, quote, depth)
        goes_on = line.endswith("\\")
    return "\n".join(lines)


def _open_behind(line: str, quote: str, depth: int) -> tuple[str, int]:
    """The quotes of a text, and how many brackets, are open at the end of a line."""
    for mark in MARKS.findall(line):
        if quote:
            quote = "" if mark == quote else quote
        elif mark == "#":
            break
        elif mark in "()[]{}":
            depth += 1 if mark in "([{" else -1
        elif not mark.startswith("\\"):
            quote = mark
    return (quote if len(quote) == 3 or line.endswith("\\") else ""), max(depth, 0)


def _show(code: str) -> str:
    return SHOWN.sub(r"\1", code)
