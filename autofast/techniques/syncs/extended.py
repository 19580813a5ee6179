"""Lists that a loop extends by the numbers of a tensor: the tensors are kept, and become numbers below the loop.

``targets.extend(y.tolist())`` becomes ``targets.append(y)``, and below ``targets = [value for part in targets for value in part.tolist()]``: the same
numbers in the same order, whatever the shapes, and whether or not there was a batch at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Edit, Rewrite, literal
from autofast.flow.defuse import bound_to
from autofast.flow.scopes import is_local, mentions
from autofast.model.calls import is_method
from autofast.model.script import Script, Sync
from autofast.model.source import (
    ancestors,
    block_of,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
)
from autofast.model.values import Tensor
from autofast.techniques.syncs.freshness import kept
from autofast.techniques.syncs.reads import on_device, peeled


def extended(script: Script) -> Iterator[tuple[ast.stmt, str, list[Edit]]]:
    """The statements that extend a list in each step, each with the list, and the edits that put the reads off."""
    for sync in script.syncs:
        if sync.how == "tolist" and sync.loop is not None and not sync.unknown:
            if (made := _put_off(script, sync)) is not None:
                yield statement_of(sync.node), *made


def _put_off(script: Script, sync: Sync) -> tuple[str, list[Edit]] | None:
    call = parent_of(sync.node)
    match call, statement_of(sync.node):
        case (
            ast.Call(func=ast.Attribute(value=ast.Name() as held, attr="extend"), args=[_]),
            ast.Expr(value=whole),
        ) if whole is call and is_method(sync.node):
            core = peeled(sync.node.func.value)
        case _:
            return None
    found = script.values(core)
    several = found and all(isinstance(t, Tensor) and t.rank != "0d" for t in found)
    loop = sync.loop
    if not isinstance(loop, ast.For) or not _is_filled_by(held, loop):
        return None
    if not several or not any(map(on_device, found)):
        return None
    part, value = ("part", "value") if held.id not in ("part", "value") else ("tensor", "number")
    numbers = f"{held.id} = [{value} for {part} in {held.id} for {value} in {part}.tolist()]"
    keep = "{held}.append(" + kept(script, core) + ")"
    edits = [Rewrite(whole, keep, {"held": held, "core": core}), After(loop, literal(numbers))]
    return held.id, edits


def _is_filled_by(held: ast.Name, loop: ast.For) -> bool:
    """Whether it is a list that is made empty above the loop, and all that the loop does with it is to extend it here."""
    if loop.orelse or not is_local(held):
        return False
    function = function_of(held)
    inside = [n for n in nodes_in(loop, ast.Name) if n.id == held.id]
    others = [n for n in mentions(function, held.id) if function_of(n) is not function]
    if inside != [held] or others or any(isinstance(a, ast.Try) for a in ancestors(loop)):
        return False
    for above in _above(loop):
        if names := [n for n in nodes_in(above, ast.Name) if n.id == held.id]:
            return isinstance(above, ast.Assign) and len(names) == 1 and _is_empty(names[0])
    return False


def _above(loop: ast.stmt) -> Iterator[ast.stmt]:
    """The statements before the loop that certainly run before it, upwards; a ``with`` around it hides none."""
    place: ast.AST | None = loop
    while isinstance(place, (ast.For, ast.With)):
        block = block_of(place)
        yield from reversed(block[: block.index(place)])
        place = parent_of(place)
        if not isinstance(place, ast.With):
            return


def _is_empty(name: ast.Name) -> bool:
    match bound_to(name):
        case ast.List(elts=[]), True:
            return True
        case ast.Call(func=ast.Name(id="list"), args=[], keywords=[]), True:
            return True
    return False
