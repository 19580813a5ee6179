"""Indices that are made on the host for a tensor on the device: each use copies them there, and the
host waits.

``scores[torch.arange(n), y]``, ``scores[range(n), y]``, and ``order = torch.randperm(x.size(0))``
where all that is done with ``order`` is ``x[order]``, ``y[order]``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Edits, Rewrite, plain_code
from autofast.facts.arrays import dtype_named, made_of
from autofast.facts.dimensions import dimension_count
from autofast.flow.callgraph import CallGraph
from autofast.flow.loops import loops_around
from autofast.flow.program import definitions_at, definitions_of
from autofast.model.calls import call_of, is_path, is_same_code, items_of, put_into
from autofast.model.script import Script
from autofast.model.several import any_in, surely, wordset
from autofast.model.source import (
    ancestors,
    block_of,
    function_of,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import VARIABLES
from autofast.model.values import Arg, Const, Num, Seq, Tensor, certainly, of_kind
from autofast.techniques.transfers.creations import creation_of
from autofast.techniques.transfers.factories import Creation, factory, loops_of_steps, runs_often
from autofast.write.spelling import torch_in

MAKES = wordset("torch.arange torch.randperm")
COUNTS = wordset("builtins.range numpy.arange")
LISTS = wordset("builtins.list builtins.tuple numpy.array")
SIZES = wordset("size numel __len__")


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


# ------------------------------------------------------------------------------ numbers one by one
def counted(script: Script, hot: frozenset[ast.AST]) -> Iterator[tuple[ast.expr, Edits]]:
    """``q[range(n), action]`` and ``q[np.arange(n), action]``: each such index of a tensor, and
    what makes it where the tensor is; ``q[range(n), range(n)] = 0`` needs none."""
    often = script.analysis(_functions_often)
    for subscript in script.each(ast.Subscript):
        tensor = subscript.value
        if not is_path(tensor) or not script.must_be(tensor, Tensor):
            continue
        if all(t.device == "cpu" for t in of_kind(script.values(tensor), Tensor)):
            continue
        if not (function_of(subscript) in often or any(n in hot for n in loops_around(subscript))):
            continue
        if (diagonal := _diagonal(script, subscript)) is not None:
            yield subscript, (diagonal,)
            continue
        for index in items_of(subscript.slice):
            count = _count(script, index)
            inside = index is not subscript.slice
            if count is not None and (inside or script.must_be(index, Num, Seq)):
                torch, imports = torch_in(source_of(index))
                device = f"{plain_code(ast.unparse(tensor))}.device"
                made = f"{torch}.arange({{count}}, device={device})"
                yield index, (Rewrite(index, made, {"count": count}), *imports)


def _diagonal(script: Script, subscript: ast.Subscript) -> Edit | None:
    """What names the places that ``q[range(n), range(n)] = 0`` sets to a number."""
    match items_of(subscript.slice), parent_of(subscript):
        case [one, two], ast.Assign(targets=[target], value=value) if target is subscript:
            count = _count(script, one)
        case _:
            return None
    if count is None or not is_same_code(one, two) or not script.must_be(value, Const, Num):
        return None
    tensor = subscript.value
    before = "" if dimension_count(script, tensor) == 2 else "..., "
    end = ":{count}" if is_path(count) else ": {count}"
    holes = {"of": tensor, "count": count}
    return Rewrite(subscript, f"{{of}}.diagonal()[{before}{end}]", holes)


def _functions_often(script: Script) -> set[ast.AST]:
    """The functions that run in the steps of a training or an evaluation."""
    calls, hot = script.analysis(CallGraph), loops_of_steps(script)
    return {*hot, *(f for loop in hot for f in calls.run_in(loop, often=True))}  # type: ignore[arg-type]


def _count(script: Script, index: ast.expr) -> ast.expr | None:
    """``n`` of ``range(n)``, ``list(range(n))`` or ``np.arange(n)``, which is not negative."""
    match index:
        case ast.Call(args=[inner], keywords=[]) if script.is_call(index, *LISTS):
            return _count(script, inner)
        case ast.Call(args=[ast.Constant(value=0), count] | [count], keywords=told) if (
            script.is_call(index, *COUNTS)
        ):
            by_numpy = script.is_call(index, "numpy.arange")
            types = [dtype_named(script, k.value) for k in told if k.arg == "dtype"]
            whole = all(t.startswith("int") for t in types) and len(types) == len(told)
            if whole and _is_size(script, count, not by_numpy):
                return count
    return None


def _is_size(script: Script, count: ast.expr, whole: bool) -> bool:
    """Whether a number is a size, which has no sign; ``whole``: Python takes no other there."""
    match count:
        case ast.Call(func=ast.Attribute(value=of, attr=attr)) if attr in SIZES:
            return script.must_be(of, Tensor)
        case ast.Subscript(value=ast.Attribute(value=of, attr="shape")):
            return script.must_be(of, Tensor, Num)
        case ast.Call() if script.is_call(count, "builtins.len"):
            return True
        case ast.Name() | ast.Attribute() if not whole:
            made = made_of(script, count)
            return surely(m is not None and (_is_size(script, m, False)) for m in made)
    found = script.values(count)
    known = surely(type(t.value) is int and t.value >= 0 for t in of_kind(found, Const))
    if certainly(found, Const):
        return known
    return whole and isinstance(count, VARIABLES) and certainly(found, Const, Arg, Num)
