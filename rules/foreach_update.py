"""foreach-update: update all parameters at once, not one by one in a loop."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edits, Replace
from autofast.facts.cost import gains
from autofast.facts.parameter_loops import (
    SHARDED,
    ParameterLoop,
    are_alike,
    are_tied,
    has_parameters,
    kept_memory,
    looped_modules,
    parameter_loops,
)
from autofast.flow.importers import Importers
from autofast.flow.memory import Memory
from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.contents import without_wrappers
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import at, function_of, source_of
from autofast.rule import Effect, Finding, Options, Refusal, rule
from autofast.techniques.optimizer.foreach import Op, Writer, body_operations, is_symmetric
from autofast.techniques.optimizer.kept_averages import kept_averages
from autofast.write.spelling import torch_in, uses_gpu

SINCE = (2, 0)  # _foreach_lerp_
CLIPS = "clips the gradients of one parameter after the other"
UPDATES = "updates one parameter after the other, each with kernels of its own"


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
    for average in kept_averages(script):
        torch, imports = torch_in(source_of(average.loop.node))
        yield Finding(average.loop.node, UPDATES, edits=(*imports, *average.edits(torch)))
    for loop in parameter_loops(script):
        try:
            done = body_operations(script, loop)
        except Refusal:
            continue  # it does something else
        clips = any(op.name == "clamp_" for op in done)  # of gradients alone
        if clips and (len(done) > 1 or len(loop.lists) > 1 or not is_symmetric(done[0])):
            continue
        message = CLIPS if clips else UPDATES
        torch, imports = torch_in(source_of(loop.node))
        try:
            if clips:
                edits = _clipping(script, loop, done[0], torch)
            else:
                _check(script, loop, done)
                edits = Writer(script, loop, done).edits(torch)
        except Refusal as why:
            yield Finding(loop.node, message, refusal=str(why))
            continue
        effect = None if all(op.exact for op in done) else Effect.ROUNDING
        yield Finding(loop.node, message, edits=(*imports, *edits), effect=effect)


def _clipping(script: Script, loop: ParameterLoop, clamp: Op, torch: str) -> Edits:
    """``clip_grad_value_``, which leaves parameters without a gradient alone, but not if all
    are.
    """
    (call,) = loop.lists.values()
    mine = set(looped_modules(script, call))
    here = [o.order for o in script.log.ways("iterate", loop.node)]
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
    code = f"{torch}.nn.utils.clip_grad_value_({{model}}.parameters(), {{bound}})"
    return (Replace(loop.node, code, holes),)


def _check(script: Script, loop: ParameterLoop, done: list[Op]) -> None:
    """Raises where the loop may do something else than operations on lists."""
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
    if any(op.new for op in done) and (place := kept_memory(script) or shared):
        raise Refusal(f"the loop gives parameters new memory, and {place} may keep the old one")
    if shared:
        raise Refusal(f"two parameters may be one memory after {shared}, and come in turn here")
    if loop.is_of_states and any(are_tied(script, call) for call in calls):
        raise Refusal("two names in the state may stand for one tensor, which then has two turns")


def _cast(script: Script, loop: ParameterLoop) -> str:
    """The line that changes the dtype of one of the models."""
    mine = {t for call in loop.lists.values() for t in looped_modules(script, call)}
    for site in script.log.of("move_model", ".half", ".bfloat16", ".double", ".float"):
        for o in site:
            cast = site.kind != "move_model" or o.data.get("dtype")
            if cast and any_in(without_wrappers(o.this), mine):
                return at(site)
    return ""


def _shared(script: Script) -> str:
    """The line after which a parameter may have the memory of something else: ``p.data = q``."""
    handed = script.analysis(Memory).handed
    return next((at(n) for n, e in handed if isinstance(n, ast.Assign) and e is n.value), "")
