"""Conditions that wait for the device more often than they need.

``assert mask.min() >= 0 and mask.max() < n`` makes the host wait twice, ``assert (mask.min() >= 0)
& (mask.max() < n)`` once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.flow.loops import loop_of
from autofast.model.script import Script
from autofast.model.values import Tensor
from autofast.techniques.syncs.sinks import is_number
from autofast.techniques.syncs.steps import is_step, rare_branch

# Without arguments: one number for the whole tensor.
RESULTS = frozenset({"min", "max", "sum", "mean", "any", "all"})
PLAIN = (ast.Name, ast.Attribute, ast.Constant, ast.UnaryOp)


def combined(script: Script) -> Iterator[tuple[ast.stmt, str, list[Edit]]]:
    """Each condition of a loop over batches that can be read at once: the statement, the tensor,
    the edits.
    """
    for statement in script.nodes:
        if not isinstance(statement, (ast.Assert, ast.If)) or not isinstance(
            statement.test, ast.BoolOp
        ):
            continue
        loop = loop_of(statement)
        if loop is None or not is_step(script, loop) or rare_branch(statement, loop) is not None:
            continue
        test = statement.test
        receivers = [_receiver(script, part) for part in test.values]
        if None in receivers or len({ast.dump(r) for r in receivers if r is not None}) != 1:
            continue
        holes = {f"p{n}": part for n, part in enumerate(test.values)}
        sign = " & " if isinstance(test.op, ast.And) else " | "
        assert receivers[0] is not None
        yield (
            statement,
            ast.unparse(receivers[0]),
            [Rewrite(test, sign.join("({" + hole + "})" for hole in holes), holes)],
        )


def _receiver(script: Script, part: ast.expr) -> ast.expr | None:
    """``mask`` in ``mask.max() < 3``, where the comparison certainly gives one number on the device
    and nothing else happens.
    """
    if (
        not isinstance(part, ast.Compare)
        or len(part.ops) != 1
        or isinstance(part.ops[0], (ast.Is, ast.IsNot, ast.In, ast.NotIn))
    ):
        return None
    limit = part.comparators[0]
    if not all(
        isinstance(n, (*PLAIN, ast.expr_context, ast.unaryop)) for n in ast.walk(limit)
    ) or not is_number(script, limit):
        return None
    match part.left:
        case ast.Call(
            func=ast.Attribute(value=ast.Name() | ast.Attribute() as tensor, attr=name),
            args=[],
            keywords=[],
        ) if name in RESULTS:
            found = script.values(tensor)
            if found and all(
                isinstance(t, Tensor) and t.rank != "?" and t.device == "dev" for t in found
            ):
                return tensor
    return None
