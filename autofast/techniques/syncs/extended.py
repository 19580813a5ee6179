"""Lists that a loop extends by the numbers of a tensor: the tensors are kept, and become numbers
below the loop.

``targets.extend(y.tolist())`` becomes ``targets.append(y)``, and below ``targets = [value for part
in targets for value in part.tolist()]``: the same numbers in the same order, whatever the shapes,
and whether or not there was a batch at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Edit, Rewrite, literal
from autofast.flow.filled_lists import is_only_filled
from autofast.model.calls import is_method
from autofast.model.script import Script, Sync
from autofast.model.source import parent_of, statement_of
from autofast.model.values import Tensor
from autofast.techniques.syncs.freshness import kept
from autofast.techniques.syncs.reads import on_device, peeled


def extended(script: Script) -> Iterator[tuple[ast.stmt, str, list[Edit]]]:
    """The statements that extend a list in each step, each with the list, and the edits that put
    the reads off.
    """
    for sync in script.syncs:
        if sync.how == "tolist" and sync.loop is not None and not sync.unknown:
            if (made := _put_off(script, sync)) is not None:
                yield statement_of(sync.node), *made


def _put_off(script: Script, sync: Sync) -> tuple[str, list[Edit]] | None:
    call = parent_of(sync.node)
    match call, statement_of(sync.node), sync.loop:
        case (
            ast.Call(func=ast.Attribute(value=ast.Name() as held, attr="extend"), args=[_]),
            ast.Expr(value=whole),
            ast.For() as loop,
        ) if whole is call and is_method(sync.node):
            core = peeled(sync.node.func.value)
        case _:
            return None
    found = script.values(core)
    several = found and all(isinstance(t, Tensor) and t.rank != "0d" for t in found)
    if not several or not any(map(on_device, found)) or not is_only_filled(held, loop):
        return None
    part, value = ("part", "value") if held.id not in ("part", "value") else ("tensor", "number")
    numbers = f"{held.id} = [{value} for {part} in {held.id} for {value} in {part}.tolist()]"
    keep = "{held}.append(" + kept(script, core) + ")"
    edits = [Rewrite(whole, keep, {"held": held, "core": core}), After(loop, literal(numbers))]
    return held.id, edits
