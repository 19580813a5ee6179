"""Indices that go to the host for a tensor there, whose elements come back: a schedule by its
steps, rows of zeros and ones by their labels.

``a.gather(-1, t.cpu()).view(-1, 1).to(t.device)`` waits for the device in every step. What is
picked from, or filled, is copied or made where the index is, and the index stays there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.flow.program import Flow
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.source import statement_of
from autofast.model.values import Given, Tensor
from autofast.rule import Effect
from autofast.techniques.transfers.creations import created
from autofast.techniques.transfers.factories import KEEPS, Creation, factory, runs_often

# One number for each index: what is picked from has one dimension, and is short.
COLUMN = re.compile(r"\.(?:view|reshape)\(.*(?:, 1\b|\(1,\) ?\*|\[1\] ?\*)")
SHAPES = KEEPS - {"expand"} | {"detach"}  # others may need the memory that a copy has of its own


def round_trips(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """One for each tensor that comes back to where a parameter of the function is."""
    flow = script.analysis(Flow)
    copies: dict[ast.AST, Transfer] = {t.node: t for t in script.transfers}
    for back in script.transfers:
        match back.operand, back.target:
            case ast.expr() as made, Given(expr=ast.Attribute(value=name, attr="device")) if (
                flow.is_given(name)
            ):
                whole = _below(script, made)
            case _:
                continue
        where = f"{ast.unparse(name)}.device"
        there: tuple[Edit, ...] = ()
        match whole:
            case (
                ast.Subscript(value=base, slice=by)
                | ast.Call(func=ast.Attribute(value=base, attr="gather"), args=[_, by], keywords=[])
            ) if script.may_be(base, Tensor) and COLUMN.search(
                ast.unparse(statement_of(back.node))
            ):
                there = (Rewrite(base, f"{{base}}.to({where})", {"base": base}),)
            case ast.Call(
                func=ast.Attribute(value=base, attr="scatter_"),
                args=[_, by, ast.Constant()],
                keywords=[],
            ) if call := factory(script, _below(script, base)):
                creation = created(script, call, where)
                there = creation.edits if creation and creation.effect is Effect.EXACT else ()
            case _:
                continue
        match copies.get(_below(script, by)):
            case Transfer(how="cpu", node=host, operand=ast.expr() as index) if (
                there and flow.is_same(_below(script, index), name) and runs_often(back.site, hot)
            ):
                here = Rewrite(host, "{index}", {"index": index})
                idle = (Rewrite(back.node, "{made}", {"made": back.operand}),) * back.only_moves
                yield Creation(back.node, back.site, (here, *there, *idle), Effect.EXACT)


def _below(script: Script, expr: ast.expr) -> ast.expr:
    """What stands behind shapes and casts, and behind names that are read once."""
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SHAPES:
            return _below(script, inner)
        case ast.Name() if made := script.analysis(Flow).value_of_its_own(expr):
            return _below(script, made)
    return expr
