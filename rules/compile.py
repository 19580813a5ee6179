"""compile: run the model as a few fused kernels that torch.compile makes, instead of one kernel for each operation."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.edit.edits import After, Edit, literal
from autofast.facts.cost.measured import varies
from autofast.facts.layout import draws
from autofast.facts.model_objects import against_replaced_forward
from autofast.facts.parts import parts_of
from autofast.facts.precision.code import Code
from autofast.model.names import MODULE_BASES
from autofast.model.script import Model, Script
from autofast.model.source import source_of
from autofast.model.values import Ext, Inst, Thing
from autofast.read.recover.build import unwrapped
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.compiling.legality import (
    SINCE,
    Compiled,
    against,
    against_script,
    is_there,
)
from autofast.techniques.precision.apex import KEY as APEX
from autofast.techniques.precision.apex import Going, apex_goes
from autofast.write.model_setup import Place, place_of
from autofast.write.spelling import torch_in

COST = "; compiling takes minutes and pays back in long runs only, which `autofast verify` measures"
NORMS = "; torch 2.10 to 2.13 may compute wrong gradients for chained LayerNorms (TORCHINDUCTOR_MIX_ORDER_REDUCTION=0 avoids it)"
PARALLEL = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.replicate",
    "torch.nn.parallel.parallel_apply",
)
MESSAGE = "one kernel runs for each operation of {}"
NEVER = 10**12


@rule(
    "compile",
    Effect.ROUNDING,
    default=False,
    option="--compile",
    decides=Compiled,
    relieves={"host": 8, "device": 6, "cpu": 5},
    uses=("apex-amp",),
    torch=SINCE,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Compile the model, so that forward and backward run as a few fused kernels."""
    asked = options.requested  # what was asked for and is not done has its reason said
    if there := is_there(script):
        if asked:
            yield Finding(
                there,
                MESSAGE.format("the model"),
                refusal="the script knows torch.compile already, perhaps behind an option",
            )
        return
    gone = apex_goes(script, options)
    general = against_script(script, leaves="apex" if gone else "")
    refused: dict[Thing, str] = {}
    places: dict[tuple[int, str], Place] = {}
    models = list(trained(script))
    if asked and not models and script.steps:
        yield Finding(
            script.steps[0].loop,
            MESSAGE.format("the model"),
            refusal="no module with weights that an optimizer gets is seen to train",
        )
    for model in models:
        why = general or against(script, model, Code(script, (), (model.thing,)))
        place = place_of(script, model)
        if isinstance(place, Place):
            places.setdefault((id(place.statement), place.name), place).models.append(model)
        elif (
            isinstance(model.thing, Inst) or (why or place) not in refused.values()
        ):  # not once for each layer
            yield Finding(_node(model), _message(model), refusal=why or place)
        if why or isinstance(place, str):
            refused[model.thing] = why or str(place)
    for place in places.values():
        mine = {m.thing for m in place.models}
        why = next(
            (refused[t] for t in [*(m.thing for m in place.models), *place.things] if t in refused),
            "",
        )
        if not why and not mine >= place.things:
            why = f"`{place.name}` may also be a model that does not train, or is kept elsewhere"
        if why:
            yield Finding(place.node, _message(place.models[0]), refusal=why)
        else:
            yield replace(_finding(script, place), needs=((Going, APEX),) if gone else ())


def _node(model: Model) -> ast.AST:
    return model.node if isinstance(model.node, ast.expr) else model.forwards[0].node


def _message(model: Model) -> str:
    return MESSAGE.format(model.name if model.name != "*" else "the model")


def trained(script: Script) -> Iterator[Model]:
    """The models that take part in training and have weights that an optimizer gets, as far as that is known."""
    used = {id(inner) for step in script.steps for t in step.models for inner in unwrapped(t)}
    owned = {
        id(inner): inner for o in script.optimizers for t in o.params for inner in unwrapped(t)
    }
    inside = {part for t in owned.values() for part in parts_of(t)}
    open_ended = any(not o.params for o in script.optimizers) or not script.optimizers
    for model in script.models:
        if id(model.thing) in used and (
            id(model.thing) in inside
            or (model.layers and (open_ended or owned.keys() & parts_of(model.thing)))
        ):
            yield model


# ------------------------------------------------------------------------------------------------ the edit
def _finding(script: Script, place: Place) -> Finding:
    things = [m.thing for m in place.models]
    message = (
        _message(place.models[0])
        + COST
        + (NORMS if any("LayerNorm" in m.layers for m in place.models) else "")
    )
    changing = varies(script, [site.node for m in place.models for site in m.forwards])
    given = ""
    if changing:  # else each new shape would be compiled again, until torch gives up
        message, given = f"{message}; measured: {changing}", "dynamic=True"
    torch, needed = torch_in(source_of(place.statement))
    imports: tuple[Edit, ...] = ()
    if any(is_container(t) for t in things):
        if why := against_replaced_forward(script, things):
            return Finding(place.node, message, refusal=why)
        more = f", {given}" if given else ""
        code = f"{place.name}.forward = {torch}.compile({place.name}.forward{more})"
        imports = needed
    else:
        code = f"{place.name}.compile({given})"
    # The copies that run in threads would all call the original.
    if any(_is_copied(script, t) for t in things):
        code, imports = f"if {torch}.cuda.device_count() < 2:\n    {code}", needed
    random = any(draws(script, m, Code(script, (), (m.thing,)), NEVER) for m in place.models)
    edit = After(place.statement, literal(code))
    return Finding(
        place.node, message, edits=(edit, *imports), effect=Effect.SAMPLING if random else None
    )


def _is_copied(script: Script, thing: Thing) -> bool:
    """DataParallel may copy the model, or a part of it, to several GPUs."""
    parts = parts_of(thing)
    for site in script.calls(*PARALLEL):
        for occurrence in site:
            given = [
                inner
                for t in (occurrence.args.get(0, "module") if occurrence.args else ())
                for inner in unwrapped(t)
            ]
            if not given or any(id(t) in parts or not isinstance(t, Inst) for t in given):
                return True
    return False


def is_container(thing: Thing) -> bool:
    """``forward`` is code of torch.nn itself, which ``module.compile()`` leaves as it is."""
    if isinstance(thing, Inst):
        return thing.cls.find("forward") is None and any(_of_torch(n) for n in thing.cls.external)
    return isinstance(thing, Ext) and _of_torch(thing.name)


def _of_torch(name: str) -> bool:
    return name.startswith("torch.nn.") and name not in MODULE_BASES
