"""How the constructor of a data set keeps what items take from there."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

from autofast.edit.edits import After, Edit, Edits, Rewrite, plain_code
from autofast.edit.order import Rank
from autofast.facts.item_constants import Items
from autofast.model.source import source_of
from autofast.rule import Effect
from autofast.techniques.transfers.constants import called_like, class_of, free_name


@dataclass(frozen=True, eq=False)
class Prepared:
    """``node``, in ``__getitem__``, and what makes it once; ``advice``: how to ask for what may be
    more than memory holds; ``whole``: all of an item."""

    node: ast.expr | ast.stmt
    name: str
    edits: Edits
    effect: Effect = Effect.EXACT
    advice: str = ""
    whole: bool = False


def at_end(items: Items, name: str, code: str) -> Edit:
    """The last statement of the constructor keeps it."""
    last = items.init.body[-1]
    return After(last, f"{items.this}.{name} = {code}", rank=Rank.MOVED)


def taken(items: Items, node: ast.expr, name: str, behind: str = "") -> Edit:
    """The item takes it from there."""
    return Rewrite(node, f"{items.this}.{name}{behind}")


def name_of(items: Items, node: ast.expr | None, begin: str) -> str | None:
    """A free name for what is kept: that of the variable that gets ``node``, or the given one."""
    cls, begin = class_of(items.script, items.getitem), re.sub(r"\W", "_", begin).strip("_")
    assert cls is not None
    if node is None:
        return free_name(items.script, cls, begin)
    return free_name(items.script, cls, called_like(items.script, node, begin))


def text_of(expr: ast.expr, instead: Mapping[ast.expr, str] | None = None) -> str:
    """The text of an expression on one line, as a template, with other code at some places."""
    lines = [line.encode() + b"\n" for line in source_of(expr).lines]
    text, code, end = b"".join(lines), "", _offset(lines, expr.lineno, expr.col_offset)
    for node in sorted(instead or (), key=lambda n: (n.lineno, n.col_offset)):
        begin = _offset(lines, node.lineno, node.col_offset)
        code += plain_code(text[end:begin].decode()) + (instead or {})[node]
        end = _offset(lines, node.end_lineno, node.end_col_offset)
    last = _offset(lines, expr.end_lineno, expr.end_col_offset)
    return re.sub(r"\s*\n\s*", " ", code + plain_code(text[end:last].decode()))


def _offset(lines: list[bytes], line: int | None, column: int | None) -> int:
    return sum(map(len, lines[: (line or 1) - 1])) + (column or 0)
