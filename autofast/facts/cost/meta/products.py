"""Products of matrices, and what is made of them."""

from __future__ import annotations

from math import prod
from typing import Any

from autofast.facts.cost.meta.calls import Call, by_element, flat, operation
from autofast.facts.cost.meta.tensor import Ledger, Meta, axis, broadcast
from autofast.facts.cost.work import Unsized
from autofast.model.several import of_kind


@operation("matmul", "mm", "bmm", "mv", "dot", "inner")
def _matmul(call: Call) -> Meta:
    """``a @ b``."""
    a, b = call.tensor(), call.tensor(1, "mat2")
    if not a.dims or not b.dims:
        raise Unsized("a product of numbers")
    left, right = a.dims if len(a.dims) > 1 else (1, *a.dims), b.dims
    right = right if len(right) > 1 else (*right, 1)
    if left[-1] != right[-2]:
        raise Unsized(f"{a.dims} and {b.dims} do not multiply")
    many = broadcast([Meta(left[:-2] or (1,)), Meta(right[:-2] or (1,))])
    many = many if len(left) > 2 or len(right) > 2 else ()
    call.ledger.launch(1, 2)
    call.ledger.multiply(prod(many) * left[-2] * left[-1] * right[-1])
    call.ledger.put_out(prod(many) * left[-2] * right[-1])
    ends = (*(left[-2:-1] if len(a.dims) > 1 else ()), *(right[-1:] if len(b.dims) > 1 else ()))
    return Meta((*many, *ends))


@operation("addmm", "baddbmm", "addbmm")
def _addmm(call: Call) -> Any:
    return _matmul(Call(call.ledger, "matmul", call.args[1:3]))


@operation("linear")
def _linear(call: Call) -> Meta:
    x, weight = call.get(0, "input"), call.tensor(1, "weight")
    return dense(call.ledger, x, weight.dims[1], weight.dims[0])


def dense(ledger: Ledger, value: Any, taken: int, made: int) -> Meta:
    """A dense layer on the last dimension."""
    x = ledger.rows(value, taken)
    ledger.launch(1, 3)
    ledger.multiply(x.count * made)
    ledger.weigh(taken, made)
    ledger.put_out(x.count // max(taken, 1) * made)
    return Meta((*x.dims[:-1], made))


@operation("bilinear")
def _bilinear(call: Call) -> Meta:
    a, b, weight = call.tensor(), call.tensor(1, "input2"), call.tensor(2, "weight")
    call.ledger.launch(2, 4)
    call.ledger.multiply(a.count * weight.dims[0] * b.dims[-1])
    call.ledger.weigh()
    return Meta((*a.dims[:-1], weight.dims[0]))


@operation("einsum")
def _einsum(call: Call) -> Meta:
    """Over all letters: as one product of matrices would do it."""
    form = call.get(0, "equation")
    parts = of_kind(flat(call.args[1:]), Meta)
    if not isinstance(form, str) or "." in form:
        raise Unsized("what a product costs is not known")
    takes, _, gives = form.replace(" ", "").partition("->")
    sizes = dict[str, int]()
    for letters, x in zip(takes.split(","), parts, strict=True):
        if len(letters) != len(x.dims):
            raise Unsized(f"{x.dims} do not fit {form}")
        sizes.update(zip(letters, x.dims, strict=True))
    call.ledger.launch(1, 2)
    if len(parts) > 2:
        call.ledger.unsure("in which order einsum multiplies is not known")
    if len(parts) > 1:
        call.ledger.multiply(prod(sizes.values()))
    return Meta(tuple(sizes[c] for c in gives))


@operation("scaled_dot_product_attention")
def _attention(call: Call) -> Meta:
    q, k, v = call.tensor(0, "query"), call.tensor(1, "key"), call.tensor(2, "value")
    call.ledger.launch(1, 1)
    call.ledger.multiply(q.count * k.dims[-2] + q.count // q.dims[-1] * k.dims[-2] * v.dims[-1])
    call.ledger.put_out(2 * q.count)
    return q.like(*q.dims[:-1], v.dims[-1])


@operation("cdist")
def _cdist(call: Call) -> Meta:
    a, b = call.tensor(), call.tensor(1, "x2")
    call.ledger.launch(1, 2)
    call.ledger.multiply(a.count * b.dims[-2])
    return a.like(*a.dims[:-1], b.dims[-2])


@operation("cosine_similarity", "pairwise_distance")
def _similarity(call: Call) -> Meta:
    a = by_element(call.ledger, [call.tensor(), call.tensor(1, "x2")])
    n = call.get(2, "dim", 1) if call.name == "cosine_similarity" else -1
    n = axis(n, len(a.dims))
    call.ledger.launch(2, 3)
    return a.like(*a.dims[:n], *a.dims[n + 1 :])
