"""bfloat16 as an argument of a trainer: how it is asked for, and what in the code that would run in
it speaks against.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from autofast.edit.edits import Written
from autofast.facts.precision.code import Code
from autofast.facts.precision.foreign import loaded_in_16
from autofast.facts.precision.hazards import has_autocast, probability_ratio, why_not_autocast
from autofast.facts.precision.layers import recurrent_layers
from autofast.facts.precision.whole_script import against_script
from autofast.model.names import last_part
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import Source, at
from autofast.model.values import OBJECTS, Cls, Ext, Inst, Thing, Unknown, begins, is_named, ordered
from autofast.read.recover.models import layers_of
from autofast.rule import Options
from autofast.write.half_dtype import HAS_BF16, in_module

AMPERE = "where the GPU has bfloat16 (Ampere and newer)"


def has_bf16(script: Script, source: Source) -> Written:
    """What says whether the GPU has bfloat16, for a file, and the edits that define it there."""
    asked = in_module(script, source, HAS_BF16)
    return asked.code, asked.edits


def chosen(script: Script, source: Source, options: Options, half: str, full: str) -> Written:
    """An expression for the precision: ``half`` where the hardware has it, else ``full``."""
    if options.target == "cpu" or options.precision == "bf16":
        return half, ()
    code, edits = has_bf16(script, source)
    return f"{half} if {code} else {full}", edits


def against_half(
    script: Script, options: Options, code: Iterable[ast.AST], models: Iterable[Thing]
) -> str:
    """Why the code, and the models that it calls, must stay in fp32; empty where nothing speaks
    against.
    """
    if options.precision == "fp16":
        return "fp16 scales the loss, which is not set up here: ask for bf16"
    alone = replace(script, frameworks={})
    if why := against_script(alone, options.target, True):
        return why
    things = [t for model in models for t in _adapted(model)]
    for thing in things:
        if why := _of_thing(thing):
            return why
    asked = Code(script, list(code), things, target=options.target)
    known = {m.thing for m in asked.models}
    asked.models += [_model(t) for t in things if t not in known and isinstance(t, OBJECTS)]
    if has_autocast(asked):
        return "it has autocast blocks of its own"
    if options.target == "cuda" and (why := recurrent_layers(asked)):
        return f"{why}: without a GradScaler small gradients become zero"
    return why_not_autocast(asked) or probability_ratio(asked)


def _adapted(thing: Thing) -> list[Thing]:
    """The model itself; for one with adapters of PEFT, which are plain layers, the model that has
    got them.
    """
    if is_named(thing, Ext, "peft.get_peft_model"):
        return ordered(thing.args.get(0, "model"))
    return [thing]


def _of_thing(thing: Thing) -> str:
    if isinstance(thing, Unknown):
        return f"what it trains is not known: {thing.why}"
    if isinstance(thing, Ext) and (name := loaded_in_16(thing)):
        return f"the model of {at(thing)} is loaded with {name}=, which decides about precision"
    return ""


def _model(thing: Inst | Ext) -> Model:
    """A model that only a framework calls."""
    layers, unknown, classes = layers_of(thing)
    name = thing.cls.node.name if isinstance(thing, Inst) else last_part(thing.name)
    if begins(thing, Ext, ("transformers.", "timm.", "torchvision.")):
        unknown = ""
    if "__dtype__" in thing.attrs:
        dtype = str(getattr(next(iter(thing.attrs["__dtype__"]), None), "value", ""))
    else:
        dtype = ""
    return Model(thing, thing.node, name, [], [], [], layers, unknown, classes, dtype)


def methods(cls: Cls, names: Iterable[str]) -> Iterator[ast.AST]:
    """The methods of a class of the project by these names, and of the project's classes it
    extends.
    """
    for name in names:
        yield from (f.node for f in cls.methods(name))


def forwards(things: Iterable[Thing]) -> Iterator[ast.AST]:
    """The forward methods of the project's modules among these and below them."""
    for thing in things:
        if isinstance(thing, OBJECTS):
            for node in layers_of(thing)[2]:
                yield from (s for s in of_kind(node.body, ast.FunctionDef) if s.name == "forward")
