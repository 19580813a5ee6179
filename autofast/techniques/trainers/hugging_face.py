"""Arguments of Hugging Face's Trainer: in a TrainingArguments call, in the fields of the project's
own class, on the command line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.edit.edits import Edits, Import
from autofast.facts.cost.gains.asking import Findings
from autofast.facts.optimizers import SINCE, sparse_gradients
from autofast.facts.precision.fp32 import is_precision_set as tf32_decided, needs_digits
from autofast.facts.workers.legality import effect_of, why_cheap, why_no_workers as against_workers
from autofast.facts.workers.shared_state import changed_between
from autofast.model.roles import Loader, Trainer
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import statement_of
from autofast.model.values import Cls, Const, Ext, Inst, Thing, const
from autofast.read.requirements import rules_out
from autofast.rule import Effect, Finding, Gain, Options, Question
from autofast.techniques.trainers.half import AMPERE, against_half, forwards, has_bf16, methods
from autofast.techniques.trainers.spots import (
    Spot,
    changed_spot,
    option_flag,
    replaced,
    spot_of,
    takes_word,
)
from autofast.write.spelling import chooses_devices_late
from autofast.write.worker_helper import against_starting, worker_count

FP32 = (
    "the Trainer computes in fp32: in bfloat16 matrix products and convolutions run on tensor cores"
)
DIGITS = "matrix products in fp32 leave the GPU's tensor cores unused"
KERNELS = "the Trainer runs the update of AdamW as many small kernels"
WAITS = "the Trainer makes batches in the main process, and training waits for them"
AGAIN = "the worker processes are stopped and started again at every epoch"
OWN = ("training_step", "prediction_step", "compute_loss", "evaluate")
FUSED_SINCE = (4, 30)  # of transformers; 4.26 has no such optimizer yet
FUSED_DEFAULT = (4, 57)  # from here on it is the default, with torch 2.8 or newer
PERSISTENT_SINCE = (4, 36)
ELSEWHERE = ("deepspeed", "fsdp", "fsdp_config")


def find(script: Script, trainers: list[Trainer], options: Options) -> Iterator[Finding]:
    """Findings about the trainers of a script, by the options that they get."""
    groups: dict[ast.AST | None, tuple[list[Ext | Inst], list[Trainer]]] = {}
    for trainer in trainers:
        if trainer.unknown or not trainer.settings:
            yield Finding(trainer.node, FP32, refusal=_unknown(trainer))
            continue
        for thing in trainer.settings:
            things, members = groups.setdefault(thing.node, ([], []))
            things += [] if thing in things else [thing]
            members += [] if trainer in members else [trainer]
    calls = [
        things[0].node for things, _ in groups.values() if isinstance(things[0].node, ast.Call)
    ]
    for things, members in groups.values():
        spot = spot_of(script, things, calls)
        if isinstance(spot, str):
            yield Finding(things[0].node or members[0].node, FP32, refusal=spot)
        elif spot.args.open and not spot.fields and "command line" not in spot.args.open:
            yield Finding(
                spot.place, FP32, refusal=f"options may be given already: {spot.args.open}"
            )
        else:
            yield from _findings(script, Group(script, spot, members, options))


def _unknown(trainer: Trainer) -> str:
    if trainer.unknown:
        return f"its TrainingArguments are not known: {trainer.unknown}"
    if trainer.args.given(1, "args") is None:
        return "it is given no TrainingArguments"
    return "its options are no TrainingArguments of transformers, and other classes have other defaults"


class Group:
    """The trainers that get one set of options."""

    def __init__(self, script: Script, spot: Spot, trainers: list[Trainer], options: Options):
        self.script, self.spot, self.trainers, self.options = script, spot, trainers, options
        # Transformers' own class, filled from the command line.
        self.by_command_line = spot.args.open != "" and spot.cls is None
        self.flags: list[str] = []  # what the command line would have to say

    @property
    def on_cpu(self) -> bool:
        return any(const(self.spot.values(name)) is True for name in ("use_cpu", "no_cuda"))

    def elsewhere(self) -> str:
        """DeepSpeed or FSDP, which have their own words about precision and optimizers."""
        name = next((n for n in ELSEWHERE if self.spot.says(n, "", False)), "")
        return f"{name}= is given, which decides about this" if name else ""

    def models(self) -> list[Thing]:
        return [m for t in self.trainers for m in t.models]

    def classes(self) -> list[Cls]:
        return [x.cls for t in self.trainers for x in t.things if isinstance(x, Inst)]


def _findings(script: Script, group: Group) -> Iterator[Finding]:
    yield from _bf16(script, group)
    yield from _tf32(script, group)
    yield from _optim(script, group)
    yield from _workers(script, group)
    if group.flags:
        message = "the command line decides how the Trainer computes, and defaults of transformers are careful"
        newer = any(word in words for words in group.flags for word in ("bf16", "tf32"))
        where = " (bf16 and tf32 where the GPU has them, from Ampere on)" if newer else ""
        yield Finding(
            group.trainers[0].node, message, advice=f"run it with {' '.join(group.flags)}{where}"
        )


# ----------------------------------------------------------------------------------------- bfloat16
def _bf16(script: Script, group: Group) -> Iterator[Finding]:
    spot, options = group.spot, group.options
    if spot.says("bf16") or spot.says("fp16", False) or spot.says("half_precision_backend", "auto"):
        option = spot.option("bf16")
        if (
            option is not None
            and const(option.default) in (None, False)
            and not spot.says("fp16", False)
        ):
            how = option_flag(option) if option.kind == "flag" else f"{option_flag(option)} True"
            yield Finding(spot.place, FP32, advice=f"run it with {how} {AMPERE}")
        return
    if why := _against_bf16(script, group):
        yield Finding(spot.place, FP32, refusal=why)
    elif group.by_command_line:
        group.flags.append("--bf16 True")
    elif spot.fields:  # a default of True would clash with --fp16 on the command line
        yield Finding(spot.place, FP32, advice=f"run it with --bf16 True {AMPERE}")
    else:
        value, more = (
            ("True", ())
            if options.target == "cpu" or options.precision == "bf16"
            else has_bf16(script, spot.source)
        )
        yield _added(spot, "bf16", value, "bool", FP32, more)


def _against_bf16(script: Script, group: Group) -> str:
    if group.on_cpu and group.options.target == "cuda":
        return "it trains on the CPU"
    if group.options.target == "cpu" and not group.on_cpu:
        return (
            "without use_cpu=True, transformers takes bf16=True for an error where there is no GPU"
        )
    if why := group.elsewhere():
        return why
    if any(t.args.given(-1, "model_init") is not None for t in group.trainers):
        return "the model comes from model_init, which is not followed"
    if not group.models():
        return "the model is not known"
    code = [f for cls in group.classes() for f in methods(cls, OWN)]
    return against_half(script, group.options, [*code, *forwards(group.models())], group.models())


# --------------------------------------------------------------------------------------------- TF32
def _beside(spot: Spot) -> Question:
    """Nothing where bfloat16 is asked for, or is written: what has TF32 has that."""

    def ask(script: Script, options: Options, finding: Finding, beside: Findings) -> Gain | None:
        written = any(f.edits and f.node is finding.node and f.message == FP32 for f in beside)
        half = written or spot.says("bf16", False)
        return Gain(0.0, "products are computed in bfloat16 where there is TF32") if half else None

    return ask


def _tf32(script: Script, group: Group) -> Iterator[Finding]:
    spot = group.spot
    if group.options.target == "cpu" or group.on_cpu or spot.says("tf32") or tf32_decided(script):
        return
    if why := needs_digits(script):
        yield Finding(spot.place, DIGITS, refusal=why)
    elif group.by_command_line:
        group.flags.append("--tf32 True")
    elif place := chooses_devices_late(script, statement_of(spot.place)):
        yield Finding(
            spot.place,
            DIGITS,
            refusal=f"CUDA_VISIBLE_DEVICES is set on {place}, perhaps after CUDA would have been asked for",
        )
    else:
        more = (Import(spot.source, "from transformers.utils import is_torch_tf32_available"),)
        found = _added(spot, "tf32", "is_torch_tf32_available()", "bool", DIGITS, more)
        yield replace(found, asks=_beside(spot))


# ------------------------------------------------------------------------------------ the optimizer
def _optim(script: Script, group: Group) -> Iterator[Finding]:
    spot = group.spot
    option = spot.option("optim")
    plain = (
        option.default == {Const("adamw_torch")} if option is not None else _is_plain(script, spot)
    )
    if not plain:
        return
    place = spot.literal("optim", "adamw_torch")
    node = place if place is not None and spot.fields else spot.place
    if why := _against_fused(script, group):
        yield Finding(node, KERNELS, refusal=why)
    elif option is not None:
        if takes_word(option, "adamw_torch_fused"):
            yield Finding(
                spot.place, KERNELS, advice=f"run it with {option_flag(option)} adamw_torch_fused"
            )
    elif group.by_command_line:
        group.flags.append("--optim adamw_torch_fused")
    elif place is not None:
        yield Finding(node, KERNELS, edits=(replaced(place, '"adamw_torch_fused"'),))
    elif not spot.values("optim"):
        yield _added(spot, "optim", '"adamw_torch_fused"', "str", KERNELS)


def _is_plain(script: Script, spot: Spot) -> bool:
    """AdamW of torch: spelled out, or the default of the transformers that the project asks for."""
    if not spot.values("optim"):
        return bool(rules_out(script, FUSED_DEFAULT, "transformers"))
    return spot.literal("optim", "adamw_torch") is not None


def _against_fused(script: Script, group: Group) -> str:
    for version, pin in (
        (SINCE, script.torch.rules_out(SINCE)),
        (FUSED_SINCE, rules_out(script, FUSED_SINCE, "transformers")),
    ):
        if pin:
            return f"{pin}, and the fused update is there since {version[0]}.{version[1]}"
    for trainer in group.trainers:
        given = trainer.args.given(-1, "optimizers")
        if given is not None and const(given.values) != (None, None):
            return "the Trainer is given an optimizer of its own"
    for cls in group.classes():
        if name := next(
            (
                n
                for n in (
                    "create_optimizer",
                    "create_optimizer_and_scheduler",
                    "get_optimizer_cls_and_kwargs",
                )
                if cls.find(n)
            ),
            "",
        ):
            return f"{cls.node.name}.{name}() makes the optimizer"
    return group.elsewhere() or sparse_gradients(script)


# ------------------------------------------------------------------------------------------ workers
def _workers(script: Script, group: Group) -> Iterator[Finding]:
    spot = group.spot
    loaders = [t.loader for t in group.trainers if t.loader is not None]
    place = group.trainers[0].node
    given = spot.says("dataloader_num_workers")
    view = replace(script, loaders=[*script.loaders, *loaders])
    if not given:
        if why := _against_workers(view, group, loaders):
            yield Finding(place, WAITS, refusal=why)
            return
        helped = worker_count(view, spot.source, group.options, alone=True)
        if group.by_command_line:
            group.flags.append("--dataloader_num_workers 4")
            return
        effect = max((effect_of(view, loader) for loader in loaders), default=Effect.SAMPLING)
        yield replace(
            _added(spot, "dataloader_num_workers", helped.code, "int", WAITS, helped.edits),
            node=place,
            effect=effect,
        )
        yield from _persistent(
            view, group, loaders, "True" if helped.some else f"{helped.code} > 0"
        )
    elif isinstance(n := const(spot.values("dataloader_num_workers")), int) and n > 0:
        yield from _persistent(view, group, loaders, "True")


def _against_workers(view: Script, group: Group, loaders: list[Loader]) -> str:
    if not loaders:
        return "the datasets that it loads are not known"
    for trainer in group.trainers:
        for name in ("get_train_dataloader", "get_eval_dataloader"):
            if any(x.cls.find(name) for x in of_kind(trainer.things, Inst)):
                return f"its {name}() is the project's own"
    return next(
        (
            why
            for loader in loaders
            if (why := against_workers(view, loader) or why_cheap(view, loader))
        ),
        against_starting(view),
    )


def _persistent(view: Script, group: Group, loaders: list[Loader], value: str) -> Iterator[Finding]:
    spot = group.spot
    epochs = const(spot.values("num_train_epochs"))
    once = isinstance(epochs, (int, float)) and epochs <= 1
    if once or spot.says("dataloader_persistent_workers") or group.by_command_line or not loaders:
        return
    place = group.trainers[0].node
    why = next(
        (
            why
            for loader in loaders
            if (why := against_workers(view, loader) or changed_between(view, loader))
        ),
        "",
    )
    pin = rules_out(view, PERSISTENT_SINCE, "transformers")
    if not pin and spot.says("evaluation_strategy"):
        pin = "evaluation_strategy is gone since 4.46"
    if pin:
        why = f"{pin}, and dataloader_persistent_workers is there since 4.36"
    if why:
        yield Finding(place, AGAIN, refusal=why, effect=Effect.SAMPLING)
        return
    yield replace(
        _added(spot, "dataloader_persistent_workers", value, "bool", AGAIN),
        node=place,
        effect=Effect.SAMPLING,
    )


def _added(spot: Spot, name: str, value: str, kind: str, message: str, more: Edits = ()) -> Finding:
    return changed_spot(spot.place, message, spot.add(name, value, kind), more)
