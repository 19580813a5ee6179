"""Which statement leads to the first model that is trained, in the process that trains."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.facts.parts import trained_models
from autofast.flow.program import graph_of
from autofast.model.events import CallFrame, GuardFrame, Site, Stack
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import first_such
from autofast.model.source import (
    Nodes,
    Source,
    ancestors,
    function_of,
    source_of,
    statement_of,
    within,
)
from autofast.model.syntax import is_docstring
from autofast.model.tensors import target_of
from autofast.model.values import Where, any_of, of_kind

NESTS = (
    ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match,
    ast.match_case, ast.ExceptHandler,
)  # fmt: skip


def first_model(script: Script) -> ast.stmt | None:
    """The statement of the entry file that leads to the making of the first model, out of all
    conditions and loops; None where none is seen.

    Where another process trains (``mp.spawn``), it is the first statement of the function it runs.
    Where the model comes from outside the file, it is where the file moves it or builds its
    optimizer, or the statement that leads to the training as well.
    """
    if trains_in_a_child(script):
        return _in_the_child(script)
    models = trained_models(script) or script.models
    made = [_leading_to(script, m) for m in models if _from_the_top(m)]
    moved = [
        _here(script.entry, site.node) for m in models for site in m.moves if _to_a_device(site)
    ]
    built = [_here(script.entry, o.node) for o in script.optimizers]
    above = [_leading_to_both(script, m) for m in models if _from_the_top(m)]
    for places in (made, moved, built, above):
        if found := [p for p in places if p is not None and _comes_first(script, p)]:
            return _above_methods(script, min(found, key=lambda s: s.lineno))
    return None


def _above_methods(script: Script, place: ast.stmt) -> ast.stmt:
    """The statement outside of classes that leads to a place in a method: flags of the whole
    program are not an object's business.
    """
    if not in_class(place):
        return place
    found = dict[ast.stmt, None]()
    for way in (o.stack for site in script.log.within(place) for o in site):
        calls = [f.node for f in of_kind(way, CallFrame) if isinstance(f.node, ast.Call)]
        calls = [c for c in calls if source_of(c) is script.entry and not in_class(c)]
        guards = {f.node for f in way if isinstance(f, GuardFrame)}
        found |= {outermost(statement_of(call), guards): None for call in calls[-1:]}
    leading = next(iter(found), None)
    fits = leading is not None and len(found) == 1 and _comes_first(script, leading)
    return leading if leading is not None and fits else place


def in_class(node: ast.AST) -> bool:
    """Whether a place is in a class, or in a method of one."""
    return any_of(ancestors(node), ast.ClassDef)


def _comes_first(script: Script, place: ast.stmt) -> bool:
    """Not behind the training in the same function, as where a model is built anew to be measured
    at the end.
    """
    function, graph = function_of(place), graph_of(script, place)
    ways = [
        node
        for step in script.steps
        for node in (*(f.node for f in step.stack), step.loop)
        if isinstance(node, (ast.stmt, ast.expr)) and function_of(node) is function
    ]
    return all(
        graph.dominates(place, way) or within(way, place) or within(place, way)
        for way in map(statement_of, ways)
    )


def _from_the_top(model: Model) -> bool:
    """The program's own run makes it, not a function that nothing calls."""
    first = first_such(model.thing.made, CallFrame)
    return first is None or isinstance(first.node, ast.Call)


def _to_a_device(site: Site) -> bool:
    """Not only to another dtype or memory format, as channels-last writes."""
    name = getattr(getattr(site.node, "func", None), "attr", "")
    return any(target_of(name, o.args)[1] for o in site)


def _here(entry: Source, node: ast.AST) -> ast.stmt | None:
    return outermost(statement_of(node), set()) if source_of(node) is entry else None


def trains_in_a_child(script: Script) -> bool:
    """Not where processes and threads of the script only load data, and the training is its own."""
    calls = {site.node for site in script.processes}
    return any(frame.node in calls for step in script.steps for frame in step.stack)


def _in_the_child(script: Script) -> ast.stmt | None:
    calls = {site.node for site in script.processes}
    for step in script.steps:
        for frame in step.stack:
            if (
                isinstance(frame, CallFrame)
                and frame.node in calls
                and isinstance(frame.func.node, ast.FunctionDef)
            ):
                return next((s for s in frame.func.node.body if not _declares(s)), None)
    return None


def _declares(stmt: ast.stmt) -> bool:
    """A docstring, ``global`` or ``nonlocal``: what stands first in a function."""
    return is_docstring(stmt) or isinstance(stmt, (ast.Global, ast.Nonlocal))


def _leading_to(script: Script, model: Model) -> ast.stmt | None:
    """The statement of the entry file below which the model is made: in the function that leads to
    the training as well, if that can be.
    """
    calls = of_kind(model.thing.made, CallFrame)
    # From the function that trains, inwards.
    nodes = [*(f.node for f in calls[_shared(script, calls) :]), model.node]
    return _first_here(script, model, (nodes[0], *reversed(nodes)))


def _leading_to_both(script: Script, model: Model) -> ast.stmt | None:
    """The statement of the entry file below which the model is made and trained."""
    calls = of_kind(model.thing.made, CallFrame)
    both = calls[: _shared(script, calls)]
    return _first_here(script, model, [f.node for f in reversed(both)])


def _first_here(script: Script, model: Model, nodes: Iterable[Where]) -> ast.stmt | None:
    """The statement around the first of these calls that stands in the entry file."""
    for node in nodes:
        if isinstance(node, ast.Call) and source_of(node) is script.entry:
            return outermost(
                statement_of(node), {f.node for f in model.thing.made if isinstance(f, GuardFrame)}
            )
    return None


def _shared(script: Script, calls: list[CallFrame]) -> int:
    """How many calls lead to a training as well."""
    return max((_common(calls, step.stack) for step in script.steps), default=0)


def _common(calls: list[CallFrame], stack: Stack) -> int:
    """How many calls lead to both places."""
    others = of_kind(stack, CallFrame)
    n = 0
    while n < min(len(calls), len(others)) and calls[n].node is others[n].node:
        n += 1
    return n


def outermost(stmt: ast.stmt, guards: Nodes) -> ast.stmt:
    """The statement around ``stmt`` that stands directly in a function, the module or the main
    guard.
    """
    found = stmt
    for outer in ancestors(stmt):
        if outer in guards or not isinstance(outer, NESTS):
            break
        if isinstance(outer, ast.stmt):
            found = outer
    return found
