"""compile: run the model as a few fused kernels that torch.compile makes, instead of one kernel for
each operation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.parts import parts_of
from autofast.facts.precision.code import Code
from autofast.model.contents import without_wrappers
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.source import Said
from autofast.model.values import Inst, Thing
from autofast.rule import Effect, Finding, Options, rule
from autofast.techniques.compiling import graphs
from autofast.techniques.compiling.legality import SINCE, Compiled, against_script, is_there
from autofast.techniques.compiling.model_legality import against_recurrent, why_not_compiled
from autofast.techniques.compiling.written import MESSAGE, compile_finding, message_of
from autofast.write.model_setup import Place, place_of

LAUNCHES = "a step is bound by the launches of its kernels"
BY_HAND = (
    "all batches have one shape: `torch.cuda.make_graphed_callables(model, (batch,))`, called on the "
    "device before the training, records its kernels once; a smaller last batch has to be dropped"
)


@rule(
    "compile",
    Effect.ROUNDING,
    default=False,
    option="--compile",
    decides=Compiled,
    relieves={"host": 8, "device": 6, "cpu": 5},
    uses=("ddp", "dataparallel-to-ddp"),
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
    general = against_script(script)
    refused: dict[Thing, str] = {}
    places: dict[Said, Place] = {}
    models = list(trained(script))
    if asked and not models and script.steps:
        yield Finding(
            script.steps[0].loop,
            MESSAGE.format("the model"),
            refusal="no module with weights that an optimizer gets is seen to train",
        )
    for model in models:
        why = general or why_not_compiled(script, model, Code(script, (), (model.thing,)))
        place = place_of(script, model)
        if isinstance(place, Place):
            places.setdefault((place.statement, place.name), place).models.append(model)
        elif (
            isinstance(model.thing, Inst) or (why or place) not in refused.values()
        ):  # not once for each layer
            yield Finding(_node(model), message_of(model), refusal=why or place)
        if asked and options.target != "cpu" and _may_be_recorded(script, model, why):
            yield Finding(_node(model), LAUNCHES, advice=BY_HAND)
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
            yield Finding(place.node, message_of(place.models[0]), refusal=why)
        else:
            yield compile_finding(script, options, place, alone=len(places) == 1)


def _may_be_recorded(script: Script, model: Model, why: str) -> bool:
    """Whether CUDA graphs could take in a model that is left out for its recurrent layers alone."""
    recorded = why and why == against_recurrent(model) and graphs.recorded(script, model)
    return isinstance(recorded, graphs.Recorded)


def _node(model: Model) -> ast.AST:
    return model.node if isinstance(model.node, ast.expr) else model.forwards[0].node


def trained(script: Script) -> Iterator[Model]:
    """The models that take part in training and have weights that an optimizer gets, as far as that
    is known.
    """
    used = {inner for step in script.steps for t in step.models for inner in without_wrappers(t)}
    owned = {
        id(inner): inner
        for o in script.optimizers
        for t in o.params
        for inner in without_wrappers(t)
    }
    inside = {part for t in owned.values() for part in parts_of(t)}
    open_ended = any(not o.params for o in script.optimizers) or not script.optimizers
    for model in script.models:
        if model.thing in used and (
            id(model.thing) in inside
            or (model.layers and (open_ended or owned.keys() & parts_of(model.thing)))
        ):
            yield model
