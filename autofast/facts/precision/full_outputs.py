"""What a model returns in fp32 although it runs under autocast for CUDA: what a softmax or a norm
gives, and what only moves that.
"""

from __future__ import annotations

import ast

from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.program import Flow
from autofast.model.calls import may_give
from autofast.model.contents import without_wrappers
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.syntax import has_star
from autofast.model.values import (
    Arg,
    Const,
    Ext,
    Method,
    Num,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    is_named,
    one,
)

# Computed in fp32 by every version of torch that has autocast, whatever is given to them.
FULL = wordset("""softmax log_softmax softmin layer_norm group_norm exp expm1 log log10 log1p log2 softplus
    pow sum prod norm cumsum cumprod dist reciprocal rsqrt""")
FULL_LAYERS = wordset("Softmax LogSoftmax Softmin LayerNorm GroupNorm Softplus", "torch.nn.")
NORMALIZE = "torch.nn.functional.normalize"  # divides by a norm, which is computed in fp32
KEEPS = wordset("""clip view reshape permute transpose t squeeze unsqueeze flatten unflatten contiguous expand
    clone detach cpu cuda sqrt abs neg clamp clamp_min clamp_max mean amax amin square""")
KINDS = ("dtype", "out", None)  # arguments that may ask for another
DEPTH = 8  # calls of functions and variables that are followed


class FullOutputs:
    """``script.analysis(FullOutputs)``: asks of calls. ``full`` are more of them that give fp32."""

    def __init__(self, script: Script, full: frozenset[ast.AST] = frozenset()):
        self.full = full
        self.script, self.calls, self.flow = (
            script,
            script.analysis(CallGraph),
            script.analysis(Flow),
        )

    def is_full(self, expr: ast.expr, part: int | None = None, depth: int = 0) -> bool:
        """Whether ``expr`` certainly gives fp32 (or None), or its element ``part``, if it runs
        under autocast for CUDA.
        """
        if depth > DEPTH:
            return False
        match expr:
            case ast.Constant(value=None):
                return part is None
            case ast.IfExp(body=body, orelse=other):
                return all(self.is_full(e, part, depth + 1) for e in (body, other))
            case ast.Name():
                return surely(self.is_full(v, part, depth + 1) for v in self.flow.values(expr))
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                return (
                    part is not None
                    and part < len(elts)
                    and not has_star(elts)
                    and self.is_full(elts[part], None, depth + 1)
                )
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return part is None and self.is_full(inner, None, depth + 1)
            case ast.BinOp(left=left, op=op, right=right):
                if part is not None:
                    return False
                sides = [e for e in (left, right) if not self._is_number(e)]
                return isinstance(op, ast.Pow) or all(
                    self.is_full(e, None, depth + 1) for e in sides
                )
            case ast.Call():
                return self._call(expr, part, depth)
        return False

    def _is_number(self, expr: ast.expr) -> bool:
        return self.script.must_be(expr, Const, Num, Arg)

    def _call(self, call: ast.Call, part: int | None, depth: int) -> bool:
        if call in self.full:
            return part is None
        found = [inner for t in self.script.called(call) for inner in without_wrappers(t)]
        return surely(self._thing(t, call, part, depth) for t in found)

    def _thing(self, thing: Thing, call: ast.Call, part: int | None, depth: int) -> bool:
        if code := code_of(thing):
            results = (e for c in code for e in self.calls.results(c.function))
            returned = [e for e in results if self.script.reached(e)]
            return surely(self.is_full(e, part, depth + 1) for e in returned)
        if part is not None:
            return False
        if is_named(thing, Ref, NORMALIZE):
            return not may_give(call, "out") and len(call.args) < 5
        if isinstance(thing, Ref):
            name = last_part(thing.name) if thing.name.startswith("torch.") else ""
            if name in KEEPS and call.args and not any(k.arg in KINDS for k in call.keywords):
                return self.is_full(call.args[0], None, depth + 1)
            return name in FULL and not _names_dtype(call, 2)
        if isinstance(thing, Ext):
            return _is_full_layer(thing)
        is_of_tensor = isinstance(thing, Method) and isinstance(thing.this, Tensor)
        return is_of_tensor and self._method(call, depth)

    def _method(self, call: ast.Call, depth: int) -> bool:
        match call.func:
            case ast.Attribute(attr=name, value=of):
                if name in FULL and not _names_dtype(call, 1) or name == "float":
                    return True
                return name in KEEPS and self.is_full(of, None, depth + 1)
        return False


def _names_dtype(call: ast.Call, most: int) -> bool:
    """``F.softmax(x, 1, dtype=torch.half)``: more than ``most`` arguments, or a dtype by name."""
    return len(call.args) > most or may_give(call, "dtype")


def _is_full_layer(thing: Ext) -> bool:
    if thing.name in FULL_LAYERS:
        return True
    if thing.name != "torch.nn.Sequential" or thing.open or not thing.args.positional:
        return False
    last = _last(thing.args.positional[-1].values)
    return surely(isinstance(t, Ext) and _is_full_layer(t) for t in last)


def _last(given: Values) -> Values:
    """The last layer of a ``Sequential``, given by itself; nothing where it comes in a list or
    dict.
    """
    return frozenset() if isinstance(one(given), (Seq, Const)) else given
