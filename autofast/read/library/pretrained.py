"""Models of a project that extend one of transformers: what ``Model.from_pretrained(name, ...)``
makes.

It makes the object as ``Model(config, ...)`` does, and puts the weights of a file into it.
"""

from __future__ import annotations

from dataclasses import replace

from autofast.model import names
from autofast.model.several import wordset
from autofast.model.values import (
    Arguments,
    Cls,
    Func,
    Given,
    Unknown,
    Values,
    Where,
    things as values,
)
from autofast.read.state.core import Core

NAME = "from_pretrained"
LIBRARIES = ("transformers.", "pytorch_transformers.", "pytorch_pretrained_bert.")
# They make something else of the model: another dtype, another place, more than the model.
OTHERWISE = wordset(
    "torch_dtype dtype device_map quantization_config load_in_8bit load_in_4bit low_cpu_mem_usage "
    "output_loading_info attn_implementation use_flash_attention_2"
)
CONFIG = Unknown("the configuration of a pretrained model")


def extends_one(cls: Cls) -> bool:
    """Whether a class of the project is a model of transformers."""
    return any(n.startswith(LIBRARIES) and names.makes_module(n) for n in cls.external)


def create(interp: Core, cls: Cls, args: Arguments, node: Where) -> Values:
    """The model; what the library takes for itself does not come to its constructor."""
    why = f"what {cls.node.name}.from_pretrained() makes of its arguments is not followed"
    if not args.known or OTHERWISE & set(args.named):
        return values(Unknown(why))
    taken = _parameters(cls)
    config = args.named.get("config", Given(values(CONFIG), None))
    named = {k: g for k, g in args.named.items() if k != "config" and (taken is None or k in taken)}
    return interp.call_thing(
        cls, replace(args, positional=[config, *args.positional[1:]], named=named), node
    )


def _parameters(cls: Cls) -> set[str] | None:
    """The names that its constructor knows; None where it takes any."""
    found: set[str] = set()
    for func in cls.find("__init__") or ():
        if not isinstance(func, Func) or func.node.args.kwarg is not None:
            return None
        spec = func.node.args
        found |= {p.arg for p in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    return found
