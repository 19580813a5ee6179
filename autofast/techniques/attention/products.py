"""The two products of attention: ``q @ k.transpose(-2, -1)`` and ``weights @ v``, in the ways that they are written."""

from __future__ import annotations

import ast
import re

from autofast.flow.callgraph import CallGraph
from autofast.flow.defuse import Definition
from autofast.flow.program import Flow
from autofast.model.script import Script
from autofast.model.source import function_of
from autofast.model.values import Inst, Ref, Tensor, const

FUNCTIONS = frozenset({"torch.matmul", "torch.bmm"})
METHODS = frozenset({"matmul", "bmm"})
EINSUM = frozenset({"torch.einsum", "einops.einsum", "torch.functional.einsum"})
SWAPS = frozenset({"transpose", "swapaxes", "swapdims"})
SAME_RANK = frozenset("transpose contiguous to float type swapaxes swapdims masked_fill".split())
SIZED = frozenset({"view", "reshape", "permute"})
SHAPED = frozenset(f"torch.{name}" for name in "ones zeros full rand randn empty randint".split())
TRIANGLES = frozenset({"torch.tril", "torch.triu"})
KEPT = frozenset(
    "to bool float type logical_not tril triu clone detach cuda expand masked_fill eq ne".split()
)
VECTORS = frozenset({"torch.arange", "torch.linspace"})
DEEPEST = 6
Pair = tuple[ast.expr, ast.expr]


def name_of(script: Script, func: ast.expr) -> str:
    """The canonical name of a library function that is called; empty for anything else."""
    names = {t.name if isinstance(t, Ref) else "" for t in script.values(func)}
    return names.pop() if len(names) == 1 else ""


def is_tensor(script: Script, expr: ast.expr) -> bool:
    found = script.values(expr)
    return bool(found) and all(isinstance(t, Tensor) for t in found)


def factors(script: Script, expr: ast.expr) -> Pair | None:
    """The factors of a product of matrices (``@``, ``matmul``, ``bmm``); None where it is none."""
    match expr:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return left, right
        case ast.Call(func=func, args=[left, right], keywords=[]) if (
            name_of(script, func) in FUNCTIONS
        ):
            return left, right
        case ast.Call(func=ast.Attribute(value=left, attr=attr), args=[right], keywords=[]) if (
            attr in METHODS and is_tensor(script, left)
        ):
            return left, right
    return None


def of_scores(script: Script, expr: ast.expr) -> Pair | None:
    """Query and key of ``q @ k.transpose(-2, -1)`` or ``einsum("bhid,bhjd->bhij", q, k)``; None where it is neither."""
    if (pair := factors(script, expr)) is not None:
        key = _swapped(script, pair[1])
        return (pair[0], key) if key is not None else None
    if (letters := _einsum(script, expr)) is not None:
        first, second, result, pair = letters
        same = first[:-2] == second[:-2] == result[:-2] and first[-1] == second[-1]
        if same and result[-2:] == (first[-2], second[-2]) and first[-2] != second[-2]:
            return pair
    return None


def of_values(script: Script, expr: ast.expr) -> Pair | None:
    """Weights and values of ``weights @ v`` or ``einsum("bhij,bhjd->bhid", weights, v)``; None where it is neither."""
    if (pair := factors(script, expr)) is not None:
        return pair
    if (letters := _einsum(script, expr)) is not None:
        first, second, result, pair = letters
        same = first[:-2] == second[:-2] == result[:-2] and first[-1] == second[-2]
        if same and result[-2:] == (first[-2], second[-1]):
            return pair
    return None


def _einsum(
    script: Script, expr: ast.expr
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], Pair] | None:
    """The axes of both operands and of the result, and the operands."""
    if not isinstance(expr, ast.Call) or name_of(script, expr.func) not in EINSUM or expr.keywords:
        return None
    texts = [a for a in expr.args if isinstance(const(script.values(a)), str)]
    rest = [a for a in expr.args if a not in texts]
    if len(texts) != 1 or len(rest) != 2:
        return None
    text = str(const(script.values(texts[0])))
    parts = re.split(r",|->", text)
    if len(parts) != 3 or "->" not in text or "." in text:
        return None
    spaced = " " in text.strip() and all(" " in part.strip() for part in parts)
    axes = [tuple(p.split() if spaced else p.replace(" ", "")) for p in parts]
    if any(len(a) < 3 or len(set(a)) != len(a) for a in axes):
        return None
    return axes[0], axes[1], axes[2], (rest[0], rest[1])


def _swapped(script: Script, expr: ast.expr) -> ast.expr | None:
    """``k``, where the expression is ``k`` with its last two dimensions swapped."""
    match expr:
        case ast.Attribute(value=inner, attr="mT"):
            return inner
        case ast.Call(func=ast.Attribute(value=inner, attr="permute"), args=axes, keywords=[]):
            order = [const(script.values(a)) for a in axes]
            n = len(order)
            plain = [*range(n - 2), n - 1, n - 2]
            return inner if n > 2 and order == plain else None
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=[a, b], keywords=[]) if (
            attr in SWAPS and is_tensor(script, inner)
        ):
            pass
        case ast.Call(func=func, args=[inner, a, b], keywords=[]) if (
            name_of(script, func).removeprefix("torch.") in SWAPS
        ):
            pass
        case _:
            return None
    swapped = {const(script.values(a)), const(script.values(b))}
    if swapped == {-1, -2}:
        return inner
    deep = rank(script, inner)
    return inner if deep is not None and swapped == {deep - 1, deep - 2} else None


def rank(script: Script, expr: ast.expr, depth: int = 0) -> int | None:
    """The number of dimensions of a tensor, by how it was brought into shape; None where that does not show."""
    if depth > DEEPEST:
        return None
    match expr:
        case ast.Name():
            found = {_rank_of(script, d, depth) for d in script.analysis(Flow).reaching(expr)}
            return found.pop() if len(found) == 1 else None
        case ast.Call(func=ast.Attribute(attr=attr), args=args, keywords=[]) if attr in SIZED:
            many = len(args) > 1 and not any(isinstance(a, ast.Starred) for a in args)
            return len(args) if many else None
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SAME_RANK:
            return rank(script, inner, depth + 1)
        case ast.Call(func=func, args=[_, pattern, *_]) if (
            name_of(script, func) == "einops.rearrange"
        ):
            text = const(script.values(pattern))
            shape = text.split("->")[1] if isinstance(text, str) and "->" in text else "..."
            return len(re.sub(r"\([^)]*\)", "x", shape).split()) if "." not in shape else None
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div()) if is_tensor(script, left):
            return rank(script, left, depth + 1)
    return None


def _rank_of(script: Script, definition: Definition, depth: int) -> int | None:
    """The same for what a definition gives its variable."""
    if definition.value is not None:
        return rank(script, definition.value, depth + 1)
    if not definition.is_parameter:
        return None
    function = function_of(definition.node)
    if isinstance(function, ast.Module):
        return None
    given = script.analysis(CallGraph).arguments(function, definition.name)
    found = {rank(script, g, depth + 1) if g is not None else None for _, g in given}
    return found.pop() if len(found) == 1 else None


def dimensions(script: Script, expr: ast.expr, depth: int = 0) -> int:
    """How many dimensions a tensor has at the least, by how it is made; 0 where nothing shows it."""
    if depth > DEEPEST:
        return 0
    if (known := rank(script, expr)) is not None:
        return known

    def inner(part: ast.expr) -> int:
        return dimensions(script, part, depth + 1)

    match expr:
        case ast.Name():
            return min((_dimensions_of(script, d, depth) for d in _made(script, expr)), default=0)
        case ast.Subscript(value=value, slice=cut):
            parts = cut.elts if isinstance(cut, ast.Tuple) else [cut]
            new = sum(isinstance(p, ast.Constant) and p.value is None for p in parts)
            kept = sum(isinstance(p, ast.Slice) for p in parts)
            whole = all(isinstance(p, (ast.Slice, ast.Constant)) for p in parts)
            return max(new + kept, inner(value) + new if new and whole else 0)
        case ast.Compare(left=a, comparators=[b]) | ast.BinOp(left=a, right=b):
            return max(inner(a), inner(b))
        case ast.UnaryOp(operand=a):
            return inner(a)
        case ast.Call(func=ast.Attribute(value=a, attr="unsqueeze")):
            return inner(a) + 1
        case ast.Call(func=func, args=args) if name_of(script, func) in SHAPED:
            sizes = args[0].elts if args and isinstance(args[0], (ast.Tuple, ast.List)) else args
            return len(sizes)
        case ast.Call(func=func, args=[a, *_]) if name_of(script, func) in TRIANGLES:
            return max(2, inner(a))
        case ast.Call(func=ast.Attribute(value=a, attr=attr)) if attr in KEPT:
            return max(2 if attr in ("tril", "triu") else 0, inner(a))
        case ast.Attribute():
            stored = [
                made
                for t in script.values(expr.value)
                if isinstance(t, Inst)
                for made in _stored(script, t, expr.attr)
            ]
            return min((inner(made) for made in stored), default=0)
    return 1 if any(isinstance(t, Tensor) and t.batch for t in script.values(expr)) else 0


def _made(script: Script, name: ast.Name) -> frozenset[Definition]:
    return script.analysis(Flow).reaching(name)


def _dimensions_of(script: Script, definition: Definition, depth: int) -> int:
    if definition.value is not None:
        return dimensions(script, definition.value, depth + 1)
    function = function_of(definition.node)
    if not definition.is_parameter or isinstance(function, ast.Module):
        return 0
    given = script.analysis(CallGraph).arguments(function, definition.name)
    found = [dimensions(script, g, depth + 1) for _, g in given if g is not None]
    return min(found, default=0)


def _stored(script: Script, owner: Inst, name: str) -> list[ast.expr]:
    """What an object is given under ``name``, by an assignment or ``register_buffer``."""
    found: list[ast.expr] = []
    for source in script.sources:
        for node in source.nodes if name in source.text else ():
            match node:
                case ast.Call(
                    func=ast.Attribute(value=holder, attr="register_buffer"),
                    args=[ast.Constant(value), made, *_],
                ) if value == name:
                    pass
                case ast.Assign(targets=[ast.Attribute(value=holder, attr=attr)], value=made) if (
                    attr == name
                ):
                    pass
                case _:
                    continue
            if any(t is owner for t in script.values(holder)):
                found.append(made)
    return found


def is_vector(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether it may be made with one dimension: ``nn.Parameter(torch.randn(n))``, ``torch.arange(n)``."""
    if depth > DEEPEST:
        return False
    match expr:
        case ast.Name():
            made = [d.value for d in _made(script, expr)]
        case ast.Attribute():
            made = [
                m
                for t in script.values(expr.value)
                if isinstance(t, Inst)
                for m in _stored(script, t, expr.attr)
            ]
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in KEPT:
            made = [inner]
        case ast.Call(func=func, args=args) if (name := name_of(script, func)) in VECTORS | SHAPED:
            sizes = args[0].elts if args and isinstance(args[0], (ast.Tuple, ast.List)) else args
            return name in VECTORS or len(sizes) == 1
        case ast.Call(func=func, args=[inner, *_]) if name_of(script, func) == "torch.nn.Parameter":
            made = [inner]
        case _:
            return False
    return any(m is not None and is_vector(script, m, depth + 1) for m in made)
