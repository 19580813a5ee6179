"""Where models that are trained multiply matrices: in convolutions, in a small head behind them, in
narrow layers alone. Asked where sizes are not known.
"""

from __future__ import annotations

import re

from autofast.facts.by_default import not_by_default
from autofast.facts.cost.bounds import most
from autofast.facts.parts import parts_of, trained_models
from autofast.model.contents import elements, members, opened
from autofast.model.events import loops
from autofast.model.kinds import is_module
from autofast.model.names import CONTAINERS, WRAPPERS
from autofast.model.script import Model, Script
from autofast.model.values import Ext, Inst, const
from autofast.ops.families import RECURRENT
from autofast.read.recover.models import layers_of

# Layers that multiply no matrices, and containers of others.
PLAIN = re.compile(
    r"Conv|\w*Norm|\w*Pool|\w*Dropout|\w*ReLU|\w*ELU|Sigmoid|Tanh|Soft|Hard|SiLU|Mish|Upsample|Identity|Sequential|Module|"
    r"\w*Pad|PixelShuffle|Flatten|Unflatten|Embedding|\w*Loss|DataParallel"
)
# Of torchvision, with one layer of classes behind dozens of convolutions (unlike VGG and AlexNet).
DEEP = re.compile(
    r"torchvision\.models\.(?:\w+\.)*"
    r"(?:resne|wide_resnet|densenet|mobilenet|efficientnet|shufflenet|squeezenet|googlenet|inception|mnasnet|regnet)\w*$"
)
LARGE = 16_000_000  # weights of a layer that makes a head slow: VGG's first has 103 million
LIGHT = 1_000_000  # of all layers of a head: 256 rows through them are 1.5 GFLOP a step, or 0.1 ms
LONG = 20  # rows of each item behind a recurrent layer, one for each of its elements
DENSE = frozenset({"torch.nn.Linear", "torch.nn.MultiheadAttention"})
EMBEDDING = 2  # convolutions of an embedding, at most
# A product with a side of so many numbers is bound by memory: 32 floating-point operations for each
# byte of what comes in and goes out.
NARROW = 128
# So few layers with such sides are bound by launches: 512 rows through one of them are 0.27 GFLOP,
# 5 to 15 µs of a GPU.
SMALL, FEW = 512, 6
MANY = 2  # convolutions for each layer of the head, at least


def _usual_models(script: Script) -> list[Model]:
    """Those that are trained while options have their defaults, where there are such; those that
    go to the device, where a library calls them (a learner of learn2learn, a functional copy).
    """
    moved = {id(o.this): o.this for s in script.log.of("move_model") for o in s if o.this}
    models = trained_models(script) or [
        Model(t, None, "", [], [], [], *layers_of(t))
        for t in moved.values()
        if isinstance(t, (Ext, Inst)) and is_module(t)
    ]
    ways = {id(m): getattr(m.thing, "made", ()) for m in models}
    return [m for m in models if not not_by_default(script, [ways[id(m)]])] or models


def only_convolves(script: Script) -> bool:
    """Whether the models that are trained certainly multiply no matrices but in layers of cuDNN,
    which has a flag of its own: convolutions, recurrent layers.
    """
    models = _usual_models(script)
    layers = {layer for m in models for layer in m.layers}
    return (
        bool(models)
        and all(map(_is_known, models))
        and any(layer.startswith("Conv") or layer in RECURRENT for layer in layers)
        and all(PLAIN.match(layer) or layer in RECURRENT for layer in layers)
    )


def holds_weights(script: Script) -> bool:
    """Whether the models that are trained have no layers of torch that compute with weights: they
    hold weights, and give them to functions, or are functions.
    """
    models = _usual_models(script)
    return bool(script.steps) and all(
        _is_known(m) and all(PLAIN.match(x) and not x.startswith("Conv") for x in m.layers)
        for m in models
    )


def only_embeds(script: Script) -> bool:
    """Whether the models that are trained convolve once or twice, in front of many layers that
    multiply matrices: patches of a transformer.
    """
    models = _usual_models(script)
    return bool(models) and all(map(_only_embeds, models))


def _only_embeds(model: Model) -> bool:
    parts = [t for t in parts_of(model.thing).values() if isinstance(t, Ext)]
    convolutions = [t for t in parts if t.name.startswith("torch.nn.Conv")]
    dense = [t for t in parts if t.name in DENSE]
    return (
        not any(DEEP.match(t.name) for t in parts)
        and len(convolutions) <= EMBEDDING
        and not _repeated(model, convolutions)
        and _repeated(model, dense) > 0
    )


def mostly_convolves(script: Script) -> bool:
    """Whether convolutions of images outnumber dense layers in each model that is trained, and all
    layers are known: what positions multiply with each other besides is little beside them.
    """
    models = _usual_models(script)
    return bool(models) and all(_mostly_convolves(script, m) for m in models)


def _mostly_convolves(script: Script, model: Model) -> bool:
    parts = [t for t in parts_of(model.thing).values() if isinstance(t, Ext)]
    images = [t for t in parts if re.fullmatch(r"torch\.nn\.Conv(?:Transpose)?[23]d", t.name)]
    dense = [t for t in parts if not PLAIN.match(t.name.rsplit(".", 1)[-1])]
    dense = [t for t in dense if t.name not in WRAPPERS]
    few = (len(images), len(dense)), (_repeated(model, images), _repeated(model, dense))
    return (
        _is_known(model)
        and bool(images)
        and all(t.name == "torch.nn.Linear" and _weights(script, [t]) <= LARGE for t in dense)
        and all(some >= MANY * others for some, others in few)
    )


def _repeated(model: Model, layers: list[Ext]) -> int:
    """How many of these layers a loop makes, that is not around the whole model."""
    around = {f.node for f in loops(getattr(model.thing, "made", ()))}
    return sum(bool({f.node for f in loops(t.made)} - around) for t in layers)


def is_small_head(script: Script) -> bool:
    """Whether dense layers are few in each model that is trained, and none is known to be large."""
    models = _usual_models(script)
    return bool(models) and all(_has_small_head(script, m) for m in models)


def _has_small_head(script: Script, model: Model) -> bool:
    parts = [t for t in parts_of(model.thing).values() if isinstance(t, Ext)]
    parts = [t for t in parts if t.name not in WRAPPERS]
    dense = [t for t in parts if t.name == "torch.nn.Linear"]
    deep = [t for t in parts if DEEP.match(t.name)]
    convolutions = [t for t in parts if t.name.startswith("torch.nn.Conv")]
    recurrent = [t for t in parts if t.name.removeprefix("torch.nn.") in RECURRENT]
    known = (dense, deep, convolutions, recurrent)
    others = [t for t in parts if not any(t in few for few in known)]
    return (
        _is_known(model)
        and (
            bool(deep)
            or len(convolutions) >= max(1, MANY * len(dense))
            or (bool(convolutions) and not recurrent and _weights(script, dense) <= LIGHT)
            or (bool(recurrent) and _weights(script, dense) <= LIGHT // LONG)
        )
        and all(PLAIN.match(t.name.rsplit(".", 1)[-1]) for t in others)
        and all(_weights(script, [t]) <= LARGE for t in dense)
        and not _repeated(model, dense)
    )


def is_light(script: Script) -> bool:
    """Whether no dense layer of the models that are trained may be larger than those of a light
    head.
    """
    parts = [t for m in trained_models(script) for t in parts_of(m.thing).values()]
    dense = [t for t in parts if isinstance(t, Ext) and t.name == "torch.nn.Linear"]
    return all(_weights(script, [t]) <= LIGHT for t in dense)


def is_narrow(script: Script) -> bool:
    """Whether the models that are trained multiply matrices in narrow layers alone, or in few small
    ones: of a policy, of a few columns.
    """
    models = _usual_models(script)
    return bool(models) and all(_is_narrow(script, m) for m in models)


def _is_narrow(script: Script, model: Model) -> bool:
    parts = [t for t in parts_of(model.thing).values() if isinstance(t, Ext)]
    dense = [t for t in parts if t.name == "torch.nn.Linear"]
    recurrent = [t for t in parts if t.name.removeprefix("torch.nn.") in RECURRENT]
    others = [t.name for t in parts if t not in (*dense, *recurrent) and t.name not in WRAPPERS]
    return (
        _is_known(model)
        and bool(dense or recurrent)
        and all(PLAIN.match(n.rsplit(".", 1)[-1]) and ".Conv" not in n for n in others)
        and (
            all(min(_sizes(script, t), default=LARGE) <= NARROW for t in dense)
            or (len(dense) <= FEW and all(_is_small(script, t) for t in dense))
        )
        and all(_hidden(script, t) <= NARROW for t in recurrent)
    )


def _is_known(model: Model) -> bool:
    """Whether all layers are known; what a class calls besides is an event, but a container calls
    what it is given unseen.
    """
    containers = [t for t in parts_of(model.thing).values() if getattr(t, "name", "") in CONTAINERS]
    held = [t for container in containers for t in opened(members(container), elements)]
    return not model.unknown and all(is_module(t) for t in held if isinstance(t, Ext))


def _is_small(script: Script, layer: Ext) -> bool:
    """A layer of which no side is known to be large; the other may be what a table gives."""
    return max(_sizes(script, layer), default=LARGE) <= SMALL


def _weights(script: Script, layers: list[Ext]) -> int:
    """Of all these dense layers, at the most."""
    sizes = [_sizes(script, t) for t in layers]
    return sum(s[0] * s[1] if len(s) == 2 else LARGE for s in sizes)


def _sizes(script: Script, layer: Ext) -> list[int]:
    """How many numbers go into a dense layer and come out, at the most, as far as that is known."""
    sizes = (
        _size(script, layer, n, name) for n, name in enumerate(("in_features", "out_features"))
    )
    return [n for n in sizes if n is not None]


def _hidden(script: Script, layer: Ext) -> int:
    """A side of the product that a recurrent layer makes of its state in every step; a large number
    where it is not known.
    """
    hidden = _size(script, layer, 1, "hidden_size")
    return LARGE if hidden is None else hidden


def _size(script: Script, layer: Ext, n: int, name: str) -> int | None:
    known = const(layer.args.get(n, name))
    if isinstance(known, int):
        return known
    given = layer.args.given(n, name)
    return most(script, given.expr) if given is not None else None
