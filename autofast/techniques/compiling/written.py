"""The statement that compiles a model: with which arguments, in which form, and what else it
takes; blocks that a model repeats are compiled once for all of them, in place of the whole model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent

from autofast.edit.edits import After, Edits, plain_code
from autofast.facts.cost.bounds import range_turns
from autofast.facts.cost.measured import measured_variation
from autofast.facts.layout import draws_in_layout
from autofast.facts.model_objects import against_replaced_forward
from autofast.facts.parts import parts_of
from autofast.facts.precision.code import Code
from autofast.facts.several_processes import several_processes
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.contents import without_wrappers
from autofast.model.events import LoopFrame
from autofast.model.kinds import is_module
from autofast.model.names import MODULE_BASES
from autofast.model.roles import Model
from autofast.model.script import Script
from autofast.model.several import any_in, of_kind, surely, wordset
from autofast.model.source import ancestors, source_of
from autofast.model.values import Dict, Ext, Inst, Tensor, Thing, Values, const, is_named, one
from autofast.rule import Effect, Finding, Options
from autofast.techniques.compiling import graphs
from autofast.techniques.compiling.model_legality import padded_batches
from autofast.write.model_setup import Place
from autofast.write.spelling import torch_in

# ---------------------------------------------------------------------- blocks that a model repeats
# Parameters and what modules hold are inputs of compiled code since 2.5; before, each block would
# be compiled for itself, and the ninth not at all.
SINCE = (2, 5)
LEAST = 4  # blocks
# features: with more of them in a layer, compiled blocks have enough to do to be started one by one
WIDE = 256
DENSE = wordset("torch.nn.Linear torch.nn.MultiheadAttention")
LISTS = wordset("torch.nn.ModuleList torch.nn.Sequential")
DEEP = 3  # attributes below the model: ``model.transformer.h``


@dataclass(frozen=True)
class Blocks:
    """``path`` below the model holds ``number`` blocks, which are nothing but ``block``."""

    path: str
    block: Inst
    number: int


def blocks_of(script: Script, model: Model) -> Blocks | None:
    """The blocks of one class, made alike, that are worth compiling by themselves; None where there
    are none.
    """
    if script.torch.rules_out(SINCE):
        return None
    for path, container in _lists(model.thing):
        block = _only(container)
        if block is None or not _are_alike(block):
            continue
        loop = _loop(block)
        number = range_turns(script, loop) if loop is not None else None
        if number and number >= LEAST and _is_wide(block) and _takes_tensors(script, block):
            if not _is_set_outside(script, block):
                return Blocks(path, block, number)
    return None


def _lists(thing: Thing, path: str = "") -> Iterator[tuple[str, Ext]]:
    """The lists of modules below a model, and the attributes that lead there."""
    if path.count(".") == DEEP:
        return
    for name, values in _attributes(thing):
        inner, here = one(values), f"{path}.{name}"
        if is_named(inner, Ext, LISTS):
            yield here, inner
        elif inner is not None and is_module(inner):
            yield from _lists(inner, here)


def _attributes(thing: Thing) -> Iterator[tuple[str, Values]]:
    if isinstance(thing, Inst) and not thing.open:
        yield from thing.attrs.items()
    elif is_named(thing, Ext, "torch.nn.ModuleDict"):
        for given in thing.args.positional:
            held = one(given.values)
            if isinstance(held, Dict) and not held.open:
                for key in held.entries:
                    if isinstance(key, str) and key.isidentifier():
                        yield key, held.get(key)


def _only(container: Ext) -> Inst | None:
    """The block that all modules of a list are, made in one loop."""
    held = [t for t in parts_of(container).values() if is_module(t)]
    direct = [t for t in of_kind(held, Inst) if _is_in(container, t)]
    others = [t for t in held if t is not container and _is_in(container, t)]
    spread = len(getattr(container.node, "args", ())) == 1
    known = not container.args.open or spread  # ``Sequential(*[Block() for _ in range(12)])``
    return direct[0] if len(direct) == len(others) == 1 and known else None


def _is_in(container: Ext, thing: Thing) -> bool:
    given = container.args.things
    inner = [x for t in given for x in getattr(t, "any", frozenset)()]
    return thing in (*given, *inner)


def _loop(block: Inst) -> ast.AST | None:
    frame = block.made[-1] if block.made else None
    return frame.node if isinstance(frame, LoopFrame) and not frame.unrolled else None


def _are_alike(block: Inst) -> bool:
    """They are made by one call in a loop, whose arguments do not tell which turn it is: one piece
    of compiled code is that of all.
    """
    match _loop(block), block.node:
        case (ast.ListComp() | ast.GeneratorExp()) as loop, ast.Call() as call:
            return not loaded_in(call) & {n for g in loop.generators for n in stored_in(g.target)}
        case ast.For() as loop, ast.Call() as call:
            return not loaded_in(call) & stored_in(loop)
    return False


def _is_set_outside(script: Script, block: Inst) -> bool:
    """Whether something tells one of them from another later: ``block.index = i``."""
    own = {cls.node for cls in (block.cls, *block.cls.ancestors())}
    return any(
        o.this is block and not any_in(ancestors(site.node), own)
        for site in script.log.of("set_attribute", "set_elsewhere")
        for o in site
    )


def _is_wide(block: Inst) -> bool:
    sizes = [
        const(frozenset({size}))
        for part in parts_of(block).values()
        if is_named(part, Ext, DENSE)
        for given in part.args.positional[:2]
        for size in given.values
    ]
    return any(type(n) is int and n > WIDE for n in sizes)


def _takes_tensors(script: Script, block: Inst) -> bool:
    """Nothing but tensors and None, which a Sequential gives anyway: a number that changes would be
    compiled again.
    """
    calls = [o for s in script.log.of("forward") for o in s if o.this is block]
    given = [g.values for o in calls for g in o.args.every]
    return all(
        surely(isinstance(t, Tensor) or const(frozenset({t})) is None for t in values)
        for values in given
    )


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
    eager: Edits = ()
    blocks: str = ""
    torch: tuple[int, int] | None = None


def compile_finding(script: Script, options: Options, place: Place, alone: bool) -> Finding:
    """The finding for a place; ``alone`` where no other model is compiled."""
    things = [m.thing for m in place.models]
    form = form_of(script, options, place.models, alone)
    norms = NORMS if any("LayerNorm" in m.layers for m in place.models) else ""
    message = message_of(place.models[0]) + COST + norms + (f"; {form.why}" if form.why else "")
    source = source_of(place.statement)
    torch, needed = torch_in(source)
    imports: Edits = ()
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
    random = any(
        draws_in_layout(script, m, Code(script, (), (m.thing,)), NEVER) for m in place.models
    )
    edits = (After(place.statement, plain_code(code)), *imports, *form.eager)
    effect = Effect.SAMPLING if random else None
    return Finding(place.node, message, edits=edits, effect=effect, torch=form.torch)


def form_of(script: Script, options: Options, models: Sequence[Model], alone: bool) -> Form:
    """In which form models are compiled that stand in one place."""
    if changing := measured_variation(script, [site.node for m in models for site in m.forwards]):
        return Form(("dynamic=True",), f"measured: {changing}")
    if padding := next((why for m in models if (why := padded_batches(script, m))), ""):
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
    if found := blocks_of(script, model):
        why = f"its {found.number} blocks are compiled once for all of them, which starts sooner"
        return Form(why=why, blocks=found.path, torch=SINCE)
    return Form()


def _is_copied(script: Script, thing: Thing) -> bool:
    """DataParallel may copy the model, or a part of it, to several GPUs."""
    parts = parts_of(thing)
    for site in script.calls(*PARALLEL):
        for occurrence in site:
            given = [
                inner for t in occurrence.args.get(0, "module") for inner in without_wrappers(t)
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
