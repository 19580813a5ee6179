"""What may give an expression another value on the way from one statement to another."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Set

from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.memory import Memory
from autofast.flow.scopes import loaded_in, own_nodes, stored_in
from autofast.model.script import Script
from autofast.model.syntax import is_read


def may_change(script: Script, code: Iterable[ast.AST], expr: ast.expr) -> ast.AST | None:
    """The first part of the code that may change what an expression gives: its names, its
    attributes, or the memory of its tensors.

    Every call of a function of the project may, as it may reach them by other ways, but for one
    that writes to nothing.
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
            runs = calls.callees(node) if isinstance(node, ast.Call) else []
            if any(_writes(script, c.function, attributes) for c in runs) or memory.written(node):
                return node
        if names & stored_in(part):  # by `match`, `import`, `except ... as`
            return part
    return None


def _writes(script: Script, function: Function, attributes: Set[str]) -> bool:
    """Whether a function, or what it calls, may write to memory, to variables of others, or to one
    of these attributes; it may where something that it calls is not known.
    """
    memory, calls = script.analysis(Memory), script.analysis(CallGraph)
    for node in (n for f in calls.runs(function) for n in own_nodes(f)):
        match node:
            case ast.Attribute(attr=attr) if not is_read(node) and attr in attributes:
                return True
            case ast.Global() | ast.Nonlocal() | ast.Yield() | ast.YieldFrom():
                return True
            case ast.Call() if not script.called(node):
                return True
        if memory.written(node):
            return True
    return False


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
