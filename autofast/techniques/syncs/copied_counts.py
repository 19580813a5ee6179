"""Counts that are copied to the host before they are added up stay on the device.

``correct += pred.eq(y).cpu().sum()`` waits for the device in every step, for a number that is shown
behind the loop. As ``correct += pred.eq(y).sum()`` it does not: whole numbers come to the same
wherever they are added, and whoever makes a number or a text of the sum waits then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress

from autofast.edit.edits import Edits, Rewrite
from autofast.facts.copies import several_gpus
from autofast.facts.switches import is_often
from autofast.flow.loops import loop_of
from autofast.flow.program import definitions_of
from autofast.flow.scopes import mentions
from autofast.model.calls import is_call_of, is_method, receiver_of
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import function_of, outwards, parent_of, statement_of, within
from autofast.model.syntax import is_constant, is_operation, is_text
from autofast.rule import Effect, Refusal
from autofast.techniques.syncs.liveness import check_hidden
from autofast.techniques.syncs.scalar_tensors import kind_of
from autofast.techniques.syncs.sinks import is_number
from autofast.techniques.syncs.steps import is_step, rare_branch

Copied = tuple[ast.AugAssign, ast.expr, Edits, Effect | None]


def copied_counts(script: Script) -> Iterator[Copied]:
    """The statements, each with the tensor that it copies, the edits by which it does not, and
    the effect where a quotient of the sum is rounded in another way.
    """
    for transfer in () if several_gpus(script) else script.transfers:
        match statement_of(transfer.node), receiver_of(transfer.node):
            case ast.AugAssign(
                target=ast.Name() as total, op=ast.Add()
            ) as adds, ast.expr() as core:
                if _is_count(script, transfer, adds, core):
                    if (uses := _uses(script, total, adds)) is not None:
                        quotient = any(
                            is_operation(n, ast.Div) for u in uses for n in _around(script, u)
                        )
                        edits = (Rewrite(transfer.node, "{core}", {"core": core}),)
                        yield adds, core, edits, Effect.ROUNDING if quotient else None


def _is_count(script: Script, transfer: Transfer, adds: ast.AugAssign, core: ast.expr) -> bool:
    """``x.cpu().sum()`` or ``x.sum().cpu()`` of whole numbers, in each turn of a loop over
    batches."""
    value: ast.expr = adds.value
    if value is not transfer.node:
        if not (is_method(value, "sum") and value.func.value is transfer.node and not value.args):
            return False
    whole = kind_of(script, core) == "int" and transfer.kinds == {"cpu"}
    loop = loop_of(adds)
    return whole and is_step(script, loop) and is_often(script, adds, loop)


def _uses(script: Script, total: ast.Name, adds: ast.AugAssign) -> list[ast.Name] | None:
    """Where the sum, which begins as 0, is used; None where one of these places does not make a
    number or a text of it, or does so in every step.
    """
    flow, loop, scope = definitions_of(script, adds), loop_of(adds), function_of(adds)
    with suppress(Refusal):
        check_hidden(script, scope, total.id)
        begun = [d.value for d in flow.reaching(total) if d.node is not total]
        uses = [n for n in flow.uses_of(total) if n is not total]
        if (
            surely(is_constant(value, 0) for value in begun)
            and all(function_of(n) is scope for n in mentions(scope, total.id))
            and all(
                not within(n, loop) or rare_branch(script, n, loop) is not None
                for n in uses
                if loop
            )
            and all(_is_read_there(script, n) for n in uses)
        ):
            return uses
    return None


def _is_read_there(script: Script, use: ast.Name) -> bool:
    """``float(correct)``, ``correct.item()``, ``"{}".format(100 * correct / n)``, an f-string."""
    whole = next(reversed(list(_around(script, use))))
    match outer := parent_of(whole):
        case ast.FormattedValue(conversion=-1) | ast.Attribute(attr="item"):
            return True
        case ast.Call():
            formats = is_method(outer, "format") and is_text(outer.func.value)
            return whole is not outer.func and (formats or is_call_of(outer, "float", "int"))
    return False


def _around(script: Script, use: ast.Name) -> Iterator[ast.expr]:
    """The use, and what is computed of it with numbers."""
    yield use
    for here, outer in outwards(use):
        match outer:
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right):
                if not is_number(script, right if left is here else left):
                    return
                yield outer
            case _:
                return
