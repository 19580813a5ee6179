"""Where an exception in a loop may be caught, or looked at: what the loop has put off by then would never be read."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.iterations import FUNCTIONS, tries_around
from autofast.flow.scopes import binds
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of
from autofast.model.values import Bound, Cls, Ext, Func, Inst, Ref, Thing

CATCHES = frozenset({"contextlib.suppress", "contextlib.ExitStack", "contextlib.AsyncExitStack"})


def catchers(script: Script, node: ast.AST, stop: ast.AST | None = None) -> Iterator[ast.Try | ast.With | ast.AsyncWith]:
    """The statements around ``node``, up to ``stop`` or the function's end, that see what it raises: ``try``, ``with suppress(...)``."""
    yield from tries_around(node, stop)
    here = node
    for outer in ancestors(node):
        if outer is stop or isinstance(outer, FUNCTIONS):
            return
        if isinstance(outer, (ast.With, ast.AsyncWith)) and any(here is s for s in outer.body):
            if any(_may_catch(script, item.context_expr) for item in outer.items):
                yield outer
        here = outer


def _may_catch(script: Script, manager: ast.expr) -> bool:
    things: set[Thing] = set(script.values(manager))
    if isinstance(manager, ast.Call):
        things |= script.values(manager.func)
    return any(_sees(script, t) for t in things)


def _sees(script: Script, thing: Thing) -> bool:
    if isinstance(thing, (Ref, Ext)):
        return thing.name in CATCHES
    if isinstance(thing, (Inst, Cls)):
        found = (thing.cls if isinstance(thing, Inst) else thing).find("__exit__") or frozenset()
        return any(not isinstance(t, Func) or _answers(t) or not _keeps_to_itself(script, t) for t in found)
    func = thing.func if isinstance(thing, Bound) else thing
    if not isinstance(func, Func):
        return False
    return any(isinstance(n, ast.Try) and n.handlers for n in ast.walk(func.node)) or not _keeps_to_itself(script, func)


def _answers(func: Func) -> bool:
    """``return True`` of an ``__exit__`` ends the exception."""
    results = [n.value for n in ast.walk(func.node) if isinstance(n, ast.Return) and n.value is not None]
    return any(not (isinstance(v, ast.Constant) and not v.value) for v in results)


def _keeps_to_itself(script: Script, func: Func) -> bool:
    """Whether a function looks at nothing but its arguments and what is imported."""
    for node in ast.walk(func.node):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and not binds(function_of(node), node.id):
            if not all(isinstance(t, (Ref, Func, Cls)) for t in script.values(node)):
                return False
    return True
