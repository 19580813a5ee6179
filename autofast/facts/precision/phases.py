"""Sine and cosine of what products of matrices give: ``torch.sin(x @ frequencies)``.

A phase of 100 radians has a distance of half a radian to its neighbours in bf16, and of a tenth in
TF32: filters, positions and Fourier features that are computed so are noise. Autocast leaves sines
and cosines in the dtype of their argument; ``x * frequencies``, without a product of matrices,
stays in fp32.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.facts.precision.code import Code
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of, literal_of
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import at, walk
from autofast.model.syntax import is_operation
from autofast.model.values import Num, Ref, Tensor, Thing, begins
from autofast.ops import autocast, op

PERIODIC = wordset("sin cos tan sin_ cos_ tan_ sinc polar")


def phases(code: Code) -> str:
    """Why a network's phases need fp32, in words; empty where there are none."""
    for node, argument in _periodic(code.script, (n for p in code.parts for n in walk(p))):
        if _has_product(code.script, argument) or _is_scaled_layer(code.script, argument):
            return f"{at(node)} takes the sine or cosine of a product, whose 16-bit rounding may be a radian"
    return ""


def phase_of_product(script: Script) -> ast.AST | None:
    """Where the sine or cosine of a product of matrices is taken, which TF32 would round."""
    for node, argument in _periodic(script, script.nodes):
        if _has_product(script, argument) or _is_scaled_layer(script, argument):
            return node
    return None


def _periodic(script: Script, nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Call, ast.expr]]:
    for call in of_kind(nodes, ast.Call):
        name, given = script.operation(call)
        if last_part(name) in PERIODIC and given and script.reached(call):
            angle = given[-1] if last_part(name) == "polar" else given[0]
            if script.may_be(angle, Tensor):
                yield call, angle


def _has_product(script: Script, expr: ast.expr) -> bool:
    return any(_is_product(script, node) for node in script.analysis(Flow).made_of([expr]))


def _is_product(script: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.Call) and not any(map(is_module, script.called(node))):
        return autocast(last_part(script.operation(node)[0])) == "lower"
    return is_operation(node, ast.MatMult) and script.may_be(node, Tensor)


def _is_scaled_layer(script: Script, expr: ast.expr) -> bool:
    """``omega * layer(x)``: a layer's rounding, times a number that makes waves of it."""
    for node in script.analysis(Flow).made_of([expr]):
        match node:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                for factor, rest in ((left, right), (right, left)):
                    is_number = literal_of(factor) is not None or script.must_be(factor, Num)
                    if is_number and _comes_of_layer(script, rest):
                        return True
    return False


def _comes_of_layer(script: Script, expr: ast.expr, depth: int = 6) -> bool:
    """Whether a layer may have made it: not of data times weights, which are fp32."""
    flow, parts = script.analysis(Flow), list[ast.expr]()
    match expr:
        case ast.BinOp(left=left, right=right):
            parts = [left, right]
        case ast.Call() if surely(begins(t, Ref, "einops.") for t in script.called(expr)):
            parts = arguments_of(expr)
        case ast.Call() if op((found := script.operation(expr))[0]) is not None:
            parts = found[1]
        case ast.Name() if not any(d.is_augmented for d in flow.reaching(expr)):
            parts = flow.values(expr)
    if parts and depth:
        return any(_comes_of_layer(script, part, depth - 1) for part in parts)
    return any(map(_is_computed, script.values(expr)))


def _is_computed(thing: Thing) -> bool:
    """Whether it may come out of a layer, in 16 bits."""
    if not isinstance(thing, Tensor) or thing.fresh or thing.param or thing.dtype == "int":
        return False
    return thing.grad or bool(thing.models)
