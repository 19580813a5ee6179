"""Arguments of Accelerate's Accelerator: the precision, and transfers that training does not wait
for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edits, Import, Wrap, Written, plain_code
from autofast.facts.double_backward import step_against_half
from autofast.facts.loaders import is_managed
from autofast.model.roles import Trainer
from autofast.model.script import Script
from autofast.model.values import Const, Ext, Thing, const, one
from autofast.read.requirements import rules_out
from autofast.rule import Effect, Finding, Options
from autofast.techniques.trainers.half import AMPERE, against_half, chosen, forwards
from autofast.techniques.trainers.spots import Spot, changed_spot, option_flag, spot_of, takes_word
from autofast.write.imports import module_in

FP32 = "the model computes in fp32: in bfloat16 its matrix products and convolutions run on tensor cores"
COPIES = "training waits while Accelerate copies a batch to the device"
# what `accelerate launch --mixed_precision` and the machine's configuration say
LAUNCHED = "ACCELERATE_MIXED_PRECISION"
PLUGINS = tuple(
    """deepspeed_plugin deepspeed_plugins fsdp_plugin megatron_lm_plugin torch_tp_plugin
    parallelism_config""".split()
)
CONFIG_SINCE = (0, 30)


def find(script: Script, trainer: Trainer, options: Options) -> Iterator[Finding]:
    """Findings about one Accelerator."""
    spot = spot_of(script, trainer.things)
    if isinstance(spot, str):
        yield Finding(trainer.node, FP32, refusal=spot)
        return
    if spot.args.positional:
        yield Finding(
            trainer.node,
            FP32,
            refusal="its arguments stand by position, and versions of Accelerate order them differently",
        )
        return
    yield from _precision(script, spot, options)
    if options.target == "cuda":
        yield from _copies(script, spot)


# ---------------------------------------------------------------------------------------- precision
def _precision(script: Script, spot: Spot, options: Options) -> Iterator[Finding]:
    option = spot.option("mixed_precision")
    if option is None and spot.says("mixed_precision"):
        return
    if option is not None and const(option.default) not in (None, "no"):
        return
    if why := _against(script, spot, options):
        yield Finding(spot.place, FP32, refusal=why)
        return
    if option is not None and const(option.default) == "no":
        if takes_word(option, "bf16"):
            yield Finding(
                spot.place, FP32, advice=f"run it with {option_flag(option)} bf16 {AMPERE}"
            )
        return
    os, imports = module_in(spot.source, "os")
    half, more = chosen(script, spot.source, options, '"bf16"', '"no"')
    value = f'{os}.environ.get("{LAUNCHED}", {half})'
    if option is not None:
        given = spot.args.named["mixed_precision"]
        if given.expr is None or given.via or given.expr not in ast.walk(spot.node):
            yield Finding(
                spot.place,
                FP32,
                refusal="mixed_precision comes through a dict, in a way that is not followed",
            )
            return
        template = "{} or " + plain_code(value)
        edits: Edits | str = (Wrap(given.expr, template),)
    elif "mixed_precision" in spot.args.named:
        edits = "mixed_precision=None is written out: the launcher decides"
    else:
        edits = spot.add("mixed_precision", value, "str")
    yield changed_spot(spot.place, FP32, edits, (*imports, *more))


def _against(script: Script, spot: Spot, options: Options) -> str:
    for name in PLUGINS:
        if spot.says(name):
            return f"{name}= is given, which may decide about precision"
    if const(spot.values("cpu")) is True and options.target == "cuda":
        return "it trains on the CPU"
    handlers = spot.values("kwargs_handlers")
    if handlers and const(handlers) is not None:
        return "kwargs_handlers= is given, which may decide about autocast"
    steps = [s for s in script.steps if any(b.framework for b in s.backwards)]
    if not steps:
        return "no training loop with this Accelerator was found"
    things: dict[int, Thing] = {}
    for step in steps:
        if why := step_against_half(step):
            return why
        things.update((id(m), m) for m in step.models)
    if not things:
        return "the model that it trains is not known"
    return against_half(script, options, forwards(things.values()), things.values())


# ---------------------------------------------------------------------------------------- transfers
def _copies(script: Script, spot: Spot) -> Iterator[Finding]:
    if (
        const(spot.values("cpu")) is True
        or not any(is_managed(script, x) for x in script.loaders)
        or const(spot.values("device_placement")) is False
    ):
        return
    if rules_out(script, CONFIG_SINCE, "accelerate"):
        return
    if spot.says("dataloader_config"):
        config = one(spot.values("dataloader_config"))
        if not isinstance(config, Ext) or not config.name.endswith("DataLoaderConfiguration"):
            return
        inner = spot_of(script, [config])
        if isinstance(inner, str) or inner.says("non_blocking") or inner.args.positional:
            return
        edits = inner.add("non_blocking", "True", "bool")
        more: Edits = ()
        place = inner.place
    else:
        if Const(None) in spot.values("dataloader_config"):
            return  # given as a parameter, or written out
        name, more = _configuration(spot)
        edits = spot.add("dataloader_config", f"{name}(non_blocking=True)", "object")
        place = spot.place
    yield changed_spot(place, COPIES, edits, more, Effect.EXACT)


def _configuration(spot: Spot) -> Written:
    """How the file spells the class, and the import that it takes."""
    for node in spot.source.tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "accelerate":
                    return f"{alias.asname or 'accelerate'}.DataLoaderConfiguration", ()
    return "DataLoaderConfiguration", (
        Import(spot.source, "from accelerate import DataLoaderConfiguration"),
    )
