"""Attributes that each pass of a model sets anew, and that training reads behind one:
``self.last = weights`` in a forward, ``model.pool.last`` in the loss.
"""

from __future__ import annotations

import ast

from autofast.flow.scopes import stored_in
from autofast.model.calls import is_call_of, is_name
from autofast.model.events import BranchFrame, CallFrame, LoopFrame, Occurrence, Site, WithFrame
from autofast.model.script import Script
from autofast.model.source import (
    Nodes,
    block_of,
    contains_kind,
    function_of,
    statements_around,
    within,
    within_statement,
)
from autofast.model.syntax import COMPREHENSIONS, DEFS, SIMPLE, TURN_ENDS, is_attribute, is_stored
from autofast.model.values import Inst, certainly, of_kind
from autofast.read.recover.region import Region

LEAVES = (ast.Return, *TURN_ENDS, ast.Try, ast.Yield, ast.YieldFrom)
MAYBE = (ast.IfExp, ast.BoolOp, ast.Lambda, *COMPREHENSIONS)


def is_set_before(script: Script, read: ast.Attribute, region: Region) -> bool:
    """Whether a pass outside of the region has set what is read, in a statement above that runs
    whenever this place is come to, and nothing sets it between the two.
    """
    owners = script.values(read.value)
    if not certainly(owners, Inst) or script.calls("copy.deepcopy"):
        return False  # a copy may be the same thing to the reader
    sites = [s for s in script.log.of("set_attribute") if is_attribute(s.node, read.attr)]
    passes = [*script.log.of("forward"), *script.log.of("forward_again")]
    for around in statements_around(read):
        if isinstance(around, (*DEFS, ast.ClassDef)):
            return False
        block = block_of(around)
        for statement in reversed(block[: block.index(around) + 1]):
            inside = set(ast.walk(statement))
            ways = [[*(f.node for f in o.stack), s.node] for s in passes for o in s]
            if here := [way for way in ways if not inside.isdisjoint(way)]:
                sure = {o.this for s in sites for o in s if _is_sure(script, s, o, inside)}
                apart = statement is not around and not any(
                    region.holds(n) for w in here for n in w
                )
                return apart and isinstance(statement, SIMPLE) and owners <= sure
    return False


def _is_sure(script: Script, site: Site, occurrence: Occurrence, inside: Nodes) -> bool:
    """Whether it is set whenever the statement runs: on each way through the functions that it
    calls, for all modules that a loop goes over, and where an option of the object does not say no.
    """
    stack = occurrence.stack
    start = next((n for n, f in enumerate(stack) if f.node in inside), len(stack))
    calls = of_kind(stack[start:], CallFrame)
    places = [*(f.node for f in calls), site.node]
    loops = [f.node for f in stack[start:] if isinstance(f, LoopFrame)]
    each = {n for loop in loops if isinstance(loop, ast.For) for n in stored_in(loop.target)}
    for frame in stack[start:]:
        if isinstance(frame, BranchFrame) and not _is_settled(script, frame.node):
            return False
        if isinstance(frame, LoopFrame) and not _is_over_all(frame.node):
            return False
        if not isinstance(frame, (BranchFrame, CallFrame, LoopFrame, WithFrame)):
            return False
    for frame, place in zip(calls, places[1:], strict=True):
        body = getattr(frame.func.node, "body", [])
        at = next((n for n, s in enumerate(body) if within(place, s)), None)
        called = getattr(place, "func", None)
        one = called is None or is_attribute(called) or is_name(called, *each)
        ways = () if at is None else (s for s in body[: at + 1] if not isinstance(s, SIMPLE))
        if at is None or not one or any(contains_kind(s, *LEAVES) for s in ways):
            return False
    return bool(calls) and not any(
        isinstance(n, MAYBE) for p in places for n in within_statement(p)
    )


def _is_over_all(loop: ast.AST) -> bool:
    """``for block in self.blocks``"""
    over = loop.iter if isinstance(loop, ast.For) else None
    return is_attribute(over.args[0] if is_call_of(over, "enumerate") else over)


def _is_settled(script: Script, branch: ast.AST) -> bool:
    """``if self.keep:``, which the constructor alone sets."""
    test = branch.test if isinstance(branch, ast.If) else None
    if not is_attribute(test) or not is_name(test.value, "self"):
        return False
    stores = [n for n in script.each(ast.Attribute) if n.attr == test.attr and is_stored(n)]
    return all(getattr(function_of(n), "name", "") == "__init__" for n in stores)
