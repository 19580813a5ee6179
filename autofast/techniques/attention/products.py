"""The two products of attention: ``q @ k.transpose(-2, -1)`` and ``weights @ v``, in the ways that
they are written.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace

from autofast.facts.dimensions import dimension_count
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.values import Tensor

FUNCTIONS = wordset("torch.matmul torch.bmm")
METHODS = wordset("matmul bmm")
EINSUM = wordset("torch.einsum einops.einsum")
SWAPS = wordset("transpose swapaxes swapdims")
Pair = tuple[ast.expr, ast.expr]
Axes = tuple[str, ...]


@dataclass(frozen=True)
class Product:
    """Two operands; ``turns`` says what brings their axes, and those of the result, into order
    (heads in front), as methods.
    """

    left: ast.expr
    right: ast.expr
    turns: tuple[str, str, str] = ("", "", "")


def factors(script: Script, expr: ast.expr) -> Pair | None:
    """The factors of a product of matrices (``@``, ``matmul``, ``bmm``); None where it is none."""
    match expr:
        case ast.BinOp(left=left, op=ast.MatMult(), right=right):
            return left, right
        case ast.Call(func=func, args=[left, right], keywords=[]) if (
            script.library_name(func) in FUNCTIONS
        ):
            return left, right
        case ast.Call(func=ast.Attribute(value=left, attr=attr), args=[right], keywords=[]) if (
            attr in METHODS and script.must_be(left, Tensor)
        ):
            return left, right
    return None


def of_scores(script: Script, expr: ast.expr) -> Product | None:
    """Query and key of ``q @ k.transpose(-2, -1)`` or ``einsum("bhid,bhjd->bhij", q, k)``; None
    where it is neither.
    """
    if (pair := factors(script, expr)) is not None:
        key = _swapped(script, pair[1])
        return Product(pair[0], key) if key is not None else None
    if (letters := _einsum(script, expr)) is None:
        return None
    first, second, (*heads, i, j), pair = letters
    summed = set(first) - {*heads, i}
    if len(summed) != 1 or not heads or i == j:
        return None
    (d,) = summed
    wanted = ((*heads, i, d), (*heads, j, d))
    return _turned(pair, (first, second), wanted)


def of_values(script: Script, expr: ast.expr) -> Product | None:
    """Weights and values of ``weights @ v`` or ``einsum("bhij,bhjd->bhid", weights, v)``; None
    where it is neither.
    """
    if (pair := factors(script, expr)) is not None:
        return Product(*pair)
    if (letters := _einsum(script, expr)) is None:
        return None
    (*heads, i, j), second, result, pair = letters
    d = next((axis for axis in result if axis not in letters[0]), "")
    natural = (*heads, i, d)
    turn = _turn(natural, result)
    if turn is None:
        return None
    made = _turned(pair, (letters[0], second), (letters[0], (*heads, j, d)))
    return replace(made, turns=(*made.turns[:2], turn)) if made is not None else None


def _turned(pair: Pair, axes: tuple[Axes, Axes], wanted: tuple[Axes, Axes]) -> Product | None:
    left, right = _turn(axes[0], wanted[0]), _turn(axes[1], wanted[1])
    if left is None or right is None:
        return None
    return Product(*pair, (left, right, ""))


def _turn(axes: Axes, wanted: Axes) -> str | None:
    """The methods that bring ``axes`` into an order; None where there is none. Fused kernels, and
    views of the result, need the last axis to lie as it is ordered.
    """
    if sorted(axes) != sorted(wanted):
        return None
    moved = [n for n, (a, b) in enumerate(zip(axes, wanted, strict=True)) if a != b]
    if not moved:
        return ""
    lies = "" if axes[-1] == wanted[-1] else ".contiguous()"
    if len(moved) == 2:
        return f".transpose({moved[0]}, {moved[1]}){lies}"
    return f".permute({', '.join(str(axes.index(w)) for w in wanted)}){lies}"


def _einsum(script: Script, expr: ast.expr) -> tuple[Axes, Axes, Axes, Pair] | None:
    """The axes of both operands and of the result, and the operands."""
    if not script.is_call(expr, *EINSUM) or expr.keywords:
        return None
    texts = [a for a in expr.args if isinstance(script.constant(a), str)]
    rest = [a for a in expr.args if a not in texts]
    match rest:
        case [ast.List(elts=listed)]:
            rest = listed
    if len(texts) != 1 or len(rest) != 2:
        return None
    text = str(script.constant(texts[0]))
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
            order = [script.constant(a) for a in axes]
            n = len(order)
            plain = [*range(n - 2), n - 1, n - 2]
            return inner if n > 2 and order == plain else None
        case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=[a, b], keywords=[]) if (
            attr in SWAPS and script.must_be(inner, Tensor)
        ):
            pass
        case ast.Call(func=func, args=[inner, a, b], keywords=[]) if (
            script.library_name(func).removeprefix("torch.") in SWAPS
        ):
            pass
        case _:
            return None
    swapped = {script.constant(a), script.constant(b)}
    if swapped == {-1, -2}:
        return inner
    deep = dimension_count(script, inner)
    return inner if deep is not None and swapped == {deep - 1, deep - 2} else None
