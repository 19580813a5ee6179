"""``x - torch.FloatTensor([0.5]).cuda()``: one number, for which no tensor is needed."""

from __future__ import annotations

import ast

from autofast.edit.edits import Rewrite
from autofast.facts.dimensions import least_dimensions
from autofast.facts.invariants import Invariants
from autofast.model.names import AUTOCAST
from autofast.model.script import Script
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.source import parent_of
from autofast.model.values import Arg, Const, Num, Tensor, Thing
from autofast.ops.families import COMPARED
from autofast.techniques.transfers.buffers import casts_modules

LISTED = wordset("torch.tensor torch.Tensor torch.FloatTensor")
COMBINING = wordset("torch.add torch.sub torch.mul .add .sub .mul")
HALVES = wordset("half float16 bfloat16")
LARGEST, WHOLE = 3e38, 2**53  # what 32 bits hold, and a whole number that no step rounds


def as_number(script: Script, copy: ast.Call) -> Rewrite | None:
    """``x - 0.5`` for ``x - torch.FloatTensor([0.5]).cuda()``: beside 32-bit floats, of as many
    dimensions at the least, a number gives the same to the last bit, and nothing is copied.

    Not where both sides decide on the type of the result, and no division, for which CUDA
    multiplies by the reciprocal of a number. What the maximum of two equal numbers gives each of
    them of the gradient is another thing than what a clamp does.
    """
    found, other = one_number(script, copy), _beside(script, copy)
    if found is None or other is None:
        return None
    number, lists = found
    if (
        one_number(script, other) is not None  # numbers of Python have 64 bits
        or not surely(map(_is_finite, script.values(number)))
        or not surely(map(_is_single, script.values(other)))
        or least_dimensions(script, other) < lists
        or _makes_other_floats(script)
    ):
        return None
    return Rewrite(copy, "{number}", {"number": number})


def one_number(script: Script, copy: ast.expr) -> tuple[ast.expr, int] | None:
    """``0.5`` of ``torch.tensor([[0.5]]).to(device)``, in two lists; None of anything else."""
    match copy:
        case ast.Call(
            func=ast.Attribute(value=ast.Call(args=[data], keywords=[]) as made, attr="to" | "cuda")
        ) if script.is_call(made, *LISTED):
            number, lists = _inside(data)
            known = lists or script.is_call(made, "torch.tensor")  # else so many numbers, whichever
            return (number, lists) if known else None
    return None


def _inside(data: ast.expr) -> tuple[ast.expr, int]:
    match data:
        case ast.List(elts=[inner]):
            number, lists = _inside(inner)
            return number, lists + 1
    return data, 0


def _beside(script: Script, copy: ast.Call) -> ast.expr | None:
    """What a tensor is added to, or compared with."""
    match parent_of(copy):
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            return left if right is copy else right
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARED:
            return left if right is copy else right
        case ast.Call(args=[*_, last], keywords=[]) as call if last is copy:
            name, given = script.operation(call)
            return given[0] if name in COMBINING and len(given) == 2 else None
    return None


def _is_finite(thing: Thing) -> bool:
    """A number of Python, that is no truth value, and small enough for 32 bits."""
    if isinstance(thing, Const):
        most = LARGEST if isinstance(thing.value, float) else WHOLE
        return is_numeric(thing.value) and abs(thing.value) < most
    return (isinstance(thing, Num) and thing.scalar) or (
        isinstance(thing, Arg) and thing.is_never_none
    )


def _is_single(thing: Thing) -> bool:
    return isinstance(thing, Tensor) and thing.rank != "?" and thing.dtype == "f32"


def _makes_other_floats(script: Script) -> bool:
    """Whether what is taken for 32-bit floats may have 16 or 64 bits."""
    return bool(
        script.analysis(Invariants).unsure
        or script.frameworks
        or script.calls(*AUTOCAST)
        or any(n.attr in HALVES for n in script.each(ast.Attribute))
        or casts_modules(script)
    )
