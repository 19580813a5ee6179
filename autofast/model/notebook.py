"""Jupyter notebooks: their code cells are read as one script, and only the cells that change are
written back.

Outputs, metadata and the layout of the JSON stay as they are. Places in messages are a code cell
and a line in it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from pathlib import Path
from typing import Any

from autofast.model.source import BadInput, Source, shown_path

CELL = "# %% cell "  # stands before each code cell in the text
MAGIC = re.compile(r"^(\s*)(%|!|\?)|^\s*[\w.]+\?\??\s*$|^\s*\w+\s*=\s*!")
HIDDEN = "#autofast-magic# "


class Notebook(Source):
    """A notebook, as the script that running its cells from top to bottom is."""

    is_notebook = True

    def __init__(self, path: Path, rel: str, raw: bytes):
        self.data, self.style = _load(raw, shown_path(path) if path.is_absolute() else rel)
        self.cells = [c for c in self.data["cells"] if c.get("cell_type") == "code"]
        text = "".join(f"{CELL}{n}\n{_hide(_text(cell))}\n" for n, cell in enumerate(self.cells))
        self.json_lines = _line_numbers(raw.decode("utf-8"), text, self.cells)
        self.heads = [n for n, row in enumerate(text.split("\n"), 1) if row.startswith(CELL)]
        super().__init__(path, rel, text.encode("utf-8"))
        self.raw = raw

    def shown(self, line: int) -> int:
        """The line of the ``.ipynb`` file where line ``line`` of the script stands."""
        return self.json_lines[min(line, len(self.json_lines)) - 1] if self.json_lines else 1

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
        for number, cell in enumerate(self.cells):
            new = _show(found[number].removesuffix("\n"))
            if new != _text(cell):
                cell["source"] = (
                    new.splitlines(keepends=True) if isinstance(cell["source"], list) else new
                )
        return _dump(self.data, self.style)


def _load(raw: bytes, rel: str) -> tuple[dict[str, Any], tuple[Any, bool, str]]:
    try:
        data = json.loads(raw.decode("utf-8"))
        cells = data["cells"]
        assert isinstance(cells, list) and all(
            isinstance(c, dict) and isinstance(c.get("source", ""), (str, list)) for c in cells
        )
    except (ValueError, KeyError, TypeError, AssertionError) as error:
        line = error.lineno if isinstance(error, json.JSONDecodeError) else 1
        if isinstance(error, ValueError):
            why = "its JSON breaks off or is not valid here"
        else:
            why = "no list of cells"
        raise BadInput(
            f"{rel}:{line}: not a Jupyter notebook of format 4 ({why}); open and save it with Jupyter"
        ) from None
    indent = re.match(rb"\{\r?\n([ \t]+)", raw)
    width: Any = indent[1].decode() if indent else None
    end = "\n" if raw.endswith(b"\n") else ""
    for ascii_only in (False, True):
        style = (width, ascii_only, end)
        if _dump(data, style) == raw:
            return data, style
    raise BadInput(
        f"{rel}:1: this notebook's JSON is not laid out as Jupyter writes it; open and save it with Jupyter first"
    )


def _dump(data: dict[str, Any], style: tuple[Any, bool, str]) -> bytes:
    indent, ascii_only, end = style
    return (json.dumps(data, indent=indent, ensure_ascii=ascii_only) + end).encode("utf-8")


def _text(cell: dict[str, Any]) -> str:
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def _hide(code: str) -> str:
    """Magics become comments; a cell that is all magic (``%%bash``) is hidden whole."""
    lines = code.split("\n")
    whole = bool(
        lines
        and lines[0].startswith("%%")
        and not re.match(r"%%(time|timeit|capture|prun)\b", lines[0])
    )
    return "\n".join(HIDDEN + line if whole or MAGIC.search(line) else line for line in lines)


def _show(code: str) -> str:
    return "\n".join(line.removeprefix(HIDDEN) for line in code.split("\n"))


def _line_numbers(raw: str, text: str, cells: list[dict[str, Any]]) -> list[int]:
    """For each line of ``text`` the line of the JSON where it stands (cells in order, as Jupyter
    writes one string a line).
    """
    rows = [row.strip().rstrip(",") for row in raw.split("\n")]
    numbers: list[int] = []
    at = 0
    for cell in cells:
        at = next(
            (
                n
                for n in range(at, len(rows))
                if rows[n].startswith('"cell_type"') and '"code"' in rows[n]
            ),
            at,
        )
        numbers.append(at + 1)
        lines = _text(cell).split("\n")
        last = max(len(lines) - (lines[-1] == ""), 1) - 1  # nothing stands behind a last line end
        start = next((n for n in range(at, len(rows)) if rows[n].startswith('"source"')), at)
        several = isinstance(cell.get("source"), list)
        numbers.extend(
            start + 2 + min(n, last) if several else start + 1 for n in range(len(lines))
        )
        at = start + 1
    count = text.count("\n")
    return (numbers + [numbers[-1] if numbers else 1] * count)[: max(count, 1)]
