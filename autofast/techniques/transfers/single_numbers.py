"""One number, for which no tensor is needed: ``x - torch.FloatTensor([0.5]).cuda()``,
``torch.where(mask, x, torch.zeros_like(x))``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Edits, Remove, Rewrite
from autofast.facts.dimensions import least_dimensions
from autofast.facts.invariants import Invariants
from autofast.flow.program import Flow
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import is_local, mentions
from autofast.model.calls import short_name
from autofast.model.events import Site
from autofast.model.names import AUTOCAST
from autofast.model.script import Script
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.source import function_of, parent_of, source_of, statement_of
from autofast.model.syntax import is_number, is_read
from autofast.model.values import Arg, Const, Num, Tensor, Thing
from autofast.ops.families import COMPARED
from autofast.techniques.transfers.buffers import casts_modules
from autofast.techniques.transfers.factories import runs_often

LISTED = wordset("torch.tensor torch.Tensor torch.FloatTensor")
COMBINING = wordset("torch.add torch.sub torch.mul .add .sub .mul")
HALVES = wordset("half float16 bfloat16")
WHERE = (1, 13)  # takes numbers of any type
LARGEST_HALF = 6e4
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


def since(script: Script, copy: ast.Call) -> tuple[int, int] | None:
    """The oldest torch that takes a number there, where not all do."""
    return WHERE if script.is_call(parent_of(copy), "torch.where") else None


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
            if name == "torch.where" and len(given) == 3:
                return given[1]
            return given[0] if name in COMBINING and len(given) == 2 else None
        case ast.Call(args=[_, one, other], keywords=[]) as call if one is copy:
            return other if script.is_call(call, "torch.where") else None
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


# --------------------------------------------------------------------------- filled with one number
def filled_branches(script: Script, hot: frozenset[ast.AST]) -> Iterator[tuple[Site, Edits]]:
    """``torch.where(adj > 0, e, -9e15)`` for ``none = -9e15 * torch.ones_like(e)`` and
    ``torch.where(adj > 0, e, none)``, where nothing else reads it.
    """
    for site in script.calls(*(f"torch.{name}_like" for name in ("ones", "zeros", "full"))):
        made = _filled(site.node)
        if made is None or not runs_often(site, hot) or script.calls("torch.jit.script"):
            continue
        whole, like, number = made
        stmt, gone = statement_of(whole), tuple[Edit, ...]()
        uses: list[ast.expr] = [whole]
        match stmt:
            case ast.Assign(targets=[ast.Name() as name], value=value) if value is whole:
                names = mentions(function_of(stmt), name.id)
                uses, gone = [n for n in names if n is not name], (Remove(stmt),)
                if not is_local(name) or namespace_calls(function_of(stmt)):
                    continue
        fits = _are_floats(script, like, float(number))
        if fits and surely(is_read(use) or use is whole for use in uses):
            if all(_is_branch(script, use, like) for use in uses):
                yield site, (*(Rewrite(use, number) for use in uses), *gone)


def _filled(call: ast.AST) -> tuple[ast.expr, ast.Name, str] | None:
    """``-9e15 * torch.ones_like(e)``, with ``e`` and the number."""
    match call, parent_of(call):
        case (
            ast.Call(args=[ast.Name() as like], keywords=[], func=ast.Attribute(attr="ones_like")),
            ast.BinOp(left=left, op=ast.Mult(), right=right) as whole,
        ) if is_number(number := left if right is call else right):
            return whole, like, source_of(number).segment(number)
        case ast.Call(args=[ast.Name() as like], keywords=[]) as made, _:
            return made, like, "0.0" if short_name(made.func) == "zeros_like" else "1.0"
        case ast.Call(args=[ast.Name() as like, number], keywords=[]) as made, _ if is_number(
            number
        ):
            return made, like, source_of(number).segment(number)
    return None


def _are_floats(script: Script, like: ast.Name, number: float) -> bool:
    """Whether its type is that of floats, which hold the number."""
    real = surely(
        isinstance(t, Tensor) and t.rank != "?" and (t.grad or t.dtype in ("f32", "f64"))
        for t in script.values(like)
    )
    return real and (abs(number) < LARGEST_HALF or not _makes_other_floats(script))


def _is_branch(script: Script, use: ast.expr, like: ast.Name) -> bool:
    """Whether it is what ``torch.where`` takes beside ``like``."""
    match parent_of(use):
        case ast.Call(args=[_, one, other], keywords=[]) as call if use in (one, other):
            beside = other if use is one else one
            return script.is_call(call, "torch.where") and script.analysis(Flow).is_same(
                beside, like
            )
    return False
