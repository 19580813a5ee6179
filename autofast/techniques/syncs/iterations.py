"""Whether a loop has certainly had an iteration where what each of them keeps is read."""

from __future__ import annotations

import ast

from autofast.facts.loaders import given, whole_batches
from autofast.facts.updates.cadence import inside_bar
from autofast.flow.filled_lists import is_only_filled
from autofast.flow.frequency import Frequency, frequency
from autofast.flow.loops import Loop
from autofast.flow.positions import is_always
from autofast.flow.program import Flow
from autofast.model.calls import is_name
from autofast.model.script import Loader, Script
from autofast.model.source import function_of, nodes_in, statement_of, within
from autofast.model.syntax import SIMPLE, is_attribute, is_constant
from autofast.techniques.syncs.sinks import Sink

ERRORS = ("ZeroDivisionError", "ArithmeticError")


def runs_at_all(script: Script, sink: Sink, loop: Loop) -> bool:
    """Whether a sink has certainly run when ``loop`` has ended and what follows does not raise: it
    runs in every iteration, and without one, ``total / len(loader)`` below would divide by zero.
    """
    graph = script.analysis(Flow).graph(loop)
    return (
        isinstance(loop, ast.For)
        and frequency(graph, sink.statement, loop) is Frequency.EVERY
        and not graph.leaving_before(sink.statement, loop)
        and not any(name in s.names for s in script.sources for name in ERRORS)
        and any(
            graph.may_follow(node, loop)
            and not within(node, loop)
            and graph.postdominates(statement_of(node), loop)
            and _raises_without(script, sink, node, loop)
            for node in nodes_in(function_of(loop), ast.AugAssign, ast.BinOp)
        )
    )


def _raises_without(script: Script, sink: Sink, node: ast.AST, loop: ast.For) -> bool:
    """Whether it divides a number that the sink fills, ``total`` or ``sum(losses)``, by zero where
    the loop has had no iteration.
    """
    match node:
        case ast.AugAssign(op=ast.Div(), target=dividend, value=divisor):
            pass
        case ast.BinOp(op=ast.Div(), left=dividend, right=divisor):
            stmt = statement_of(node)
            if not isinstance(stmt, SIMPLE) or not is_always(node, stmt):
                return False
        case _:
            return False
    match dividend:
        case ast.Call(func=ast.Name(id="sum"), args=[ast.Name(id=name)], keywords=[]):
            mine = is_name(sink.holder, name)
        case _:
            mine = sink.kind == "number" and ast.unparse(dividend) == ast.unparse(sink.holder)
    match divisor:
        case ast.Call(func=ast.Name(id="len"), args=[sized]) if mine:
            return _is_empty_without(script, sink, sized, loop)
    return False


def _is_empty_without(script: Script, sink: Sink, sized: ast.expr, loop: ast.For) -> bool:
    """``loader``, ``loader.dataset``, or ``losses``, a list that the loop alone fills."""
    over, flow = loop.iter, script.analysis(Flow)
    while (inner := inside_bar(script.values(over))) is not None:
        over = inner
    if is_attribute(sized, "dataset"):
        loaders = [x for x in script.loaders if any(use.node is loop for use in x.uses)]
        whole = bool(loaders) and all(_gives_all(x) for x in loaders)
        return whole and flow.is_same(over, sized.value)
    held = sink.holder
    if isinstance(held, ast.Name) and is_name(sized, held.id):
        return is_only_filled(held, loop)
    return flow.is_same(over, sized)


def _gives_all(loader: Loader) -> bool:
    """Whether a loader passes over no sample: its sampler is its own, or one of whole batches."""
    if any(given(loader, name) is not None for name in ("drop_last", "batch_sampler")):
        return False
    whole = whole_batches(loader)
    return given(loader, "sampler") is None or (
        whole is not None and is_constant(whole.drop, False)
    )
