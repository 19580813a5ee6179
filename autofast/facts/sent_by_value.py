"""Functions that a library sends to other processes by value: cloudpickle packs those of the script
itself with the modules that they name, and cannot pack what `torch.backends` puts in their place.
"""

from __future__ import annotations

import ast

from autofast.flow.imports import bindings
from autofast.model.events import CallFrame, Stack
from autofast.model.script import Script
from autofast.model.source import at, function_of, source_of, walk
from autofast.model.syntax import DEFS
from autofast.model.values import Ext, Func, Method, Ref, Thing, Unknown

LAUNCHING = frozenset(("horovod", "ray", "submitit"))
SENDING = LAUNCHING | {"dask", "ignite", "joblib", "pyspark", "sparkdl"}


def against_backends(script: Script, place: ast.stmt) -> str:
    """Why a statement that names ``torch.backends`` cannot stand there; empty where it can."""
    node = _sender(script, place)
    what = "may send the function around to other processes by value, which what names"
    return f"{at(node)} {what} torch.backends does not survive" if node is not None else ""


def _sender(script: Script, place: ast.stmt) -> ast.AST | None:
    """What sends the function around a place, or one that calls it, away by value."""
    if source_of(place) is not script.entry or not isinstance(function_of(place), DEFS):
        return None  # of a module that is imported, the name is sent
    sent: dict[int, ast.AST] = {
        id(thing.node): call
        for call in script.entry.each(ast.Call)
        if any(map(_sends, called := script.called(call)))
        or (_launches(script) and not any(isinstance(t, (Ext, Ref)) for t in called))
        for given in (*call.args, *(k.value for k in call.keywords))
        for thing in script.values(given)
        if isinstance(thing, Func)
    }
    for node in script.entry.each(ast.FunctionDef):
        for decorator in node.decorator_list:
            if any(map(_sends, script.called(decorator) or script.values(decorator))):
                sent[id(node)] = decorator
    if not sent:
        return None
    here = {id(n) for n in walk(place)}
    ways: list[Stack] = [o.stack for _, s in script.log.each() if id(s.node) in here for o in s]
    around = [f.func.node for way in ways for f in way if isinstance(f, CallFrame)]
    return next((sent[id(n)] for n in (function_of(place), *around) if id(n) in sent), None)


def _launches(script: Script) -> bool:
    """Whether the project has a way of its own there: `launch(training)` ends in horovod.run."""
    imports = (*script.each(ast.Import), *script.each(ast.ImportFrom))
    named = {b.module.partition(".")[0] for stmt in imports for b in bindings(stmt)}
    return not named.isdisjoint(LAUNCHING)


def _sends(callee: Thing) -> bool:
    while isinstance(callee, Method):
        callee = callee.this
    named = isinstance(callee, (Ext, Ref, Unknown)) and callee.name.partition(".")[0]
    return named in SENDING
