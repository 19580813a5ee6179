"""Attributes that each pass of a model sets anew, and that training reads behind one:
``self.last = weights`` in a forward, ``model.pool.last`` in the loss.
"""

from __future__ import annotations

import ast

from autofast.flow.scopes import stored_in
from autofast.model.calls import is_call_of, is_name
from autofast.model.events import CallFrame, Occurrence, Site
from autofast.model.script import Script
from autofast.model.source import (
    block_of,
    function_of,
    holds,
    statements_around,
    within,
    within_statement,
)
from autofast.model.syntax import COMPREHENSIONS, DEFS, SIMPLE, is_attribute, is_stored
from autofast.model.values import Inst, certainly
from autofast.read.recover.region import Region

LEAVES = (ast.Return, ast.Break, ast.Continue, ast.Try, ast.Yield, ast.YieldFrom)
MAYBE = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)


def is_set_before(script: Script, read: ast.Attribute, region: Region) -> bool:
    """Whether a pass outside of the region has set what is read, in a statement above that runs
    whenever this place is come to, and nothing sets it between the two.
    """
    owners = script.values(read.value)
    if not certainly(owners, Inst) or script.calls("copy.deepcopy"):
        return False  # a copy may be the same thing to the reader
    sites = [s for s in script.log.of("set_attribute") if _name(s.node) == read.attr]
    passes = [*script.log.of("forward"), *script.log.of("forward_again")]
    for around in statements_around(read):
        if isinstance(around, (*DEFS, ast.ClassDef)):
            return False
        block = block_of(around)
        for statement in reversed(block[: block.index(around) + 1]):
            here = [
                (s, o) for s in passes for o in s if within(s.node, statement) or _at(o, statement)
            ]
            if not here:
                continue
            sets = [(s, o, at) for s in sites for o in s for at in _at(o, statement)]
            sure = {o.this for s, o, at in sets if _is_sure(script, s, o, at)}
            ways = [n for s, o in here for n in (s.node, *(f.node for f in o.stack))]
            apart = statement is not around and not any(map(region.holds, ways))
            return apart and isinstance(statement, SIMPLE) and owners <= sure
    return False


def _at(occurrence: Occurrence, statement: ast.stmt) -> list[int]:
    """The number of the frame whose call stands in the statement, if there is one."""
    frames = enumerate(occurrence.stack)
    return [n for n, f in frames if isinstance(f, CallFrame) and within(f.node, statement)][:1]


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_sure(script: Script, site: Site, occurrence: Occurrence, start: int) -> bool:
    """Whether it is set whenever the statement runs in which frame ``start`` calls."""
    calls = [f for f in occurrence.stack[start:] if isinstance(f, CallFrame)]
    places = [*(f.node for f in calls[1:]), site.node]
    return not any(isinstance(n, MAYBE) for n in within_statement(calls[0].node)) and all(
        _runs(script, f.func.node, place) for f, place in zip(calls, places, strict=True)
    )


def _runs(script: Script, function: ast.AST, place: ast.AST) -> bool:
    """Whether each call of the function comes to the place, for each of its modules where that is
    in a loop over them, and where it does at all, as an option of the object says.
    """
    if function_of(place) is not function or not isinstance(function, ast.FunctionDef):
        return False
    around = list(statements_around(place))
    around = around[: around.index(function)]
    called = place.func if isinstance(place, ast.Call) else None
    each = False
    for outer in around:
        over = isinstance(outer, ast.For) and _is_each(script, called, outer)
        each = each or over
        fixed = isinstance(outer, ast.If) and _is_settled(script, outer.test)
        if not (over or fixed or isinstance(outer, (*SIMPLE, ast.With))):
            return False
    before = function.body[: function.body.index(around[-1])]
    whole = before + ([] if isinstance(around[-1], SIMPLE) else [around[-1]])
    maybe = any(isinstance(n, MAYBE) for n in within_statement(place))
    one = each or called is None or is_attribute(called)
    return one and not maybe and not any(holds(s, *LEAVES) for s in whole)


def _is_each(script: Script, called: ast.expr | None, loop: ast.For) -> bool:
    """``block`` of ``for block in self.blocks``"""
    over = loop.iter
    if is_call_of(over, "enumerate"):
        over = over.args[0]
    if not is_attribute(over) or not is_name(called, *stored_in(loop.target)):
        return False
    return certainly(script.values(called), Inst)


def _is_settled(script: Script, test: ast.expr) -> bool:
    """``if self.keep:``, which the constructor alone sets."""
    if not is_attribute(test) or not is_name(test.value, "self"):
        return False
    stores = [n for n in script.each(ast.Attribute) if n.attr == test.attr and is_stored(n)]
    return all(getattr(function_of(n), "name", "") == "__init__" for n in stores)
