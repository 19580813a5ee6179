"""Whether the turns of a loop depend on each other."""

from __future__ import annotations

import ast

from autofast.flow.callgraph import CallGraph
from autofast.flow.effects import Effects, Write
from autofast.flow.memory import base_of
from autofast.flow.program import definitions_at, definitions_of
from autofast.flow.scopes import declared, is_local, own_nodes, owner
from autofast.model.script import Script
from autofast.model.source import live_nodes, parent_of, within
from autofast.model.syntax import COMPREHENSIONS, is_read, is_stored

FILLING = ("append", "extend")


Turning = ast.For | ast.ListComp


def goes_over(loop: Turning) -> tuple[ast.expr, ast.expr, list[ast.AST]]:
    """The variables of a loop, what it goes over, and all nodes of a turn."""
    first = loop if isinstance(loop, ast.For) else loop.generators[0]
    body: list[ast.AST] = [*loop.body] if isinstance(loop, ast.For) else [loop.elt]
    return first.target, first.iter, [n for part in body for n in live_nodes(part)]


def carried(script: Script, loop: Turning) -> ast.AST | None:
    """A place in a loop that takes what an earlier turn left, or may: the value of a variable, what
    stands in a list or tensor, what a function of the project keeps.

    A sum, and lists and tensors whose places are only filled, do not count.
    """
    _, _, nodes = goes_over(loop)
    return next((n for n in nodes if _takes(script, loop, n) or _leaves(script, loop, n)), None)


def _takes(script: Script, loop: Turning, node: ast.AST) -> bool:
    """Whether a variable may have its value from an earlier turn, other than to be added to."""
    if not isinstance(node, ast.Name) or not is_read(node) or _is_summand(node):
        return False
    if isinstance(owner(node), COMPREHENSIONS):
        return False
    made = definitions_at(script, node)
    inside = [d for d in made if within(d.node, loop)]
    others = len(inside) < len(made) or definitions_of(script, loop).may_be_unbound(node)
    return bool(inside) and others


def _is_summand(name: ast.Name) -> bool:
    """``total`` in ``total = total + x - y``; in ``total += x`` nothing reads it."""
    first: ast.AST = name
    while isinstance(parent := parent_of(first), ast.BinOp) and parent.left is first:
        if not isinstance(parent.op, (ast.Add, ast.Sub)):
            return False
        first = parent
    match parent:
        case ast.Assign(targets=[ast.Name(id=target)]):
            return first is not name and target == name.id
    return False


def _leaves(script: Script, loop: Turning, node: ast.AST) -> bool:
    """Whether a node changes what later turns look at."""
    effects, calls = script.analysis(Effects), script.analysis(CallGraph)
    for callee in calls.callees(node) if isinstance(node, ast.Call) else ():
        for function in calls.runs(callee.function):
            changes = (w for n in own_nodes(function) for w in effects.of(n))
            if any(_outlives(function, w) for w in changes):
                return True
    return any(_is_looked_at(script, loop, w) for w in effects.of(node))


def _outlives(function: ast.AST, write: Write) -> bool:
    """Whether a function writes to what was there before its call."""
    if write.base is None:
        return write.bound in declared(function)
    base = base_of(write.base)
    return not isinstance(base, ast.Name) or not is_local(base)


def _is_looked_at(script: Script, loop: Turning, write: Write) -> bool:
    """Whether the loop also reads what it writes to, unless each turn makes that for itself, or
    reads the very place (``x[i] = x[i] * 2``).
    """
    if write.base is None:
        return False
    base, place = base_of(write.base), ast.unparse(write.node)
    made = definitions_at(script, base) if isinstance(base, ast.Name) else ()
    if made and all(within(d.node, loop) for d in made):
        return False
    nodes = [n for n in goes_over(loop)[2] if type(n) is type(base)]
    others = (n for n in nodes if ast.unparse(n) == ast.unparse(base) and not _is_filled(n))
    return any(ast.unparse(outer) != place for n in others if (outer := parent_of(n)))


def _is_filled(node: ast.AST) -> bool:
    """``found`` in ``found.append(x)``, ``found[i] = x``, ``found[i] += x``, ``found += x``."""
    while isinstance(parent := parent_of(node), ast.Subscript) and parent.value is node:
        node = parent
    return is_stored(node) or (isinstance(parent, ast.Attribute) and parent.attr in FILLING)
