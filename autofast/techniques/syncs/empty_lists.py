"""Lists that are empty where a loop has had no iteration."""

from __future__ import annotations

import ast

from autofast.flow.defuse import bound_to
from autofast.flow.loops import Loop, loop_of
from autofast.flow.program import Flow
from autofast.flow.scopes import mentions
from autofast.model.script import Script
from autofast.model.source import function_of, parent_of, source_of, within
from autofast.model.syntax import is_read
from autofast.model.values import Ref
from autofast.write.spelling import is_taken

# What these are given they only read.
READERS = ("builtins.", "math.", "numpy.", "statistics.", "torch.")


def is_empty_without(script: Script, expr: ast.expr, loop: Loop) -> bool:
    """Whether a variable holds an empty list where ``loop`` has had no iteration.

    It is set to one each time before the loop, nothing but the loop changes it, and elsewhere it is
    only read.
    """
    if not isinstance(expr, ast.Name):
        return False
    flow = script.analysis(Flow)
    graph = flow.graph(loop)
    made = flow.definitions(expr).origins(expr)
    is_fresh = bool(made) and all(
        within(d.node, loop)
        if d.is_augmented
        else _is_empty_list(bound_to(d.node)[0])
        and loop_of(d.node) is loop_of(loop)
        and graph.dominates(d.node, loop)
        for d in made
    )
    return is_fresh and all(
        within(n, loop) or not is_read(n) or _is_read(script, n)
        for n in mentions(function_of(loop), expr.id)
    )


def is_sum_of_nothing(script: Script, expr: ast.expr, loop: Loop) -> bool:
    """Whether it is ``sum(numbers)`` of such a list, which is 0 then."""
    match expr:
        case ast.Call(func=ast.Name(id="sum"), args=[numbers], keywords=[]):
            return not is_taken(source_of(expr), "sum") and is_empty_without(script, numbers, loop)
    return False


def _is_empty_list(value: ast.expr | None) -> bool:
    match value:
        case ast.List(elts=[]):
            return True
    return False


def _is_read(script: Script, name: ast.Name) -> bool:
    """``sum(numbers)``, ``numbers[-1]``, ``return numbers``"""
    match parent_of(name):
        case ast.Call(func=func) if func is not name:
            found = script.values(func)
            return bool(found) and all(
                isinstance(t, Ref) and t.name.startswith(READERS) for t in found
            )
        case ast.Subscript(value=value, ctx=ast.Load()):
            return value is name
        case ast.Return():
            return True
    return False
