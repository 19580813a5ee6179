"""What a notebook shows below a cell is the value of the expression that ends it: that must stay
the last thing there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from autofast.edit.hunks import Hunk
from autofast.model.notebook import CELL, Notebook
from autofast.model.script import Script
from autofast.model.source import Source

MARK = re.compile(rf"^{re.escape(CELL)}(\d+)$")


def displaced(new: Script, source: Source, hunks: Sequence[Hunk]) -> Iterator[tuple[Hunk, int]]:
    """The hunks by which a cell ends in something else than the expression that it ended in, each
    with the line of that.
    """
    if not isinstance(source, Notebook):
        return
    fresh = next((s for s in new.sources if s.path == source.path), None)
    ends = _ends(fresh) if fresh is not None else {}
    for cell, last in _ends(source).items():
        now = ends.get(cell)
        if isinstance(last, ast.Expr) and now is not None and not isinstance(now, ast.Expr):
            for hunk in hunks:
                if hunk.new[0] < (now.end_lineno or now.lineno) and hunk.new[1] >= now.lineno:
                    yield hunk, last.lineno


def _ends(source: Source) -> dict[int, ast.stmt]:
    """The last statement of each cell."""
    cells = [(n, int(m[1])) for n, line in enumerate(source.lines, 1) if (m := MARK.match(line))]
    found = {}
    for statement in source.tree.body:
        number = max((cell for line, cell in cells if line < statement.lineno), default=-1)
        found[number] = statement
    return found
