"""Conditions that wait for the device more often than they need.

``assert mask.min() >= 0 and mask.max() < n`` makes the host wait twice, ``assert (mask.min() >= 0)
& (mask.max() < n)`` once. ``if torch.isnan(out).any() and DEBUG:`` waits although DEBUG is False,
``if DEBUG and torch.isnan(out).any():`` does not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.facts.switches import in_every_iteration
from autofast.flow.loops import loop_of
from autofast.flow.positions import nodes_of
from autofast.model.script import Script
from autofast.model.syntax import VARIABLES, is_all
from autofast.model.values import Arg, Const, Method, Ref, Tensor, Thing, certainly
from autofast.techniques.syncs.sinks import is_number
from autofast.techniques.syncs.steps import is_step, rare_branch

# Without arguments: one number for the whole tensor.
RESULTS = frozenset({"min", "max", "sum", "mean", "any", "all"})
TESTS = frozenset({"isnan", "isinf", "isfinite", "eq", "ne", "lt", "le", "gt", "ge", "abs"})
ASKING = (
    *(ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.Compare, ast.cmpop),
    *(ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Call, ast.expr_context),
)
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
        sign = " & " if is_all(test, ast.And) else " | "
        assert receivers[0] is not None
        yield (
            statement,
            ast.unparse(receivers[0]),
            [Rewrite(test, sign.join("({" + hole + "})" for hole in holes), holes)],
        )


def flags_first(script: Script) -> Iterator[tuple[ast.stmt, ast.expr, list[Edit]]]:
    """Each condition that asks the device before it asks a flag, in what runs in every step: the
    statement, the flag, the edits.
    """
    for statement in script.nodes:
        if not isinstance(statement, (ast.Assert, ast.If, ast.While)):
            continue
        test = statement.test
        if not is_all(test, ast.And):
            continue
        *before, last = test.values
        if not _is_flag(script, last) or not all(_only_asks(script, p) for p in before):
            continue
        asked = nodes_of(before)
        sites = [site for _, site in script.log.each() if id(site.node) in asked]
        if any(in_every_iteration(script, site) for site in sites):
            holes = {f"p{n}": part for n, part in enumerate(test.values)}
            rest = " and ".join(
                f"({{p{n}}})" if isinstance(part, ast.BoolOp) else f"{{p{n}}}"
                for n, part in enumerate(before)
            )
            text = f"{{p{len(before)}}} and {rest}"
            yield statement, last, [Rewrite(test, text, holes)]


def _is_flag(script: Script, part: ast.expr) -> bool:
    """``DEBUG``, ``args.check``: a variable that holds no tensor, certainly."""
    found = script.values(part)
    plain = isinstance(part, VARIABLES)
    return plain and certainly(found, Const, Arg)


def _only_asks(script: Script, part: ast.expr) -> bool:
    """A test of tensors on the device that changes nothing: ``torch.isnan(out).any() or
    torch.isinf(out).any()``.
    """
    asks = False
    for node in ast.walk(part):
        if not isinstance(node, ASKING):
            return False
        if isinstance(node, ast.Call):
            callees = script.values(node.func)
            if not callees or not all(map(_only_tests, callees)) or node.keywords:
                return False
            asks = asks or any(
                isinstance(t, Tensor) and t.device == "dev" for t in script.values(node)
            )
    return asks


def _only_tests(callee: Thing) -> bool:
    """A function or method of torch that compares tensors, or makes one number of them."""
    if isinstance(callee, Method):
        return isinstance(callee.this, Tensor) and callee.name in (*RESULTS, *TESTS)
    name = callee.name if isinstance(callee, Ref) else ""
    return name.startswith("torch.") and name.removeprefix("torch.") in (*RESULTS, *TESTS)


def _receiver(script: Script, part: ast.expr) -> ast.expr | None:
    """``mask`` in ``mask.max() < 3``, where the comparison certainly gives one number on the device
    and nothing else happens.
    """
    match part:
        case ast.Compare(ops=[ast.Is() | ast.IsNot() | ast.In() | ast.NotIn()]):
            return None
        case ast.Compare(comparators=[limit]):
            pass
        case _:
            return None
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
