"""Tensors whose shape, memory or dtype older versions of torch gave otherwise, as far as the text
of one function shows.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from autofast.flow.defuse import Definition, bound_to
from autofast.flow.program import definitions_at
from autofast.model.calls import first_argument, is_method, is_name, keyword_of, literal_of
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import Source
from autofast.model.syntax import is_read
from autofast.model.values import Ref, Tensor, Unknown, certainly, consts, is_scalar

COMPARED = tuple("eq ne lt le gt ge".split())
MASKED = ("masked_fill", "masked_fill_", "masked_select", "masked_scatter", "masked_scatter_")
SHAPED = tuple("unsqueeze squeeze expand expand_as view repeat t cuda contiguous".split())
KEPT = tuple("float double half int long byte bool type to clone detach".split())
RANKED = ("topk",)  # which only tensors have, and torch itself
Question = Callable[[Script, ast.expr, int], bool]
DEEP = 12
OLD_NUMBER = "reads `{}`, an IndexError since torch 0.5, as a loss has no dimensions"


def broken_views(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """``correct[:k].view(-1)`` of a comparison with what was transposed, which since torch 1.7 lies
    in memory as that does.
    """
    for node in script.each(ast.Call):
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Subscript(value=whole, slice=ast.Slice(lower=None, upper=ast.expr() as k, step=None)),
                    attr="view",
                ),
                args=[shape],
                keywords=[],
            ) if script.constant(shape) == -1 and _is_several(script, k):  # fmt: skip
                if _is_transposed(script, whole, 0):
                    why = "an error since torch 1.7, as its parts do not lie one after the other"
                    yield node, f"calls `{ast.unparse(node)}`, {why}"


def old_numbers(script: Script) -> Iterator[tuple[ast.Subscript, str]]:
    """``loss.data[0]``, ``loss.data.tolist()[0]``: how the number was read before torch 0.4."""
    for node in script.each(ast.Subscript):
        tensor = read_of_old(node)
        if (
            tensor is not None
            and script.constant(node.slice) == 0
            and script.may_be(tensor, Tensor)
            and _is_one_number(script, tensor, frozenset())
        ):
            yield node, OLD_NUMBER.format(ast.unparse(node))


def old_losses(file: Source) -> Iterator[tuple[ast.Subscript, str]]:
    """``loss.data[0]`` in a file that is not followed, which calls ``loss.backward()``."""
    losses = {
        n.func.value.id
        for n in file.each(ast.Call)
        if is_method(n, "backward") and not n.args and isinstance(n.func.value, ast.Name)
    }
    for node in file.each(ast.Subscript):
        tensor = read_of_old(node)
        if is_name(tensor, *losses) and literal_of(node.slice) == 0:
            yield node, OLD_NUMBER.format(ast.unparse(node))


def read_of_old(node: ast.AST) -> ast.expr | None:
    """The tensor ``loss`` in ``loss.data[0]``, ``loss.data.cpu().numpy()[0]``."""
    inner = node.value if isinstance(node, ast.Subscript) and is_read(node) else None
    tensor = inner
    while True:
        match tensor:
            case ast.Attribute(value=value, attr="data"):
                tensor = value
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=[], keywords=[]) if (
                name in ("tolist", "numpy", "cpu", "detach")
            ):
                tensor = value
            case _:
                return None if tensor is inner else tensor


def differences(script: Script) -> Iterator[tuple[ast.BinOp, str]]:
    """``1 - (a == b)``: comparisons give bool since torch 1.2, which cannot be subtracted."""
    for node in script.each(ast.BinOp):
        if isinstance(node.op, ast.Sub) and script.constant(node.left) == 1:
            if _is_comparison(script, node.right, 0):
                words = (
                    f"subtracts the comparison in `{ast.unparse(node)}`, an error since torch 1.2"
                )
                yield node, words


def byte_masks(script: Script) -> Iterator[tuple[ast.expr, str, str]]:
    """``x.masked_fill(mask.byte(), 0)``: the mask, what is wrong, and its method of today where it
    has one.
    """
    for name in MASKED:
        for site in script.methods(name):
            mask = _mask_of(site.node)
            if mask is not None and _is_bytes(script, mask, 0):
                words = f"masks by bytes in `{ast.unparse(site.node)}`, an error since torch 2.1"
                yield mask, words, "bool" if is_method(mask, "byte") else ""


def _mask_of(call: ast.AST) -> ast.expr | None:
    if not isinstance(call, ast.Call):
        return None
    first = first_argument(call)
    return keyword_of(call, "mask") or (None if isinstance(first, ast.Starred) else first)


def _is_bytes(script: Script, expr: ast.expr, depth: int) -> bool:
    """Whether it certainly is a tensor of ``uint8``."""
    if isinstance(expr, ast.Name):
        return _all(script, expr, _is_bytes, depth)
    if is_method(expr, *SHAPED):
        return _is_bytes(script, expr.func.value, depth)
    return is_method(expr, "byte") and not expr.args


def _is_several(script: Script, k: ast.expr) -> bool:
    """Whether it may be more than one row; one alone lies in memory as it should."""
    known = consts(script.values(k))
    return known is not None and any(isinstance(n, int) and n > 1 for n in known)


def _is_transposed(script: Script, expr: ast.expr, depth: int) -> bool:
    """Whether an expression certainly is a matrix whose columns lie one after the other."""
    match expr:
        case ast.Name():
            return _all(script, expr, _is_transposed, depth)
        case ast.Compare(left=left):
            return _is_transposed(script, left, depth)
        case ast.Attribute(value=base, attr="T"):
            return _is_ranked(script, base, depth)
    if is_method(expr, "t", "transpose"):
        return _is_ranked(script, expr.func.value, depth)
    return is_method(expr, *COMPARED, *KEPT) and _is_transposed(script, expr.func.value, depth)


def _is_ranked(script: Script, expr: ast.expr, depth: int) -> bool:
    """Whether it certainly is what ``topk`` gives, row by row."""
    if isinstance(expr, ast.Name):
        return _all(script, expr, _is_ranked, depth)
    if isinstance(expr, ast.Subscript):
        return _is_ranked(script, expr.value, depth)
    return is_method(expr, *RANKED) and script.may_be(expr.func.value, Tensor, Unknown, Ref)


def _is_one_number(script: Script, expr: ast.expr, around: frozenset[Definition]) -> bool:
    """Whether it certainly has no dimensions: a loss, and sums of losses that begin with a
    number.
    """
    if surely(is_scalar(t) for t in script.values(expr)):
        return True
    match expr:
        case ast.Constant(value=int() | float()):
            return True
        case ast.BinOp(left=left, right=right):
            return all(_is_one_number(script, part, around) for part in (left, right))
        case ast.Name():
            made = definitions_at(script, expr)
            return surely(d in around or _begins_as_one(script, d, around | {d}) for d in made)
    return False


def _begins_as_one(script: Script, made: Definition, around: frozenset[Definition]) -> bool:
    match made.statement:
        case ast.AugAssign(value=value) | ast.Assign(value=value) if (
            made.is_augmented or made.value is value
        ):
            return _is_one_number(script, value, around)
    return False


def _is_comparison(script: Script, expr: ast.expr, depth: int) -> bool:
    """Whether it certainly is a tensor of bool by a comparison."""
    match expr:
        case ast.Name():
            return _all(script, expr, _is_comparison, depth)
        case ast.Compare(left=left, comparators=[right]):
            return _is_tensor(script, left) or _is_tensor(script, right)
    return is_method(expr, *COMPARED) and _is_tensor(script, expr.func.value)


def _is_tensor(script: Script, expr: ast.expr) -> bool:
    return certainly(script.values(expr), Tensor)


def _all(script: Script, name: ast.Name, question: Question, depth: int) -> bool:
    """Whether the answer holds for all that may have given a variable its value."""
    made = [_given(d, question is _is_ranked) for d in definitions_at(script, name)]
    return depth < DEEP and surely(m is not None and question(script, m, depth + 1) for m in made)


def _given(definition: Definition, parts: bool) -> ast.expr | None:
    """What a variable gets; also that of which it gets a part: the indices of what ``topk``
    gives.
    """
    assigned = isinstance(definition.statement, ast.Assign)
    return bound_to(definition.node)[0] if parts and assigned else definition.value
