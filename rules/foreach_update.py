"""foreach-update: update all parameters at once, not one by one in a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Holes, Replace
from autofast.facts.cost import gains
from autofast.facts.parameter_loops import (
    SHARDED,
    ParameterLoop,
    are_alike,
    has_parameters,
    looped_modules,
    parameter_loops,
)
from autofast.facts.per_parameter_loops import per_parameter_work
from autofast.flow.importers import Importers
from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.contents import without_wrappers
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import at, function_of, parent_of, source_of
from autofast.model.syntax import TARGETS, is_attribute
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.optimizer.foreach import Op, Writer, body_operations, is_symmetric
from autofast.write.spelling import torch_in, uses_gpu

SINCE = (2, 0)  # _foreach_lerp_
TAKES = ("load_state_dict", "save", "deepcopy")  # what keeps no tensor of a state_dict


@rule(
    "foreach-update",
    Effect.EXACT,
    groups=("optimizer",),
    relieves={"optimizer": 3, "host": 7},
    asks=gains.usual(0.05, "one kernel for each parameter", code=True),
    torch=SINCE,
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Update all parameters at once, not one by one in a loop."""
    if options.target == "cpu" or not script.steps or not uses_gpu(script):
        return  # on the CPU, the lists are gone through one by one, too
    answered: set[object] = set()
    for loop in parameter_loops(script):
        try:
            done = body_operations(script, loop)
        except Refusal:
            continue  # it does something else
        clips = any(_is_gradient(loop, op) for op in done)
        if clips and (len(done) > 1 or len(loop.lists) > 1 or not is_symmetric(done[0])):
            continue
        answered.add(loop.node)
        if clips:
            message = "clips the gradients of one parameter after the other"
        else:
            message = "updates one parameter after the other, each with kernels of its own"
        try:
            code, holes = _clipping(script, loop, done[0]) if clips else _update(script, loop, done)
        except Refusal as why:
            yield Finding(loop.node, message, refusal=str(why))
            continue
        torch, imports = torch_in(source_of(loop.node))
        edit = Replace(loop.node, code.replace("TORCH", torch), holes)
        effect = None if all(op.exact for op in done) else Effect.ROUNDING
        yield Finding(loop.node, message, edits=(*imports, edit), effect=effect)
    for node, message, advice in per_parameter_work(script):
        if node not in answered:
            yield Finding(node, message, advice=advice)


def _is_gradient(loop: ParameterLoop, op: Op) -> bool:
    found = loop.element(op.target)
    return found is not None and found[1] == "grad"


def _clipping(script: Script, loop: ParameterLoop, clamp: Op) -> tuple[str, Holes]:
    """``clip_grad_value_``, which leaves parameters without a gradient alone, but not if all
    are.
    """
    (call,) = loop.lists.values()
    mine = set(looped_modules(script, call))
    here = [o.order for s in script.log.of("iterate") if s.node is loop.node for o in s]
    passes = {
        site.node
        for site in script.log.of("forward")
        if any(x in mine for o in site for x in without_wrappers(o.this))
    }
    backwards = [
        o.order
        for step in script.steps
        for b in step.backwards
        if any(p in passes for t in b.tensors for p in t.passes)
        for o in b.site
    ]
    if not backwards or not here or min(backwards) > min(here):
        raise Refusal("nothing shows that a backward gives these parameters gradients before")
    assert is_method(call) and clamp.number is not None
    holes = {"model": call.func.value, "bound": clamp.number}
    return "TORCH.nn.utils.clip_grad_value_({model}.parameters(), {bound})", holes


def _update(script: Script, loop: ParameterLoop, done: list[Op]) -> tuple[str, Holes]:
    """The statements in the place of the loop, and the expressions that they quote."""
    for site in script.calls(*SHARDED):
        raise Refusal("keeps parameters in parts, in processes of their own", site)
    calls = list(loop.lists.values())
    if not any(has_parameters(script, call) for call in calls):
        raise Refusal("nothing shows that there is a parameter, and a list must not be empty")
    given = (call.func.value for call in calls if is_method(call))
    if any(map(script.analysis(Flow).is_given, given)):
        if user := script.analysis(Importers).user(function_of(loop.node)):
            raise Refusal(f"{user} uses it, too, and a list of parameters must not be empty")
    for other in calls[1:]:
        if not are_alike(script, calls[0], other):
            raise Refusal("nothing shows that both models have the same parameters")
    if any(op.name == "lerp_" and not op.exact for op in done):
        if script.unread:
            raise Refusal(f"the models may be cast to another dtype where {script.unread}")
        if place := _cast(script, loop):
            raise Refusal(f"{place} casts a model, and both must have the same dtype here")
    shared = _shared(script)
    if any(op.new for op in done) and (place := _kept(script) or shared):
        raise Refusal(f"the loop gives parameters new memory, and {place} may keep the old one")
    if shared:
        raise Refusal(f"two parameters may be one memory after {shared}, and come in turn here")
    return Writer(script, loop, done).text()


def _cast(script: Script, loop: ParameterLoop) -> str:
    """The line that changes the dtype of one of the models."""
    mine = {t for call in loop.lists.values() for t in looped_modules(script, call)}
    for site in script.log.of("move_model", ".half", ".bfloat16", ".double", ".float"):
        for o in site:
            cast = site.kind != "move_model" or o.data.get("dtype")
            if cast and any_in(without_wrappers(o.this), mine):
                return at(site)
    return ""


def _kept(script: Script) -> str:
    """A ``state_dict()`` that is not used up at once, and may hold the memory of parameters."""
    for site in script.methods("state_dict"):
        outer = parent_of(site.node)
        while isinstance(outer, (ast.Dict, ast.keyword)):
            outer = parent_of(outer)
        user = outer.func if isinstance(outer, ast.Call) else None
        if not is_attribute(user, *TAKES):
            return at(site)
    return ""


def _shared(script: Script) -> str:
    """The line after which a parameter may have the memory of something else: ``p.data = q``."""
    for site in script.log.of("tensor_write"):
        match parent_of(site.node):
            case ast.Assign(value=value) if is_attribute(site.node, "data"):
                of_others = any(getattr(t, "param", "") for o in site for t in o.result)
                if of_others or isinstance(value, TARGETS):
                    return at(site)
    return ""
