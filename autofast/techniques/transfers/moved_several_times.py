"""Tensors of the host that several copies take to the same device: ``zeros = torch.zeros(n)``, then
``zeros.to(x.device), zeros.clone().to(x.device)``, the states of an LSTM.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Rewrite
from autofast.flow.program import Flow, definitions_of
from autofast.flow.scopes import is_local
from autofast.model.calls import names_in
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import grouped, of_kind, one
from autofast.model.source import block_of, nodes_in, source_of, statement_of, within_statement
from autofast.model.syntax import COMPREHENSIONS, is_attribute, is_read
from autofast.rule import Effect
from autofast.techniques.transfers.creations import creation_of, device_of
from autofast.techniques.transfers.factories import KEEPS, Creation, factory, runs_often

# A copy has memory of its own, which nothing that is written in place may come to.
PLAIN = frozenset(k for k in KEEPS if not k.endswith("_")) - {"expand"}
DECIDING = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)


def moved_several_times(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """The factories of such tensors, where nothing else is done with them: they are made there."""
    flow = script.analysis(Flow)
    copies: list[tuple[ast.AST, tuple[Transfer, ast.Name]]] = []
    for transfer in script.transfers:
        root = transfer.operand and _root(transfer.operand)
        made = flow.definition(root) if isinstance(root, ast.Name) else None
        if made is not None and made.value is not None and runs_often(transfer.site, hot):
            assert isinstance(root, ast.Name)
            copies.append((made.node, (transfer, root)))
    for target, group in grouped(copies).items():
        if isinstance(target, ast.Name) and len(group) > 1:
            yield from _made_there(script, target, [t for t, _ in group], [r for _, r in group])


def _made_there(
    script: Script, target: ast.Name, copies: list[Transfer], roots: list[ast.Name]
) -> Iterator[Creation]:
    stmt = statement_of(target)
    call = factory(script, stmt.value) if isinstance(stmt, ast.Assign) else None
    where = one({device_of(script, c) for c in copies})
    uses = definitions_of(script, target).uses_of(target)
    if call is None or where is None or not is_local(target):
        return
    needed = names_in(ast.parse(where))
    rest = block_of(stmt)[block_of(stmt).index(stmt) :]
    creation = creation_of(script, call, where)
    if (
        creation is None
        or creation.effect is not Effect.EXACT
        or {*uses} != {*roots}
        or target.id in source_of(stmt).rebound
        or sum(not _is_own(c) for c in copies) > 1
        or not all(c.only_moves and _is_come_to(c.node, rest) for c in copies)
        or any(n.id in needed and not is_read(n) for s in rest for n in nodes_in(s, ast.Name))
    ):
        return
    moved = (Rewrite(c.node, "{made}", {"made": c.operand}) for c in copies if c.operand)
    yield Creation(
        call,
        creation.site,
        (*creation.edits, *moved),
        creation.effect,
        tuple(c.node for c in copies),
    )


def _is_come_to(copy: ast.Call, block: list[ast.stmt]) -> bool:
    """Whether it is made wherever these statements run, and once."""
    return statement_of(copy) in block and not of_kind(within_statement(copy), DECIDING)


def _root(expr: ast.expr) -> ast.expr:
    """``zeros`` of ``zeros.clone().unsqueeze(0)``."""
    while isinstance(expr, ast.Call) and is_attribute(expr.func, *PLAIN):
        expr = expr.func.value
    return expr


def _is_own(copy: Transfer) -> bool:
    """Whether what is copied is memory that nobody else has."""
    expr = copy.operand
    while isinstance(expr, ast.Call) and isinstance(expr.func, ast.Attribute):
        if expr.func.attr == "clone":
            return True
        expr = expr.func.value
    return False
