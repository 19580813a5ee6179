"""Parts of a tensor in host memory that a training copies to the device step by step, with no
loader: the tensor could be there from the beginning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import bound_to
from autofast.flow.program import Flow
from autofast.flow.scopes import parameters
from autofast.model.calls import pairs_of
from autofast.model.script import Script, Transfer
from autofast.model.source import function_of, statement_of, within
from autofast.model.values import Tensor
from autofast.ops.families import REGROUPING

VIEWS = REGROUPING | {"t"}
CASTS = frozenset("long int float".split())
DEPTH = 8
Given = Mapping[str, ast.expr]


def slices(script: Script) -> Iterator[tuple[Transfer, str]]:
    """The copies of parts of a tensor in training steps, with what the tensor is called above the
    loop; one for each tensor.
    """
    seen: set[str] = set()
    loops = {id(step.loop): step.loop for step in script.steps}
    for transfer in script.transfers:
        mine = [loops[id(f.node)] for f in transfer.loops if id(f.node) in loops]
        if not transfer.to_device or not mine or transfer.loaders or script.unread:
            continue
        match transfer.node.func:
            case ast.Attribute(value=moved):
                whole = _whole(script, moved, {}, 0)
            case _:
                continue
        if whole is not None and _is_above(script, whole, mine[-1]):
            name = ast.unparse(whole)
            if name not in seen:
                seen.add(name)
                yield transfer, name


def _whole(script: Script, expr: ast.expr, given: Given, depth: int) -> ast.expr | None:
    """The tensor that ``expr`` is a part of, where the script shows that it is; ``given``: the
    arguments of the function around.
    """
    if depth > DEPTH:
        return None
    match expr:
        case ast.Subscript(value=inner):
            return _named(script, inner, given)
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in VIEWS | CASTS:
            return _whole(script, inner, given, depth + 1)
        case ast.Call():
            return _returned(script, expr, None, depth)
        case ast.Name():
            found = [
                _bound(script, d.node, given, depth) for d in script.analysis(Flow).reaching(expr)
            ]
            return found[0] if len(found) == 1 else None
    return None


def _named(script: Script, expr: ast.expr, given: Given) -> ast.expr | None:
    """A tensor in host memory that has a name, which is no batch and comes from no model."""
    tensors = script.values(expr)
    if not tensors or not all(
        isinstance(t, Tensor) and t.device == "cpu" and not t.batch and not t.models
        for t in tensors
    ):
        return None
    match expr:
        case ast.Name(id=name) if name in given:
            return _named(script, given[name], {})
        case ast.Name() | ast.Attribute(value=ast.Name()):
            return expr
    return None


def _bound(script: Script, target: ast.AST, given: Given, depth: int) -> ast.expr | None:
    """What a variable is a part of, where it is set by ``target``."""
    value, whole = bound_to(target)
    if whole and value is not None:
        return _whole(script, value, given, depth + 1)
    match statement_of(target):
        case ast.Assign(targets=[ast.Tuple(elts=elts) as several], value=value):
            pairs = dict(enumerate(pairs_of(several, value)))
            place = next((n for n, e in enumerate(elts) if e is target), None)
            match value:
                case ast.Call() if place is not None:
                    return _returned(script, value, place, depth)
                case ast.Tuple() if place in pairs:
                    return _whole(script, pairs[place][1], given, depth + 1)
    return None


def _returned(script: Script, call: ast.Call, place: int | None, depth: int) -> ast.expr | None:
    """What a function of the project returns a part of, by itself or at a place of a tuple."""
    graph = script.analysis(CallGraph)
    callees = graph.callees(call)
    if len(callees) != 1:
        return None
    function = callees[0].function
    results = graph.results(function)
    names = [p.arg for p in parameters(function)]
    given = {n: e for n in names if (e := graph.argument(call, callees[0], n)) is not None}
    match results:
        case [ast.Tuple(elts=elts)] if place is not None and place < len(elts):
            return _whole(script, elts[place], given, depth + 1)
        case [ast.expr() as only] if place is None:
            return _whole(script, only, given, depth + 1)
    return None


def _is_above(script: Script, whole: ast.expr, loop: ast.AST) -> bool:
    """Whether the tensor is made above the loop, in the function that the loop stands in, by the
    module or by a constructor.
    """
    match whole:
        case ast.Name():
            places = [d.node for d in script.analysis(Flow).reaching(whole)]
            scopes = [function_of(p) for p in places]
            around = [isinstance(s, ast.Module) or within(loop, s) for s in scopes]
            return bool(places) and all(around) and not any(within(p, loop) for p in places)
        case ast.Attribute(value=owner, attr=attr):
            things = script.values(owner)
            places = [
                site.node
                for site in script.log.of("set_attribute")
                if any(o.this in things and o.data["name"] == attr for o in site)
            ]
            makers = [getattr(function_of(p), "name", "") for p in places]
            return bool(makers) and all(name == "__init__" for name in makers)
    return False
