"""What things are made of, as far as the reader knows: modules and the modules below them, datasets
and what they hold.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from autofast.model.changes import remember, remembered
from autofast.model.contents import members, with_contents
from autofast.model.kinds import is_module
from autofast.model.names import first_part
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind
from autofast.model.source import at, statement_of
from autofast.model.values import COLLECTIONS, Arg, Const, Ext, Num, Tensor, Thing

OF_MODELS = (
    *("torch", "torchvision", "torchaudio", "timm", "transformers", "peft"),
    *"segmentation_models_pytorch efficientnet_pytorch geffnet pretrainedmodels resnest".split(),
)
CONTAINERS = tuple(f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict"))
PLAIN = (Const, Num, Tensor, Arg)  # they hold nothing


def not_known(model: Model) -> str:
    """Why it is not known what a model is made of, in words; empty where it is. A wrapper
    (DataParallel) makes a module of anything.
    """
    thing = model.thing
    is_elsewhere = isinstance(thing, Ext) and first_part(thing.name) not in OF_MODELS
    unread = is_elsewhere and not is_module(thing)
    why = model.unknown or ("it is not in this project" if unread else "")
    return f"what {model.name} is made of is not known: {why}" if why else ""


def why_layers_unknown(model: Model) -> str:
    """Why it is not known which layers a model has: it, or a layer in one of its containers, is of
    code that is not read; empty where they are all known.
    """
    if why := not_known(model):
        return why
    for part in of_kind(parts_of(model.thing).values(), Ext):
        for layer in of_kind(members(part), Ext) if part.name.startswith(CONTAINERS) else ():
            if first_part(layer.name) not in OF_MODELS and not is_module(layer):
                return f"what {model.name} is made of is not known: {layer.name} is not in this project"
    return ""


def parts_of(*modules: Thing) -> Mapping[int, Thing]:
    """Modules and all modules below them, by id; the lists and dicts that they are in count as
    well.
    """
    key = parts_of, *modules
    found: dict[int, Thing] | None = remembered(key)
    return found or remember(key, {id(t): t for t in with_contents(modules, _modules_in)})


def moved_with(*modules: Thing) -> Mapping[int, Thing]:
    """Modules, and those below them that ``.to(device)`` takes along, by id: none that a plain
    list, tuple or dict of a module holds.
    """
    return {id(t): t for t in with_contents(modules, _registered) if is_module(t)}


def held_by(*things: Thing) -> list[Thing]:
    """Things and whatever they hold, be it modules, functions or files."""
    return [t for t in with_contents(things, members) if not isinstance(t, PLAIN)]


def _modules_in(thing: Thing) -> Iterable[Thing]:
    """The modules directly below a module or in a list or dict of modules."""
    if isinstance(thing, Ext) and not is_module(thing):
        return ()
    return (t for t in members(thing) if isinstance(t, COLLECTIONS) or is_module(t))


def _registered(thing: Thing) -> Iterable[Thing]:
    """What a module registers below itself; a container does so with the lists that it is given."""
    if isinstance(thing, Ext) and is_module(thing):
        own = (t for found in thing.attrs.values() for t in found if is_module(t))
        return (*own, *(t for found in thing.args.each for t in found))
    return (t for t in _modules_in(thing) if is_module(t) or isinstance(thing, COLLECTIONS))


def moved_models(script: Script) -> list[Thing]:
    """What ``.to(...)``, ``.cuda()`` or a cast is called on, of models and their parts."""
    return [t for s in script.log.of("move_model") for t in s.owners]


def trained_models(script: Script) -> list[Model]:
    sites = {site for step in script.steps for site in step.forwards}
    return [m for m in script.models if any_in(m.forwards, sites)]


def handed_parameter(script: Script) -> str:
    """The line after which two layers may have one parameter: ``self.head.weight = other.weight``;
    empty where there is none.
    """
    for site in script.log.of("set_attribute"):
        if not isinstance(getattr(statement_of(site.node), "value", None), ast.Call):
            if any(t.param for o in site for t in of_kind(o.result, Tensor)):
                return at(site)
    return ""
