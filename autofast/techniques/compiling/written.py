"""The statement that compiles a model: with which arguments, in which form, and what else it
takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent

from autofast.edit.edits import After, Edit, literal
from autofast.facts.cost.measured import varies
from autofast.facts.layout import draws
from autofast.facts.model_objects import against_replaced_forward
from autofast.facts.parts import parts_of
from autofast.facts.precision.code import Code
from autofast.facts.several_processes import several_processes
from autofast.model.contents import unwrapped
from autofast.model.names import MODULE_BASES
from autofast.model.script import Model, Script
from autofast.model.source import source_of
from autofast.model.values import Ext, Inst, Thing
from autofast.rule import Effect, Finding, Options
from autofast.techniques.compiling import blocks, graphs
from autofast.techniques.compiling.model_legality import padded
from autofast.write.model_setup import Place
from autofast.write.spelling import torch_in

MESSAGE = "one kernel runs for each operation of {}"
COST = "; compiling takes minutes and pays back in long runs only, which `autofast verify` measures"
NORMS = "; torch 2.10 to 2.13 may compute wrong gradients for chained LayerNorms (TORCHINDUCTOR_MIX_ORDER_REDUCTION=0 avoids it)"
PARALLEL = (
    "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel",
    "torch.nn.parallel.replicate",
    "torch.nn.parallel.parallel_apply",
)
RECORDED = "launches bound a step, and its kernels are recorded once and started together"
NEVER = 10**12


def message_of(model: Model) -> str:
    return MESSAGE.format(model.name if model.name != "*" else "the model")


@dataclass(frozen=True)
class Form:
    """Arguments of ``compile()``, why they are given, ``eager`` for evaluations that stay out; or
    the blocks that are compiled in place of the model.
    """

    given: tuple[str, ...] = ()
    why: str = ""
    eager: tuple[Edit, ...] = ()
    blocks: str = ""
    torch: tuple[int, int] | None = None


def written(script: Script, options: Options, place: Place, alone: bool) -> Finding:
    """The finding for a place; ``alone`` where no other model is compiled."""
    things = [m.thing for m in place.models]
    form = form_of(script, options, place.models, alone)
    norms = NORMS if any("LayerNorm" in m.layers for m in place.models) else ""
    message = message_of(place.models[0]) + COST + norms + (f"; {form.why}" if form.why else "")
    source = source_of(place.statement)
    torch, needed = torch_in(source)
    imports: tuple[Edit, ...] = ()
    if form.blocks:
        name = source.fresh("block", "layer")
        code = f"for {name} in {place.name}{form.blocks}:\n    {name}.compile()"
    elif any(is_container(t) for t in things):
        if why := against_replaced_forward(script, things):
            return Finding(place.node, message, refusal=why)
        given = ", ".join([f"{place.name}.forward", *form.given])
        code, imports = f"{place.name}.forward = {torch}.compile({given})", needed
    else:
        code = f"{place.name}.compile({', '.join(form.given)})"
    # The copies that run in threads would all call the original.
    if any(_is_copied(script, t) for t in things):
        code = f"if {torch}.cuda.device_count() < 2:\n" + indent(code, "    ")
        imports = needed
    random = any(draws(script, m, Code(script, (), (m.thing,)), NEVER) for m in place.models)
    edits = (After(place.statement, literal(code)), *imports, *form.eager)
    effect = Effect.SAMPLING if random else None
    return Finding(place.node, message, edits=edits, effect=effect, torch=form.torch)


def form_of(script: Script, options: Options, models: Sequence[Model], alone: bool) -> Form:
    """In which form models are compiled that stand in one place."""
    if changing := varies(script, [site.node for m in models for site in m.forwards]):
        return Form(("dynamic=True",), f"measured: {changing}")
    if padding := next((why for m in models if (why := padded(script, m))), ""):
        return Form(("dynamic=True",), f"{padding}: compiled once for all sizes")
    if len(models) > 1 or options.target == "cpu":
        return Form()
    (model,) = models
    if alone and options.accumulate < 2 and not several_processes(options):
        how = graphs.recorded(script, model)
        if isinstance(how, graphs.Recorded):
            last = ("dynamic=False",) if how.uneven else ()
            since = graphs.SINCE if how.eager else None
            return Form(('mode="reduce-overhead"', *last), RECORDED, how.eager, torch=since)
    if found := blocks.blocks_of(script, model):
        why = f"its {found.number} blocks are compiled once for all of them, which starts sooner"
        return Form(why=why, blocks=found.path, torch=blocks.SINCE)
    return Form()


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
