"""Indices that are made on the host for a tensor on the device: each use copies them there, and the
host waits.

``scores[torch.arange(n), y]``, and ``order = torch.randperm(x.size(0))`` where all that is done
with ``order`` is ``x[order]``, ``y[order]``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.program import definitions_at, definitions_of
from autofast.model.calls import call_of, put_into
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.source import ancestors, block_of, parent_of, statement_of
from autofast.model.values import Tensor, of_kind
from autofast.techniques.transfers.creations import creation_of
from autofast.techniques.transfers.factories import Creation, factory, runs_often

MAKES = wordset("torch.arange torch.randperm")


def indices(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """Calls that make indices for tensors which may be on the device, with the device of the
    tensor."""
    for site in script.log.of(*MAKES):
        call = site.call
        if call is None or not runs_often(site, hot):
            continue
        indexed = _indexed(script, call)
        if indexed is None:
            continue
        creation = creation_of(script, call, f"{indexed.id}.device")
        if creation is not None and creation.edits:
            yield creation


def _indexed(script: Script, call: ast.Call) -> ast.Name | None:
    """The tensor that the call makes an index for, where it is used for nothing else and the tensor
    is there when it is made."""
    whole: ast.expr = call
    while (outer := _keeps(script, whole, call)) is not None:
        whole = outer
    if (tensor := _subscripted(script, whole)) is not None:
        return tensor
    target = put_into(whole)
    if not isinstance(target, ast.Name):
        return None
    uses = definitions_of(script, target).uses_of(target)
    tensors = [_subscripted(script, use) for use in uses]
    if not uses or None in tensors:
        return None
    return next(
        (t for t in tensors if t is not None and _is_there(script, t, statement_of(whole))), None
    )


def _keeps(script: Script, made: ast.expr, call: ast.Call) -> ast.expr | None:
    """``torch.arange(n).long()`` or ``torch.arange(n)[:, None]`` around ``torch.arange(n)``: what
    is the same on every device."""
    outer: ast.expr | None = None
    match above := parent_of(made):
        case ast.Attribute():
            outer = call_of(above)
        case ast.Subscript(value=inner) if inner is made:
            outer = above
    return outer if outer is not None and factory(script, outer) is call else None


def _subscripted(script: Script, index: ast.expr) -> ast.Name | None:
    """The variable ``x`` of ``x[index]`` or ``x[index, other]``, which is certainly a tensor, and
    perhaps on the device."""
    outer = parent_of(index)
    match parent_of(outer) if isinstance(outer, ast.Tuple) else outer:
        case ast.Subscript(value=ast.Name() as tensor) if tensor is not index:
            found = script.values(tensor)
            tensors = of_kind(found, Tensor)
            if len(tensors) == len(found) and any(t.device != "cpu" for t in tensors):
                return tensor
    return None


def _is_there(script: Script, tensor: ast.Name, index: ast.AST | None) -> bool:
    """Whether the variable has the value that it has where the index is used, before the index is
    made: what binds it stands above."""
    if not isinstance(index, ast.stmt) or (block := block_of(index)) is None:
        return False
    above = set(block[: block.index(index)])
    made = [d for d in definitions_at(script, tensor) if not d.is_parameter]
    stands = [d.statement for d in made] + [statement_of(tensor)]
    inside = [any_in((s, *ancestors(s)), above) for s in stands if s is not None]
    return len(inside) == len(stands) and all(inside[:-1]) and not inside[-1]
