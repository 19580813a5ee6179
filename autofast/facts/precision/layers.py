"""What layers make of autocast: those too small for it, and those that compute in fp16 whatever it
is set to.
"""

from __future__ import annotations

from autofast.facts.precision.code import Code
from autofast.model.events import Site
from autofast.model.names import is_model_class
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import any_in, surely
from autofast.model.source import ancestors, at
from autofast.model.values import Ext, Thing, const, is_named
from autofast.ops.families import RECURRENT

HEAVY = tuple(
    """Conv LSTM GRU RNN Transformer MultiheadAttention Embedding Bilinear torchvision.models. timm.models.
    create_model from_pretrained from_config""".split()
)
ANY_LAYER = "torch.nn.*"  # getattr(nn, name): one of which only the module is known
TINY = 2**16  # a matrix with fewer weights than this is multiplied faster than it is cast


def is_small(code: Code) -> bool:
    """All models are small linear layers and what costs nothing beside them: to launch their
    kernels, and to cast, takes longer than to multiply.
    """
    sizes = [dense_sizes(code.script, m) for m in code.models]
    return surely(s and max(s) < TINY for s in sizes)


def recurrent_layers(code: Code) -> str:
    """What autocast for CUDA computes in fp16, whichever dtype it was asked for, in words; empty
    where there is nothing.

    torch casts the arguments of cuDNN's recurrent networks to fp16 (AutocastRNN.cpp); cells
    (``LSTMCell``) get the dtype asked for.
    """
    for model in code.models:
        if found := sorted(model.layers & {*RECURRENT, "RNNBase"}):
            return f"autocast runs the {found[0]} of {model.name} in fp16, whatever it is set to"
        for site in code.script.log.of("new"):
            if _belongs(site, model) and any(_may_be_recurrent(o.this) for o in site):
                return f"{at(site)} makes a layer by its name: an LSTM would run in fp16, whatever autocast is set to"
    return ""


def _may_be_recurrent(thing: Thing | None) -> bool:
    """A layer that is chosen by its name, with sizes: activations have none."""
    return (
        is_named(thing, Ext, ANY_LAYER) and len(thing.args.positional) + len(thing.args.named) > 1
    )


def dense_sizes(script: Script, model: Model) -> list[int]:
    """The numbers of weights of the ``nn.Linear`` that a model is made of; empty where it has other
    heavy layers, or one is not known.
    """
    heavy = any(layer.startswith(HEAVY) or is_model_class(layer) for layer in model.layers)
    if heavy or "Linear" not in model.layers:
        return []
    found = [
        o.this
        for s in script.log.of("new")
        if _belongs(s, model)
        for o in s
        if is_named(o.this, Ext, "torch.nn.Linear")
    ]
    sizes = [
        (const(t.args.get(0, "in_features")), const(t.args.get(1, "out_features"))) for t in found
    ]
    known = [a * b for a, b in sizes if isinstance(a, int) and isinstance(b, int)]
    return known if len(known) == len(sizes) else []


def _belongs(site: Site, model: Model) -> bool:
    inside = {model.node, *model.classes}
    return any_in((site.node, *ancestors(site.node)), inside)
