"""Assignments of several variables on a line that has become too long are written as one assignment
each.
"""

from __future__ import annotations

import ast
import tokenize
from collections.abc import Sequence
from io import StringIO

from autofast.edit.spans import blanks
from autofast.model.calls import names_in
from autofast.model.several import all_of, wordset
from autofast.model.source import nodes_in

MOVES = wordset(
    "to cuda float double half long int type contiguous div sub mul add div_ sub_ mul_ add_ "
    "view reshape flatten squeeze unsqueeze permute transpose"
)


def split_assignment(code: Sequence[str]) -> list[str]:
    """``x = ...`` and ``y = ...`` for the line ``x, y = ..., ...``; empty where that may be another
    thing.

    The values are variables, or what methods of tensors give of them, and none reads a variable
    that gets its new value before.
    """
    if len(code) != 1:
        return []
    line = code[0].strip()
    indent = blanks(code[0])
    try:
        tree = ast.parse(line)
    except SyntaxError:
        return []
    match tree.body:
        case [ast.Assign(targets=[ast.Tuple() as targets], value=ast.Tuple() as values)] if len(
            targets.elts
        ) == len(values.elts):
            pairs = list(zip(targets.elts, values.elts, strict=True))
        case _:
            return []
    stored: set[str] = set()
    for target, value in pairs:
        if not isinstance(target, ast.Name) or not _only_moves(value) or names_in(value) & stored:
            return []
        stored.add(target.id)
    if len(stored) < len(pairs) or _has_comment(line):
        return []
    segments = [[ast.get_source_segment(line, e) for e in pair] for pair in pairs]
    return [f"{indent}{target} = {value}" for target, value in segments]


def _only_moves(value: ast.expr) -> bool:
    """Whether an expression does nothing but copy, cast, scale and shape tensors."""
    calls = list(nodes_in(value, ast.Call))
    plain = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.Constant, ast.keyword)
    more = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop)
    return all(
        isinstance(c.func, ast.Attribute) and c.func.attr in MOVES for c in calls
    ) and all_of(ast.walk(value), *plain, *more, ast.expr_context)


def _has_comment(line: str) -> bool:
    return any(
        t.type == tokenize.COMMENT for t in tokenize.generate_tokens(StringIO(line).readline)
    )
