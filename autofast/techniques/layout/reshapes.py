""".view() of values that may be in channels_last becomes .reshape()."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.facts.precision.activations import is_activation
from autofast.facts.precision.code import Code
from autofast.facts.shared_memory import is_reshaping, written_through
from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow, definitions_at
from autofast.flow.scopes import Expressions
from autofast.model.calls import call_of, is_method, literal_of
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import at, function_of, nodes_in, parent_of
from autofast.model.syntax import SEQUENCES, is_attribute, is_read
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Ext,
    Ref,
    Tensor,
    Thing,
    Unknown,
    Values,
    any_named,
    any_of,
    begins,
    const,
    is_named,
    surely_named,
)


def reshapes(script: Script, code: Code, models: Values) -> Iterator[Edit] | str:
    """``.view()`` of values that may be in the other layout becomes ``.reshape()``, which is the
    same where both work.
    """
    if why := _unbound(script):
        return why
    found: list[Edit] = []
    for node, base in _reshapings(script, code, models):
        if place := written_through(script, node, base):
            return f"{place} may write through a view, which would be a copy in this layout (or the reverse)"
        if is_method(node, "view", "view_as"):
            found.append(
                Rewrite(
                    node.func,
                    "{value}." + {"view": "reshape", "view_as": "reshape_as"}[node.func.attr],
                    {"value": node.func.value},
                    alike=True,
                )
            )
    return iter(found)


def _reshapings(script: Script, code: Code, models: Values) -> Iterator[tuple[ast.Call, ast.expr]]:
    """The calls that give values which may be in the other layout another shape, and these
    values.
    """
    differentiated = _differentiated(script, models)
    for node in script.nodes:
        base = is_reshaping(script, node)
        if base is None or not isinstance(node, ast.Call):
            continue
        found = script.values(base)
        mine = any(
            (t.models & models or t.param) and t.dtype != "int" for t in of_kind(found, Tensor)
        )
        mine = mine or _may_be_gradient(found, differentiated)
        if (mine or (node in code.all and is_activation(found))) and not _is_fine(
            script, node, base
        ):
            yield node, base


def _differentiated(script: Script, models: Values) -> frozenset[Thing] | None:
    """The models behind the tensors by which what ``models`` give is differentiated; None where
    nothing is.
    """
    found: list[Tensor] = []
    for site in script.calls("torch.autograd.grad"):
        for occurrence in site:
            outputs = tensors_in(occurrence.args.get(0, "outputs"))
            if any(t.models & models for t in outputs) or not outputs:
                found += tensors_in(occurrence.args.get(1, "inputs")) or [Tensor()]
    return frozenset().union(*(t.models for t in found)) if found else None


def _may_be_gradient(found: Values, differentiated: frozenset[Thing] | None) -> bool:
    """Whether a value may come from such a gradient: a convolution gives that of its input in the
    layout of its weights.
    """
    return differentiated is not None and any(
        t.grad and t.models <= differentiated for t in of_kind(found, Tensor)
    )


def _unbound(script: Script) -> str:
    """A ``view`` that is not simply called on a tensor: ``torch.Tensor.view(x, -1)``, ``v =
    x.view``, ``getattr(x, "view")``.
    """
    for node in script.nodes:
        if is_attribute(node, "view", "view_as") and is_read(node):
            found, called = script.values(node.value), call_of(node) is not None
            if any(begins(t, Ref, "torch.") for t in found) or (
                not called and any_of(found, Tensor, Unknown)
            ):
                return f"{at(node)} uses `{node.attr}` as a function, which raises in this layout"
        elif isinstance(node, ast.Call) and any(
            literal_of(a) in ("view", "view_as") for a in node.args
        ):
            names = script.library_functions(node)
            if names & {"builtins.getattr", "operator.methodcaller", "operator.attrgetter"}:
                return f"{at(node)} uses `view` as a function, which raises in this layout"
    return ""


def _is_fine(script: Script, node: ast.Call, base: ast.expr) -> bool:
    """A view of something that is contiguous, or of a 1x1 image, or one of the dtype, or one that
    leaves the first two dimensions alone.
    """
    if any(isinstance(t, Ref) for a in node.args for t in script.values(a)):
        return True
    if _keeps_channels(script, node, base) or _has_one_number_each(script, node, base):
        return True
    return _lies_in_order(script, base)


def _lies_in_order(script: Script, base: ast.expr, around: tuple[ast.expr, ...] = ()) -> bool:
    """Whether an expression is contiguous in both layouts, or a part of what is."""
    if base in around:
        return False
    values = _given_to(script, base) if isinstance(base, ast.Name) else [base]
    return surely(_comes_flat(script, v, (*around, base)) for v in values)


def _given_to(script: Script, name: ast.Name) -> Expressions:
    """What a variable is given; a parameter, by all calls."""
    calls, made = script.analysis(CallGraph), definitions_at(script, name)
    for function in {function_of(d.node) for d in made if d.is_parameter}:
        if isinstance(function, ast.Module) or calls.complete(function):
            return []
    return [value for d in made for value in calls.gives(d)]


def _comes_flat(script: Script, value: ast.expr | None, around: tuple[ast.expr, ...]) -> bool:
    match value:
        case ast.Subscript(value=of, slice=ast.Slice(step=None)) if _is_in_a_row(of):
            return True
        case ast.Subscript(value=of, slice=mask):
            return _is_picked(script, of, mask) or _lies_in_order(script, of, around)
        case ast.BinOp(op=ast.MatMult()):
            return True
        case ast.Name():
            return _lies_in_order(script, value, around)
        case ast.Call():
            return _is_contiguous(script, value, around) or _is_averaged(value)
    return False


def _is_in_a_row(expr: ast.expr) -> bool:
    """``x.flatten()``, ``x.reshape(-1)``: one dimension, every part of which is contiguous."""
    if is_method(expr, "flatten", "ravel"):
        return not expr.args and not expr.keywords
    return is_method(expr, "view", "reshape") and [ast.unparse(a) for a in expr.args] == ["-1"]


def _is_picked(script: Script, base: ast.expr, mask: ast.expr, depth: int = 0) -> bool:
    """``x[mask]`` by a mask of the shape of ``x``: single numbers, one after the other."""
    if depth > DEEP:
        return False
    match mask:
        case ast.Name():
            made = script.analysis(Flow).values(mask)
            return surely(_is_picked(script, base, m, depth + 1) for m in made)
        case ast.Call(func=ast.Attribute(attr="expand_as"), args=[of], keywords=[]):
            return _is_the_same(script, of, base)
        case (
            ast.Call(func=ast.Attribute(value=of, attr="gt" | "ge" | "lt" | "le" | "eq" | "ne"))
            | ast.UnaryOp(op=ast.Invert(), operand=of)
        ):
            return _is_picked(script, base, of, depth + 1)
        case ast.BinOp(left=left, right=right):
            return all(_is_picked(script, base, side, depth + 1) for side in (left, right))
    return False


def _keeps_channels(script: Script, node: ast.Call, base: ast.expr) -> bool:
    """``x.view(x.size(0), x.size(1), -1)``: rows and columns lie together in both layouts."""
    return len(node.args) > 1 and all(
        _is_size_of(script, arg, base, n) for n, arg in enumerate(node.args[:2])
    )


def _has_one_number_each(script: Script, node: ast.Call, base: ast.expr) -> bool:
    """``net(x).view(x.size(0))``: a single number for each sample, as nothing else has that size,
    in whichever order it lies.
    """
    if len(node.args) != 1:
        return False
    given = [base, *(a for call in nodes_in(base, ast.Call) for a in call.args)]
    return any(_is_size_of(script, node.args[0], of, 0) for of in given)


def _is_size_of(script: Script, arg: ast.expr, base: ast.expr, n: int) -> bool:
    """Whether ``arg`` is the size of dimension ``n`` of the tensor that ``base`` is."""
    match arg:
        case ast.Name():
            made = definitions_at(script, arg)
            return surely(_is_part_of_size(script, d, base, n) for d in made)
        case (
            ast.Call(func=ast.Attribute(value=of, attr="size"), args=[number])
            | ast.Subscript(value=ast.Attribute(value=of, attr="shape"), slice=number)
        ):
            return script.constant(number) == n and _is_the_same(script, of, base)
    return False


def _is_part_of_size(script: Script, made: Definition, base: ast.expr, n: int) -> bool:
    """``a, b, h, w = x.size()``, or ``a = x.size(0)``."""
    if made.value is not None:
        return not isinstance(made.value, ast.Name) and _is_size_of(script, made.value, base, n)
    target, value = parent_of(made.node), None
    if isinstance(target, ast.Tuple) and isinstance(parent := parent_of(target), ast.Assign):
        value = parent.value if target.elts[n : n + 1] == [made.node] else None
    match value:
        case (
            ast.Call(func=ast.Attribute(value=of, attr="size"), args=[])
            | ast.Attribute(value=of, attr="shape")
        ):
            return _is_the_same(script, of, base)
    return False


def _is_the_same(script: Script, one: ast.expr, other: ast.expr) -> bool:
    """Whether two variables hold the same tensor: they have it from the same definitions."""
    flow = script.analysis(Flow)
    return flow.definition(one) is not None and flow.is_same(one, other)


EACH = frozenset(  # number by number: what they give lies in memory as what they are given
    f"torch.{of}{name}" for of in ("", "nn.functional.") for name in ("sigmoid", "relu", "tanh")
)
LAYERS = wordset("Sigmoid Tanh ReLU LeakyReLU GELU SiLU ELU Dropout", "torch.nn.")
DEEP = 6  # steps from a mask back to what it was made of
PRODUCTS = wordset("torch.matmul torch.mm torch.bmm torch.addmm")


def _is_contiguous(script: Script, call: ast.Call, around: tuple[ast.expr, ...]) -> bool:
    if not call.keywords and any_named(script.called(call), Ref, PRODUCTS):
        return True
    if is_method(call, "contiguous", "flatten", "reshape", "mm", "bmm"):
        return True
    if is_method(call, "view"):
        return _lies_in_order(script, call.func.value, around)
    found = script.called(call)
    if call.args and surely_named(found, Ref, EACH):
        return _lies_in_order(script, call.args[0], around)
    if surely(_is_pooled(t, call, script) or _gives_in_order(t) for t in found):
        return True
    return _comes_in_order(script, call, around)


def _comes_in_order(script: Script, call: ast.Call, around: tuple[ast.expr, ...]) -> bool:
    """Whether all functions that are called return what is contiguous: networks that end in a
    Linear.
    """
    calls = script.analysis(CallGraph)
    callees = [] if calls.may_run_others(call) else calls.callees(call)
    returned = [
        n.value
        for callee in callees
        for n in nodes_in(callee.function, ast.Return)
        if function_of(n) is callee.function
    ]
    return surely(r is not None and _lies_in_order(script, r, around) for r in returned)


def _is_averaged(call: ast.Call) -> bool:
    """``x.mean(3).mean(2)``, ``x.mean([2, 3])`` of an image: of what is left, channels lie
    together.
    """
    gone: list[str] = []
    expr: ast.expr = call
    while is_method(expr):
        if expr.func.attr not in ("mean", "sum") or len(expr.args) != 1 or expr.keywords:
            return False
        axes = expr.args[0]
        parts = axes.elts if isinstance(axes, SEQUENCES) else [axes]
        gone += map(ast.unparse, parts)
        expr = expr.func.value
    return sorted(gone) == ["2", "3"]


def _gives_in_order(callee: Thing) -> bool:
    """A convolution into one channel, whose rows and columns lie in the same order in both layouts,
    what gives no image, or layers that end in such.
    """
    match callee:
        case Ext(name="torch.nn.Linear" | "torch.nn.Embedding" | "torch.nn.BatchNorm1d"):
            return True
        case Ext(name="torch.nn.Conv2d" | "torch.nn.ConvTranspose2d", args=args):
            return const(args.get(1, "out_channels")) in (1,)
        case Ext(name="torch.nn.Sequential", args=args) if args.known:
            layers = [g.values for g in args.positional]
            while layers and all(is_named(t, Ext, LAYERS) for t in layers[-1]):
                layers.pop()
            return bool(layers) and bool(layers[-1]) and all(map(_gives_in_order, layers[-1]))
    return False


def _is_pooled(callee: Thing, call: ast.Call, script: Script) -> bool:
    if is_named(callee, Ext, "torch.nn.AdaptiveAvgPool2d"):
        return const(callee.args.get(0, "output_size")) in (1, (1, 1))
    if is_named(callee, Ref, "torch.nn.functional.adaptive_avg_pool2d") and len(call.args) > 1:
        return script.constant(call.args[1]) in (1, (1, 1))
    return False
