"""Sums that can be made on the device, and are the same numbers to the last bit.

A float is exact in float64, and sums, differences and products of float64 are rounded as Python's
own are; quotients by a number are not, since CUDA multiplies by the inverse. Counts are whole
numbers of 64 bits. MPS has no float64.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from autofast.facts.copies import several_gpus
from autofast.flow.program import Flow, definitions_at
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind
from autofast.model.source import nodes_in
from autofast.model.syntax import is_operation
from autofast.model.values import Tensor, is_const, one
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.scalar_tensors import is_scalar, kind_of
from autofast.techniques.syncs.sinks import Sink, is_number
from autofast.write.spelling import has_float64

EXACT = (ast.Add, ast.Sub, ast.Mult)


def is_summed(script: Script, sink: Sink) -> bool:
    """Whether the sum can be made on the device, and is the same number then."""
    kind = kind_of_sum(script, sink)
    begins = begins_as(script, sink) if kind else frozenset()
    return bool(begins) and (kind == "float" or begins == {"int"})


def kind_of_sum(script: Script, sink: Sink) -> str:
    """``float`` or ``int``, as the sum is; empty where it cannot be made on the device."""
    match sink.statement:
        case ast.AugAssign(target=ast.Name(), op=ast.Add() | ast.Sub(), value=added):
            pass
        case ast.Assign(targets=[ast.Name()], value=ast.BinOp() as added):
            pass
        case _:
            return ""
    cores = [t for r in sink.reads for t in r.tensors]
    devices = {t.device for c in cores for t in script.values(c) if isinstance(t, Tensor)}
    if (
        sink.kind != "number"
        or devices != {"dev"}
        or several_gpus(script)
        or not all(is_scalar(script, c) for c in cores)
    ):
        return ""
    kept = {r.node for r in sink.reads} | set(own_uses(sink))
    others = [p for p in parts_of(added, kept) if p not in kept]
    if any(n in kept for p in others for n in ast.walk(p)):
        return ""  # a quotient, a function of the number
    kinds = {_number_of(script, r) for r in sink.reads}
    if kinds == {"int"} and others == [] and all(is_long(script, c) for c in cores):
        return "float" if begins_as(script, sink) == {"float"} and has_float64(script) else "int"
    numbers = all(_is_number(script, p) for p in others)
    return "float" if kinds == {"float"} and numbers and has_float64(script) else ""


def parts_of(
    expr: ast.expr, kept: Collection[ast.AST], operators: tuple[type[ast.operator], ...] = EXACT
) -> Iterator[ast.expr]:
    """What goes into a computation that rounds the same on the device: what is ``kept`` there, and
    what has nothing of it.
    """
    computed = expr not in kept and any_in(ast.walk(expr), kept)
    match expr:
        case ast.BinOp(left=left, right=right) if computed and is_operation(expr, *operators):
            yield from parts_of(left, kept, operators)
            yield from parts_of(right, kept, operators)
        case ast.UnaryOp(op=ast.USub(), operand=inner) if computed:
            yield from parts_of(inner, kept, operators)
        case _:
            yield expr


def _number_of(script: Script, read: Read) -> str:
    """The kind of number that a read gives; empty where it does not hold all of the tensor's
    value.
    """
    kinds = {kind_of(script, tensor) for tensor in read.tensors}
    kind = one(kinds, "")
    if read.how == "item" or read.how == kind:
        return kind
    return "float" if read.how == "float" and kind == "int" else ""


def is_long(script: Script, core: ast.expr) -> bool:
    """Whether a count is of 64 bits, as sums of whole numbers are where no other type is asked
    for.
    """
    return script.analysis(Flow).is_made_by(core, _is_sum)


def _is_sum(value: ast.expr) -> bool:
    match value:
        case ast.Call(func=ast.Attribute(attr="sum"), args=[], keywords=[]):
            return True
        case ast.Call(func=ast.Attribute(value=inner, attr="detach" | "cpu"), args=[], keywords=[]):
            return _is_sum(inner)
    return False


def _is_number(script: Script, part: ast.expr) -> bool:
    """A number of Python's, computed in each turn as before: no text, no read of its own that is
    left, no array.
    """
    return is_number(script, part) and not any(is_const(t, str) for t in script.values(part))


def begins_as(script: Script, sink: Sink) -> frozenset[str]:
    """The types of the numbers, all written down, that the sum begins as; none where it may begin
    as something else.
    """
    own = {target_of(s) for s in (sink, *sink.beside)}
    uses = (use for s in (sink, *sink.beside) for use in own_uses(s))
    made = {d for use in uses for d in definitions_at(script, use) if d.node not in own}
    values = of_kind((d.value for d in made), ast.Constant)
    found = frozenset(type(v.value).__name__ for v in values)
    return found if len(values) == len(made) and found <= {"int", "float"} else frozenset()


def target_of(sink: Sink) -> ast.expr:
    match sink.statement:
        case ast.AugAssign(target=target) | ast.Assign(targets=[target]):
            return target
    raise AssertionError(sink.statement)


def own_uses(sink: Sink) -> list[ast.Name]:
    """Where the statement itself takes the sum up: the target of ``+=``, or its name on the
    right.
    """
    match sink.statement:
        case ast.AugAssign(target=ast.Name() as target):
            return [target]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [n for n in nodes_in(value, ast.Name) if n.id == name]
    return []
