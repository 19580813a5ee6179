"""What a layer makes of a batch, and what that costs: the table of torch's layers, by sizes."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from operator import mul
from typing import Any

from autofast.model.several import are_whole, wordset
from autofast.model.values import Arguments, Seq, Values, all_of, const
from autofast.rule import Refusal


class Unsized(Refusal):
    """Why it is not known what a batch costs; ``over`` where too much (or little) comes to a
    Linear, as the images are too large (small).
    """

    def __init__(self, why: str, over: int = 0):
        super().__init__(why)
        self.over = over


@dataclass(frozen=True)
class Shape:
    """Of an item: its channels or features (None: not known), and its other dimensions."""

    channels: int | None
    dims: tuple[int, ...] = ()

    @property
    def positions(self) -> int:
        return prod(self.dims)

    @property
    def elements(self) -> int | None:
        return None if self.channels is None else self.channels * self.positions


@dataclass
class Work:
    """What a training step costs with one item in a batch: forwards and backwards.

    Attributes:
        convolutions, products: FLOP.
        activations: numbers that layers put out.
        kernels: launched, for a batch of any size.
        parameters: numbers of them; ``tensors`` that they are in.
    """

    convolutions: float = 0
    products: float = 0
    activations: float = 0
    kernels: int = 0
    parameters: int = 0
    tensors: int = 0

    def add(self, other: Work, times: float = 1) -> None:
        """Another one beside it, on so many items."""
        self.convolutions += other.convolutions * times
        self.products += other.products * times
        self.activations += other.activations * times
        self.kernels += other.kernels
        self.parameters += other.parameters
        self.tensors += other.tensors


CLASSES = 1024  # of an image, where it is not known how many there are
# A backward computes the gradients of the input and of the weights: twice the forward.
TRAINED = 3
CONV = re.compile(r"Conv(Transpose)?([123])d$")
POOL = re.compile(r"(?:Max|Avg)Pool([123])d$|(?:max|avg)_pool([123])d$")
UP = re.compile(r"Upsample|Upsampling(?:Nearest|Bilinear)2d|interpolate|upsample")
LOSS = re.compile(r"\w+(?:Loss|_loss)|(?:binary_)?cross_entropy\w*|kl_div")
ADAPTIVE = re.compile(r"Adaptive(?:Max|Avg)Pool([123])d$|adaptive_(?:max|avg)_pool([123])d$")
NORMS = re.compile(r"(?:Batch|Instance|Layer|Group)Norm(?:[123]d)?$|batch_norm$|layer_norm$")
# One kernel forwards and one backwards, and a batch that keeps its shape (`pad`: nearly).
CHEAP = wordset("""ReLU ReLU6 LeakyReLU ELU SELU GELU SiLU Mish Hardswish Hardtanh Sigmoid Tanh Softplus Softmax LogSoftmax PReLU CELU
    Dropout Dropout1d Dropout2d Dropout3d AlphaDropout
    relu relu6 leaky_relu elu selu gelu silu mish hardswish hardtanh sigmoid tanh softplus softmax log_softmax prelu celu
    dropout dropout1d dropout2d dropout3d alpha_dropout clone where masked_fill var std rsqrt
    roll flip maximum minimum sin cos pad add sub mul div exp log sqrt pow abs clamp normalize float
    normal uniform randn_like rand_like zeros_like ones_like empty_like new new_empty new_zeros new_ones""")
# They leave fewer numbers, or as many in another order.
LOOSE = wordset("mean sum amax max squeeze unsqueeze permute transpose t")
# No kernel at all.
FREE = wordset("Identity contiguous detach to cuda type requires_grad_")


def layer(
    name: str,
    args: Arguments,
    shape: Shape,
    work: Work,
    most: Callable[[ast.expr], int | None],
    first: int = 0,
) -> Shape | None:
    """What comes out of a layer or function of torch, counted in ``work``; None where the table has
    no such name.

    ``most`` says how large a number is that is computed (``2 * args.width``). ``first``: the number
    of arguments before its own (1 for functions, which are given the batch).
    """

    def given(place: int, name: str, default: Any = ...) -> Any:
        values, said = args.get(place + first, name), args.given(place + first, name)
        if not values and default is not ...:
            return default
        try:
            return _number(values, name)
        except Unsized:
            found = most(said.expr) if said is not None and said.expr is not None else None
            if found is None:
                raise
            return found

    if name in FREE:
        return shape
    if name.removesuffix("_") in CHEAP or LOSS.fullmatch(name):
        work.kernels += 2
        return shape
    if name in LOOSE:
        work.kernels += 2
        return Shape(None, shape.dims)  # what is left is no more than that
    if NORMS.search(name):
        work.kernels += 2
        work.activations += shape.elements or 0
        work.tensors += 2
        return shape
    if match := CONV.fullmatch(name):
        return _convolution(int(match[2]), given, shape, work, transposed=bool(match[1]))
    if match := POOL.fullmatch(name):
        n = int(match[1] or match[2])
        kernel = _each(given(0, "kernel_size"), n)
        stride = _each(given(1, "stride", None) or kernel, n)
        work.kernels += 2
        return Shape(shape.channels, _slid(shape, kernel, stride, _each(given(2, "padding", 0), n)))
    if match := ADAPTIVE.fullmatch(name):
        work.kernels += 2
        return Shape(shape.channels, _each(given(0, "output_size"), int(match[1] or match[2])))
    if name == "Linear":
        taken = given(0, "in_features")
        try:
            return _linear(taken, given(1, "out_features"), shape, work)
        except Unsized as why:
            if not work.convolutions or why.over:
                raise
        return replace(_linear(taken, CLASSES, shape, work), channels=None)
    if name in ("Flatten", "flatten"):
        # a function flattens the batch, too, unless told otherwise
        if given(0, "start_dim", 1 - first) != 1 or given(1, "end_dim", -1) != -1:
            raise Unsized("what is flattened is not known")
        return Shape(shape.elements)
    if UP.fullmatch(name) and given(0, "size", None) is None:
        by = _each(given(1, "scale_factor"), len(shape.dims))
        work.kernels += 2
        return Shape(shape.channels, tuple(map(mul, shape.dims, by)))
    return None


# Of several that one of them may be (``width = 512``, and 32 where the script is tried out), the
# largest costs most.
WIDTHS = wordset("in_channels out_channels in_features out_features")


def _number(values: Values, name: str) -> Any:
    """A number, a tuple of numbers or None, of an argument; options count by their defaults."""
    found = {t.default if hasattr(t, "default") else frozenset({t}) for t in values}
    if name in WIDTHS and found:
        widths = [const(values) for values in found]
        if are_whole(widths):
            return max(widths)
    if len(found) == 1:
        (only,) = found
        (thing,) = only if len(only) == 1 else (None,)
        if isinstance(thing, Seq) and thing.exact is not None:
            parts = tuple(const(v) for v in thing.exact)
            if all_of(parts, int):
                return parts
        elif thing is not None and const(only) is not ...:
            return const(only)
    raise Unsized(f"{name} is not known")


def _each(value: Any, n: int) -> tuple[int, ...]:
    """One number for each dimension."""
    found = value if isinstance(value, tuple) else (value,) * n
    if len(found) != n or not all_of(found, int):
        raise Unsized("a size is not known")
    return found


def _slid(
    shape: Shape, kernel: tuple[int, ...], stride: tuple[int, ...], padding: tuple[int, ...]
) -> tuple[int, ...]:
    """Where a window stands that slides over a batch."""
    if len(shape.dims) != len(kernel):
        raise Unsized("the size of its images is not known")
    places = zip(shape.dims, kernel, stride, padding, strict=True)
    found = tuple((d + 2 * p - k) // max(s, 1) + 1 for d, k, s, p in places)
    if any(d < 1 for d in found):
        raise Unsized("its images are too small", over=-1)
    return found


def _convolution(
    n: int, given: Callable[..., Any], shape: Shape, work: Work, transposed: bool
) -> Shape:
    taken, made = given(0, "in_channels"), given(1, "out_channels")
    kernel, stride = _each(given(2, "kernel_size"), n), _each(given(3, "stride", 1), n)
    padding, dilation = (
        given(4, "padding", 0),
        _each(given(8 if transposed else 5, "dilation", 1), n),
    )
    groups = given(6, "groups", 1)
    if not all_of((taken, made, groups), int):
        raise Unsized("its channels are not known")
    reach = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    pads = tuple(k // 2 for k in reach) if padding == "same" else _each(padding or 0, n)
    weights = made * taken // max(groups, 1) * prod(kernel)
    if transposed:
        more, before = _each(given(5, "output_padding", 0), n), shape.dims
        if len(before) != n:
            raise Unsized("the size of its images is not known")
        sides = zip(before, reach, stride, pads, more, strict=True)
        dims = tuple((d - 1) * s - 2 * p + r + o for d, r, s, p, o in sides)
    else:
        dims = before = _slid(shape, reach, stride, pads)
    work.convolutions += TRAINED * 2 * weights * prod(before)
    work.activations += made * prod(dims)
    work.parameters += weights + made
    work.tensors += 2
    work.kernels += 5  # convolution and bias; the gradients of input, weights and bias
    return Shape(made, dims)


def _linear(taken: Any, made: Any, shape: Shape, work: Work) -> Shape:
    if not (isinstance(taken, int) and isinstance(made, int)):
        raise Unsized("its features are not known")
    rows = shape.positions
    if shape.elements is not None:
        if shape.elements % taken or (not shape.dims and shape.elements != taken):
            over = 1 if shape.elements > taken else -1
            raise Unsized("what comes to a Linear does not fit it", over=over)
        rows = shape.elements // taken
    work.products += TRAINED * 2 * taken * made * rows
    work.activations += made * rows
    work.parameters += taken * made + made
    work.tensors += 2
    work.kernels += 4  # the product with its bias; the gradients of input, weights and bias
    return Shape(made, (rows,) if rows != 1 else ())
