"""Tensors that a function makes on the host, and whoever calls it moves: ``t =
diffusion.sample(n).to(device)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.edit.edits import Rewrite
from autofast.flow.callgraph import CallGraph
from autofast.model.script import Script, Transfer
from autofast.techniques.transfers.creations import created, only_moves
from autofast.techniques.transfers.factories import Creation, again_and_again, factory
from autofast.write.device_in import device_in


def returned(script: Script, hot: frozenset[int]) -> Iterator[Creation]:
    """Factories whose result is all that a function gives, where every call is moved to one device
    that the function can name.
    """
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
            where = device_in(script, function, [t for _, t in places])
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
