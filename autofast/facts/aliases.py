"""Whether a copy may stand in for a tensor: only where nobody writes to it afterwards, under this name or another one.

Things that are read have no addresses, so this asks the other way round: is there any write in the whole script that is not certainly to
another tensor, and not certainly over before the copy is made?
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autofast.facts.loaders import given
from autofast.model.events import CallFrame, LoopFrame, Occurrence
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, source_of, statement_of
from autofast.model.values import Const, Dict, Ext, Func, Inst, Method, Num, Ref, Seq, Tensor, Thing, Unknown, Values, const
from autofast.ops import is_in_place, is_view

FACTORIES = frozenset(
    {f"torch.{n}" for n in ("randn", "rand", "randint", "zeros", "ones", "full", "arange", "linspace", "eye", "randperm")}
)
NEW = FACTORIES | {"torch.tensor", "torch.stack", "torch.cat"}  # functions that give memory of its own
NEW_METHODS = frozenset({"clone", "mean", "sum", "cos", "sin", "exp", "sqrt", "abs", "neg", "round"})
SHARING = frozenset({"from_numpy", "as_tensor", "asarray", "frombuffer", "from_dlpack", "numpy", "to_numpy", "__array__"})
NUMPY_WRITES = frozenset({"sort", "fill", "put", "partition", "resize", "itemset", "setfield", "byteswap"})
NUMPY_FUNCTIONS = frozenset({"numpy.copyto", "numpy.put", "numpy.place", "numpy.putmask", "numpy.random.shuffle", "random.shuffle"})
LOOPS = (ast.For, ast.While, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def is_new(script: Script, expr: ast.expr) -> bool:
    """Memory that nothing else holds: just made by a factory, by arithmetic, or a view of such."""
    match expr:
        case ast.Call(keywords=keywords) if any(k.arg in (None, "out") for k in keywords):
            return False
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if all(isinstance(t, Method) for t in script.values(expr.func)):
            return bool(script.values(inner)) and (attr in NEW_METHODS or (is_view(attr) and is_new(script, inner)))
        case ast.Call(func=func):
            callee = script.values(func)
            return bool(callee) and all(isinstance(t, Ref) and t.name in NEW for t in callee)
        case ast.BinOp(left=left, right=right):
            return all(isinstance(t, (Tensor, Num, Const)) for side in (left, right) for t in script.values(side))
        case ast.Attribute(value=inner, attr=attr):
            return is_view(attr) and is_new(script, inner)
        case ast.Subscript(value=inner):
            return is_new(script, inner)
    return False


def learned(script: Script, expr: ast.expr) -> str:
    """Why what ``expr`` holds may be a leaf that an optimizer updates; empty where it cannot be."""
    if any(isinstance(t, Tensor) and (t.param or t.grad) for t in script.values(expr)):
        return "is a parameter, or needs a gradient"
    for source in script.sources:
        for node in ast.walk(source.tree):
            match node:
                case ast.Call(func=func, keywords=keywords) if any(k.arg == "requires_grad" and not _is_false(k.value) for k in keywords):
                    if not all(isinstance(t, Ref) and t.name.endswith(".Parameter") for t in script.values(func)):
                        return f"may need a gradient (line {node.lineno})"
                case ast.Attribute(value=target, attr="requires_grad_") if may_be(script, script.values(target), expr):
                    return f"may need a gradient (line {node.lineno})"
                case ast.Attribute(value=target, attr="requires_grad", ctx=ast.Store()) if may_be(script, script.values(target), expr):
                    return f"may need a gradient (line {node.lineno})"
                case ast.Call(func=func, args=[data, *_]) if any(_is_parameter(t) for t in script.values(func)):
                    if not is_new(script, data) and may_be(script, script.values(data), expr):
                        return f"may be a parameter (line {node.lineno})"
                case ast.Attribute(value=target, attr=attr) if is_view(attr) and attr not in ("to", "detach") and _is_data(script, target):
                    return f"may be a view of a parameter (line {node.lineno})"
                case ast.Subscript(value=target, ctx=ast.Load()) if _is_data(script, target):
                    return f"may be a view of a parameter (line {node.lineno})"
    return ""


def written_after(script: Script, expr: ast.expr, made: Sequence[Occurrence]) -> str:
    """A place that may write to what ``expr`` holds after it was copied (in ``made``), in words; empty where there is none."""
    found = script.values(expr)
    if not found or not all(isinstance(t, Tensor) for t in found):
        return "it is not known what is copied"
    shared = any(
        isinstance(n, (ast.Attribute, ast.Name)) and (n.attr if isinstance(n, ast.Attribute) else n.id) in SHARING
        for source in script.sources
        for n in ast.walk(source.tree)
    )
    for node, target in _writes(script, shared):
        if may_be(script, target, expr, arrays=shared) and not _is_before(script, node, expr, made):
            return f"line {getattr(node, 'lineno', 0)} of {source_of(node).rel} may write to it"
    return ""


def _is_data(script: Script, expr: ast.expr) -> bool:
    """``p.data`` or ``p.detach()``: views of it look like any tensor, and optimizers write to it."""
    return any(isinstance(t, Tensor) and t.param == "param" and not t.grad for t in script.values(expr))


# ------------------------------------------------------------------------------------------------ writes
def _writes(script: Script, shared: bool) -> Iterator[tuple[ast.AST, Values]]:
    """Every write to a tensor (or to an array that may share its memory), with what is written to."""
    seen: set[int] = set()
    for source in script.sources:
        for node in ast.walk(source.tree):
            seen.add(id(node))
            yield from ((node, target) for target in _written(script, node, shared))
    for (kind, _), site in script.log.each():
        if is_in_place(kind.removeprefix(".")) and kind.startswith(".") and isinstance(site.node, ast.Call):
            if not (isinstance(site.node.func, ast.Attribute) and is_in_place(site.node.func.attr)):  # getattr(x, "mul_")(2)
                yield site.node, frozenset(o.this for o in site if o.this is not None)


def _written(script: Script, node: ast.AST, shared: bool) -> Iterator[Values]:
    match node:
        case ast.AugAssign(target=ast.Name() | ast.Attribute()):
            site = script.log.at("augment", node)
            old: Values = frozenset().union(*(o.data["old"] for o in site)) if site is not None else script.values(node.target)
            if not any(isinstance(t, Const) for t in old) or any(isinstance(t, Tensor) for t in old):
                yield old
        case ast.Subscript(ctx=ast.Store(), value=value):
            yield script.values(value)
        case ast.Attribute(ctx=ast.Store(), attr="data", value=value):
            yield script.values(value)
        case ast.Attribute(ctx=ast.Load(), attr=attr, value=value) if is_in_place(attr) or (shared and attr in NUMPY_WRITES):
            found = script.values(value)
            parent = getattr(node, "_af_parent", None)
            if any(isinstance(t, Ref) for t in found):  # nn.init.zeros_(x), torch.Tensor.mul_(x, 2)
                if isinstance(parent, ast.Call) and parent.func is node:
                    yield from (script.values(a) for a in parent.args)
                return
            if not found and any(isinstance(a, ast.Lambda) for a in ancestors(node)):
                yield frozenset({Unknown("a lambda")})
            yield found
        case ast.Call(func=func, args=args, keywords=keywords):
            yield from (script.values(k.value) for k in keywords if k.arg == "out")
            callee = script.values(func)
            names = {t.name for t in callee if isinstance(t, Ref)}
            in_place = any(k.arg == "inplace" and not _is_false(k.value) for k in keywords)
            in_place |= any(isinstance(t, Ext) and "inplace" in t.args.named and const(t.arg("inplace")) is not False for t in callee)
            if in_place or names & NUMPY_FUNCTIONS or any(n.startswith("torch.distributed.") or n.endswith(".at") for n in names):
                yield from (script.values(a) for a in args)


def _is_false(expr: ast.expr) -> bool:
    return isinstance(expr, ast.Constant) and expr.value is False


def _is_parameter(thing: Thing) -> bool:
    return isinstance(thing, Ref) and thing.name.rsplit(".", 1)[-1] in ("Parameter", "Buffer")


# ------------------------------------------------------------------------------------------------ which tensor
def may_be(script: Script, target: Values, expr: ast.expr, arrays: bool = False) -> bool:
    """Whether ``target`` may share memory with what ``expr`` holds."""
    made = {id(t.made) if isinstance(t, Tensor) and t.made is not None else 0 for t in script.values(expr)}
    return any(_may_share(script, t, made, arrays) for t in target)


def _may_share(script: Script, thing: Thing, made: set[int], arrays: bool) -> bool:
    if isinstance(thing, Tensor):
        if thing.param or thing.grad or thing.loss or thing.models:
            return False
        if thing.batch and all(_copies(script, t) for t in thing.batch):
            return False
        return 0 in made or thing.made is None or id(thing.made) in made
    if isinstance(thing, (Num, Method)):
        return arrays and not (isinstance(thing, Num) and (thing.synced is not None or thing.pattern))
    return not isinstance(thing, (Const, Seq, Dict, Func, Inst, Ext, Ref))


def _copies(script: Script, thing: Thing) -> bool:
    """A loader whose batches are collated: copies of the items."""
    mine = [x for x in script.loaders if any(t is thing for t in x.things)]
    return bool(mine) and all(_collates(x) for x in mine)


def _collates(loader: object) -> bool:
    size, collate = given(loader, "batch_size"), given(loader, "collate_fn")  # type: ignore[arg-type]
    return (size is None or const(size.values) is not None) and (collate is None or const(collate.values) is None)


# ------------------------------------------------------------------------------------------------ when
def _is_before(script: Script, node: ast.AST, expr: ast.expr, made: Sequence[Occurrence]) -> bool:
    """Whether the write is certainly over when the copy is made."""
    if not made or script.log.full or any(isinstance(f, LoopFrame) for o in made for f in o.stack):
        return False
    there = function_of(node)
    if there is function_of(expr):
        return len(made) == 1 and _stands_before(node, expr)
    if any(function_of(f.node) is there for o in made for f in o.stack if isinstance(f, CallFrame)):
        calls = [[f.node for f in o.stack if isinstance(f, CallFrame) and function_of(f.node) is there] for o in made]
        return all(len(found) == 1 and _stands_before(node, found[0]) for found in calls)
    found = [o for o in script.everything if any(isinstance(f, CallFrame) and f.func.node is there for f in o.stack)]
    return bool(found) and max(o.order for o in found) < min(o.order for o in made)


def _stands_before(node: ast.AST, other: ast.AST) -> bool:
    """In the text of one function, with no loop around both."""
    around = {id(a) for a in ancestors(other) if isinstance(a, LOOPS)}
    first, second = statement_of(node), statement_of(other)
    end = first.end_lineno or first.lineno, first.end_col_offset or 0
    return end <= (second.lineno, second.col_offset) and not any(id(a) in around for a in ancestors(node))
