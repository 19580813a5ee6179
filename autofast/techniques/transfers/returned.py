"""Tensors that a function makes on the host, and whoever calls it moves: ``t = diffusion.sample(n).to(device)``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.edit.edits import Rewrite
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.scopes import binds, mentions, owner, parameters
from autofast.model.script import Script, Transfer
from autofast.model.source import parent_of, source_of
from autofast.model.values import Inst, Values
from autofast.techniques.transfers.creations import (
    Creation,
    again_and_again,
    created,
    factory,
    only_moves,
)
from autofast.write.spelling import spelled


def returned(script: Script, hot: frozenset[int]) -> Iterator[Creation]:
    """Factories whose result is all that a function gives, where every call is moved to one device that the function can name."""
    graph = script.analysis(CallGraph)
    moves = {id(call): (call, t) for t in script.transfers if (call := _moved(t)) is not None}
    seen: set[int] = set()
    for call, _ in moves.values():
        for callee in graph.callees(call):
            function = callee.function
            if id(function) in seen or graph.complete(function):
                continue
            seen.add(id(function))
            places = [moves[id(c)] for c in graph.sites(function) if id(c) in moves]
            results = graph.results(function)
            made = factory(script, results[0]) if len(results) == 1 else None
            often = any(again_and_again(script, o.stack, hot) for _, t in places for o in t.site)
            if made is None or not often or len(places) < len(graph.sites(function)):
                continue
            where = _device(script, function, [t for _, t in places])
            creation = created(script, made, where) if where else None
            if creation is not None and creation.edits:
                idle = [Rewrite(t.node, "{made}", {"made": c}) for c, t in places if only_moves(t)]
                copies = tuple(t.node for _, t in places)
                yield replace(creation, edits=(*creation.edits, *idle), moves=copies)


def _moved(transfer: Transfer) -> ast.Call | None:
    """The call in ``f(...).to(device)``."""
    match transfer.node.func:
        case ast.Attribute(value=ast.Call() as call, attr="to"):
            return call if transfer.to_device and transfer.target is not None else None
    return None


def _device(script: Script, function: Function, moves: list[Transfer]) -> str:
    """What names, in the function, the one device that all moves go to: an attribute of its object, or a variable of its file."""
    targets = {m.target.values for m in moves if m.target is not None}
    target = targets.pop()
    if targets or len(target) != 1 or isinstance(function, ast.Lambda):
        return ""
    spelt = [e for m in moves if (e := spelled(m.node, m.target)) is not None]
    names = {ast.unparse(e) for e in spelt}
    plain = names.pop() if all(_is_of_file(e, function) for e in spelt) and spelt else ""
    return _own(script, function, target) or ("" if names else plain)


def _own(script: Script, function: Function, target: Values) -> str:
    """``self.device``, which is the same in all objects of the class."""
    this = next((p.arg for p in parameters(function)), "")
    if not isinstance(parent_of(function), ast.ClassDef):
        return ""
    objects = [t for n in mentions(function, this) for t in script.values(n)]
    held = [
        {n for n, v in t.attrs.items() if v == target} if isinstance(t, Inst) else set()
        for t in objects
    ]
    common = set.intersection(*held) if held else set()
    return f"{this}.{min(common, key=lambda n: ('device' not in n, n))}" if common else ""


def _is_of_file(expr: ast.expr, function: Function) -> bool:
    """A variable of the file that the function stands in, which means the same there."""
    if not isinstance(expr, ast.Name) or source_of(expr) is not source_of(function):
        return False
    return isinstance(owner(expr), ast.Module) and not binds(function, expr.id)
