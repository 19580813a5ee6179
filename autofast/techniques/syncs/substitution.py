"""The text of a statement with other code in place of some of its expressions."""

from __future__ import annotations

import ast
from copy import deepcopy

from autofast.model.several import any_in
from autofast.model.source import ByNode, ancestors, parent_of, source_of


def swapped_text(statement: ast.stmt, swaps: ByNode[str]) -> str:
    """The text of a statement with other code in place of some expressions."""
    source = source_of(statement)
    if statement.lineno != statement.end_lineno:
        return ast.unparse(_Swap(swaps).visit(_copied(statement, swaps)))
    line = source.lines[statement.lineno - 1].encode()
    spots = [n for n in ast.walk(statement) if n in swaps and not any_in(ancestors(n), swaps)]
    start, end = statement.col_offset, statement.end_col_offset or len(line)
    out, here = b"", start
    for node in sorted(spots, key=lambda n: getattr(n, "col_offset", 0)):
        out += line[here : node.col_offset] + swaps[node].encode()  # type: ignore[attr-defined]
        here = node.end_col_offset  # type: ignore[attr-defined]
    return (out + line[here:end]).decode()


class _Swap(ast.NodeTransformer):
    def __init__(self, swaps: ByNode[str]):
        self.swaps = swaps

    def visit(self, node: ast.AST) -> ast.AST:
        code = getattr(node, "_af_swap", None)
        return ast.parse(code, mode="eval").body if code is not None else self.generic_visit(node)


def _copied(statement: ast.stmt, swaps: ByNode[str]) -> ast.stmt:
    """A copy without links to the file, with a note where something is swapped."""
    for node in ast.walk(statement):
        if node in swaps:
            node._af_swap = swaps[node]  # type: ignore[attr-defined]
    memo: dict[int, object] = {id(source_of(statement)): None, id(parent_of(statement)): None}
    copy = deepcopy(statement, memo)
    for node in ast.walk(copy):
        for kept in ("_af_children", "_af_below"):  # which change
            vars(node).pop(kept, None)
    for node in ast.walk(statement):
        if hasattr(node, "_af_swap"):
            del node._af_swap
    return copy
