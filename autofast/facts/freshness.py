"""Whether a tensor is one of its own, made in this iteration, that nothing changes in place: by
``flow/holders.py``, nothing else may hold it either.
"""

from __future__ import annotations

import ast

from autofast.facts.aliases import collates_anew
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.defuse import Definition, bound_to
from autofast.flow.holders import Holders, How
from autofast.flow.loops import Loop, loop_of
from autofast.flow.memory import Memory, passes_on, renames
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import is_call_of, items_of
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import function_of, parent_of, within
from autofast.model.syntax import is_read, is_stored
from autofast.model.values import (
    Const,
    Ext,
    Num,
    Ref,
    Tensor,
    Thing,
    begins,
    certainly,
)
from autofast.ops import may_share


def is_fresh(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether ``expr`` is a tensor of its own, made in this iteration (or call), that nothing
    changes in place afterwards.
    """
    return _is_fresh(script, expr, loop_of(expr), depth)


def _is_fresh(script: Script, expr: ast.expr, loop: Loop | None, depth: int) -> bool:
    match expr:
        case ast.UnaryOp(op=ast.UAdd(), operand=tensor):  # which is the tensor itself
            return _is_fresh(script, tensor, loop, depth)
        case ast.BinOp() | ast.UnaryOp() | ast.Compare():
            return True
        case ast.Call(func=ast.Attribute(value=tensor, attr=name)) if script.may_be(tensor, Tensor):
            return not may_share(name) or _is_fresh(script, tensor, loop, depth)
        case ast.Call():
            return _gives_fresh(script, expr, depth)
        case ast.Attribute(value=ast.Name() as output, attr="loss"):
            return _is_of_transformers(script, output, loop)
        case ast.Name():
            return depth < 8 and _is_stable(script, expr, loop, depth)
    return False


def _is_of_transformers(script: Script, output: ast.Name, loop: Loop | None) -> bool:
    """Whether it is what a network of transformers gives in this turn, of which each pass computes
    a loss of its own, and nobody sets that.
    """
    found = script.values(output)
    made = script.analysis(Flow).origins(output)
    of = [m for t in found if isinstance(t, Tensor) for m in t.models]
    stored = (n for n in script.each(ast.Attribute) if n.attr == "loss" and is_stored(n))
    return (
        certainly(found, Tensor)
        and surely(begins(m, Ext, "transformers.") for m in of)
        and surely(loop is None or within(d.node, loop) for d in made)
        and not any(stored)
    )


# -------------------------------------------------------------------------------- what a call gives
def _gives_fresh(script: Script, call: ast.Call, depth: int) -> bool:
    callees = script.called(call)
    return (
        bool(callees)
        and not writes(script, call)
        and all(_makes_new(script, t, depth) for t in callees)
    )


def writes(script: Script, call: ast.Call) -> bool:
    """Whether a function or a layer of torch writes to an argument here."""
    known = script.analysis(CallGraph).callees(call)
    return not known and bool(script.analysis(Memory).written(call))


def _makes_new(script: Script, callee: Thing, depth: int) -> bool:
    """Whether each tensor that a call of ``callee`` returns is fresh."""
    if functions := [c.function for c in code_of(callee)]:
        results = [e for f in functions for e in script.analysis(CallGraph).results(f)]
        parts = [e for r in results for e in (items_of(r))]
        tensors = [e for e in parts if script.may_be(e, Tensor)]
        return depth < 3 and bool(parts) and all(is_fresh(script, e, depth + 1) for e in tensors)
    if begins(callee, Ext, "torch.nn."):
        return not passes_on(callee)
    return (
        isinstance(callee, (Ref, Ext))
        and callee.name.startswith("torch.")
        and not (may_share(callee.name) or renames(callee.name))
    )


# ----------------------------------------------------------------------- what becomes of a variable
def _is_stable(script: Script, name: ast.Name, loop: Loop | None, depth: int) -> bool:
    """Whether a variable gets a fresh tensor in each iteration before ``name`` is read, and nothing
    changes that one afterwards.
    """
    scope, flow = function_of(name), definitions_of(script, name)
    made = flow.origins(name)
    uses = [u for d in made for u in flow.uses(d)]
    if not made or any(function_of(n) is not scope for n in (*uses, *(d.node for d in made))):
        return False
    if any(loop is not None and not within(d.node, loop) for d in made):
        return False
    if not all(d.is_augmented or _begins_fresh(script, d, loop, depth) for d in made):
        return False
    values = flow.reaching(name)
    inside = (u for u in uses if u is not name and (loop is None or within(u, loop)))
    return not any(
        values <= flow.reaching(u) if is_stored(u) else is_read(u) and not _is_harmless(script, u)
        # what is stored and used is changed by ``+=``, before ``name`` is read where not all of its
        # values come there
        for u in inside
    )


def _begins_fresh(script: Script, made: Definition, loop: Loop | None, depth: int) -> bool:
    if isinstance(over := made.statement, ast.For):
        return _gives_batches(script, over, definitions_of(script, made.node).uses(made))
    value, whole = bound_to(made.node)
    if value is None or whole:
        return value is not None and (
            _is_fresh(script, value, loop, depth + 1) or _is_plain(script, value)
        )
    unpacked = isinstance(made.statement, ast.Assign) and made.statement.value is value
    return unpacked and isinstance(value, ast.Call) and _gives_fresh(script, value, depth)


def _gives_batches(script: Script, loop: ast.For, uses: list[ast.Name]) -> bool:
    """Whether a loop goes over a loader that collates each batch anew, which these read."""
    over = any(use.node is loop for x in script.loaders for use in x.uses)
    things = [t for use in uses for t in script.values(use)]
    return (
        over
        and not any(is_call_of(n, "zip") for n in ast.walk(loop.iter))
        and surely(isinstance(t, Tensor) and bool(t.batch) for t in things)
        and all(collates_anew(script, x) for t in things if isinstance(t, Tensor) for x in t.batch)
    )


def _is_plain(script: Script, value: ast.expr) -> bool:
    """``loss = None``, ``total = 0``: no tensor yet, or one that ``+=`` makes."""
    return script.must_be(value, Const, Num)


def _is_harmless(script: Script, use: ast.expr) -> bool:
    """Whether this use can neither change the tensor nor give it another name."""
    holders = script.analysis(Holders)
    return (
        not any(holders.writes([use]))
        and not isinstance(parent_of(holders.whole(use)), (ast.Return, ast.Lambda))
        and all(holder.how is How.LIBRARY for holder in holders.at(use))
    )
