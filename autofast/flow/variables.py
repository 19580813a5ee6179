"""Variables of a function: whose they are, and whether what they got in one place may still be there in another."""

from __future__ import annotations

import ast

from autofast.flow.scopes import declared, is_parameter
from autofast.model.source import ancestors, block_of, function_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
LOOPS = (ast.For, ast.While, ast.AsyncFor)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


# ------------------------------------------------------------------------------------------------ order in the text
def may_follow(load: ast.Name, name: str, node: ast.AST) -> bool:
    """Whether the value that ``name`` got in ``node`` may still be there at ``load``: not assigned again on every way."""
    if function_of(load) is not function_of(node) and not any(a is node for a in ancestors(load)):
        return True  # another function may run at any time
    around = {id(a) for a in ancestors(node)}
    here: ast.AST = load
    for outer in ancestors(load):
        if isinstance(here, ast.stmt):
            for sibling in reversed(_before(here)):
                if sibling is node or any(n is node for n in ast.walk(sibling)):
                    return True
                if assigns(sibling, name):
                    return False
        if isinstance(outer, COMPREHENSIONS) and any(_binds(g.target, name) for g in outer.generators):
            return any(n is node for n in ast.walk(outer))
        if isinstance(outer, LOOPS):
            if isinstance(outer, (ast.For, ast.AsyncFor)) and _binds(outer.target, name) and _in_body(load, outer):
                return outer is node
            if outer is node or id(outer) in around:
                return True  # once more around
        if isinstance(outer, (*FUNCTIONS, ast.Module)):
            return False
        here = outer
    return False


def assigns(statement: ast.stmt, name: str) -> bool:
    """Whether the statement gives the name a new value on every way through it."""
    if isinstance(statement, ast.Assign):
        return any(_binds(t, name) for t in statement.targets)
    if isinstance(statement, ast.AnnAssign):
        return statement.value is not None and _binds(statement.target, name)
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return any(i.optional_vars is not None and _binds(i.optional_vars, name) for i in statement.items) or _any(statement.body, name)
    if isinstance(statement, ast.If):
        return _any(statement.body, name) and _any(statement.orelse, name)
    return isinstance(statement, ast.Delete) and any(isinstance(t, ast.Name) and t.id == name for t in statement.targets)


def _any(block: list[ast.stmt], name: str) -> bool:
    return any(assigns(s, name) for s in block)


def _binds(target: ast.expr, name: str) -> bool:
    if isinstance(target, ast.Name):
        return target.id == name
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_binds(t, name) for t in target.elts)
    return isinstance(target, ast.Starred) and _binds(target.value, name)


def _before(statement: ast.stmt) -> list[ast.stmt]:
    try:
        block = block_of(statement)
    except ValueError:
        return []
    return block[: next(i for i, s in enumerate(block) if s is statement)]


def _in_body(node: ast.AST, loop: ast.For | ast.AsyncFor) -> bool:
    inside = {id(s) for s in (*loop.body, *loop.orelse)}
    return any(id(a) in inside for a in (node, *ancestors(node)))


# ------------------------------------------------------------------------------------------------ whose they are


def root_of(node: ast.AST) -> ast.Name | None:
    """The variable at the bottom of ``x.append(...)``, ``x[0][i]``; none where an attribute of an object is between."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    while isinstance(node, ast.Subscript):
        node = node.value
    return node if isinstance(node, ast.Name) else None


def is_own(scope: ast.AST, name: str) -> bool:
    """Whether a function has a variable of its own with this name."""
    if is_parameter(scope, name):
        return True
    stores = (n for n in ast.walk(scope) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store))
    return name not in declared(scope) and any(function_of(n) is scope for n in stores)


def is_nonlocal(scope: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Nonlocal) and name in n.names for n in ast.walk(scope))
