"""Counts that are copied to the host before they are added up stay on the device.

``correct += pred.eq(y).cpu().sum()`` waits for the device in every step, for a number that is shown
behind the loop. As ``correct += pred.eq(y).sum()`` it does not: whole numbers come to the same
wherever they are added, and whoever makes a number or a text of the sum waits then.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress

from autofast.edit.edits import Edits, Holes, Rewrite, Wrap
from autofast.facts.copies import several_gpus
from autofast.facts.switches import is_often
from autofast.flow.loops import loop_of
from autofast.flow.program import definitions_of
from autofast.flow.scopes import mentions
from autofast.model.calls import is_call_of, is_method, receiver_of
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import any_of, surely
from autofast.model.source import (
    function_of,
    outwards,
    parent_of,
    source_of,
    statement_of,
    within,
)
from autofast.model.syntax import is_attribute, is_constant, is_operation, is_text
from autofast.model.values import Tensor, is_on_device
from autofast.ops.families import COMPARED
from autofast.rule import Effect, Refusal
from autofast.techniques.syncs.liveness import check_hidden
from autofast.techniques.syncs.scalar_tensors import kind_of
from autofast.techniques.syncs.sinks import is_number
from autofast.techniques.syncs.steps import is_step, rare_branch
from autofast.write.spelling import is_taken

ATOMS = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
Copied = tuple[ast.AugAssign, ast.expr, Edits, Effect | None]


def copied_counts(script: Script) -> Iterator[Copied]:
    """The statements, each with the tensor that it copies, the edits by which it does not, and
    the effect where a quotient of the sum is rounded in another way.
    """
    yield from _host_counts(script)
    for transfer in () if several_gpus(script) else script.transfers:
        match statement_of(transfer.node), receiver_of(transfer.node):
            case ast.AugAssign(
                target=ast.Name() as total, op=ast.Add()
            ) as adds, ast.expr() as core:
                if _is_count(script, transfer, adds, core):
                    if (uses := _uses(script, total, adds)) is not None:
                        quotient = _divided(script, uses)
                        edits = (Rewrite(transfer.node, "{core}", {"core": core}),)
                        yield adds, core, edits, Effect.ROUNDING if quotient else None


def _host_counts(script: Script) -> Iterator[Copied]:
    """``correct += (pred == y).cpu().sum().item()``, ``(pred.cpu() == y.cpu()).numpy().sum()``: the
    host would get the same number of what the device has counted.
    """
    for adds in () if several_gpus(script) else script.each(ast.AugAssign):
        loop = loop_of(adds)
        if not any_of([adds.op], ast.Add) or not is_step(script, loop):
            continue
        whole: ast.expr = adds.value
        if script.is_call(whole, "builtins.int") and len(whole.args) == 1:
            (whole,) = whole.args
        if is_method(whole, "item"):
            whole = whole.func.value
        match whole:
            case ast.Call(func=ast.Attribute(value=hits, attr="sum"), args=[], keywords=[]):
                pass
            case ast.Call(args=[hits], keywords=[]) if script.is_call(
                whole, "numpy.sum", "torch.sum"
            ):
                pass
            case _:
                continue
        holes: Holes = {}
        code = _counted_there(script, hits, holes)
        if code is None or not is_often(script, adds, loop) or is_taken(source_of(adds), "int"):
            continue
        tensor = script.may_be(adds.value, Tensor)  # other quotients of it are rounded
        reads = _reads(script, adds, any_python=whole is not adds.value)
        if reads is not None and not (tensor and ("core" in holes or _divided(script, reads))):
            numbers = (Wrap(use, "int({})") for use in reads if not tensor)
            yield adds, hits, (Rewrite(adds.value, f"{code}.sum()", holes), *numbers), None


def _divided(script: Script, uses: list[ast.Name]) -> bool:
    return any(is_operation(n, ast.Div) for u in uses for n in _around(script, u))


def _reads(script: Script, adds: ast.AugAssign, any_python: bool) -> list[ast.Name] | None:
    """Where a sum is used; None where that is not certain, or where it does not make a number or a
    text of it (``any_python``: it is one of Python's anyway).
    """
    match adds.target:
        case ast.Name() as total:
            uses = _uses(script, total, adds, any_python)
            ends = (next(reversed(list(_around(script, u)))) for u in uses or ())
            asked = not any_python and any(is_attribute(parent_of(e)) for e in ends)
            return None if asked else uses
    return None


def _counted_there(script: Script, hits: ast.expr, holes: Holes) -> str | None:
    """The code for truths and whole numbers that are copied to the host, without the copy; None
    where they are others."""
    match hits:
        case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in COMPARED:
            sides = [_uncopied(script, e) for e in (left, right)]
            if sides[0] is None or sides[1] is None:
                return None
            holes |= {"left": sides[0], "right": sides[1]}
            return f"({{left}} {COMPARED[type(sign)]} {{right}})"
        case ast.Call(func=ast.Attribute(value=inner, attr="numpy" | "detach"), args=[]):
            return _counted_there(script, inner, holes)
    core = _uncopied(script, hits)
    if core is None or kind_of(script, core) != "int":
        return None
    holes["core"] = core
    return "{core}" if type(core) in ATOMS else "({core})"


def _uncopied(script: Script, copy: ast.expr) -> ast.expr | None:
    """``x`` of ``x.detach().cpu().numpy()``, where that is on the device."""
    core, copied = copy, False
    while is_method(core, "cpu", "numpy", "detach") and not core.args and not core.keywords:
        copied = copied or core.func.attr == "cpu"
        core = core.func.value
    there = surely(is_on_device(t) for t in script.values(core))
    return core if copied and there else None


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


def _uses(
    script: Script, total: ast.Name, adds: ast.AugAssign, anyhow: bool = False
) -> list[ast.Name] | None:
    """Where the sum, which begins as 0, is used; None where one of these places does not make a
    number or a text of it (``anyhow``: it may do whatever it likes), or does so in every step.
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
            and all(anyhow or _is_read_there(script, n) for n in uses)
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
