"""What two loops compute of all pairs of columns: products of fields, in factorization machines.

``torch.triu_indices`` gives the pairs in the order of the loops.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import Before, Remove, Replace, Rewrite
from autofast.flow.changes import may_change
from autofast.model.calls import (
    is_method,
    is_name,
    is_same_code,
    keyword_of,
    literal_of,
    only_target,
)
from autofast.model.script import Script
from autofast.model.source import block_of, source_of
from autofast.model.syntax import is_operation
from autofast.model.values import Tensor
from autofast.ops.families import SIGNS
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.rows import Planned, Rows, appended, put_together
from autofast.write.spelling import torch_in


def pair_edits(script: Script, rows: Rows) -> Planned:
    """What computes all pairs at once; raises :class:`Refusal`, without words where it is another
    loop.
    """
    match rows.loop.body:
        case [
            ast.For(
                target=ast.Name(id=second),
                iter=ast.Call(args=[ast.BinOp(left=start, op=ast.Add(), right=one), count]) as over,
                body=[statement],
                orelse=[],
            )
        ] if script.is_call(over, "builtins.range"):
            pass
        case _:
            raise Refusal
    first, counted = rows.index, rows.count
    if counted is None or not is_name(start, first) or literal_of(one) != 1:
        raise Refusal
    if ast.unparse(counted) not in (ast.unparse(count), f"{ast.unparse(count)} - 1"):
        raise Refusal
    if not rows.stays(count):
        raise Refusal
    torch, imports = torch_in(source_of(rows.loop))
    holes = {"count": count}

    def product(expr: ast.expr) -> tuple[str, bool]:
        """The product of two columns, and whether it keeps the dimension that it is summed over."""
        summed, kept = "", False
        if is_method(expr, "sum"):
            axis = keyword_of(expr, "dim") or next(iter(expr.args), None)
            keep = keyword_of(expr, "keepdim")
            last = axis is not None and ast.unparse(axis) == "-1" and keep is None
            if not (last or literal_of(axis) == 1) or len(expr.args) + len(
                expr.keywords
            ) > 1 + bool(keep):
                raise Refusal
            summed, kept = (
                f".sum({-1 if last else 2})",
                keep is not None and literal_of(keep) is True,
            )
            expr = expr.func.value
        if not is_operation(expr, ast.Mult, ast.Add, ast.Sub):
            raise Refusal
        columns = [_column(expr.left, first), _column(expr.right, second)]
        if not is_same_code(*columns) or not rows.stays(columns[0]):
            raise Refusal
        if not script.must_be(columns[0], Tensor):
            raise Refusal
        rows.check_device(columns)
        holes.update(v=columns[0])
        return f"({{v}}[:, {first}] {SIGNS[type(expr.op)]} {{v}}[:, {second}]){summed}", kept

    pairs = (
        f"{first}, {second} = {torch}.triu_indices({{count}}, {{count}}, 1, device={{v}}.device)"
    )
    if found := appended(statement):
        held, value = found
        code, kept = product(value)
        call, home, place = put_together(script, rows.loop, held)
        joins = script.is_call(call, "torch.cat")
        along = keyword_of(call, "dim") or (call.args[1] if len(call.args) == 2 else None)
        if joins != kept or literal_of(along) != 1 or home.targets != [only_target(home)]:
            raise Refusal
        block = block_of(rows.loop)
        between = block[block.index(rows.loop) + 1 : block.index(place)]
        if any(may_change(script, between, e) for e in holes.values()):
            raise Refusal
        rows.check_names()
        made = (
            Before(place, pairs, holes),
            Rewrite(call, code, holes),
            Remove(rows.loop),
            Remove(home),
        )
        return (*imports, *made), Effect.ROUNDING
    match statement:
        case ast.Assign(
            targets=[ast.Name(id=name) as total],
            value=ast.BinOp(left=ast.Name(id=old), op=ast.Add(), right=value),
        ) if name == old:
            added = f"{name} = {name} + "
        case ast.AugAssign(target=ast.Name(id=name) as total, op=ast.Add(), value=value):
            added = f"{name} += "
        case _:
            raise Refusal
    code, kept = product(value)
    if not is_method(value, "sum"):
        raise Refusal
    rows.check_names([total])
    whole = f"{pairs}\n{added}{code}.sum({'1, keepdim=True' if kept else '1'})"
    return (*imports, Replace(rows.loop, whole, holes)), Effect.ROUNDING


def _column(expr: ast.expr, index: str) -> ast.expr:
    """``v`` of ``v[:, i]``"""
    match expr:
        case ast.Subscript(
            value=of,
            slice=ast.Tuple(elts=[ast.Slice(None, None, None), ast.Name(id=name)]),
        ) if name == index:
            return of
    raise Refusal
