"""What frameworks call and give: Lightning's hooks, the parser and the Trainer of Hugging Face."""

from __future__ import annotations

import ast

from autofast.model.events import CallFrame
from autofast.model.kinds import is_loader, ways_made
from autofast.model.limits import FED
from autofast.model.several import wordset
from autofast.model.source import source_of
from autofast.model.syntax import positional_names
from autofast.model.values import (
    NOTHING,
    Arguments,
    Cls,
    Const,
    Ext,
    Func,
    Given,
    Inst,
    Ref,
    Seq,
    Tensor,
    Thing,
    Values,
    Where,
    is_named,
    of_kind,
    ordered,
    result_of,
    things as values,
)
from autofast.read.library.iteration import batch_of, sample_of
from autofast.read.library.options import COMMAND_LINE
from autofast.read.state.core import Core, TooDeep

PARSERS = wordset(
    "transformers.HfArgumentParser transformers.hf_argparser.HfArgumentParser trl.TrlParser"
)
HF_TRAINERS = tuple(
    f"transformers.{n}"
    for n in "Trainer Seq2SeqTrainer trainer.Trainer trainer_seq2seq.Seq2SeqTrainer".split()
)
HF_ARGUMENTS = tuple(
    n.replace("trainer", "training_args").replace("Trainer", "TrainingArguments")
    for n in HF_TRAINERS
)
KINDS = {
    **dict.fromkeys(HF_TRAINERS, "hf-trainer"),
    **dict.fromkeys(
        ("lightning.Trainer", "lightning.trainer.Trainer", "lightning.trainer.trainer.Trainer"),
        "lightning",
    ),
    "lightning.cli.LightningCLI": "lightning-cli",
    **dict.fromkeys(
        ("lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"), "fabric"
    ),
    "accelerate.Accelerator": "accelerate",
    "accelerate.accelerator.Accelerator": "accelerate",
}
# Of transformers.Trainer.
POSITIONS = {"model": 0, "args": 1, "data_collator": 2, "train_dataset": 3, "eval_dataset": 4}

DATA_HOOKS = wordset("train_dataloader val_dataloader test_dataloader predict_dataloader")


def is_lightning(thing: Thing | None) -> bool:
    """A LightningModule or LightningDataModule of the project, or its class."""
    cls = thing.cls if isinstance(thing, Inst) else thing
    return isinstance(cls, Cls) and any(
        n.startswith("lightning.") and n.endswith("Module") for n in cls.external
    )


def name_of(thing: Thing) -> str:
    """The framework's class that a thing is of, or that its class extends."""
    if isinstance(thing, Ext):
        return thing.name
    if isinstance(thing, Inst):
        return next((n for n in (*KINDS, *HF_ARGUMENTS) if n in thing.cls.external), "")
    return ""


def run_hooks(interp: Core) -> None:
    """Enter what frameworks call, in all files, and the items of the data."""
    found: dict[int, Cls] = {}
    for thing in list(interp.made):
        if name_of(thing) in HF_TRAINERS and thing.args is not None:
            models = of_kind(ordered(given(thing.args, "model")), Inst)
            interp.__dict__.setdefault("_given_models", []).extend(models)
            found.update((id(t.cls), t.cls) for t in models)
            _fetch(interp, thing.args)
    for module in list(interp.modules.values()):
        for bound in module.env.vars.values():
            found.update(
                (id(t), t)
                for t in of_kind(bound, Cls)
                if is_lightning(t) and source_of(t.node) is module.source
            )
    for cls in found.values():
        interp.run_class(cls)
    for thing in list(interp.made):
        if is_loader(thing) and any(
            f.func.name in DATA_HOOKS for f in of_kind(ways_made(thing), CallFrame)
        ):
            batch_of(interp, thing)


def _fetch(interp: Core, args: Arguments) -> None:
    """What the Trainer of Hugging Face fetches of its datasets and puts together."""
    stack, interp.stack = interp.stack, []
    interp.limits.append(min(interp.limits[-1], interp.steps + FED))
    inside = interp.depths()
    try:
        for name in ("train_dataset", "eval_dataset"):
            if datasets := [t for t in ordered(given(args, name)) if t != Const(None)]:
                items = sample_of(interp, *datasets)
                if collate := frozenset(
                    t for t in given(args, "data_collator") if t != Const(None)
                ):
                    gathered = Arguments(None, [Given(values(Seq(None, None, items)), None)])
                    interp.call_values(collate, gathered, None)
    except TooDeep:
        interp.unwind(inside)
    finally:
        interp.limits.pop()
        interp.stack = stack


def given(args: Arguments, name: str) -> Values:
    """An argument of the Trainer of Hugging Face."""
    return args.get(POSITIONS.get(name, -1), name)


# Methods that are called for each batch, with the place of the batch behind `self`.
STEPS = dict.fromkeys(
    "training_step validation_step test_step predict_step on_train_batch_start".split(), 0
) | dict.fromkeys(("on_train_batch_end", "on_validation_batch_end"), 1)
HF_STEPS = {"compute_loss": 1, "training_step": 1, "prediction_step": 1}
COMPOSER_STEPS = {"forward": 0, "eval_forward": 0, "loss": 1}
# Or a tuple or dict of tensors, which has these for its elements.
BATCH = Tensor(device="dev", rank="?")


def batch_at(func: Func) -> int | None:
    """Which parameter behind `self` is the batch, of a method that a framework calls for each."""
    cls = func.owner
    if cls is None:
        return None
    if is_lightning(cls):
        return STEPS.get(func.name)
    if cls.external & set(HF_TRAINERS):
        return HF_STEPS.get(func.name)
    composed = any(n.endswith((".ComposerModel", ".ComposerClassifier")) for n in cls.external)
    return COMPOSER_STEPS.get(func.name) if composed else None


def fed(interp: Core, func: Func, param: ast.arg) -> Values:
    """What a framework gives to a function of the project that nothing in it calls, as this
    parameter; empty where that is not known.
    """
    cls, spec = func.owner, func.node.args
    names = positional_names(spec)[1:]
    if cls is None or param.arg not in names:
        return NOTHING
    if batch_at(func) == names.index(param.arg):
        return values(BATCH)
    if func.name == "forward" and any(
        t.cls is cls for t in interp.__dict__.get("_given_models", ())
    ):
        return values(BATCH) | func.defaults.get(param.arg, NOTHING)
    return NOTHING


# --------------------------------------------------------------------------- options in dataclasses
def method(interp: Core, this: Thing, name: str, args: Arguments, node: Where) -> Values | None:
    """What a parser of dataclasses returns: one object of each of its classes, in their order."""
    if not (is_named(this, Ext, PARSERS) and name.startswith("parse_")):
        return None
    parts: list[Values] = []
    for thing in ordered(this.args.get(0, "dataclass_types")):
        for cls in (
            [thing]
            if not isinstance(thing, Seq)
            else [t for item in thing.items or () for t in ordered(item)]
        ):
            if isinstance(cls, (Cls, Ref)):
                parts.append(interp.call_thing(cls, Arguments(node, open=COMMAND_LINE), node))
            else:
                return values(result_of(f".{name}"))
    if name == "parse_args_and_config" and parts:
        return values(result_of(f".{name}"))
    return interp.tuple_of(node, tuple(parts), name)
