"""Arguments of Lightning's Trainer, in a call or for the command line of LightningCLI."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.cost.host import FROM_ARGUMENTS, old_lightning
from autofast.facts.input_shapes import FLAG, why_batches_vary
from autofast.facts.loaders import is_managed, lightning_passes
from autofast.model.calls import short_name, targets_of
from autofast.model.names import CONVOLVE, first_part
from autofast.model.roles import Trainer
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at
from autofast.model.syntax import is_constant, is_written
from autofast.model.values import Cls, Const, Inst, Thing, Values, const, is_const, one
from autofast.read.library.frameworks import is_lightning
from autofast.read.requirements import at_least
from autofast.rule import Finding, Options
from autofast.techniques.trainers.half import AMPERE, against_half, chosen, methods
from autofast.techniques.trainers.spots import Spot, changed_spot, option_flag, spot_of, takes_word
from autofast.write.placement import forks_processes

FP32 = "Lightning trains in fp32: in 16 bits matrix products and convolutions run on tensor cores"
FORKED = "its processes are forked, and before that CUDA must not be asked what it can: pass the precision by hand"
QUOTE = '"'
THUMB = "cuDNN chooses algorithms for convolutions by a rule of thumb"
HOOKS = (
    *"""training_step validation_step test_step predict_step forward training_step_end
    validation_step_end""".split(),
    *("on_train_batch_end", "on_validation_batch_end"),
)
# arguments of Trainer and methods of modules that tell the versions apart (1.9.5 and 2.0.0
# compared)
ONLY_2 = wordset("use_distributed_sampler barebones enable_autolog_hparams model_registry")
SINCE_1_5 = wordset(
    "enable_checkpointing enable_progress_bar enable_model_summary strategy inference_mode"
)
OTHER = wordset("tpu mps hpu ipu xla")
OWN_PRECISION = tuple("deepspeed fsdp xla colossalai bagua hpu ipu".split())


def old_style(script: Script) -> Iterator[Finding]:
    """``Trainer.from_argparse_args``, of Lightning 1.x: the command line gives all arguments."""
    for site in script.calls(FROM_ARGUMENTS):
        yield Finding(site.node, FP32, advice=f"run it with --precision bf16 {AMPERE}")


def find(script: Script, trainer: Trainer, options: Options) -> Iterator[Finding]:
    """Findings about one Trainer, or one LightningCLI."""
    if trainer.framework == "lightning-cli":
        yield from _cli(script, trainer, options)
        return
    if trainer.framework == "fabric":
        if trainer.args.given(4, "precision") is None and not trainer.args.open:
            advice = f'pass precision="bf16-mixed" {AMPERE}: loops of Fabric are not followed here'
            yield Finding(trainer.node, FP32, advice=advice)
        return
    spot = spot_of(script, trainer.things)
    if isinstance(spot, str):
        yield Finding(trainer.node, FP32, refusal=spot)
        return
    if not _decided(spot):
        if (
            options.target == "cuda"
            and options.precision != "bf16"
            and forks_processes(script, trainer)
        ):
            yield Finding(spot.place, FP32, refusal=FORKED)
        else:
            yield _precision(script, spot, options)
    elif (option := spot.option("precision")) is not None and _is_full(option.default):
        yield _advice(script, spot, option_flag(option), takes_word(option, "bf16-mixed"))
    if (
        options.target == "cuda"
        and _convolves(script)
        and not spot.says("benchmark")
        and not script.flags(FLAG)
        and not _on_cpu(spot)
    ):
        yield _benchmark(script, spot)


def _precision(script: Script, spot: Spot, options: Options) -> Finding:
    if why := _of_trainer(spot, options) or _of_modules(
        script, spot.says("gradient_clip_val", 0, 0.0), options
    ):
        return Finding(spot.place, FP32, refusal=why)
    words = _words(script, set(spot.args.named))
    if isinstance(words, str):
        return Finding(spot.place, FP32, refusal=words)
    value, more = chosen(script, spot.source, options, *words)
    return changed_spot(spot.place, FP32, spot.add("precision", value, "str"), more)


def _advice(script: Script, spot: Spot, option: str, fits: bool) -> Finding:
    words = _words(script, set(spot.args.named))
    word = words[0].strip('"') if not isinstance(words, str) else "bf16-mixed"
    how = f"run it with {option} {word}" if fits else f"let {option} take {word}, and pass it"
    return Finding(spot.place, FP32, advice=f"{how} {AMPERE}")


def _benchmark(script: Script, spot: Spot) -> Finding:
    if why := _of_shapes(script, spot.says("deterministic", False)):
        if why.startswith("determinism"):
            return Finding(spot.place, THUMB, refusal=why)
        return Finding(
            spot.place, THUMB, advice=f"pass benchmark=True if all batches have one shape: {why}"
        )
    return changed_spot(spot.place, THUMB, spot.add("benchmark", "True", "bool"))


# --------------------------------------------------------------------------------- the command line
def _cli(script: Script, trainer: Trainer, options: Options) -> Iterator[Finding]:
    """LightningCLI: its command line and configuration files say what the Trainer is given."""
    place = trainer.node
    if not _said(trainer, "precision", "plugins"):
        words = _words(script, set())
        why = _of_modules(script, _said(trainer, "gradient_clip_val"), options)
        if why or isinstance(words, str):
            yield Finding(place, FP32, refusal=why or str(words))
        else:
            run = f"run it with --trainer.precision {words[0].strip(QUOTE)}"
            yield Finding(place, FP32, advice=f"{run} {AMPERE}")
    if (
        options.target == "cuda"
        and _convolves(script)
        and not _said(trainer, "benchmark")
        and not script.flags(FLAG)
    ):
        why = _of_shapes(script, _said(trainer, "deterministic"))
        if why.startswith("determinism"):
            yield Finding(place, THUMB, refusal=why)
        else:
            condition = f" if all batches have one shape: {why}" if why else ""
            yield Finding(place, THUMB, advice=f"run it with --trainer.benchmark true{condition}")


def _said(trainer: Trainer, *names: str) -> bool:
    """Whether the code of a LightningCLI has a default for one of these arguments."""
    code = [trainer.node, *(t.cls.node for t in trainer.things if isinstance(t, Inst))]
    words = [*names, *(f"trainer.{name}" for name in names)]
    return any(
        getattr(n, "arg", None) in names or is_written(n, *words) for c in code for n in ast.walk(c)
    )


# --------------------------------------------------------------------------------------- conditions
def _decided(spot: Spot) -> bool:
    return spot.says("precision") or spot.says("amp_backend") or spot.says("amp_level")


def _is_full(found: Values) -> bool:
    """32 bits, as an option's default has it."""
    return bool(const(found) in (None, 32, "32", "32-true"))


def _on_cpu(spot: Spot) -> bool:
    return bool(const(spot.values("accelerator")) == "cpu" or const(spot.values("gpus")) == 0)


def _of_trainer(spot: Spot, options: Options) -> str:
    if spot.says("plugins"):
        return "plugins= is given, which may decide about precision"
    strategy = one(spot.values("strategy"))
    if spot.says("strategy") and not is_const(strategy, str):
        return "the strategy is an object of its own, which may decide about precision"
    if isinstance(strategy, Const) and str(strategy.value).startswith(OWN_PRECISION):
        return f"the strategy {strategy.value} decides about precision"
    if _on_cpu(spot) and options.target == "cuda":
        return "it trains on the CPU"
    if const(spot.values("accelerator")) in OTHER:
        return f"it trains on another accelerator ({const(spot.values('accelerator'))})"
    return ""


def _of_modules(script: Script, clips: bool, options: Options) -> str:
    """What in the modules that Lightning calls speaks against 16 bits."""
    things = modules(script)
    if not things:
        return "the LightningModule is not in this project"
    for thing in things:
        if place := _manual(thing):
            return (
                f"it steps its optimizers itself ({place}), inside the autocast that Lightning puts around training_step, "
                "which goes on with the weights as they were before the step"
            )
    if clips:
        for optimizer in script.optimizers:
            fused = optimizer.args.named.get("fused")
            if fused is not None and const(fused.values) not in (None, False):
                return f"in mixed precision, Lightning clips no gradients of fused optimizers ({at(optimizer)})"
    if why := _numpy(script, things):
        return why
    code = [f for t in things for f in methods(_class(t), HOOKS)]
    inner = [m.thing for m in script.models]
    return against_half(script, options, code, [*things, *(t for t in inner if t not in things)])


def _numpy(script: Script, things: list[Thing]) -> str:
    """Where a tensor that may be of 16 bits is given to NumPy, which has no bfloat16: in any
    method, as results may be kept for later.
    """
    inside = {
        n
        for t in things
        for base in (_class(t), *_class(t).ancestors())
        for n in ast.walk(base.node)
    }
    for sync in script.syncs:
        if sync.how == "numpy" and sync.node in inside:
            if sync.unknown or any(t.dtype not in ("int", "f32") for t in sync.tensors):
                return f"{at(sync)} gives NumPy a tensor that may be of 16 bits, which it has not: call .float() before"
    return ""


def modules(script: Script) -> list[Thing]:
    """The LightningModules of the project that are made, or that would be."""
    found: dict[int, Thing] = {}
    for site in script.log.of("new"):
        for occurrence in site:
            thing = occurrence.this
            if (
                isinstance(thing, Inst)
                and is_lightning(thing)
                and any(n.endswith("LightningModule") for n in thing.cls.external)
            ):
                found.setdefault(id(thing.cls), thing)
    return list(found.values())


def _class(thing: Thing) -> Cls:
    assert isinstance(thing, Inst)
    return thing.cls


def _manual(thing: Thing) -> str:
    """The line that switches automatic optimization off."""
    cls = _class(thing)
    for base in cls.lineage():
        for node in ast.walk(base.node):
            match node:
                case ast.Assign(value=value) | ast.AnnAssign(value=value):
                    names = map(short_name, targets_of(node))
                    if "automatic_optimization" in names and not is_constant(value, True):
                        return at(node)
                case ast.FunctionDef(name="automatic_optimization"):
                    return at(node)
    return ""


def _convolves(script: Script) -> bool:
    return any(layer.startswith(CONVOLVE) for m in script.models for layer in m.layers)


def _of_shapes(script: Script, deterministic: bool) -> str:
    if deterministic or script.deterministic:
        return "determinism is asked for: measured choices differ from run to run"
    training = [
        x
        for x in script.loaders
        if "training" in lightning_passes(script, x)
        or (is_managed(script, x) and not lightning_passes(script, x))
    ]
    if not training:
        return "the loader it trains on is not in this project"
    return next((why for loader in training if (why := why_batches_vary(script, loader))), "")


# ----------------------------------------------------------------------------------------- versions
def _words(script: Script, given: set[str]) -> tuple[str, str] | str:
    """How this Lightning spells bfloat16 and fp32; or why that is not known."""
    if old := old_lightning(script, given):
        known = (
            given & SINCE_1_5
            or at_least(script, (1, 5), "pytorch-lightning")
            or at_least(script, (1, 8), "lightning")
        )
        if known:
            return '"bf16"', "32"
        return f"whether this Lightning 1.x ({old}) has bfloat16 is not known: name its version in requirements.txt"
    if (
        given & ONLY_2
        or at_least(script, (2, 0), "lightning")
        or at_least(script, (2, 0), "pytorch-lightning")
        or _modern(script)
    ):
        return '"bf16-mixed"', '"32-true"'
    return "pytorch_lightning may be 1.x, which says bf16, or 2.x, which says bf16-mixed: name its version in requirements.txt or pyproject.toml"


def _modern(script: Script) -> bool:
    """Imported by the name ``lightning``, which 2.0 made the usual one."""
    names: list[str] = []
    for node in script.nodes:
        match node:
            case ast.Import(names=imported):
                names += [a.name for a in imported]
            case ast.ImportFrom(module=module, level=0):
                names.append(module or "")
    roots = {first_part(name) for name in names}
    return "lightning" in roots and "pytorch_lightning" not in roots
