"""Lists that a loop only fills."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.defuse import bound_to
from autofast.flow.scopes import is_local, mentions
from autofast.model.several import any_of
from autofast.model.source import ancestors, block_of, function_of, nodes_in, parent_of


def is_only_filled(held: ast.Name, loop: ast.For) -> bool:
    """Whether it is a list that is made empty above the loop, and all that the loop does with it is
    to extend it here.
    """
    if loop.orelse or not is_local(held):
        return False
    function = function_of(held)
    inside = [n for n in nodes_in(loop, ast.Name) if n.id == held.id]
    others = [n for n in mentions(function, held.id) if function_of(n) is not function]
    if inside != [held] or others or any_of(ancestors(loop), ast.Try):
        return False
    for above in _above(loop):
        if names := [n for n in nodes_in(above, ast.Name) if n.id == held.id]:
            return isinstance(above, ast.Assign) and len(names) == 1 and is_empty(names[0])
    return False


def _above(loop: ast.stmt) -> Iterator[ast.stmt]:
    """The statements before the loop that certainly run before it, upwards; a ``with`` around it
    hides none.
    """
    place: ast.AST | None = loop
    while isinstance(place, (ast.For, ast.With)):
        block = block_of(place)
        yield from reversed(block[: block.index(place)])
        place = parent_of(place)
        if not isinstance(place, ast.With):
            return


def is_empty(name: ast.Name) -> bool:
    """Whether what binds the name there gives it a new, empty list."""
    match bound_to(name):
        case ast.List(elts=[]), True:
            return True
        case ast.Call(func=ast.Name(id="list"), args=[], keywords=[]), True:
            return True
    return False
