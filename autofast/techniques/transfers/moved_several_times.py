"""Tensors of the host that several copies take to the same device: ``zeros = torch.zeros(n)``, then
``zeros.to(x.device), zeros.clone().to(x.device)``, the states of an LSTM.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Rewrite
from autofast.flow.program import Flow, definitions_of
from autofast.flow.scopes import is_local
from autofast.model.calls import given_to, is_method, names_in
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import grouped, of_kind, one
from autofast.model.source import block_of, nodes_in, source_of, statement_of, within_statement
from autofast.model.syntax import COMPREHENSIONS, is_read
from autofast.rule import Effect
from autofast.techniques.transfers.creations import creation_of, device_of
from autofast.techniques.transfers.factories import KEEPS, Creation, factory, runs_often

# A copy has memory of its own, which nothing that is written in place may come to.
PLAIN = frozenset(k for k in KEEPS if not k.endswith("_")) - {"expand"}
DECIDING = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)


def moved_several_times(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """The factories of such tensors, where nothing else is done with them: they are made there."""
    flow = script.analysis(Flow)
    found: list[tuple[ast.Name, tuple[Transfer, ast.Name]]] = []
    for transfer in script.transfers:
        match _chain(transfer.operand):
            case [*_, ast.Name() as root] if runs_often(transfer.site, hot):
                made = flow.definition(root)
                for target in of_kind([made and made.node], ast.Name):
                    found.append((target, (transfer, root)))
    for target, copies in grouped(found).items():
        if len(copies) > 1:
            yield from _made_there(script, target, [c for c, _ in copies], [r for _, r in copies])


def _made_there(
    script: Script, target: ast.Name, copies: list[Transfer], roots: list[ast.Name]
) -> Iterator[Creation]:
    stmt = statement_of(target)
    value = given_to(stmt, target.id)
    call = factory(script, value) if value is not None else None
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


def _chain(expr: ast.expr | None) -> list[ast.expr]:
    """``zeros.clone().unsqueeze(0)``, ``zeros.clone()`` and ``zeros``."""
    if expr is None:
        return []
    return [expr, *(_chain(expr.func.value) if is_method(expr, *PLAIN) else ())]


def _is_own(copy: Transfer) -> bool:
    """Whether what is copied is memory that nobody else has."""
    return any(is_method(e, "clone") for e in _chain(copy.operand))
