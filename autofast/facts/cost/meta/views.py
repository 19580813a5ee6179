"""Views: the same numbers in other sizes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from autofast.facts.cost.meta.calls import Call, operation
from autofast.facts.cost.meta.tensor import UNKNOWN, Meta, axis, few
from autofast.facts.cost.work import Unsized
from autofast.model.several import are_whole


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
    if given[-1] is UNKNOWN and -1 in given and x.dims:  # what a layer has just given
        given[-1] = x.dims[-1]
    if given.count(UNKNOWN) == 1 and -1 not in given:
        given[given.index(UNKNOWN)] = -1
    return replace(call, args=[x, *given]).sizes(1)


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
