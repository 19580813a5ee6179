"""Convolutions, pooling and resizing: functions and layers of images, sequences and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from autofast.facts.cost.meta.calls import Call, operation
from autofast.facts.cost.meta.tensor import UNKNOWN, Dims, Ledger, Meta
from autofast.facts.cost.work import Unsized
from autofast.model.several import all_of, are_whole


def each(value: Any, n: int) -> Dims:
    """One number for each dimension."""
    if isinstance(value, (tuple, list)) and len(value) == 1:
        value = value[0]
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,) * n
    if len(found) != n or not are_whole(found):
        raise Unsized("a size is not known")
    return found


def slid(
    dims: Sequence[int],
    kernel: Dims,
    stride: Dims,
    padding: Dims,
    dilation: Dims,
    up: bool = False,
) -> Dims:
    """Where a window stands that slides over a batch; ``up``: in its last place, also where it only
    begins in the batch.
    """
    found = []
    for d, k, s, p, w in zip(dims, kernel, stride, padding, dilation, strict=True):
        room, step = d + 2 * p - (k - 1) * w - 1, max(s, 1)
        many = (-(-room // step) if up else room // step) + 1
        found.append(many - 1 if up and (many - 1) * step >= d + p else many)
    if min(found) < 1:
        raise Unsized("its images are too small", over=-1)
    return tuple(found)


def convolve(
    ledger: Ledger,
    value: Any,
    weight: tuple[int, int],  # channels that it takes and makes
    kernel: Dims,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    transposed: bool = False,
    more: Any = 0,
) -> Meta:
    """A convolution, its work counted."""
    n, (taken, made) = len(kernel), weight
    stride, dilation = each(stride, n), each(dilation, n)
    if value is UNKNOWN and transposed and set(stride) == {1} and padding == 0:
        value = Meta((ledger.guess.items, taken, *(1,) * n))  # noise, as a generator takes it
    x = ledger.image(value, taken, n)
    sides = x.dims[2:]
    if padding == "same":
        dims = sides
    elif transposed:
        reach = tuple((k - 1) * w + 1 for k, w in zip(kernel, dilation, strict=True))
        parts = zip(sides, stride, each(padding, n), reach, each(more, n), strict=True)
        dims = tuple((d - 1) * s - 2 * p + r + o for d, s, p, r, o in parts)
        if min(dims) < 1:
            raise Unsized("its images are too small", over=-1)
    else:
        pads = each(0 if padding == "valid" else padding, n)
        dims = slid(sides, kernel, stride, pads, dilation)
    weights = taken * made // max(groups, 1) * prod(kernel)
    ledger.launch(2, 3)  # with the bias; the gradients of input, weights and bias
    point = n == 1 and prod(kernel) == 1  # a product for each position
    ledger.multiply(x.dims[0] * weights * prod(sides if transposed else dims), convolves=True)
    ledger.weigh(*((taken, made) if point else ()))
    ledger.put_out(x.dims[0] * made * prod(dims))
    return Meta((x.dims[0], made, *dims))


@operation("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def _function(call: Call) -> Meta:
    weight = call.tensor(1, "weight").dims
    transposed, groups = "transpose" in call.name, call.whole(6, "groups", 1)
    taken, made = (weight[0], weight[1] * groups) if transposed else (weight[1] * groups, weight[0])
    return convolve(
        call.ledger,
        call.get(0, "input"),
        (taken, made),
        weight[2:],
        call.get(3, "stride", 1),
        call.get(4, "padding", 0),
        call.get(7 if transposed else 5, "dilation", 1),
        groups,
        transposed,
        call.get(5, "output_padding", 0) if transposed else 0,
    )


@operation("max_pool1d", "max_pool2d", "max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d")
def _pool(call: Call) -> Any:
    x, n = call.tensor(), int(call.name[-2])
    kernel = call.get(1, "kernel_size")
    stride = call.get(2, "stride")
    stride = kernel if stride is None or stride == () else stride
    dilation = call.get(4, "dilation", 1) if call.name.startswith("max") else 1
    up = call.get(4 if call.name.startswith("avg") else -1, "ceil_mode") is True
    windows = (each(kernel, n), each(stride, n), each(call.get(3, "padding", 0), n))
    dims = slid(x.dims[-n:], *windows, each(dilation, n), up)
    call.ledger.launch()
    call.ledger.put_out(prod(x.dims[:-n]) * prod(dims))
    found = x.like(*x.dims[:-n], *dims)
    return (found, found) if call.named.get("return_indices") is True else found


@operation(
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d",
)  # fmt: skip
def _adaptive(call: Call) -> Meta:
    x, n = call.tensor(), int(call.name[-2])
    given = call.get(1, "output_size")
    asked = tuple(given) if isinstance(given, (tuple, list)) else (given,) * n
    dims = [d if a is None else a for a, d in zip(asked, x.dims[-n:], strict=True)]
    if not all_of(dims, int):
        raise Unsized("a size is not known")
    call.ledger.launch()
    return x.like(*x.dims[:-n], *dims)


@operation("interpolate", "upsample", "upsample_nearest", "upsample_bilinear")
def _interpolate(call: Call) -> Meta:
    x, size, by = call.tensor(), call.get(1, "size"), call.get(2, "scale_factor")
    n = len(x.dims) - 2
    if size is not None:
        dims = each(size, n)
    else:
        factors = tuple(by) if isinstance(by, (tuple, list)) else (by,) * n
        if not all_of(factors, int, float):
            raise Unsized("scale_factor is not known")
        dims = tuple(int(d * f) for d, f in zip(x.dims[2:], factors, strict=True))
    call.ledger.launch()
    call.ledger.put_out(prod(x.dims[:2]) * prod(dims))
    return x.like(*x.dims[:2], *dims)


@operation("pad")
def _pad(call: Call) -> Meta:
    x, pads = call.tensor(), call.get(1, "pad")
    if not isinstance(pads, (tuple, list)) or not are_whole(pads) or len(pads) % 2:
        raise Unsized("how it is padded is not known")
    dims = list(x.dims)
    for n in range(len(pads) // 2):
        dims[-1 - n] += pads[2 * n] + pads[2 * n + 1]
    call.ledger.launch()
    return x.like(*dims)


@operation("pixel_shuffle", "pixel_unshuffle")
def _shuffle(call: Call) -> Meta:
    x, r = call.tensor(), call.whole(1, "upscale_factor")
    *rest, c, h, w = x.dims
    call.ledger.launch()
    if call.name == "pixel_shuffle":
        return x.like(*rest, c // r**2, h * r, w * r)
    return x.like(*rest, c * r**2, h // r, w // r)


@operation("unfold")
def _unfold(call: Call) -> Meta:
    """Of images (``F.unfold``), or along a dimension (``x.unfold(dim, size, step)``)."""
    x = call.tensor()
    call.ledger.launch()
    if len(call.args) == 4 and are_whole(call.args[1:]):
        n, size, step = call.args[1:]
        n = n % len(x.dims)
        many = (x.dims[n] - size) // max(step, 1) + 1
        return x.like(*x.dims[:n], many, *x.dims[n + 1 :], size)
    kernel = each(call.get(1, "kernel_size"), 2)
    dilation, padding = each(call.get(2, "dilation", 1), 2), each(call.get(3, "padding", 0), 2)
    dims = slid(x.dims[2:], kernel, each(call.get(4, "stride", 1), 2), padding, dilation)
    return x.like(x.dims[0], x.dims[1] * prod(kernel), prod(dims))


@operation("fold")
def _fold(call: Call) -> Meta:
    x, size = call.tensor(), each(call.get(1, "output_size"), 2)
    kernel = each(call.get(2, "kernel_size"), 2)
    call.ledger.launch()
    return x.like(x.dims[0], x.dims[1] // prod(kernel), *size)


@operation("grid_sample", "affine_grid")
def _grid(call: Call) -> Meta:
    if call.name == "affine_grid":
        size = call.get(1, "size")
        if not isinstance(size, (tuple, list)) or not are_whole(size):
            raise Unsized("a size is not known")
        return Meta((size[0], *size[2:], len(size) - 2))
    x, grid = call.tensor(), call.tensor(1, "grid")
    call.ledger.launch()
    return x.like(*x.dims[:2], *grid.dims[1:-1])
