"""What torch's functions, and the methods of tensors, make of shapes, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from autofast.facts.cost.meta import images, products, views
from autofast.facts.cost.meta.calls import (
    TABLE,
    Call,
    Pair,
    Unseen,
    by_element,
    flat,
    operation,
)
from autofast.facts.cost.meta.tensor import UNKNOWN, Ledger, Meta, axis, checked, few
from autofast.facts.cost.work import Unsized
from autofast.model.several import are_whole, of_kind, wordset
from autofast.ops import op

FILL = (images, products, views)  # these enter what they do in the table
# Of the same sizes as the first operand, though not by element.
SAME = wordset("""
    contiguous softmax log_softmax softmin dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout cumsum cumprod
    tril triu flip roll renorm normalize gumbel_softmax masked_scatter prelu uniform normal bernoulli rand_like randn_like
    zeros_like ones_like empty_like full_like new_tensor scatter scatter_add index_add index_copy index_fill batch_norm
    layer_norm group_norm instance_norm rms_norm local_response_norm rot90
""")
FREE = wordset("""
    detach data cuda cpu to float half double bfloat16 type type_as requires_grad requires_grad_ numpy real imag
    Variable share_memory_ pin_memory retain_grad identity from_numpy as_tensor grad
""")
CASTS = wordset("long int bool byte short")  # to whole numbers
PAIRS = wordset("max min median mode")  # give values and places along a dimension
MAKE = wordset(
    "zeros ones empty rand randn full randint eye new_zeros new_ones new_empty new_full new normal"
)
LOSSES = wordset("cross_entropy binary_cross_entropy binary_cross_entropy_with_logits kl_div")
DEEPEST = 16  # lists in each other that a tensor is made of


def operate(ledger: Ledger, name: str, args: list[Any], named: dict[str, Any]) -> Any:
    """What an operation of torch gives; :data:`UNKNOWN` where it is given nothing known."""
    name = name if name in TABLE or name in FREE else name.rstrip("_")
    call = Call(ledger, name, args, named)
    given = of_kind(flat([*args, *named.values()]), Meta)
    if name in MAKE:
        return _made(call)
    if name in TABLE and (given or TABLE[name] in (_range, _new)):
        ledger.budget.spend()
        try:
            return checked(TABLE[name](call))
        except Unseen as why:
            ledger.unsure(str(why))
            return UNKNOWN
    if not given:
        return _batch_of(call) if name in ("view", "reshape") else UNKNOWN
    first = args[0] if args and isinstance(args[0], Meta) else given[0]
    if name in FREE:
        return replace(first, weight=False)
    if name in LOSSES or name.endswith("_loss"):
        return _loss(call, first)
    if name in SAME or name in CASTS:
        ledger.launch()
        return first.like(*first.dims, whole=True if name in CASTS else None)
    known = op(f"torch.{name}") or op(f"torch.nn.functional.{name}") or op(f".{name}")
    if known is not None and known.reduces:
        return _reduced(call, known.dtype == "int")
    if known is not None and known.pointwise:
        return by_element(ledger, given, whole=known.dtype == "int")
    if known is not None and known.dtype == "int":
        ledger.launch()
        return first.like(*first.dims, whole=True)
    ledger.unsure(f"what {name}() costs is not known")
    return UNKNOWN


def _loss(call: Call, first: Meta) -> Meta:
    call.ledger.launch(2, 2)
    return first if call.named.get("reduction") == "none" else Meta(())


def _made(call: Call) -> Any:
    name = call.name
    skip = 1 if call.args and isinstance(call.args[0], Meta) else 0
    if name == "eye":
        n = call.whole(skip, "n")
        return Meta((n, call.whole(skip + 1, "m", n)))
    if name == "randint":
        of = next((a for a in call.args if isinstance(a, (tuple, list))), call.named.get("size"))
        if of is None or not are_whole(of):
            return UNKNOWN
        return Meta(tuple(of), whole=True)
    if name == "normal":
        first = call.args[0] if call.args else None
        of = next((a for a in call.args if isinstance(a, (tuple, list))), call.named.get("size"))
        if isinstance(first, Meta) or of is None:
            return first if isinstance(first, Meta) else UNKNOWN
        return Meta(tuple(of)) if are_whole(of) else UNKNOWN
    call.ledger.launch(1, 0)
    cut = Call(
        call.ledger, name, call.args[: skip + 1] if "full" in name else call.args, call.named
    )
    try:
        return Meta(tuple(cut.sizes(skip)))
    except Unsized:
        return UNKNOWN


@operation("arange", "linspace", "logspace", "hann_window", "hamming_window")
def _range(call: Call) -> Any:
    numbers = [a for a in call.args if type(a) is int]
    if len(numbers) != len(call.args) or not numbers:
        if call.name == "linspace" and type(steps := call.get(2, "steps")) is int:
            return Meta((steps,))
        return UNKNOWN
    call.ledger.launch(1, 0)
    if call.name == "linspace":
        return Meta((call.whole(2, "steps", 100),))
    if call.name != "arange":
        return Meta((numbers[0],))
    return Meta((len(range(*numbers)),), whole=True)


@operation("tensor", "Tensor", "FloatTensor", "LongTensor", "IntTensor", "BoolTensor", "array")
def _new(call: Call) -> Any:
    dims: list[int] = []
    value: Any = call.get(0, "data")
    if call.name.endswith("Tensor") and call.args and are_whole(call.args):
        return Meta(tuple(call.args), call.name != "FloatTensor" and call.name != "Tensor")
    while isinstance(value, (list, tuple)) and len(dims) < DEEPEST:
        dims.append(len(value))
        value = value[0] if value else None
    if value is UNKNOWN:
        return UNKNOWN
    if isinstance(value, Meta):
        return Meta((*dims, *value.dims), value.whole)
    return Meta(tuple(dims), isinstance(value, int) and call.name != "Tensor")


def _reduced(call: Call, whole: bool) -> Any:
    call.ledger.launch()
    x, name = call.tensor(), call.name
    second = call.get(1, "other")
    if name in ("max", "min") and isinstance(second, Meta):
        return by_element(call.ledger, [x, second])
    place = 2 if name == "norm" else 1
    dim = call.get(place, "dim", call.get(place, "axis"))
    if name == "norm" and dim is None and isinstance(call.get(1, "p"), (tuple, list)):
        dim = call.get(1, "p")
    whole = whole or (x.whole and name != "mean")
    if dim is None or isinstance(dim, bool):
        return Meta((), whole)
    dims = [dim] if isinstance(dim, int) else list(dim) if isinstance(dim, (tuple, list)) else None
    if dims is None:
        raise Unsized("a dimension is not known")
    places = {axis(d, len(x.dims)) for d in dims}
    keeps = call.get(place + 1, "keepdim", call.named.get("keepdims", False)) is True
    left = [1 if n in places else d for n, d in enumerate(x.dims) if keeps or n not in places]
    found = Meta(tuple(left), whole)
    return Pair(found, replace(found, whole=True)) if name in PAIRS else found


def _batch_of(call: Call) -> Any:
    """``noise.view(-1, 100, 1, 1)`` of what is not known."""
    first, *rest = call.args[1:] or (None,)
    if rest and are_whole(rest) and min(rest) > 0 and (first == -1 or first is UNKNOWN):
        return Meta((call.ledger.guess.items, *rest))
    return UNKNOWN


# ------------------------------------------------------------------------ putting together, picking
@operation("cat", "concat", "concatenate", "hstack", "vstack")
def _cat(call: Call) -> Meta:
    parts = call.get(0, "tensors")
    if not isinstance(parts, (list, tuple)) or not all(isinstance(p, Meta) for p in parts):
        raise Unseen("what is put together is not known")
    across = 1 if call.name == "hstack" and len(parts[0].dims) > 1 else 0
    n = axis(call.get(1, "dim", call.named.get("axis", across)), len(parts[0].dims))
    call.ledger.launch()
    call.ledger.put_out(sum(p.count for p in parts))
    first: Meta = parts[0]
    return first.like(*first.dims[:n], sum(p.dims[n] for p in parts), *first.dims[n + 1 :])


@operation("stack")
def _stack(call: Call) -> Meta:
    parts = call.get(0, "tensors")
    if not isinstance(parts, (list, tuple)) or not parts or not isinstance(parts[0], Meta):
        raise Unseen("what is put together is not known")
    first: Meta = parts[0]
    n = axis(call.whole(1, "dim", 0), len(first.dims) + 1)
    call.ledger.launch()
    return first.like(*first.dims[:n], len(parts), *first.dims[n:])


@operation("gather", "take_along_dim")
def _gather(call: Call) -> Meta:
    call.ledger.launch()
    return call.tensor().like(*call.tensor(2, "index").dims)


@operation("index_select")
def _index_select(call: Call) -> Meta:
    x, index = call.tensor(), call.tensor(2, "index")
    n = axis(call.whole(1, "dim"), len(x.dims))
    call.ledger.launch()
    return x.like(*x.dims[:n], index.count, *x.dims[n + 1 :])


@operation("sort")
def _sort(call: Call) -> Pair:
    x = call.tensor()
    call.ledger.launch()
    return Pair(x, replace(x, whole=True))


@operation("glu")
def _glu(call: Call) -> Meta:
    x = call.tensor()
    n = axis(call.whole(1, "dim", -1), len(x.dims))
    call.ledger.launch()
    return x.like(*x.dims[:n], x.dims[n] // 2, *x.dims[n + 1 :])


@operation("topk", "kthvalue")
def _topk(call: Call) -> Pair:
    x, k = call.tensor(), call.whole(1, "k")
    n = axis(call.whole(2, "dim", -1), len(x.dims))
    call.ledger.launch()
    found = x.like(*x.dims[:n], k, *x.dims[n + 1 :])
    return Pair(found, replace(found, whole=True))


@operation("one_hot")
def _one_hot(call: Call) -> Meta:
    x = call.tensor()
    call.ledger.launch(1, 0)
    return Meta((*x.dims, call.whole(1, "num_classes")), whole=True)


@operation("meshgrid")
def _meshgrid(call: Call) -> tuple[Meta, ...]:
    axes = of_kind(flat(call.args), Meta)
    few(len(axes) ** 2)
    return tuple(a.like(*(b.count for b in axes)) for a in axes)


@operation("embedding")
def _embedding(call: Call) -> Meta:
    x, table = call.tensor(), call.tensor(1, "weight")
    call.ledger.launch(1, 2)
    call.ledger.put_out(x.count * table.dims[-1])
    return Meta((*x.dims, table.dims[-1]))
