"""What people say of a statement in comments."""

from __future__ import annotations

import ast
import re
from itertools import takewhile

from autofast.model.source import block_of, source_of


def said_beside(stmt: ast.stmt, pattern: re.Pattern[str]) -> int:
    """The line of a comment that says it, at a statement, or above it and the ``del`` before it; 0
    where none does.
    """
    block, lines = block_of(stmt), source_of(stmt).lines
    above = reversed(block[: block.index(stmt)])
    first = [stmt, *takewhile(lambda s: isinstance(s, ast.Delete), above)][-1]
    top = first.lineno
    while top > 1 and lines[top - 2].lstrip().startswith("#"):
        top -= 1
    comments = ((n, lines[n - 1].partition("#")[2]) for n in range(top, stmt.lineno + 1))
    return next((n for n, comment in comments if pattern.search(comment)), 0)
