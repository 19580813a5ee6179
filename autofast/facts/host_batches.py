"""Whether a script would go on as before if the batches of a loader were on the device from the beginning.

It does where all that it does with them in host memory is to hand them on, to ask for their shape, to view or cast them, to add numbers to them or
multiply them with numbers, and to copy them to the device. Such arithmetic may round otherwise on the device (:func:`rounds`); other arithmetic would
round, draw or fail differently there, and NumPy cannot read what lies there.
"""

from __future__ import annotations

import ast

from autofast.flow.program import Flow
from autofast.model.calls import call_of
from autofast.model.script import Loader, Script
from autofast.model.source import at, parent_of, source_of
from autofast.model.tensors import is_dtype, tensors_in
from autofast.model.values import (
    Bound,
    Cls,
    Const,
    Func,
    Inst,
    Num,
    Ref,
    Tensor,
    Thing,
    Values,
)

MOVES = frozenset({"to", "cuda"})
# What is said of a tensor, wherever it is.
SHAPE = frozenset(
    {"shape", "size", "dim", "ndim", "numel", "nelement", "dtype", "stride", "is_contiguous"}
    | {"is_floating_point", "element_size", "requires_grad", "grad", "ndimension", "nbytes"}
)
CASTS = frozenset({"float", "double", "half", "bfloat16", "long", "int", "bool", "byte"})
SAME = frozenset(
    {"contiguous", "clone", "detach", "view", "reshape", "flatten", "squeeze", "unsqueeze"}
    | {"permute", "transpose", "t", "expand", "narrow", "unflatten", "movedim", "swapaxes"}
    | {"chunk", "split", "unbind", "select", "repeat"}
)
PLAIN_TYPES = frozenset({"torch.Tensor", "torch.tensor"})
# Devices of which some hold no double precision.
OTHERS = frozenset({"mps", "xpu", "hpu", "accel", "option", "?"})
CONTAINERS = frozenset({"items", "values", "keys", "get", "pop"})
PASSING = frozenset(
    {
        *(f"builtins.{n}" for n in ("enumerate", "iter", "next", "zip", "len")),
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "itertools.islice",
        "torch.autograd.Variable",
    }
)  # fmt: skip


def needs_host(script: Script, loader: Loader) -> str:
    """A place that needs batches of the loader in host memory, in words; empty where there is none."""
    for node in script.nodes:
        if not isinstance(node, ast.expr) or not _is_on_host(script.values(node), loader):
            continue
        if why := _use(script, loader, node):
            text = source_of(node).segment(node).split("\n")[0]
            return f"{at(node)} {why} `{text}` in host memory, before it is on the device"
    return ""


def rounds(script: Script, loader: Loader) -> bool:
    """Whether the script computes with batches in host memory: the device may round the last bit otherwise."""
    return any(
        isinstance(parent_of(node), ast.BinOp) and _is_on_host(script.values(node), loader)
        for node in script.nodes
        if isinstance(node, ast.expr)
    )


def shared_copies(script: Script, loader: Loader) -> str:
    """A batch that may be copied to the device twice, of which one copy is written to, in words: both would be one tensor."""
    for site in script.log.of("inplace", "tensor_write", "augment"):
        for occurrence in site:
            changed = occurrence.data["old"] if site.kind == "augment" else {occurrence.this}
            if any(_is_copy(t, loader) for t in changed) and not _are_distinct(script, loader):
                return f"{at(site.node)} writes to a batch, of which there may be another copy"
    return ""


def _is_copy(thing: Thing | None, loader: Loader) -> bool:
    return (
        isinstance(thing, Tensor)
        and thing.device == "dev"
        and not thing.models
        and any(x in loader.things for x in thing.batch)
    )


def _are_distinct(script: Script, loader: Loader) -> bool:
    """Every copy to the device within a loop is of a variable of its own, which the loop itself sets."""
    seen: set[int] = set()
    for move in loader.moved:
        func = move.node.func
        if not move.to_device or not any(t.device == "cpu" for t in move.tensors):
            continue
        name = func.value if isinstance(func, ast.Attribute) else None
        loop = move.loops[-1].node if move.loops else None
        if not isinstance(name, ast.Name) or not isinstance(loop, ast.For):
            return False
        mine = {d.node for d in script.analysis(Flow).reaching(name)}
        targets = {id(n) for n in ast.walk(loop.target)}
        if not mine or any(id(n) not in targets or id(n) in seen for n in mine):
            return False
        seen |= {id(n) for n in mine}
    return True


def _is_on_host(found: Values, loader: Loader) -> bool:
    """Something in it is a batch that no way has brought to the device; a copy under a condition is for machines without one."""
    tensors = [
        t for t in tensors_in(found) if not t.models and any(x in loader.things for x in t.batch)
    ]
    return bool(tensors) and not any(t.device == "dev" for t in tensors)


def _use(script: Script, loader: Loader, node: ast.expr) -> str:
    """What is done with it there that needs it in host memory; empty where nothing does."""
    if isinstance(getattr(node, "ctx", None), ast.Store):
        return "" if isinstance(node, (ast.Name, ast.Tuple, ast.List)) else _kept(node)
    parent = parent_of(node)
    match parent:
        case ast.Attribute(attr=attr):
            return _asked(script, loader, parent, attr)
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
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div(), right=right):
            other = script.values(right if left is node else left)
            ours = _is_on_host(script.values(parent), loader)  # followed in its turn
            return "" if ours and other and all(map(_is_number, other)) else "computes with"
    return "computes with"


def _kept(node: ast.expr) -> str:
    """``self.x = batch`` is followed like a variable; ``batches[i] = batch`` and ``x[0] = 1`` are not."""
    return "" if isinstance(node, ast.Attribute) else "writes to"


def _asked(script: Script, loader: Loader, node: ast.Attribute, attr: str) -> str:
    parent = parent_of(node)
    called = call_of(node) is not None
    if attr in SHAPE or attr in CONTAINERS or (called and attr in MOVES | SAME):
        return ""
    if called and (attr in CASTS or (attr == "type" and _is_cast(script, parent))):
        wide = [
            t
            for t in tensors_in(script.values(node.value))
            if t.dtype not in ("f32", "int", "half")
        ]
        return "casts" if wide and any(m.kinds & OTHERS for m in loader.moved) else ""
    if attr in ("T", "mT", "data"):
        return ""
    return "uses" if called else f"asks for `.{attr}` of"


def _is_cast(script: Script, call: ast.AST | None) -> bool:
    """``x.type(torch.float32)``; the type of a tensor, as in ``x.type(torch.FloatTensor)``, names the host."""
    given = call.args[0] if isinstance(call, ast.Call) and len(call.args) == 1 else None
    found = script.values(given) if given is not None else frozenset()
    return bool(found) and all(
        is_dtype(t) and isinstance(t, Ref) and t.name.rpartition(".")[2].islower() for t in found
    )


def _handed(script: Script, call: ast.Call) -> str:
    """Functions of the project are followed, and few of Python's do nothing with it."""
    callee = script.values(call.func)
    if callee == {Ref("builtins.isinstance")} and len(call.args) == 2:
        kinds = call.args[1]
        named = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
        asked = [t for kind in named for t in script.values(kind)]
        fine = all(isinstance(t, Ref) and _says_nothing(t.name) for t in asked)
        return "" if asked and fine else "asks for the type of"
    known = bool(callee) and all(
        isinstance(t, (Func, Bound, Cls))
        or (isinstance(t, Inst) and t.cls.find("forward") is not None)
        or (isinstance(t, Inst) and t.cls.find("__call__") is not None)
        or (isinstance(t, Ref) and t.name in PASSING)
        for t in callee
    )
    return "" if known else "hands on"


def _says_nothing(name: str) -> bool:
    return name in PLAIN_TYPES or name.startswith(("builtins.", "collections.", "typing."))


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
