"""Whether a model is in training or in evaluation mode at a forward pass, and what it returns
there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.parts import parts_of
from autofast.flow.scopes import own_nodes
from autofast.model.contents import without_wrappers
from autofast.model.events import BranchFrame, LoopFrame, Occurrence
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind
from autofast.model.source import block_of, outwards, within
from autofast.model.syntax import CHOICES
from autofast.model.values import Const, Func, Inst, Thing, Values


def trains_at(script: Script, forward: Occurrence) -> bool | None:
    """The mode that a model is certainly in at a forward pass; None where that is not certain."""
    every = list(_switches(script, forward))
    if not every and forward.this is not None and not script.methods("eval"):
        return True
    if _is_part(script, forward):
        return None
    last = max(
        (s for s in every if s[0].order < forward.order), key=lambda s: s[0].order, default=None
    )
    if last is None:
        return None
    switch, mode = last
    around = {f.node for f in forward.stack}
    if any(f.node not in around for f in of_kind(switch.stack, BranchFrame)):
        return None
    # What the turns of a loop that the switch stands above leave behind comes to the next turn.
    shared = {f.node for f in switch.stack}
    loops = {f.node for f in of_kind(forward.stack, LoopFrame) if f.node not in shared}
    again = any(other is not mode and any(f.node in loops for f in o.stack) for o, other in every)
    return None if again else mode


def _is_part(script: Script, forward: Occurrence) -> bool:
    """Whether something else that is switched has the model as a part, or may have."""
    mine = {id(x) for x in without_wrappers(forward.this)}
    return any(
        parts is None or (thing not in mine and not mine.isdisjoint(parts))
        for thing, parts in script.analysis(_switched).items()
    )


def _switched(script: Script) -> dict[int, frozenset[int] | None]:
    """What is switched anywhere, with its parts, all by id; None for what is not known."""
    found: dict[int, frozenset[int] | None] = {}
    for site in script.methods("eval", "train"):
        for thing in (t for o in site for t in without_wrappers(o.this)):
            if id(thing) not in found:
                found[id(thing)] = frozenset(parts_of(thing))
        if len(site.owners) < len(site.occurrences):
            found[0] = None
    return found


def _switches(script: Script, forward: Occurrence) -> Iterator[tuple[Occurrence, bool]]:
    """Where the model of a forward pass, or what it is part of, is switched, to which mode."""
    mine = set(without_wrappers(forward.this))
    for site in script.methods("eval", "train"):
        for o in site:
            if any_in(without_wrappers(o.this), mine):
                yield o, site.kind == ".train" and o.args.get(0, "mode") != {Const(False)}


# ---------------------------------------------------------------------------------- what it returns
def outputs_in_mode(script: Script, call: ast.Call) -> Values:
    """What a call of a model may give, in the mode that the model is in there."""
    found = script.values(call)
    passes = script.log.ways("forward", call)
    modes = {trains_at(script, o) for o in passes}
    if len(modes) != 1 or None in modes:
        return found
    mode = modes.pop()
    models = {id(o.this): o.this for o in passes}
    mine: set[object] = set()
    for model in models.values():
        forward = model.cls.find("forward") if isinstance(model, Inst) else None
        nodes = [t.node for t in forward or () if isinstance(t, Func)]
        if len(nodes) != 1 or not isinstance(nodes[0], ast.FunctionDef):
            return found
        for value in _returned(nodes[0]):
            if _may_be_returned(value, bool(mode)):
                mine |= set(map(_kind, script.values(value)))
    return frozenset(t for t in found if _kind(t) in mine) or found


def _kind(thing: Thing) -> object:
    """What tells tensors and containers apart."""
    return type(thing), getattr(thing, "kind", "")


def _returned(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """The expressions that a function returns, the arms of ``a if test else b`` one by one."""
    for node in own_nodes(function):
        if isinstance(node, ast.Return) and node.value is not None:
            if isinstance(node.value, ast.IfExp):
                yield from (node.value.body, node.value.orelse)
            else:
                yield node.value


def _may_be_returned(value: ast.expr, training: bool) -> bool:
    """Whether it may be come to in a mode, as far as ``self.training`` decides."""
    for inner, outer in outwards(value):
        if isinstance(outer, (ast.FunctionDef, ast.Lambda)):
            return True
        if isinstance(outer, CHOICES) and not within(inner, outer.test):
            body = outer.body if isinstance(outer.body, list) else [outer.body]
            if (inner in body) not in _truths(outer.test, training):
                return False
        if isinstance(inner, ast.stmt):
            above = block_of(inner)
            for earlier in above[: above.index(inner)]:
                if isinstance(earlier, ast.If) and isinstance(earlier.body[-1], ast.Return):
                    if _truths(earlier.test, training) == {True}:
                        return False
    return True


def _truths(test: ast.expr, training: bool) -> set[bool]:
    """What a condition may be in a mode."""
    match test:
        case ast.Attribute(attr="training"):
            return {training}
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return {not truth for truth in _truths(operand, training)}
        case ast.BoolOp(op=op, values=values):
            parts = [_truths(v, training) for v in values]
            decided = isinstance(op, ast.Or)  # what one part alone decides
            if any(p == {decided} for p in parts):
                return {decided}
            return {not decided} if all(p == {not decided} for p in parts) else {True, False}
    return {True, False}
