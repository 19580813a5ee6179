"""Whether a script would go on as before if the batches of a loader were on the device from the beginning.

It does where all that it does with them in host memory is to hand them on, to ask for their shape, to view or cast them, and to copy them to
the device. Arithmetic on the host would round, draw or fail differently on the device, and NumPy cannot read what lies there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.model.script import Loader, Script
from autofast.model.source import parent_of, source_of
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Dict,
    Func,
    Inst,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
)
from autofast.ops import is_view
from autofast.rule import at

MOVES = frozenset({"to", "cuda", "type"})
# What is said of a tensor, wherever it is.
SHAPE = frozenset(
    {"shape", "size", "dim", "ndim", "numel", "nelement", "dtype", "stride", "is_contiguous"}
    | {"is_floating_point", "element_size", "requires_grad", "grad", "ndimension", "nbytes"}
)
CASTS = frozenset(
    {"float", "double", "half", "bfloat16", "long", "int", "bool", "byte", "contiguous", "clone"}
)
# Views that are not taken by numbers in a tensor; `numpy` and `cpu` may be views, too.
NO_VIEWS = frozenset({"numpy", "cpu", "__array__", "to_dense", "index_select", "masked_select"})
CONTAINERS = frozenset({"items", "values", "keys", "get", "pop"})
PASSING = frozenset(
    {
        *(f"builtins.{n}" for n in ("enumerate", "iter", "next", "zip", "len", "isinstance", "type")),
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "itertools.islice",
        "torch.autograd.Variable",
    }
)  # fmt: skip


def needs_host(script: Script, loader: Loader) -> str:
    """A place that needs batches of the loader in host memory, in words; empty where there is none."""
    for source in script.sources:
        for node in source.nodes:
            if not isinstance(node, ast.expr) or not _is_on_host(script.values(node), loader):
                continue
            if why := _use(script, node):
                text = source_of(node).segment(node).split("\n")[0]
                return f"{at(node)} {why} `{text}` in host memory, before it is on the device"
    return ""


def moved_twice(loader: Loader) -> str:
    """A batch that is copied to the device in two places: two copies, which would be one tensor; empty where there is none."""
    seen: dict[tuple[int, str], ast.AST] = {}
    for transfer in loader.moved:
        func = transfer.node.func
        if not isinstance(func, ast.Attribute) or not transfer.to_device or not transfer.loops:
            continue
        if all(t.device != "cpu" for t in transfer.tensors):
            continue
        key = id(transfer.loops[-1].node), ast.unparse(func.value)
        other = seen.setdefault(key, transfer.node)
        if other is not transfer.node and isinstance(func.value, ast.Name):
            return f"{at(transfer.node)} copies `{key[1]}` to the device a second time, and the two copies would be one tensor"
    return ""


def _is_on_host(found: Values, loader: Loader) -> bool:
    """Something in it is a batch that no way has brought to the device; a copy under a condition is for machines without one."""
    tensors = [
        t for t in _tensors(found) if not t.models and any(x in loader.things for x in t.batch)
    ]
    return bool(tensors) and not any(t.device == "dev" for t in tensors)


def _tensors(found: Values, depth: int = 0) -> Iterator[Tensor]:
    for thing in found:
        if isinstance(thing, Tensor):
            yield thing
        elif isinstance(thing, (Seq, Dict)) and depth < 3:
            yield from _tensors(thing.any(), depth + 1)


def _use(script: Script, node: ast.expr) -> str:
    """What is done with it there that needs it in host memory; empty where nothing does."""
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return "" if isinstance(node, (ast.Name, ast.Tuple, ast.List)) else _kept(node)
    parent = parent_of(node)
    match parent:
        case ast.Attribute(attr=attr):
            return _asked(script, parent, attr)
        case ast.Call() if node is not parent.func:
            return _handed(script, parent)
        case ast.keyword():
            call = parent_of(parent)
            return _handed(script, call) if isinstance(call, ast.Call) else "uses"
        case ast.Call() | ast.Tuple() | ast.List() | ast.Starred() | ast.NamedExpr() | ast.IfExp():
            return ""
        case ast.Assign() | ast.AnnAssign() | ast.For() | ast.comprehension() | ast.Return():
            return ""
        case ast.Yield() | ast.YieldFrom() | ast.ListComp() | ast.GeneratorExp() | ast.DictComp():
            return ""
        case ast.Dict() | ast.Expr():
            return ""
        case ast.Subscript(value=value, slice=index) if value is node:
            if isinstance(parent.ctx, ast.Store):
                return "writes to"
            return "" if _is_plain(script, index) else "indexes"
        case ast.Compare(ops=[ast.Is() | ast.IsNot()]):
            return ""
    return "computes with"


def _kept(node: ast.expr) -> str:
    """``self.x = batch`` is followed like a variable; ``batches[i] = batch`` and ``x[0] = 1`` are not."""
    return "" if isinstance(node, ast.Attribute) else "writes to"


def _asked(script: Script, node: ast.Attribute, attr: str) -> str:
    parent = parent_of(node)
    called = isinstance(parent, ast.Call) and parent.func is node
    if attr in SHAPE or attr in CONTAINERS or (called and attr in MOVES | CASTS):
        return ""
    if attr in ("T", "mT", "data") or (called and is_view(f".{attr}") and attr not in NO_VIEWS):
        return ""
    return "uses" if called else f"asks for `.{attr}` of"


def _handed(script: Script, call: ast.Call) -> str:
    """Functions of the project are followed, and few of Python's do nothing with it."""
    callee = script.values(call.func)
    known = bool(callee) and all(
        isinstance(t, (Func, Bound, Cls))
        or (isinstance(t, Inst) and t.cls.find("forward") is not None)
        or (isinstance(t, Inst) and t.cls.find("__call__") is not None)
        or (isinstance(t, Ref) and t.name in PASSING)
        for t in callee
    )
    return "" if known else "hands on"


def _is_plain(script: Script, index: ast.expr) -> bool:
    """Numbers, names of keys and slices by numbers: no tensor or array."""
    if isinstance(index, ast.Tuple):
        return all(_is_plain(script, part) for part in index.elts)
    if isinstance(index, ast.Slice):
        bounds = (index.lower, index.upper, index.step)
        return all(b is None or _is_plain(script, b) for b in bounds)
    if isinstance(index, ast.Constant):
        return True
    return bool(found := script.values(index)) and all(_is_number(t) for t in found)


def _is_number(thing: Thing) -> bool:
    return isinstance(thing, (Const, Num))
