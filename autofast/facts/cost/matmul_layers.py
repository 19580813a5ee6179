"""Where models that are trained multiply matrices: in attention, in wide layers, in narrow ones
alone. Asked where sizes are not known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from math import prod

from autofast.facts.by_default import not_by_default
from autofast.facts.cost.bounds import largest_value, range_turns
from autofast.facts.cost.meta.tensor import NARROW, SEVERAL
from autofast.facts.cost.run_counts import SHORT
from autofast.facts.parts import moved_models, parts_of, trained_models
from autofast.model.calls import is_method, receiver_of
from autofast.model.contents import elements, members, with_contents
from autofast.model.events import CallFrame, loops
from autofast.model.kinds import is_module, ways_made
from autofast.model.names import CONTAINERS, CONVOLVE, TIMM, VISION, last_part
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import not_none, wordset
from autofast.model.source import ByNode, Nodes, function_of, parent_of
from autofast.model.values import OBJECTS, Ext, Inst, Thing, of_kind
from autofast.ops.families import RECURRENT
from autofast.read.recover.models import layers_of

WEIGHTLESS = re.compile(
    r"\w*Pool|\w*Dropout|\w*ReLU|\w*ELU|Sigmoid|Tanh|Soft|Hard|SiLU|Mish|Upsample|Identity|Sequential|Module|"
    r"\w*Pad|PixelShuffle|Flatten|Unflatten|\w*Loss|DataParallel"
)
# Layers that multiply no matrices, and containers of others.
PLAIN = re.compile(rf"Conv|\w*Norm|Embedding|{WEIGHTLESS.pattern}")
NETWORK = 200  # tensors that the parameters of a network are in
# Of torchvision, with one layer of classes behind dozens of convolutions (unlike VGG and AlexNet).
DEEP = re.compile(
    r"torchvision\.models\.(?:\w+\.)*"
    r"(?:resne|wide_resnet|densenet|mobilenet|efficientnet|shufflenet|squeezenet|googlenet|inception|mnasnet|regnet)\w*$"
)
LARGE = (
    16_000_000  # weights of a layer that counts beside convolutions: VGG's first has 103 million
)
LIGHT = 1_000_000  # weights of a layer: 256 rows through it are 1.5 GFLOP a step, or 0.1 ms
DENSE = wordset("torch.nn.Linear torch.nn.MultiheadAttention")
EMBEDDING = 2  # convolutions of an embedding, at most
TOGETHER = 4  # sequences that go along a recurrent layer, which its steps bind then
MANY = 2  # convolutions for each other layer, beside which what these multiply is little
# Networks and layers that attend from each position to all others.
ATTENTION = re.compile(
    r"torch\.nn\.(?:Transformer|MultiheadAttention)|(?:transformers|sentence_transformers|peft|open_clip|clip)\."
    r"|(?:torchvision|timm|vit_pytorch)\.(?:\w+\.)*(?:vit|swin|deit|beit|maxvit)",
    re.IGNORECASE,
)
TRANSFORMERS = re.compile(r"(?:pytorch_(?:pretrained_bert|transformers)|transformers)\.")
MULTIPLIES = frozenset({"Linear", "MultiheadAttention", "Conv1d", *RECURRENT})
TABLES = wordset("Embedding EmbeddingBag")
IMAGES = re.compile(r"Conv(?:Transpose)?[23]d")
PRODUCTS = wordset("matmul mm bmm einsum baddbmm")
ATTENDING = PRODUCTS | {"softmax", "scaled_dot_product_attention"}
SOFTMAX = "torch.nn.Softmax"


def _usual_models(script: Script) -> list[Model]:
    """Those that are trained while options have their defaults, where there are such; those that
    go to the device, where a library calls them (a learner of learn2learn, a functional copy);
    else all.
    """
    moved = {id(t): t for t in moved_models(script)}
    models = trained_models(script) or [
        Model(t, None, "", [], [], [], *layers_of(t))
        for t in moved.values()
        if isinstance(t, OBJECTS) and is_module(t)
    ]
    models = models or script.models  # a library takes their steps
    ways = {id(m): m.thing.made for m in models}
    return [m for m in models if not not_by_default(script, [ways[id(m)]])] or models


def only_embeds(script: Script) -> bool:
    """Whether the models that are trained convolve once or twice, in front of many layers that
    multiply matrices: patches of a transformer.
    """
    models = _usual_models(script)
    return bool(models) and all(map(_only_embeds, models))


def _only_embeds(model: Model) -> bool:
    parts = of_kind(parts_of(model.thing).values(), Ext)
    convolutions = [t for t in parts if t.name.startswith("torch.nn.Conv")]
    dense = [t for t in parts if t.name in DENSE]
    return (
        not any(DEEP.match(t.name) for t in parts)
        and len(convolutions) <= EMBEDDING
        and not _repeated(model, convolutions)
        and _repeated(model, dense) > 0
    )


def convolves(script: Script) -> bool:
    """Whether a model that is trained by default may convolve."""
    models = _usual_models(script)
    layers = {layer for m in models for layer in m.layers}
    unknown = not models or any(m.unknown for m in models)
    return unknown or any(layer.startswith(CONVOLVE) for layer in layers)


def convolves_along(script: Script) -> bool:
    """Whether all that is convolved are sequences, or patches, in models that have as many
    recurrent layers, or layers that multiply matrices, besides.
    """
    models = _usual_models(script)
    parts = [t for m in models for t in of_kind(parts_of(m.thing).values(), Ext)]
    layers = [(last_part(t.name), t) for t in parts]
    wide = [t for n, t in layers if "Conv" in n and _size(script, t, 2, "kernel_size") != 1]
    others = [n for n, _ in layers if n in MULTIPLIES - {"Conv1d"}]
    known = not any(m.unknown for m in models) and not takes_images(script)
    return only_embeds(script) or (known and 0 < len(wide) <= len(others))


def takes_images(script: Script) -> bool:
    """Whether a model that is trained by default convolves images, or volumes."""
    layers = {layer for m in _usual_models(script) for layer in m.layers}
    return any(IMAGES.match(x) or x.startswith((VISION, TIMM)) for x in layers)


def takes_words(script: Script) -> bool:
    """Whether the models that are trained by default look up what they are given in tables, as
    those of texts do, and none of them convolves.
    """
    layers = {layer for m in _usual_models(script) for layer in m.layers}
    unknown = any(m.unknown for m in _usual_models(script))
    return not unknown and bool(layers & TABLES) and not any("Conv" in x for x in layers)


def is_pretrained(script: Script) -> bool:
    """Whether a model that is trained by default is a transformer of a library, or extends one."""
    things = [t for m in _usual_models(script) for t in (m.thing, *parts_of(m.thing).values())]
    names = {n for t in things if isinstance(t, Inst) for n in t.cls.external}
    names |= {t.name for t in things if isinstance(t, Ext)}
    return any(map(TRANSFORMERS.match, names))


def multiplies(script: Script) -> str:
    """What makes products of matrices a part of a step that counts, in words, for models that are
    trained by default; empty where nothing is known to. Layers of cuDNN, convolutions and recurrent
    ones, use TF32 as they are.
    """
    return next((why for m in _usual_models(script) if (why := _multiplies(script, m))), "")


def _multiplies(script: Script, model: Model) -> str:
    parts = of_kind(parts_of(model.thing).values(), Ext)
    images = [t for t in parts if IMAGES.fullmatch(t.name.removeprefix("torch.nn."))]
    attending = [t for t in parts if ATTENTION.match(t.name)]
    dense = [t for t in parts if t.name == "torch.nn.Linear"]
    sizes = [_sizes(script, t) for t in dense]
    weights = max((s[0] * s[1] for s in sizes if len(s) == 2), default=0)
    if weights > (LARGE if images or any(DEEP.match(t.name) for t in parts) else LIGHT):
        return f"a dense layer of {weights:,} weights"
    others = [*dense, *attending]
    few = (len(images), len(others)), (_repeated(model, images), _repeated(model, others))
    if images and all(some >= MANY * rest for some, rest in few):
        return ""
    widths = [_size(script, t, 0, "embed_dim") for t in attending]
    wide = [t for t, s in zip(dense, sizes, strict=True) if min(s, default=LARGE) > NARROW]
    if any(n is None or n > NARROW for n in widths) or (
        (wide or not dense) and not attending and _attends(script, model)
    ):
        return "attention between positions"
    made = [_loops(model.thing, t) for t in wide if _sizes(script, t)]
    many = sum(prod(range_turns(script, loop) or 1 for loop in each) for each in made)
    if not images and many > SEVERAL:
        return f"{many} dense layers, none of them narrow"
    embeddings = [t for t in parts if t.name == "torch.nn.Embedding"]
    words = {_written(t, 0, "num_embeddings") for t in embeddings} - {""}
    if any(_written(t, 1, "out_features") in words for t in dense):
        return "a layer with a number for each word"
    return ""


def _written(layer: Ext, n: int, name: str) -> str:
    """An argument of a layer as it is spelled, and where."""
    given = layer.args.given(n, name)
    if given is None or given.expr is None or isinstance(given.expr, ast.Constant):
        return ""
    return f"{function_of(given.expr)} {ast.unparse(given.expr)}"


def _attends(script: Script, model: Model) -> bool:
    """Whether a function that a part of the model calls takes products, a softmax, and products."""
    classes = {t.cls.node for t in parts_of(model.thing).values() if isinstance(t, Inst)}
    found: ByNode[list[str]] = {}
    for (kind, _), site in script.log.each():
        name = last_part(kind)
        if name == "forward" and any(getattr(o.this, "name", "") == SOFTMAX for o in site):
            name = "softmax"
        frames = (f for o in site for f in o.stack if isinstance(f, CallFrame))
        if name in ATTENDING and any(parent_of(f.func.node) in classes for f in frames):
            found.setdefault(function_of(site.node), []).append(name)
    for node in script.each(ast.BinOp):
        if isinstance(node.op, ast.MatMult):
            found.get(function_of(node), []).append("matmul")
    return any(
        "scaled_dot_product_attention" in names
        or ("softmax" in names and sum(n in PRODUCTS for n in names) > 1)
        for names in found.values()
    )


def _repeated(model: Model, layers: list[Ext]) -> int:
    """How many of these layers a loop makes, that is not around the whole model."""
    return sum(bool(_loops(model.thing, t)) for t in layers)


def _loops(whole: Thing, layer: Ext) -> Nodes:
    """The loops that a layer is made in, and what holds it is not."""
    around = {f.node for f in loops(ways_made(whole))}
    return {f.node for f in loops(layer.made)} - around


def tensors(script: Script, models: Sequence[Thing] | None = None) -> int:
    """How many tensors the parameters of the models that are trained by default, or of these among
    them, are in, at the most: two of a layer, hundreds of a network of a library.
    """
    layers = [
        (m, t)
        for m in _usual_models(script)
        if models is None or m.thing in models
        for t in of_kind(parts_of(m.thing).values(), Ext)
        if not WEIGHTLESS.match(last_part(t.name))
    ]
    return sum(
        (2 if t.name.startswith("torch.nn.") else NETWORK)
        * prod(range_turns(script, loop) or SHORT for loop in _loops(m.thing, t))
        for m, t in layers
    )


def dense_sizes(script: Script, thing: Ext) -> list[tuple[int, int]] | None:
    """What comes into the dense layers that a layer of torch is, or holds, and goes out of them;
    None where it multiplies otherwise, or where that is not known.
    """
    found: list[tuple[int, int]] = []
    for layer in of_kind(parts_of(thing).values(), Ext):
        name, sizes = last_part(layer.name), _sizes(script, layer)
        copies = prod(range_turns(script, loop) or 0 for loop in _loops(thing, layer))
        if name == "Linear" and copies and len(sizes) == 2:
            found += [(sizes[0], sizes[1])] * copies
        elif name.startswith(CONVOLVE) or not PLAIN.match(name):
            return None
    return found


def only_looks_up(script: Script) -> bool:
    """Whether the models that are trained by default look up rows of tables and multiply nothing by
    weights: of words, of users and items. Products with one vector each are bound by memory.
    """
    models = _usual_models(script)
    layers = {layer for m in models for layer in m.layers}
    others = [n for n in layers - TABLES if n.startswith(CONVOLVE) or not PLAIN.match(n)]
    known = bool(layers & TABLES) and not others and all(map(_is_known, models))
    products = any(isinstance(n.op, ast.MatMult) for n in script.each(ast.BinOp))
    if not known or products or script.calls("torch.nn.Parameter"):
        return False
    every = {*PRODUCTS, "linear", "addmm", "tensordot"}
    sites = (s for (kind, _), s in script.log.each() if last_part(kind) in every)
    return all(_is_with_vectors(site.node) for site in sites)


def _is_with_vectors(product: ast.AST) -> bool:
    """``torch.bmm(x, y.unsqueeze(2))``"""
    return isinstance(product, ast.Call) and any(
        is_method(given, "unsqueeze") for given in (*product.args, receiver_of(product))
    )


def goes_along_few(script: Script, batch: int) -> str:
    """Which layers a few sequences go along, or a few rows through, in words, where no image is
    convolved; empty where that is not known.
    """
    parts = [p for m in _usual_models(script) for p in parts_of(m.thing).values()]
    layers = {last_part(t.name) for t in of_kind(parts, Ext)}
    if not 0 < batch <= TOGETHER or any(map(IMAGES.match, layers)):
        return ""
    if layers & {*RECURRENT}:
        return "its recurrent layers go along few sequences at once"
    known = "Linear" in layers and all(map(_is_known, _usual_models(script)))
    rows = known and all(n == "Linear" or (PLAIN.match(n) and n not in TABLES) for n in layers)
    return (
        "few rows go at once through its dense layers, whose weights it would cast" if rows else ""
    )


def _is_known(model: Model) -> bool:
    """Whether all layers are known; what a class calls besides is an event, but a container calls
    what it is given unseen.
    """
    containers = [t for t in parts_of(model.thing).values() if getattr(t, "name", "") in CONTAINERS]
    held = [t for container in containers for t in with_contents(members(container), elements)]
    return not model.unknown and all(is_module(t) for t in held if isinstance(t, Ext))


def _sizes(script: Script, layer: Ext) -> list[int]:
    """How many numbers go into a dense layer and come out, at the most, as far as that is known."""
    sizes = (
        _size(script, layer, n, name) for n, name in enumerate(("in_features", "out_features"))
    )
    return not_none(sizes)


def _size(script: Script, layer: Ext, n: int, name: str) -> int | None:
    given = layer.args.given(n, name)
    return largest_value(script, given.expr) if given is not None else None
