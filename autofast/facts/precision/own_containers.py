"""Whether what a model gives is its caller's alone, so that a copy of it in fp32 is as good: lists
and dicts, which anybody may change, and tensors that are changed in place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.hooks import Hooks
from autofast.facts.model_mode import outputs_in_mode
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.holders import Holders, How
from autofast.flow.memory import Memory, base_of
from autofast.flow.positions import nodes_of
from autofast.flow.program import Flow, definitions_of
from autofast.flow.scopes import owner, scope_of
from autofast.model.contents import without_wrappers
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import Nodes, parent_of
from autofast.model.syntax import MEMBERSHIP, SEQUENCES, is_attribute
from autofast.model.values import Const, Dict, Num, Seq, Tensor, Values, all_of

DEEP = 6  # calls and variables
MAKES = ("builtins.list", "builtins.dict", "builtins.tuple", "collections.OrderedDict")
# What a list or a dict does without giving itself away.
OWN = tuple(
    "append extend insert pop reverse sort update setdefault items keys values get".split()
)


def gives_its_own(script: Script, call: ast.Call) -> bool:
    """Whether nothing else holds a list or a dict that a call of a model gives."""
    if not _has_shared(outputs_in_mode(script, call)):
        return True
    return _is_made_by(script, call, DEEP)


def change_elsewhere(script: Script, call: ast.Call) -> ast.expr | None:
    """What changes in place a tensor that a call of a model gives, or that the model has kept of
    it; None where nobody else holds it, or nothing does.
    """
    calls, memory = script.analysis(CallGraph), script.analysis(Memory)
    code = [c for t in script.called(call) for m in without_wrappers(t) for c in code_of(m)]
    run = [f for c in code for f in calls.runs(c.function)]
    inner = nodes_of(run)
    kept = [k for f in run for r in calls.results(f) for k in _keepers(script, r, inner, DEEP)]
    hooked = any(h.is_forward for h in script.analysis(Hooks).found)
    if not kept and not hooked:
        return None
    names = {k.attr for k in of_kind(kept, ast.Attribute)}
    for node in script.nodes:
        for changed in memory.written(node) if node not in inner else ():
            sources = memory.sources(changed)
            if call in sources or any(is_attribute(s, *names) for s in sources if names):
                return changed
    return None


def _keepers(
    script: Script, expr: ast.expr, inner: Nodes, deeper: int
) -> Iterator[ast.expr]:
    """The attributes, and the lists and dicts of others, that hold what an expression in ``inner``
    gives.
    """
    for part in expr.elts if isinstance(expr, SEQUENCES) else [expr]:
        base = base_of(part)
        if isinstance(base, ast.Attribute) or _is_of_others(base):
            yield base
        for value in script.analysis(Flow).values(base) if deeper else ():
            yield from _keepers(script, value, inner, deeper - 1)
        for holder in script.analysis(Holders).ever(part):
            node = holder.node
            is_other = holder.how is How.ATTRIBUTE or _is_of_others(node)
            if node in inner and is_other and isinstance(node, ast.expr):
                yield node


def _is_of_others(node: ast.AST) -> bool:
    """A variable that another function, or the module, has, and what it holds; an attribute."""
    base = base_of(node) if isinstance(node, ast.expr) else node
    return isinstance(base, ast.Attribute) or (
        isinstance(base, ast.Name) and owner(base) not in (None, scope_of(base))
    )


def _has_shared(found: Values, deeper: int = 4) -> bool:
    """Whether there is a container that others could change, at any depth."""
    if any(isinstance(t, Dict) or (isinstance(t, Seq) and t.kind != "tuple") for t in found):
        return True
    inside = (t.any() for t in found if isinstance(t, Seq))
    return bool(deeper) and any(_has_shared(frozenset(i), deeper - 1) for i in inside)


def _is_made_by(script: Script, call: ast.Call, deeper: int) -> bool:
    """Whether the functions of the project behind a call make what they give."""
    code = [c for t in script.called(call) for m in without_wrappers(t) for c in code_of(m)]
    results = [r for c in code for r in script.analysis(CallGraph).results(c.function)]
    return bool(results) and all(_is_own(script, r, deeper - 1) for r in results)


def _is_own(script: Script, expr: ast.expr, deeper: int) -> bool:
    """Whether an expression gives containers that it has made, of tensors or of such."""
    if not deeper:
        return False
    if (found := script.values(expr)) and all_of(found, Tensor, Const, Num):
        return True
    match expr:
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return all(_is_own(script, p, deeper) for p in parts)
        case ast.Dict(values=parts):
            return all(_is_own(script, p, deeper) for p in parts)
        case ast.ListComp(elt=part) | ast.DictComp(value=part):
            return _is_own(script, part, deeper)
        case ast.IfExp(body=body, orelse=orelse):
            return _is_own(script, body, deeper) and _is_own(script, orelse, deeper)
        case ast.Call(args=args) if script.library_function(expr) in MAKES:
            return all(_is_own(script, a, deeper - 1) for a in args)
        case ast.Call():
            return _is_made_by(script, expr, deeper)
        case ast.Name():
            return _is_kept_apart(script, expr, deeper)
    return False


def _is_kept_apart(script: Script, name: ast.Name, deeper: int) -> bool:
    """Whether a variable holds what was made for it, and nothing but its own function has that."""
    made = script.analysis(Flow).reaching(name)
    values = [d.value for d in made]
    if not values or not all(v is not None and _is_own(script, v, deeper - 1) for v in values):
        return False
    known = definitions_of(script, name)
    nodes = of_kind((d.node for d in made), ast.Name)
    return len(nodes) == len(values) and all(
        _gives_nothing_away(use) for node in nodes for use in known.uses_of(node)
    )


def _gives_nothing_away(use: ast.Name) -> bool:
    """``return out``, ``out["x"] = ...``, ``out.append(x)``, ``x in out``, ``for part in out``"""
    match outer := parent_of(use):
        case ast.Return():
            return True
        case ast.Subscript(value=value):
            return value is use
        case ast.Attribute():
            return is_attribute(outer, *OWN) and isinstance(parent_of(outer), ast.Call)
        case ast.Compare(left=left, ops=ops):
            return left is not use and all_of(ops, *MEMBERSHIP)
        case ast.Call(func=ast.Name(id="len" | "zip" | "enumerate" | "sum" | "reversed")):
            return True
        case ast.For(iter=iterated) | ast.comprehension(iter=iterated):
            return iterated is use
    return isinstance(outer, SEQUENCES) and isinstance(parent_of(outer), ast.Return)
