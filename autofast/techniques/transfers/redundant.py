"""Copies that do nothing, as Accelerate has put the batches on the device already."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Remove, Rewrite
from autofast.flow.positions import follows
from autofast.flow.program import graph_of
from autofast.flow.scopes import mentions
from autofast.model.calls import is_method, is_name, items_of, pairs_of, put_into
from autofast.model.events import BranchFrame, LoopFrame, Occurrence, TryFrame
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import (
    Nodes,
    function_of,
    is_same_function,
    nodes_in,
    parent_of,
    statement_of,
    within,
)
from autofast.model.syntax import is_attribute, is_read
from autofast.model.values import Const, Dict, Ext, Thing, all_of, any_of


def is_placed(script: Script, transfer: Transfer) -> bool:
    """``x.to(accelerator.device)`` in a loop over a loader that ``accelerator.prepare()`` has
    given: ``x`` is there."""
    node = transfer.node
    if transfer.how != "to" or len(node.args) != 1 or node.keywords or not transfer.loaders:
        return False
    accelerator = _owner_of_device(script, node.args[0])
    if accelerator is None:
        return False
    prepared = list(_prepared(script, accelerator))
    return all(
        any(_comes_from(o, name, statement, transfer.loaders) for name, statement in prepared)
        for o in transfer.site
    )


def _owner_of_device(script: Script, target: ast.expr) -> Ext | None:
    """The Accelerator of ``accelerator.device``, one that places what it prepares."""
    if not is_attribute(target, "device"):
        return None
    found = [t for t in script.values(target.value) if t != Const(None)]
    if (
        len(found) != 1
        or not isinstance(found[0], Ext)
        or found[0].name != "accelerate.Accelerator"
    ):
        return None
    args = found[0].args
    places = args.given(0, "device_placement")
    if not args.known or (places is not None and places.values != {Const(True)}):
        return None
    return found[0]


def _prepared(script: Script, accelerator: Ext) -> Iterator[tuple[ast.Name, ast.Assign]]:
    """Each variable that gets its own value back from ``prepare``, so that nothing else is called
    by that name afterwards."""
    for site in script.methods("prepare", "prepare_data_loader"):
        call, target = site.call, put_into(site.node)
        if call is None or call.keywords or target is None:
            continue
        if any(o.this is not accelerator or any_of(o.stack, BranchFrame, TryFrame) for o in site):
            continue
        targets, statement = items_of(target), parent_of(call)
        assert isinstance(statement, ast.Assign)
        if [ast.unparse(t) for t in targets] != [ast.unparse(a) for a in call.args]:
            continue
        for name in targets:
            if isinstance(name, ast.Name) and _is_last(script, name, statement):
                yield name, statement


def _is_last(script: Script, name: ast.Name, statement: ast.Assign) -> bool:
    """Whether nothing binds the variable after ``statement``, in this function or another one."""
    graph = graph_of(script, statement)
    stores = [n for n in mentions(function_of(name), name.id) if n is not name and not is_read(n)]
    return all(is_same_function(n, name) and not graph.may_follow(n, statement) for n in stores)


def _comes_from(
    occurrence: Occurrence, name: ast.Name, statement: ast.Assign, loaders: list[Thing]
) -> bool:
    """Whether the loop over these loaders goes over the variable, after ``statement``."""
    for frame in occurrence.stack:
        if isinstance(frame, LoopFrame) and any_in(loaders, frame.loaders):
            loop = frame.node
            if (
                not isinstance(loop, (ast.For, ast.AsyncFor))
                or not is_same_function(loop, name)
                or not follows(loop, statement)
            ):
                return False
            used = [n for n in nodes_in(loop.iter, ast.Name) if n.id == name.id]
            return bool(used) and within(used[0], loop.iter)
    return False


def taken_out(script: Script, moves: list[ast.Call]) -> list[Edit]:
    """The edits that leave ``moves``, all in one statement, out."""
    statement = statement_of(moves[0])
    if isinstance(statement, ast.Assign) and _only_renames(script, statement, set(moves)):
        return [Remove(statement)]
    edits: list[Edit] = []
    for move in moves:
        assert is_method(move)
        edits.append(Rewrite(move, "{x}", {"x": move.func.value}))
    return edits


def _only_renames(script: Script, statement: ast.Assign, moves: Nodes) -> bool:
    """``x, y = x.to(d), y.to(d)`` and ``batch = {k: v.to(d) for k, v in batch.items()}``: without
    the copies, names get what they have."""
    if len(statement.targets) != 1:
        return False
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Name) and isinstance(value, ast.DictComp):
        return _is_same_dict(script, target, value, moves)
    for name, call in pairs_of(target, value):
        if not isinstance(name, ast.Name) or call not in moves:
            return False
        receiver = call.func.value if is_method(call) else None
        if not is_name(receiver, name.id):
            return False
    return True


def _is_same_dict(script: Script, target: ast.Name, value: ast.DictComp, moves: Nodes) -> bool:
    match value:
        case ast.DictComp(
            key=ast.Name(id=key),
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=item))) as call,
            generators=[
                ast.comprehension(
                    target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                    iter=ast.Call(
                        func=ast.Attribute(value=ast.Name(id=held) as whole, attr="items"),
                        args=[],
                        keywords=[],
                    ),
                    ifs=[],
                    is_async=0,
                )
            ],
        ):
            same = (key, item, held) == (first, second, target.id) and call in moves
            return same and all_of(script.values(whole), Dict)
    return False
