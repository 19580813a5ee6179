"""Operations that want all tensors in one dtype, bits that are read as another type, and assertions
about a dtype: an error, or wrong, in 16 bits.
"""

from __future__ import annotations

import ast

from autofast.facts.precision.activations import is_activation
from autofast.facts.precision.code import Code
from autofast.model.kinds import is_module
from autofast.model.source import at, nodes_in, walk
from autofast.model.syntax import is_attribute
from autofast.model.tensors import is_dtype
from autofast.model.values import Method, Tensor, Thing, Unknown, Values

# Autocast brings the operands of none of these to one dtype, on no device; the index at which they
# begin, in the method.
WANTING = {
    **dict.fromkeys(("lerp", "lerp_", "inner", "heaviside", "allclose", "isclose"), 0),
    **dict.fromkeys(("addmm_", "addmv_", "addbmm_", "baddbmm_"), 0),
    **dict.fromkeys(("masked_scatter", "masked_scatter_", "put_"), 1),
    **dict.fromkeys(("scatter", "scatter_reduce", "index_reduce", "index_reduce_"), 2),
}


def one_dtype(code: Code) -> str:
    """Why 16-bit values cannot go where this code puts them; empty where nothing speaks against."""
    kinds = (f"{root}.{name}" for root in ("torch", "") for name in WANTING)
    for site, occurrence in code.events(*kinds):
        if occurrence.args is None:
            continue
        positional = [g.values for g in occurrence.args.positional]
        method = site.kind.startswith(".")
        own = (
            [frozenset(t for t in [occurrence.this] if t is not None)] if method else positional[:1]
        )
        first = WANTING[site.kind.rsplit(".", 1)[-1]] + (not method)
        named = [g.values for g in occurrence.args.named.values()]
        tensors = [v for v in [*own, *positional[first:], *named] if _has_tensor(v)]
        if len(tensors) > 1 and any(is_activation(v) for v in tensors):
            return f"{at(site.node)} wants tensors of one dtype, of which one may be 16-bit"
    for site, occurrence in code.events(".view"):
        if occurrence.args is None or not isinstance(occurrence.this, Tensor):
            continue
        if is_activation(frozenset({occurrence.this})) and any(
            is_dtype(t) for t in occurrence.args.get(0, "dtype")
        ):
            return f"{at(site.node)} reads the bits of fp32 numbers, which would have 16"
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


def _has_tensor(values: Values) -> bool:
    return any(isinstance(t, (Tensor, Unknown)) for t in values)


def _demanded(code: Code, node: ast.AST) -> ast.AST | None:
    """``h.dtype`` in ``assert h.dtype == torch.float32``, or where a condition leads to
    ``raise``.
    """
    if isinstance(node, ast.If) and not any(isinstance(s, ast.Raise) for s in node.body):
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
