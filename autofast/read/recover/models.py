"""The models of a script, and the layers in them."""

from __future__ import annotations

import ast
import re

from autofast.model import names
from autofast.model.contents import each_once, members, with_contents, without_wrappers
from autofast.model.kinds import foreign_bases, is_loss, is_module
from autofast.model.names import last_part
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import ByNode
from autofast.model.values import (
    COLLECTIONS,
    OBJECTS,
    Dict,
    Ext,
    Inst,
    Seq,
    Thing,
    Unknown,
    const,
    is_named,
)
from autofast.read.interpreter.interpreter import Interpreter
from autofast.read.library.module_parts import MORE

ENCODER = "torch.nn.TransformerEncoder"


def build_models(interp: Interpreter, script: Script) -> list[Model]:
    """The outermost modules that are called, each once, in the order of their first pass."""
    found: dict[int, Model] = {}
    wraps = grouped(
        (id(inner), made)
        for made in interp.made
        if is_named(made, Ext, names.WRAPPERS)
        for inner in without_wrappers(made)
    )
    for site in script.log.of("forward"):
        for occurrence in site:
            if not occurrence.data["outer"] or occurrence.this is None:
                continue
            for thing in without_wrappers(occurrence.this):
                if not isinstance(thing, OBJECTS) or is_loss(thing):
                    continue
                model = found.get(id(thing))
                if model is None:
                    layers, unknown, classes = layers_of(thing)
                    if isinstance(thing, Inst):
                        name = thing.cls.node.name
                    else:
                        name = last_part(thing.name)
                    dtype = (
                        str(const(thing.attrs["__dtype__"])) if "__dtype__" in thing.attrs else ""
                    )
                    wrapped = wraps.get(id(thing), [])
                    about = (wrapped, layers, unknown, classes, dtype)
                    model = found[id(thing)] = Model(thing, thing.node, name, [], [], *about)
                if site not in model.forwards:
                    model.forwards.append(site)
    for site in script.log.of("move_model"):
        for occurrence in site:
            for thing in without_wrappers(occurrence.this):
                if id(thing) in found and site not in found[id(thing)].moves:
                    found[id(thing)].moves.append(site)
    return list(found.values())


# Layers of torch that are given numbers alone, and hold no modules.
OF_NUMBERS = re.compile(r"torch\.nn\.(?!\w*(?:Transformer|Sequential|Module|Parallel|Distance))\w+")


def layers_of(thing: Thing) -> tuple[frozenset[str], str, list[ast.ClassDef]]:
    """The torch layers below a module, why they are not all known, and the project's classes among
    them.
    """
    layers: set[str] = set()
    classes: ByNode[ast.ClassDef] = {}
    unknown = ""
    todo: list[Thing] = [thing]
    for part in each_once(todo):
        if isinstance(part, Inst):
            classes[part.cls.node] = part.cls.node
            for base in part.cls.bases:
                classes[base.node] = base.node
            for name, found in part.attrs.items():
                todo.extend(
                    t
                    for t in found
                    if is_module(t)
                    or (isinstance(t, Seq) and any(map(is_module, t.any())))
                    or (name == MORE and isinstance(t, (Seq, Dict, Unknown)))
                )
            if any(
                n not in names.MODULE_BASES and names.makes_module(n) for n in part.cls.external
            ):
                layers.update(last_part(n) for n in part.cls.external)
            if foreign_bases(part.cls):
                unknown = f"class {part.cls.node.name} has a base that is not in this project"
        elif isinstance(part, COLLECTIONS):
            todo.extend(
                t for t in part.any() if is_module(t) or isinstance(t, (Seq, Dict, Unknown))
            )
        elif isinstance(part, Ext):
            if part.name in names.MODULE_BASES:
                unknown = unknown or "it is a parameter of which only the type is known"
            layers.add(_layer(part))
            parts = (Seq, Dict, Unknown) if part.name in names.CONTAINERS else COLLECTIONS
            given = () if OF_NUMBERS.fullmatch(part.name) else part.args.things
            todo.extend(t for t in given if is_module(t) or isinstance(t, parts))
            todo.extend(t for v in part.attrs.values() for t in v if is_module(t))
        elif isinstance(part, Unknown):
            unknown = unknown or part.why
    return frozenset(layers), unknown, list(classes.values())


def has_fast_path(module: Thing | None) -> bool:
    """Whether it computes otherwise without gradients: where it does not train,
    ``nn.TransformerEncoder`` leaves out what is padded, whose outputs are zeros then
    (torch/nn/modules/transformer.py).
    """
    return module is not None and "TransformerEncoderLayer" in layers_of(module)[0]


def leaves_out_padding(module: Thing | None) -> bool:
    """Whether that may be by nested tensors: with ``enable_nested_tensor=False`` it only rounds
    otherwise.
    """
    fast = has_fast_path(module)
    return any(
        (isinstance(part, Inst) and ENCODER in part.cls.external)
        or (
            fast
            and is_named(part, Ext, ENCODER)
            and const(part.args.get(3, "enable_nested_tensor")) is not False
        )
        for part in with_contents((module,) if module is not None else (), members)
    )


def _layer(part: Ext) -> str:
    """What a layer is called among the layers of a model: whole networks of images by their
    architecture.
    """
    if part.name.startswith(names.VISION):
        return part.name
    short = last_part(part.name)
    made = part.name in names.BY_ARCHITECTURE and const(part.args.get(0, "model_name"))
    return f"{names.TIMM}{made}" if isinstance(made, str) else short
