"""The lines that statements stand on, in the abstract tree."""

from __future__ import annotations

import ast

from autofast.model.several import of_kind, wordset

Span = tuple[int, int]  # first and last line, counted from 1


def blanks(line: str) -> str:
    """The blanks that a line begins with."""
    return line[: len(line) - len(line.lstrip())]


def own_lines(node: ast.stmt | ast.ExceptHandler | ast.match_case) -> Span:
    """The lines of a simple statement, or of the head of a compound one: from its first decorator
    to its colon, about.
    """
    if isinstance(node, ast.match_case):
        return node.pattern.lineno, (node.guard or node.pattern).end_lineno or node.pattern.lineno
    if not hasattr(node, "body"):
        return node.lineno, node.end_lineno or node.lineno
    heads = [
        n for name, value in ast.iter_fields(node) if name not in BLOCKS for n in _nodes(value)
    ]
    lines = [
        n.end_lineno
        for head in heads
        for n in ast.walk(head)
        if isinstance(n, (ast.expr, ast.arg)) and n.end_lineno
    ]
    starts = [d.lineno for d in getattr(node, "decorator_list", ())]
    return min([node.lineno, *starts]), max([node.lineno, *lines])


BLOCKS = wordset("body orelse finalbody handlers cases")


def _nodes(value: object) -> list[ast.AST]:
    items = value if isinstance(value, list) else [value]
    return of_kind(items, ast.AST)
