"""What speaks against 16-bit arithmetic in a piece of code: asked once for all code that would run
under autocast. Here are those of a dtype: operations that want all tensors in one, bits that are
read as another type, assertions.
"""

from __future__ import annotations

import ast

from autofast.facts.precision.activations import is_activation
from autofast.facts.precision.algebra import algebra
from autofast.facts.precision.banned import banned_loss, error_of
from autofast.facts.precision.between import structure
from autofast.facts.precision.code import Code
from autofast.facts.precision.distances import Ratios, complements, distances, similarities
from autofast.facts.precision.foreign import custom_function, loaded_in_16, unfollowed_use
from autofast.facts.precision.layers import dense_sizes, is_small
from autofast.facts.precision.left_behind import left_behind
from autofast.facts.precision.phases import phases
from autofast.facts.precision.whole_script import CHOSEN, complex_in
from autofast.flow.positions import happens_in
from autofast.flow.program import Flow
from autofast.model.calls import is_method, items_of, may_give
from autofast.model.contents import each_once
from autofast.model.events import WithFrame
from autofast.model.kinds import is_autocast, is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import at, nodes_in, walk
from autofast.model.syntax import is_attribute
from autofast.model.tensors import is_dtype
from autofast.model.values import (
    Ext,
    Method,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_of,
    begins,
)

# ------------------------------------------------------------------- made with the dtype of another
LIKE = wordset("zeros_like ones_like empty_like full_like")
NEW = wordset("new_zeros new_ones new_empty new_full")
MOVES = wordset("""view reshape permute transpose t squeeze unsqueeze flatten unflatten contiguous expand
    clone detach""")
STEPS = 8  # variables and methods that are followed


def made_alike(script: Script, call: ast.AST) -> bool:
    """Whether ``result.index_add_(dim, index, source)`` adds to what was made with the dtype of its
    source: ``source.new_zeros(...)``.
    """
    if not is_method(call) or len(call.args) < 3:
        return False
    made = _definition(script, call.func.value)
    if not isinstance(made, ast.Call) or may_give(made, "dtype"):
        return False
    if not isinstance(made.func, ast.Attribute):
        return False
    model = made.func.value if made.func.attr in NEW else None
    if made.func.attr in LIKE and made.args:
        model = made.args[0]
    if model is None:
        return False
    mine, theirs = _origin(script, model), _origin(script, call.args[2])
    return mine is not None and mine is theirs


def _definition(script: Script, expr: ast.expr) -> ast.AST | None:
    """What a variable holds, where one statement alone gives it its value; else the expression
    itself.
    """
    if not isinstance(expr, ast.Name):
        return expr
    made = script.analysis(Flow).definition(expr)
    return None if made is None else made.value or made.node


def _origin(script: Script, expr: ast.AST | None) -> ast.AST | None:
    """The parameter or expression that a tensor is, but for what only moves or shapes it."""
    for _ in range(STEPS):
        if isinstance(expr, ast.Name):
            expr = _definition(script, expr)
        elif is_method(expr) and expr.func.attr in MOVES:
            expr = expr.func.value
        else:
            return expr
    return None


def is_16_bit(script: Script, found: Values) -> bool:
    """Whether a tensor may be what a layer has computed, or made with the dtype of such a one; what
    is not known counts as none.
    """
    todo = of_kind(found, Tensor)
    for tensor in each_once(todo):
        if _is_computed(tensor):
            return True
        todo += _models_of(script, tensor)
    return False


def _is_computed(tensor: Tensor) -> bool:
    given = tensor.fresh or tensor.param or tensor.loss or tensor.dtype == "int"
    return not given and (tensor.grad or bool(tensor.models))


def _models_of(script: Script, tensor: Tensor) -> list[Tensor]:
    """The tensors whose dtype a new one has."""
    call = tensor.made
    if tensor.fresh not in LIKE | NEW or not isinstance(call, ast.Call) or may_give(call, "dtype"):
        return []
    exprs = call.args[:1]
    if tensor.fresh in NEW:
        exprs = [call.func.value] if isinstance(call.func, ast.Attribute) else []
    return of_kind([t for e in exprs for t in script.values(e)], Tensor)


def _is_fp32(script: Script, found: Values) -> bool:
    """Whether it may be a tensor of floats that autocast leaves in fp32."""
    floats = (t for t in of_kind(found, Tensor) if t.dtype != "int")
    return any(not is_16_bit(script, frozenset({t})) for t in floats)


# Autocast brings the operands of none of these to one dtype, on no device; the index at which they
# begin, in the method.
WANTING = {
    **dict.fromkeys(("lerp", "lerp_", "inner", "heaviside", "allclose", "isclose", "vdot"), 0),
    **dict.fromkeys(("meshgrid", "cartesian_prod"), 0),
    **dict.fromkeys(("addmm_", "addmv_", "addbmm_", "baddbmm_"), 0),
    **dict.fromkeys(("masked_scatter", "masked_scatter_", "put_"), 1),
    **dict.fromkeys(("scatter", "scatter_reduce", "index_reduce", "index_reduce_"), 2),
}
# Products that are given their result's tensor: these go past autocast.
OUT = wordset("mm bmm mv matmul addmm addmv addbmm baddbmm", "torch.")
BAG = "torch.nn.functional.embedding_bag"


def one_dtype(code: Code) -> str:
    """Why 16-bit values cannot go where this code puts them; empty where nothing speaks against."""
    kinds = (f"{root}.{name}" for root in ("torch", "") for name in WANTING)
    for site, occurrence in code.events(*kinds):
        positional = [g.values for g in occurrence.args.positional]
        method = site.kind.startswith(".")
        own = (
            [frozenset(t for t in [occurrence.this] if t is not None)] if method else positional[:1]
        )
        first = WANTING[last_part(site.kind)] + (not method)
        named = [g.values for g in occurrence.args.named.values()]
        tensors = [v for v in [*own, *positional[first:], *named] if any_of(v, Tensor, Unknown)]
        if len(tensors) > 1 and any(is_activation(v) or is_16_bit(code.script, v) for v in tensors):
            return f"{at(site)} wants tensors of one dtype, of which one may be 16-bit"
    for site, occurrence in code.events(*OUT):
        given = [g.values for g in occurrence.args.positional]
        if occurrence.args.get(-1, "out") and any(map(is_activation, given)):
            return f"{at(site)} has `out`, and autocast casts nothing for it"
    for site, occurrence in code.events(BAG, "forward"):
        if site.kind != BAG and not begins(occurrence.this, Ext, "torch.nn.EmbeddingBag"):
            continue
        weights = occurrence.args.get(8 if site.kind == BAG else 2, "per_sample_weights")
        if any_of(weights, Unknown) or is_16_bit(code.script, weights):
            return f"the weights of {at(site)} would be 16-bit, and those of the embedding fp32"
    for site, occurrence in code.events(".view"):
        if not isinstance(occurrence.this, Tensor):
            continue
        if is_activation(frozenset({occurrence.this})) and any(
            is_dtype(t) for t in occurrence.args.get(0, "dtype")
        ):
            return f"{at(site)} reads the bits of fp32 numbers, which would have 16"
    for part in code.parts[len(code.statements) :]:  # in functions: statements get `.float()`
        for node in walk(part):
            if (word := _demanded(code, node)) is not None:
                return f"{at(word)} demands a dtype, and would get a 16-bit one"
    return ""


def own_dtype(code: Code) -> str:
    """Where a network brings its weights to a dtype that it chooses itself; empty where it does
    not.

    ``F.linear(x, self.weight.to(x.dtype))`` is mixed precision already, perhaps in fp16, perhaps in
    fp32 by choice.
    """
    for part in code.parts[len(code.statements) :]:
        for node in nodes_in(part, ast.Call):
            if _casts_weight(code, node):
                return f"{at(node)} brings weights to a dtype that the script chooses itself"
    return ""


def _casts_weight(code: Code, call: ast.Call) -> bool:
    func = call.func
    if not is_attribute(func, "to", "type", "type_as"):
        return False
    if not any(map(_is_weight, code.script.values(func.value))):
        return False
    named = [k.value for k in call.keywords if k.arg == "dtype"]
    return func.attr == "type_as" or any(map(_of_another, [*call.args, *named]))


def _is_weight(thing: Thing) -> bool:
    """A parameter, also one that a class of the project has from a layer of torch."""
    if isinstance(thing, Method):
        return thing.name in ("weight", "bias") and is_module(thing.this)
    return isinstance(thing, Tensor) and bool(thing.param)


def _of_another(expr: ast.expr) -> bool:
    """``x.dtype``"""
    return is_attribute(expr, "dtype")


def _demanded(code: Code, node: ast.AST) -> ast.AST | None:
    """``h.dtype`` in ``assert h.dtype == torch.float32``, or where a condition leads to
    ``raise``.
    """
    if isinstance(node, ast.If) and not any_of(node.body, ast.Raise):
        return None
    if not isinstance(node, (ast.Assert, ast.If)):
        return None
    for word in nodes_in(node.test, ast.Attribute):
        if word.attr == "dtype":
            if any(
                isinstance(t, Unknown)
                or (isinstance(t, Tensor) and t.dtype != "int" and (t.grad or t.models))
                for t in code.script.values(word.value)
            ):
                return word
    return None


SAME_DTYPE = wordset(""".scatter_ .scatter_add_ .index_add_ .index_copy_ .index_put_ .scatter_reduce_ .scatter_add
    .index_add .index_copy torch.index_add torch.index_copy""")
SOURCES = wordset("src source values")


def why_not_autocast(code: Code) -> str:
    """Why it cannot run under autocast; empty where nothing speaks against."""
    for check in (
        _losses, _dtypes, algebra, distances, similarities, complements, phases, structure, custom_function,
        unfollowed_use, _writes, left_behind, one_dtype, own_dtype, _size,
    ):  # fmt: skip
        if why := check(code):
            return why
    return ""


def _losses(code: Code) -> str:
    for site, occurrence in code.events("loss"):
        if site.node not in code.probabilities.logits and (name := banned_loss(occurrence.this)):
            return error_of(name, site)
    return ""


def _dtypes(code: Code) -> str:
    for model in code.models:
        if model.dtype:
            kind = "float64" if model.dtype == "f64" else "16-bit"
            return f"{model.name} is {kind} by choice"
        if name := loaded_in_16(model.thing):
            return f"{model.name} is loaded with {name}=, which decides about precision"
    for part in [*code.parts, *(c for m in code.models for c in m.classes)]:
        if (word := code.script.of_node(complex_in, part)) is not None:
            return f"{at(word)} computes with complex numbers"
    for site, occurrence in code.events("forward"):
        for tensor in occurrence.data.get("inputs", ()):
            if tensor.dtype in CHOSEN:
                return f"{at(site)} computes with {CHOSEN[tensor.dtype]} data by choice"
    return ""


def probability_ratio(code: Code) -> str:
    """A ratio of probabilities of which one would be in 16 bits and the other not, in words; empty
    where there is none.
    """
    passes = {
        n
        for site, o in code.events("forward", entered=True)
        for n in (site.node, *(f.node for f in o.stack))
    }
    call = Ratios(code.script, code.parts, code.all, passes & code.all).of_an_earlier_pass
    if call is None:
        return ""
    return f"{at(call)} compares with an earlier pass in fp32: in 16 bits, the ratio of both would not start at 1"


def _writes(code: Code) -> str:
    for site, occurrence in code.events(*SAME_DTYPE):
        method, args = site.kind.startswith("."), occurrence.args
        first = 2 if method else 3
        written = [g.values for g in args.positional[first:]]
        written += [g.values for name, g in args.named.items() if name in SOURCES]
        if any(map(is_activation, written)) and not made_alike(code.script, site.node):
            return f"{at(site)} writes 16-bit values into a tensor that is fp32"
        own = [t for t in [occurrence.this] if t is not None]
        into = frozenset(own) if method else args.get(0, "input")
        if is_16_bit(code.script, into) and any(_is_fp32(code.script, v) for v in written):
            return f"{at(site)} writes fp32 values into a tensor that is 16-bit"
    for site, occurrence in code.events("tensor_write"):
        node = site.node
        if (
            isinstance(node, ast.Subscript)
            and is_activation(occurrence.result)
            and _by_mask(code.script, node.slice)
        ):
            return f"{at(site)} writes 16-bit values into a part of a tensor that is fp32"
        if (
            isinstance(node, ast.Subscript)
            and is_16_bit(code.script, code.script.values(node.value))
            and _is_fp32(code.script, occurrence.result)
            and _by_mask(code.script, node.slice)
        ):
            return f"{at(site)} writes fp32 values into a part of a tensor that is 16-bit"
    for site, occurrence in code.events("sync"):
        if (
            occurrence.data.get("how") == "numpy"
            and site.node not in code.here
            and isinstance(occurrence.this, Tensor)
            and is_activation(frozenset({occurrence.this}))
        ):
            return f"{at(site)} gives a 16-bit tensor to NumPy, which has no bf16"
    return ""


def _size(code: Code) -> str:
    """One small matrix: casting it takes longer than it saves."""
    if is_small(code) and sum(len(dense_sizes(code.script, m)) for m in code.models) == 1:
        return "the model is one small linear layer: casting it would take longer than it saves"
    return ""


def has_autocast(code: Code) -> bool:
    """Some of it runs under autocast already, or keeps a part out of it on purpose."""
    for node in (n for p in code.parts for n in walk(p)):
        if isinstance(node, ast.expr) and is_autocast(code.script.values(node)):
            return True
    around = [
        o.stack
        for s in code.script.log.of("forward")
        for o in s
        if happens_in(o, s.node, code.here)
    ]
    return any(
        isinstance(f, WithFrame) and any(is_autocast(v) or _may_be(v) for _, v in f.contexts)
        for stack in around
        for f in stack
    )


def _may_be(contexts: Values) -> bool:
    """A context that is autocast on one branch, or one that is not known at all."""
    return any("autocast" in t.name for t in of_kind(contexts, Unknown))


def _by_mask(script: Script, index: ast.expr) -> bool:
    """``x[mask] = y`` wants one dtype; ``x[i, :3] = y`` converts."""
    parts = items_of(index)
    return any(
        isinstance(t, (Tensor, Unknown, Seq))
        for p in parts
        if not isinstance(p, ast.Slice)
        for t in script.values(p)
    )
