"""Tensors that are made on the host for a helper that moves them:
``make_variable(torch.ones(n))``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from autofast.edit.edits import Edit
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.positions import index
from autofast.flow.program import Flow, function_around
from autofast.flow.scopes import mentions
from autofast.model.calls import is_path
from autofast.model.events import CallFrame
from autofast.model.script import Script, Transfer
from autofast.model.source import holds, outwards, source_of
from autofast.model.syntax import is_read
from autofast.model.values import Ref
from autofast.techniques.transfers.creations import created
from autofast.techniques.transfers.factories import Creation, again_and_again, factory
from autofast.write.spelling import spelled, torch_in

AVAILABLE = Ref("torch.cuda.is_available")


def for_helpers(script: Script, hot: frozenset[int]) -> Iterator[Creation]:
    """Factories whose result is given to a function that moves what it is given before it does
    anything else with it.
    """
    graph = script.analysis(CallGraph)
    for transfer in script.transfers:
        parameter = _moved_parameter(script, transfer)
        function = function_around(transfer.node)
        if not parameter or isinstance(function, ast.Module):
            continue
        for call in graph.sites(function):
            callees = graph.callees(call)
            if len(callees) != 1 or graph.may_run_others(call):
                continue
            given = graph.argument(call, callees[0], parameter)
            made = factory(script, given) if given is not None else None
            if made is None or not _is_hot(script, transfer, call, hot):
                continue
            placed = _where(script, transfer, function, call)
            creation = created(script, made, placed[0]) if placed is not None else None
            if creation is not None and placed is not None:
                asked = " if " in placed[0]
                yield replace(creation, edits=(*creation.edits, *placed[1]), asked=asked)


def _moved_parameter(script: Script, transfer: Transfer) -> str:
    """The parameter that is moved, where nothing in the function uses it before; empty for anything
    else.
    """
    name = transfer.operand
    if not isinstance(name, ast.Name) or not script.analysis(Flow).is_given(name):
        return ""
    here = (name.lineno, name.col_offset)
    uses = [n for n in mentions(function_around(name), name.id) if is_read(n)]
    return "" if any((n.lineno, n.col_offset) < here for n in uses) else name.id


def _is_hot(script: Script, transfer: Transfer, call: ast.Call, hot: frozenset[int]) -> bool:
    """Whether the move that this call leads to happens in each step."""
    return any(
        any(isinstance(f, CallFrame) and f.node is call for f in o.stack)
        and again_and_again(script, o.stack, hot)
        for o in transfer.site
    )


def _where(
    script: Script, transfer: Transfer, function: Function, call: ast.Call
) -> tuple[str, tuple[Edit, ...]] | None:
    """The device of the move, as an expression at the call, and the import that it needs; None
    where it cannot be said there.
    """
    device = _device(script, transfer, function, call)
    gates = _gates(transfer.node, function)
    if device is None or len(gates) > 1 or None in gates:
        return None
    if not gates:
        return device, ()
    if script.called(gates[0]) != {AVAILABLE}:
        return None
    torch, imports = torch_in(source_of(call))
    return f"{device} if {torch}.cuda.is_available() else None", imports


def _device(script: Script, transfer: Transfer, function: Function, call: ast.Call) -> str | None:
    expr = spelled(transfer.node, transfer.target)
    if transfer.how == "cuda" and transfer.target is None:
        return '"cuda"'
    if transfer.how not in ("to", "cuda") or expr is None or transfer.kinds <= {"cpu"}:
        return None
    if "tensor" in transfer.kinds or "type" in transfer.kinds:
        return None
    if isinstance(expr, ast.Constant):
        return repr(expr.value) if isinstance(expr.value, (str, int)) else None
    if not isinstance(expr, ast.Name) or not script.analysis(Flow).is_given(expr):
        return None
    callee = script.analysis(CallGraph).callees(call)[0]
    given = script.analysis(CallGraph).argument(call, callee, expr.id)
    plain = isinstance(given, ast.Constant) or is_path(given)
    return source_of(call).segment(given) if given is not None and plain else None


def _gates(node: ast.AST, function: Function) -> list[ast.expr | None]:
    """The conditions below which the move stands in its function; None for one that cannot be said
    as a condition (a loop, an ``else``).
    """
    found: list[ast.expr | None] = []
    for inner, outer in outwards(node):
        if outer is function:
            break
        match outer:
            case ast.If(test=test, body=body):
                found.append(test if any(inner is s for s in body) else None)
            case ast.IfExp(test=test, body=value):
                found.append(test if value is inner else None)
            case ast.For() | ast.While() | ast.Try() | ast.BoolOp() | ast.comprehension():
                found.append(None)
    if isinstance(function, ast.Lambda):
        return found
    above = function.body[: max(index(function.body, cast("ast.stmt", inner)), 0)]
    early = any(holds(s, ast.Return, ast.Raise) for s in above)
    return [*found, None] if early else found
