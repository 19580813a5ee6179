"""Layers of ``torch.nn``: what they are made with, their parameters, and their passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

from autofast.facts.cost.meta.calls import Call
from autofast.facts.cost.meta.functions import SAME, operate
from autofast.facts.cost.meta.images import convolve, each
from autofast.facts.cost.meta.products import dense
from autofast.facts.cost.meta.tensor import NARROW, RECURRING, UNKNOWN, Guess, Ledger, Meta
from autofast.facts.cost.work import Unsized

CONV = re.compile(r"Conv(Transpose)?([123])d$")
NORMS = re.compile(r"(?:Sync)?(?:Batch|Instance)Norm(?:[123]d)?$")
POOLS = re.compile(r"(?:Adaptive)?(?:Max|Avg)Pool[123]d$")
PADS = re.compile(r"(?:Zero|Reflection|Replication|Constant|Circular)Pad([123])d$")
# Sizes that are usual, where a script does not say them.
CLASSES, FEATURES, WORDS, CHANNELS = 1024, 64, 10_000, 3
MOST_LAYERS = 1_000
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
CONTAINERS = frozenset({"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"})
Passes = Callable[["Layer", Ledger, list[Any], dict[str, Any]], Any]
MADE: dict[str, Callable[[Call], tuple[dict[str, Any], int, int]]] = {}


@dataclass(eq=False)
class Layer:
    """A layer of torch: its kind, what it was made with, and the attributes that code reads."""

    kind: str
    call: Call
    node: object = None  # where it is made
    attrs: dict[str, Any] = field(default_factory=dict)
    parameters: int = 0
    tensors: int = 0

    def get(self, n: int, name: str, default: Any = None) -> Any:
        return self.call.get(n, name, default)


def bare(kind: str, node: object = None, **attrs: Any) -> Layer:
    """A layer of which only attributes are known."""
    return Layer(kind, Call(Ledger(Guess(0)), kind, []), node, attrs)


def snake(name: str) -> str:
    """``AdaptiveAvgPool2d``: ``adaptive_avg_pool2d``"""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def make(kind: str, ledger: Ledger, args: list[Any], named: dict[str, Any], node: object) -> Layer:
    """A layer of torch; raises :class:`Unsized` where its sizes are not known."""
    layer = Layer(kind, Call(ledger, kind, args, named), node)
    call = layer.call
    if match := CONV.fullmatch(kind):
        _make_convolution(layer, int(match[2]), bool(match[1]))
    elif kind == "Linear":
        taken, made = call.get(0, "in_features"), call.guessed(1, "out_features", CLASSES)
        if type(taken) is not int:
            call.guessed(0, "in_features", FEATURES)
        layer.attrs["free"] = type(taken) is not int  # it takes whatever comes
        taken = taken if type(taken) is int else FEATURES
        bias = call.get(2, "bias", True) is not False
        _weights(layer, (made, taken), (made,) if bias else None)
        layer.attrs.update(in_features=taken, out_features=made)
    elif kind == "Bilinear":
        a, b, made = (
            call.whole(0, "in1_features"),
            call.whole(1, "in2_features"),
            call.whole(2, "out_features"),
        )
        _weights(layer, (made, a, b), (made,))
    elif kind in ("Embedding", "EmbeddingBag"):
        rows, width = call.guessed(0, "num_embeddings", WORDS), call.whole(1, "embedding_dim")
        _weights(layer, (rows, width), None)
        layer.attrs.update(num_embeddings=rows, embedding_dim=width)
    elif NORMS.fullmatch(kind) or kind == "GroupNorm":
        features = call.whole(
            kind == "GroupNorm", "num_channels" if kind == "GroupNorm" else "num_features"
        )
        affine = call.get(3, "affine", not kind.startswith("Instance")) is not False
        if affine:
            _weights(layer, (features,), (features,))
        layer.attrs["num_features"] = features
    elif kind in ("LayerNorm", "RMSNorm"):
        shape = call.get(0, "normalized_shape")
        dims = (
            (shape,)
            if isinstance(shape, int)
            else tuple(shape)
            if isinstance(shape, (tuple, list))
            else ()
        )
        _weights(layer, dims, dims if kind == "LayerNorm" else None)
    elif kind in GATES or kind.removesuffix("Cell") in GATES:
        _make_recurrent(layer)
    elif kind == "PReLU":
        _weights(layer, (call.whole(0, "num_parameters", 1),), None)
    elif kind == "MultiheadAttention":
        width = call.whole(0, "embed_dim")
        layer.attrs.update(embed_dim=width, num_heads=call.get(1, "num_heads"))
        layer.parameters, layer.tensors = 4 * width * width + 4 * width, 4
    elif kind in TRANSFORMER:
        TRANSFORMER[kind](layer)
    return layer


def _weights(layer: Layer, weight: tuple[int, ...], bias: tuple[int, ...] | None) -> None:
    layer.attrs["weight"] = Meta(weight, weight=True)
    layer.attrs["bias"] = Meta(bias, weight=True) if bias is not None else None
    layer.parameters = prod(weight) + (prod(bias) if bias is not None else 0)
    layer.tensors = 1 + (bias is not None)


def _make_convolution(layer: Layer, n: int, transposed: bool) -> None:
    call = layer.call
    taken, made = call.guessed(0, "in_channels", CHANNELS), call.whole(1, "out_channels")
    kernel = each(call.get(2, "kernel_size"), n)
    groups = call.whole(6, "groups", 1)
    bias = call.get(7, "bias", True) is not False
    dims = (taken, made // max(groups, 1)) if transposed else (made, taken // max(groups, 1))
    _weights(layer, (*dims, *kernel), (made,) if bias else None)
    layer.attrs.update(
        in_channels=taken, out_channels=made, kernel_size=kernel, groups=groups,
        stride=call.get(3, "stride", 1), padding=call.get(4, "padding", 0),
        dilation=call.get(8 if transposed else 5, "dilation", 1),
    )  # fmt: skip


def _make_recurrent(layer: Layer) -> None:
    call, gates = layer.call, GATES[layer.kind.removesuffix("Cell")]
    taken, hidden = call.whole(0, "input_size"), call.whole(1, "hidden_size")
    layers = 1 if layer.kind.endswith("Cell") else call.whole(2, "num_layers", 1)
    ways = 2 if call.get(6, "bidirectional") is True else 1
    if call.named.get("proj_size") or layers > MOST_LAYERS:
        raise Unsized(f"what {layer.kind} costs is not known")
    products = 0
    total = 0
    for n in range(layers):
        into = taken if n == 0 else hidden * ways
        products += ways * gates * hidden * (into + hidden)
        total += ways * gates * hidden * (into + hidden + 2)
    layer.parameters, layer.tensors = total, 4 * layers * ways
    layer.attrs.update(
        products=products, input_size=taken, hidden_size=hidden, num_layers=layers, bidirectional=ways == 2,
        batch_first=call.get(4, "batch_first", False) is True,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------- passes
def run(layer: Layer, ledger: Ledger, args: list[Any], named: dict[str, Any]) -> Any:
    """A pass through a layer."""
    kind = layer.kind
    ledger.use(layer, layer.parameters, layer.tensors)
    x = args[0] if args else next(iter(named.values()), UNKNOWN)
    if match := CONV.fullmatch(kind):
        found = layer.attrs
        return convolve(
            ledger, x, (found["in_channels"], found["out_channels"]), found["kernel_size"],
            found["stride"], found["padding"], found["dilation"], found["groups"], bool(match[1]),
            layer.get(5, "output_padding", 0) if match[1] else 0,
        )  # fmt: skip
    if kind == "Linear":
        if layer.attrs["free"] and isinstance(x, Meta) and x.dims:
            return dense(ledger, x, x.dims[-1], layer.attrs["out_features"])
        return dense(ledger, x, layer.attrs["in_features"], layer.attrs["out_features"])
    if kind == "Bilinear":
        return operate(ledger, "bilinear", [*args[:2], layer.attrs["weight"]], {})
    if kind in ("Embedding", "EmbeddingBag"):
        return _embedded(layer, ledger, ledger.indices(x))
    if kind in GATES:
        return _recurrent(layer, ledger, x)
    if kind.removesuffix("Cell") in GATES:
        return _cell(layer, ledger, x)
    if kind == "MultiheadAttention":
        keys, values = (
            (args[1], args[2]) if len(args) > 2 else (named.get("key", x), named.get("value", x))
        )
        return attend(layer, ledger, x, keys, values), UNKNOWN
    if kind in TRANSFORMER:
        return _transformer(layer, ledger, args, named)
    if kind.endswith("Loss"):
        ledger.launch(2, 2)
        return Meta(()) if layer.get(-1, "reduction") != "none" or not isinstance(x, Meta) else x
    if not isinstance(x, Meta):
        return UNKNOWN
    return _plain(layer, ledger, x, named)


def _plain(layer: Layer, ledger: Ledger, x: Meta, named: dict[str, Any]) -> Any:
    """Of a layer that takes any tensor."""
    kind = layer.kind
    if kind == "Identity":
        return x
    if NORMS.fullmatch(kind) or kind in ("GroupNorm", "LayerNorm", "RMSNorm", "LocalResponseNorm"):
        features = layer.attrs.get("num_features")
        if features is not None and features not in x.dims[1:]:
            raise Unsized(f"a normalisation of {features} features is given {x.dims}")
        ledger.launch()
        ledger.put_out(x.count)
        return x
    if POOLS.fullmatch(kind):
        return operate(ledger, snake(kind), [x, *layer.call.args], layer.call.named)
    if match := PADS.fullmatch(kind):
        n, sizes = int(match[1]), layer.get(0, "padding")
        pads = [sizes] * 2 * n if isinstance(sizes, int) else sizes
        return operate(ledger, "pad", [x, pads], {})
    if kind == "Flatten":
        first, last = layer.get(0, "start_dim", 1), layer.get(1, "end_dim", -1)
        return operate(ledger, "flatten", [x, first, last], {})
    if kind == "Unflatten":
        return operate(
            ledger, "unflatten", [x, layer.get(0, "dim"), layer.get(1, "unflattened_size")], {}
        )
    if kind.startswith("Upsampl"):
        given = [layer.get(0, "size"), layer.get(1, "scale_factor")]
        return operate(ledger, "interpolate", [x, *given], {})
    if kind in ("PixelShuffle", "PixelUnshuffle", "Unfold", "Fold"):
        return operate(ledger, snake(kind), [x, *layer.call.args], layer.call.named)
    if kind in ("CosineSimilarity", "PairwiseDistance"):
        return operate(ledger, snake(kind), [x, x], {})
    if snake(kind) in SAME or kind in ACTIVATIONS or kind.startswith("Dropout"):
        ledger.launch()
        return x
    ledger.unsure(f"what {kind} costs is not known")
    return UNKNOWN


ACTIVATIONS = frozenset(
    """ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Hardswish Hardsigmoid Hardtanh Sigmoid Tanh Softplus Softsign
    Softmax Softmax2d LogSoftmax LogSigmoid PReLU RReLU AlphaDropout Threshold Softshrink Tanhshrink ChannelShuffle""".split()
)


def _embedded(layer: Layer, ledger: Ledger, x: Meta) -> Meta:
    width = layer.attrs["embedding_dim"]
    ledger.launch(1, 2)
    ledger.put_out(x.count * width)
    return Meta((x.dims[0], width) if layer.kind == "EmbeddingBag" else (*x.dims, width))


def _recurrent(layer: Layer, ledger: Ledger, value: Any) -> Any:
    """All layers of a recurrent network along all steps; what it gives, and its last state."""
    found, gates = layer.attrs, GATES[layer.kind]
    first, hidden, layers = found["batch_first"], found["hidden_size"], found["num_layers"]
    x = ledger.sequence(value, found["input_size"], first)
    batch, length = x.dims[:2] if first else (x.dims[1], x.dims[0])
    ways = 2 if found["bidirectional"] else 1
    ledger.multiply(batch * length * found["products"])
    ledger.weigh(*([1] if hidden <= RECURRING else []))
    ledger.put_out(batch * length * hidden * gates * layers * ways)
    # cuDNN: a few kernels of a step of a layer, forwards and backwards, without Python in between
    ledger.launch(layers * ways, 2 * layers * ways)
    state = Meta((layers * ways, batch, hidden))
    given = Meta((*x.dims[:2], hidden * ways))
    return given, ((state, state) if layer.kind == "LSTM" else state)


def _cell(layer: Layer, ledger: Ledger, value: Any) -> Any:
    found = layer.attrs
    x = ledger.rows(value, found["input_size"])
    ledger.multiply(x.dims[0] * found["products"])
    ledger.weigh(found["hidden_size"])
    ledger.launch(10, 20)
    state = Meta((*x.dims[:-1], found["hidden_size"]))
    return (state, state) if layer.kind == "LSTMCell" else state


# ------------------------------------------------------------------------------------ transformers
def attend(layer: Layer, ledger: Ledger, query: Any, keys: Any, values: Any) -> Meta:
    """Attention with its four projections."""
    width = layer.attrs["embed_dim"]
    first = layer.call.named.get("batch_first") is True
    q = ledger.sequence(query, width, first) if not isinstance(query, Meta) else query
    k = keys if isinstance(keys, Meta) else q
    along = 1 if first else 0
    length = k.dims[along] if len(k.dims) == 3 else k.dims[0]
    for x in (q, k, k, q):
        dense(ledger, x, x.dims[-1], width)
    ledger.launch(2, 4)
    ledger.multiply(2 * q.count * length)
    ledger.weigh(*([width] if width <= NARROW else []))
    ledger.put_out(2 * q.count)
    return q


def _encoder_layer(layer: Layer) -> None:
    width = layer.call.whole(0, "d_model")
    inner = layer.call.get(2, "dim_feedforward", 2048)
    parts = 2 if layer.kind == "TransformerDecoderLayer" else 1
    layer.attrs.update(embed_dim=width, inner=inner, attends=parts)
    layer.parameters = parts * 4 * width * width + 2 * width * inner
    layer.tensors = 12 + 6 * (parts - 1)


def _encoder(layer: Layer) -> None:
    inner, many = (
        layer.get(0, "encoder_layer", layer.get(0, "decoder_layer")),
        layer.get(1, "num_layers"),
    )
    if not isinstance(inner, Layer) or type(many) is not int or many > MOST_LAYERS:
        raise Unsized("how many layers it has is not known")
    layer.attrs.update(layer=inner, many=many)
    layer.parameters, layer.tensors = inner.parameters * many, inner.tensors * many


def _whole(layer: Layer) -> None:
    call = layer.call
    width, inner = call.get(0, "d_model", 512), call.get(4, "dim_feedforward", 2048)
    for n, (kind, many) in enumerate(
        (("TransformerEncoderLayer", call.get(2, "num_encoder_layers", 6)),
         ("TransformerDecoderLayer", call.get(3, "num_decoder_layers", 6)))
    ):  # fmt: skip
        named = {k: v for k, v in call.named.items() if k == "batch_first"}
        one = make(kind, call.ledger, [width, 8, inner], named, None)
        layer.attrs[f"part{n}"] = one, many
        layer.parameters += one.parameters * many
        layer.tensors += one.tensors * many


TRANSFORMER: dict[str, Callable[[Layer], None]] = {
    "TransformerEncoderLayer": _encoder_layer, "TransformerDecoderLayer": _encoder_layer,
    "TransformerEncoder": _encoder, "TransformerDecoder": _encoder, "Transformer": _whole,
}  # fmt: skip


def _transformer(layer: Layer, ledger: Ledger, args: list[Any], named: dict[str, Any]) -> Any:
    x = args[0] if args else named.get("src", named.get("tgt", UNKNOWN))
    memory = args[1] if len(args) > 1 else named.get("memory", x)
    if layer.kind == "Transformer":
        (encoder, many), (decoder, others) = layer.attrs["part0"], layer.attrs["part1"]
        for _ in range(many):
            x = _block(encoder, ledger, x, x)
        y = args[1] if len(args) > 1 else named.get("tgt", x)
        for _ in range(others):
            y = _block(decoder, ledger, y, x)
        return y
    if "many" in layer.attrs:
        for _ in range(layer.attrs["many"]):
            x = _block(layer.attrs["layer"], ledger, x, memory)
        return x
    return _block(layer, ledger, x, memory)


def _block(layer: Layer, ledger: Ledger, value: Any, memory: Any) -> Meta:
    """Attention (a decoder's twice), and two dense layers."""
    ledger.budget.spend()
    x = attend(layer, ledger, value, value, value)
    if layer.attrs["attends"] > 1:
        x = attend(layer, ledger, x, memory, memory)
    inner = dense(ledger, x, layer.attrs["embed_dim"], layer.attrs["inner"])
    ledger.launch(8, 10)
    return dense(ledger, inner, layer.attrs["inner"], layer.attrs["embed_dim"])
