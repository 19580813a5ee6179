"""Functions that a library sends to other processes by value: cloudpickle packs those of the script
itself with the modules that they name, and cannot pack what `torch.backends` puts in their place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.callgraph import CallGraph, Function, code_of
from autofast.flow.imports import bindings
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at, function_of, source_of
from autofast.model.syntax import DEFS
from autofast.model.values import Ext, Method, Ref, Thing, Unknown, any_of

LAUNCHING = wordset("horovod ray submitit")
SENDING = LAUNCHING | wordset("dask ignite joblib pyspark sparkdl")


def against_backends(script: Script, place: ast.stmt) -> str:
    """Why a statement that names ``torch.backends`` cannot stand there; empty where it can."""
    node = _sender(script, place)
    what = "may send the function around to other processes by value, which what names"
    return f"{at(node)} {what} torch.backends does not survive" if node is not None else ""


def _sender(script: Script, place: ast.stmt) -> ast.AST | None:
    """What sends the function around a place, or one that runs it, away by value."""
    function, graph = function_of(place), script.analysis(CallGraph)
    if source_of(place) is not script.entry or not isinstance(function, DEFS):
        return None  # of a module that is imported, the name is sent
    ways = {function, *map(function_of, graph.unknown_calls(function))}
    return next((by for sent, by in _sent(script) if not ways.isdisjoint(graph.runs(sent))), None)


def _sent(script: Script) -> Iterator[tuple[Function, ast.AST]]:
    """The functions that are sent away, each with what sends it."""
    launches = _launches(script)
    for call in script.entry.each(ast.Call):
        called = script.called(call)
        if (launches and not any_of(called, Ext, Ref)) or any(map(_sends, called)):
            for given in (*call.args, *(k.value for k in call.keywords)):
                yield from ((c.function, call) for t in script.values(given) for c in code_of(t))
    for node in script.entry.each(ast.FunctionDef):
        for decorator in node.decorator_list:
            if any(map(_sends, script.called(decorator) or script.values(decorator))):
                yield node, decorator


def _launches(script: Script) -> bool:
    """Whether the project has a way of its own there: `launch(training)` ends in horovod.run."""
    imports = (*script.each(ast.Import), *script.each(ast.ImportFrom))
    named = {first_part(b.module) for stmt in imports for b in bindings(stmt)}
    return not named.isdisjoint(LAUNCHING)


def _sends(callee: Thing) -> bool:
    while isinstance(callee, Method):
        callee = callee.this
    named = isinstance(callee, (Ext, Ref, Unknown)) and first_part(callee.name)
    return named in SENDING
