"""What torch's functions, and the methods of tensors, make of shapes, and what that costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

from autofast.facts.cost.meta.tensor import UNKNOWN, Ledger, Meta, axis, broadcast, checked, few
from autofast.facts.cost.work import Unsized
from autofast.model.several import are_whole, of_kind, wordset
from autofast.ops import is_pointwise

Handler = Callable[["Call"], Any]
TABLE: dict[str, Handler] = {}
# By element, or of the same sizes; most take one kernel forwards and one backwards.
SAME = wordset("""
    contiguous clone softmax log_softmax softmin dropout dropout1d dropout2d dropout3d alpha_dropout feature_dropout
    cumsum cumprod tril triu flip roll renorm normalize gumbel_softmax masked_fill masked_scatter where
    relu6 hardswish hardsigmoid hardtanh elu selu celu gelu silu mish prelu rrelu leaky_relu softplus softsign softshrink
    hardshrink tanhshrink threshold logsigmoid relu sigmoid tanh uniform normal bernoulli clamp clamp_min clamp_max
    rand_like randn_like zeros_like ones_like empty_like full_like new_tensor scatter scatter_add index_add index_copy
    index_fill erf batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm square rot90 nan_to_num
""")
FREE = wordset("""
    detach data cuda cpu to float half double bfloat16 type type_as requires_grad requires_grad_ numpy real imag
    Variable share_memory_ pin_memory retain_grad identity from_numpy as_tensor grad
""")
WHOLE = wordset("long int bool byte short argsort ge gt le lt eq ne logical_and logical_or logical_not isnan isinf")
REDUCE = wordset("""
    mean sum prod amax amin max min argmax argmin var std norm logsumexp any all median nanmean nansum count_nonzero
    mode aminmax vector_norm
""")
PAIRS = wordset("max min median mode")  # give values and places along a dimension
MAKE = wordset("zeros ones empty rand randn full randint eye new_zeros new_ones new_empty new_full new normal")
NUMBER = wordset("item tolist")
LOSSES = wordset("""
    cross_entropy nll_loss binary_cross_entropy binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss
    huber_loss kl_div cosine_embedding_loss margin_ranking_loss triplet_margin_loss hinge_embedding_loss poisson_nll_loss
    gaussian_nll_loss multi_margin_loss soft_margin_loss multilabel_margin_loss multilabel_soft_margin_loss ctc_loss
    triplet_margin_with_distance_loss
""")


class Pair(NamedTuple):
    """What ``max`` along a dimension gives, and others."""

    values: Meta
    indices: Meta


class Unseen(Unsized):
    """An operand is not known, and so the result is not."""


DEEPEST = 16  # lists in each other that a tensor is made of


@dataclass
class Call:
    """A call of an operation: of a method, what it belongs to stands first."""

    ledger: Ledger
    name: str
    args: list[Any]
    named: dict[str, Any] = field(default_factory=dict)

    def get(self, n: int, name: str, default: Any = None) -> Any:
        """The argument at place ``n``, or of this name."""
        if name in self.named:
            return self.named[name]
        return self.args[n] if 0 <= n < len(self.args) else default

    def whole(self, n: int, name: str, default: Any = ...) -> int:
        """The same, which is a whole number; raises :class:`Unsized` for others."""
        found = self.get(n, name, default)
        if type(found) is not int:
            raise Unsized(f"{name} of {self.name} is not known")
        return found

    def guessed(self, n: int, name: str, usual: int) -> int:
        """The same, or what is usual."""
        found = self.get(n, name)
        if type(found) is int:
            return found
        self.ledger.unsure(f"{name} of {self.name} is not known")
        return usual

    def tensor(self, n: int = 0, name: str = "input") -> Meta:
        found = self.get(n, name)
        if not isinstance(found, Meta):
            raise Unseen(f"what {self.name} is given is not known")
        return found

    def sizes(self, n: int) -> list[int]:
        """Sizes from place ``n`` on: one by one, or in one tuple."""
        rest: Any = self.args[n:] or [self.named.get("size", self.named.get("shape", UNKNOWN))]
        if len(rest) >= 1 and isinstance(rest[0], (tuple, list)):
            rest = rest[0]
        if not are_whole(rest):
            raise Unsized(f"a size in {self.name} is not known")
        return list(rest)


def operation(*names: str) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        TABLE.update(dict.fromkeys(names, handler))
        return handler

    return add


def operate(ledger: Ledger, name: str, args: list[Any], named: dict[str, Any]) -> Any:
    """What an operation of torch gives; :data:`UNKNOWN` where it is given nothing known."""
    name = name if name in TABLE or name in FREE else name.rstrip("_")
    call = Call(ledger, name, args, named)
    given = of_kind(_flat([*args, *named.values()]), Meta)
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
    if name in REDUCE:
        return _reduced(call)
    if name in SAME or name in WHOLE:
        ledger.launch()
        return first.like(*first.dims, whole=True if name in WHOLE else None)
    if is_pointwise(f"torch.{name}") or is_pointwise(name):
        return by_element(ledger, given, whole=name in WHOLE)
    ledger.unsure(f"what {name}() costs is not known")
    return UNKNOWN


def by_element(ledger: Ledger, given: list[Meta], whole: bool = False) -> Meta:
    """An operation by element on several tensors."""
    ledger.launch()
    return Meta(broadcast(given), whole or all(t.whole for t in given))


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value


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
    cut = Call(call.ledger, name, call.args[: skip + 1] if "full" in name else call.args, call.named)
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


def _reduced(call: Call) -> Any:
    call.ledger.launch()
    x, name = call.tensor(), call.name
    second = call.get(1, "other")
    if name in ("max", "min") and isinstance(second, Meta):
        return by_element(call.ledger, [x, second])
    place = 2 if name == "norm" else 1
    dim = call.get(place, "dim", call.get(place, "axis"))
    if name == "norm" and dim is None and isinstance(call.get(1, "p"), (tuple, list)):
        dim = call.get(1, "p")
    whole = name.startswith("arg") or name in ("any", "all") or (x.whole and name != "mean")
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


# -------------------------------------------------------------------------------------------- views
@operation("view", "reshape", "_reshape_alias", "resize")
def _view(call: Call) -> Meta:
    x = call.tensor()
    sizes = call.get(1, "shape", call.named.get("size"))
    if sizes is not None and not isinstance(sizes, (int, tuple, list)):
        return x  # another dtype
    dims = _filled(call, x)
    known = prod(d for d in dims if d != -1)
    of_item = x.count // x.dims[0] if len(x.dims) > 3 and dims[0] == -1 else x.count
    over = 1 if of_item > known else -1
    if -1 in dims:
        if not known or x.count % known:
            raise Unsized(f"{x.dims} do not fit {tuple(dims)}", over)
        dims[dims.index(-1)] = x.count // known
        _check_batch(x, dims)
    elif known != x.count:
        raise Unsized(f"{x.dims} do not fit {tuple(dims)}", over)
    return x.like(*dims)


def _filled(call: Call, x: Meta) -> list[int]:
    """The sizes of a view; one that is not known follows from the others, and the first is that of
    the batch.
    """
    given = call.args[1:]
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        given = list(given[0])
    if UNKNOWN not in given:
        return call.sizes(1)
    if given[0] is UNKNOWN and x.dims:
        given[0] = x.dims[0]
    if given.count(UNKNOWN) == 1 and -1 not in given:
        given[given.index(UNKNOWN)] = -1
    return replace(call, args=[x, *given]).sizes(1)


def _batch_of(call: Call) -> Any:
    """``noise.view(-1, 100, 1, 1)`` of what is not known."""
    first, *rest = call.args[1:] or (None,)
    if rest and are_whole(rest) and min(rest) > 0 and (first == -1 or first is UNKNOWN):
        return Meta((call.ledger.guess.items, *rest))
    return UNKNOWN


def _check_batch(x: Meta, dims: list[int]) -> None:
    """``x.view(-1, n)`` of images is meant to leave as many rows as there are images."""
    if len(x.dims) > 3 and len(dims) == 2 and dims[0] != x.dims[0] and dims[1] != x.dims[-1]:
        raise Unsized(
            "what is flattened does not fit", over=1 if x.count // x.dims[0] > dims[1] else -1
        )


@operation("view_as", "reshape_as", "expand_as")
def _as(call: Call) -> Meta:
    return call.tensor().like(*call.tensor(1, "other").dims)


@operation("flatten", "ravel")
def _flatten(call: Call) -> Meta:
    x = call.tensor()
    if not x.dims:
        return x.like(1)
    first = axis(call.whole(1, "start_dim", 0), len(x.dims))
    last = axis(call.whole(2, "end_dim", -1), len(x.dims))
    return x.like(*x.dims[:first], prod(x.dims[first : last + 1]), *x.dims[last + 1 :])


@operation("unflatten")
def _unflatten(call: Call) -> Meta:
    x = call.tensor()
    n, sizes = axis(call.whole(1, "dim"), len(x.dims)), [*call.get(2, "sizes", ())]
    rest = prod(s for s in sizes if s != -1)
    sizes = [x.dims[n] // max(rest, 1) if s == -1 else s for s in sizes]
    return x.like(*x.dims[:n], *sizes, *x.dims[n + 1 :])


@operation("permute")
def _permute(call: Call) -> Meta:
    x, order = call.tensor(), call.sizes(1)
    return x.like(*(x.dims[axis(n, len(x.dims))] for n in order))


@operation("transpose", "swapaxes", "swapdims", "t", "T", "mT")
def _transpose(call: Call) -> Meta:
    x = call.tensor()
    dims = list(x.dims)
    if call.name in ("t", "T"):
        return x.like(*reversed(dims))
    first, last = (-2, -1) if call.name == "mT" else (call.whole(1, "dim0"), call.whole(2, "dim1"))
    a, b = axis(first, len(dims)), axis(last, len(dims))
    dims[a], dims[b] = dims[b], dims[a]
    return x.like(*dims)


@operation("movedim", "moveaxis")
def _moved(call: Call) -> Meta:
    x = call.tensor()
    dims = list(x.dims)
    size = dims.pop(axis(call.whole(1, "source"), len(x.dims)))
    dims.insert(axis(call.whole(2, "destination"), len(x.dims)), size)
    return x.like(*dims)


@operation("unsqueeze")
def _unsqueeze(call: Call) -> Meta:
    x = call.tensor()
    n = axis(call.whole(1, "dim"), len(x.dims) + 1)
    return x.like(*x.dims[:n], 1, *x.dims[n:])


@operation("squeeze")
def _squeeze(call: Call) -> Meta:
    x, n = call.tensor(), call.get(1, "dim")
    if n is None:
        return x.like(*(d for d in x.dims if d != 1))
    n = axis(n, len(x.dims))
    return x.like(*x.dims[:n], *x.dims[n + 1 :]) if x.dims[n] == 1 else x


@operation("expand", "broadcast_to")
def _expand(call: Call) -> Meta:
    x, sizes = call.tensor(), call.sizes(1)
    old = (1,) * (len(sizes) - len(x.dims)) + x.dims
    return x.like(*(o if s == -1 else s for o, s in zip(old, sizes, strict=True)))


@operation("repeat", "tile")
def _repeat(call: Call) -> Meta:
    x, times = call.tensor(), call.sizes(1)
    call.ledger.launch()
    old = (1,) * (len(times) - len(x.dims)) + x.dims
    return x.like(*(o * n for o, n in zip(old, times, strict=True)))


@operation("repeat_interleave")
def _interleave(call: Call) -> Meta:
    x, times = call.tensor(), call.whole(1, "repeats")
    n = call.get(2, "dim")
    call.ledger.launch()
    if n is None:
        return x.like(x.count * times)
    n = axis(n, len(x.dims))
    return x.like(*x.dims[:n], x.dims[n] * times, *x.dims[n + 1 :])


@operation("chunk", "tensor_split")
def _chunk(call: Call) -> tuple[Meta, ...]:
    x, parts = call.tensor(), call.whole(1, "chunks")
    return _cut(x, -(-x.dims[axis(call.whole(2, "dim", 0), len(x.dims))] // parts), call)


@operation("split")
def _split(call: Call) -> tuple[Meta, ...]:
    x, sizes = call.tensor(), call.get(1, "split_size", call.named.get("split_size_or_sections"))
    if type(sizes) is int:
        return _cut(x, sizes, call)
    if not isinstance(sizes, (list, tuple)) or not are_whole(sizes):
        raise Unsized("how it is split is not known")
    n = axis(call.whole(2, "dim", 0), len(x.dims))
    return tuple(x.like(*x.dims[:n], s, *x.dims[n + 1 :]) for s in sizes)


def _cut(x: Meta, size: int, call: Call) -> tuple[Meta, ...]:
    n = axis(call.whole(2, "dim", 0), len(x.dims))
    starts = range(0, x.dims[n], max(size, 1))
    few(len(starts))
    return tuple(
        x.like(*x.dims[:n], min(size, x.dims[n] - start), *x.dims[n + 1 :]) for start in starts
    )


@operation("unbind")
def _unbind(call: Call) -> tuple[Meta, ...]:
    x, n = call.tensor(), axis(call.whole(1, "dim", 0), len(call.tensor().dims))
    return (x.like(*x.dims[:n], *x.dims[n + 1 :]),) * few(x.dims[n])


@operation("narrow")
def _narrow(call: Call) -> Meta:
    x = call.tensor()
    n = axis(call.whole(1, "dim"), len(x.dims))
    return x.like(*x.dims[:n], call.whole(3, "length"), *x.dims[n + 1 :])


@operation("select")
def _select(call: Call) -> Meta:
    x = call.tensor()
    n = axis(call.whole(1, "dim"), len(x.dims))
    return x.like(*x.dims[:n], *x.dims[n + 1 :])


@operation("diagonal", "diag", "diag_embed")
def _diagonal(call: Call) -> Meta:
    x = call.tensor()
    if call.name == "diag_embed" or len(x.dims) == 1:
        return x.like(*x.dims, x.dims[-1])
    return x.like(*x.dims[:-2], min(x.dims[-2:]))


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
    axes = of_kind(_flat(call.args), Meta)
    few(len(axes) ** 2)
    return tuple(a.like(*(b.count for b in axes)) for a in axes)


@operation("embedding")
def _embedding(call: Call) -> Meta:
    x, table = call.tensor(), call.tensor(1, "weight")
    call.ledger.launch(1, 2)
    call.ledger.put_out(x.count * table.dims[-1])
    return Meta((*x.dims, table.dims[-1]))


# ----------------------------------------------------------------------------------------- products
@operation("matmul", "mm", "bmm", "mv", "dot", "inner")
def matmul(call: Call) -> Meta:
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
    return matmul(Call(call.ledger, "matmul", call.args[1:3]))


@operation("linear")
def _linear(call: Call) -> Meta:
    x, weight = call.get(0, "input"), call.tensor(1, "weight")
    return dense(call.ledger, x, weight.dims[1], weight.dims[0])


def dense(ledger: Ledger, value: Any, taken: int, made: int) -> Meta:
    """A dense layer on the last dimension."""
    x = ledger.rows(value, taken)
    ledger.launch(1, 3)
    ledger.multiply(x.count * made)
    ledger.put_out(x.count // max(taken, 1) * made)
    return Meta((*x.dims[:-1], made))


@operation("bilinear")
def _bilinear(call: Call) -> Meta:
    a, b, weight = call.tensor(), call.tensor(1, "input2"), call.tensor(2, "weight")
    call.ledger.launch(2, 4)
    call.ledger.multiply(a.count * weight.dims[0] * b.dims[-1])
    return Meta((*a.dims[:-1], weight.dims[0]))


@operation("einsum")
def _einsum(call: Call) -> Meta:
    """Over all letters: as one product of matrices would do it."""
    form = call.get(0, "equation")
    parts = of_kind(_flat(call.args[1:]), Meta)
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
