"""Where an exception in a loop may be caught, or looked at: what the loop has put off by then would
never be read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.build import is_try
from autofast.flow.callgraph import Function, code_of
from autofast.flow.program import may_swallow
from autofast.flow.scopes import binds
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, nodes_in
from autofast.model.syntax import FUNCTIONS, is_read
from autofast.model.values import Cls, Func, Inst, Ref, Unknown


def catchers(
    script: Script, node: ast.AST, stop: ast.AST | None = None
) -> Iterator[ast.Try | ast.With | ast.AsyncWith]:
    """The statements around ``node``, up to ``stop`` or the function's end, that see what it
    raises: ``try``, ``with suppress(...)``.
    """
    here = node
    for outer in ancestors(node):
        if outer is stop or isinstance(outer, FUNCTIONS):
            return
        if (
            is_try(outer)
            and (outer.handlers or outer.finalbody)
            and any(here is s for s in outer.body)
        ):
            yield outer
        if isinstance(outer, (ast.With, ast.AsyncWith)) and any(here is s for s in outer.body):
            if any(_sees(script, item.context_expr) for item in outer.items):
                yield outer
        here = outer


def _sees(script: Script, manager: ast.expr) -> bool:
    """Whether a manager may end an exception or, at the end of its block, look at what the loop
    fills; not, if nothing is known of it.
    """
    if may_swallow(script, manager) and not any(
        isinstance(t, Unknown) for t in script.values(manager)
    ):
        return True
    things = script.values(manager) | (script.called(manager))
    exits = [e for t in things if isinstance(t, Inst) for e in t.cls.find("__exit__") or ()]
    functions = [
        c.function
        for t in (*exits, *(t for t in things if not isinstance(t, (Inst, Cls))))
        for c in code_of(t)
    ]
    return not all(_keeps_to_itself(script, f) for f in functions)


def _keeps_to_itself(script: Script, function: Function) -> bool:
    """Whether a function looks at nothing but its arguments and what is imported."""
    loads = (n for n in nodes_in(function, ast.Name) if is_read(n))
    outside = (n for n in loads if not binds(function_of(n), n.id))
    return all(isinstance(t, (Ref, Func, Cls)) for n in outside for t in script.values(n))
