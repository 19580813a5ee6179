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


def head_of(loop: Turning) -> ast.For | ast.comprehension:
    """What has the variables of a loop and what it goes over."""
    return loop if isinstance(loop, ast.For) else loop.generators[0]


def turn_of(loop: Turning) -> list[ast.AST]:
    """All nodes of a turn."""
    body: list[ast.AST] = [*loop.body] if isinstance(loop, ast.For) else [loop.elt]
    return [n for part in body for n in live_nodes(part)]


def carried(script: Script, loop: Turning) -> ast.AST | None:
    """A place in a loop that takes what an earlier turn left, or may: the value of a variable, what
    stands in a list or tensor, what a function of the project keeps.

    A sum, and lists and tensors whose places are only filled, do not count.
    """
    nodes = turn_of(loop)
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
    base = base_of(write.base)
    made = definitions_at(script, base) if isinstance(base, ast.Name) else ()
    if made and all(within(d.node, loop) for d in made):
        return False
    name, place = ast.unparse(base), ast.unparse(write.node)
    alike = (n for n in turn_of(loop) if type(n) is type(base) and ast.unparse(n) == name)
    others = (parent_of(n) for n in alike if not _is_filled(n))
    return any(outer is not None and ast.unparse(outer) != place for outer in others)


def _is_filled(node: ast.AST) -> bool:
    """``found`` in ``found.append(x)``, ``found[i] = x``, ``found[i] += x``, ``found += x``."""
    while isinstance(parent := parent_of(node), ast.Subscript) and parent.value is node:
        node = parent
    return is_stored(node) or (isinstance(parent, ast.Attribute) and parent.attr in FILLING)
