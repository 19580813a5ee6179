"""What may give an expression another value on the way from one statement to another."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

from autofast.flow.callgraph import CallGraph
from autofast.flow.memory import Memory
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.script import Script
from autofast.model.syntax import is_read


def may_change(script: Script, code: Iterable[ast.AST], expr: ast.expr) -> ast.AST | None:
    """The first part of the code that may change what an expression gives: its names, its
    attributes, or the memory of its tensors.

    Every call of a function of the project may, as it may reach them by other ways.
    """
    parts = list(ast.walk(expr))
    names = {n.id for n in parts if isinstance(n, ast.Name)}
    attributes = {n.attr for n in parts if isinstance(n, ast.Attribute)}
    memory, calls = script.analysis(Memory), script.analysis(CallGraph)
    for part in code:
        for node in ast.walk(part):
            if isinstance(node, ast.Name | ast.Attribute) and not is_read(node):
                if getattr(node, "id", "") in names or getattr(node, "attr", "") in attributes:
                    return node
            if (isinstance(node, ast.Call) and calls.callees(node)) or memory.written(node):
                return node
        if names & stored_in(part):  # by `match`, `import`, `except ... as`
            return part
    return None


def changed(script: Script, code: Iterable[ast.AST], names: Set[str]) -> bool:
    """Whether code gives one of these variables another value, or writes to what it holds: itself,
    or by a function that it gives it to.
    """
    memory = script.analysis(Memory)
    for part in code:
        if stored_in(part) & names:
            return True
        for node in ast.walk(part):
            match node:
                case ast.Attribute(value=owner, ctx=ast.Store()):
                    written = [owner]
                case _:
                    written = memory.written(node)
            if any(loaded_in(expr) & names for expr in written):
                return True
    return False
