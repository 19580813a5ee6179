"""The objects of frameworks that own training loops, or the precision of one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from autofast.model.roles import Loader, Trainer, Use
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import ByNode
from autofast.model.values import (
    OBJECTS,
    Arguments,
    Const,
    Given,
    Unknown,
    joined,
    ordered,
)
from autofast.read.library.frameworks import HF_ARGUMENTS, KINDS, given, name_of
from autofast.read.recover.datasets import describe
from autofast.read.recover.loaders import is_guarded

if TYPE_CHECKING:
    from autofast.read.interpreter.interpreter import Interpreter


def build_trainers(interp: Interpreter, script: Script) -> list[Trainer]:
    """The objects of frameworks that train, one for each place where they are made."""
    found: ByNode[Trainer] = {}
    for thing in interp.made:
        name = name_of(thing)
        if name not in KINDS or not isinstance(thing.node, ast.Call) or thing.args is None:
            continue
        old = found.get(thing.node)
        if old is None:
            found[thing.node] = Trainer(KINDS[name], name, thing.node, [thing], thing.args)
        else:
            old.things.append(thing)
            old.args = joined([old.args, thing.args])
    for trainer in found.values():
        if trainer.framework == "hf-trainer":
            _hugging_face(interp, script, trainer)
    return list(found.values())


def _hugging_face(interp: Interpreter, script: Script, trainer: Trainer) -> None:
    settings = ordered(given(trainer.args, "args"))
    trainer.settings = [
        t for t in settings if isinstance(t, OBJECTS) and name_of(t) in HF_ARGUMENTS
    ]
    trainer.unknown = next((t.why for t in settings if isinstance(t, Unknown)), "")
    trainer.models = [t for t in ordered(given(trainer.args, "model")) if t != Const(None)]
    both = given(trainer.args, "train_dataset") | given(trainer.args, "eval_dataset")
    datasets = frozenset(t for t in both if t != Const(None))
    if not datasets:
        return
    args = Arguments(trainer.node, [], {"dataset": Given(datasets, None)})
    collate = given(trainer.args, "data_collator")
    if any(t != Const(None) for t in collate):
        args.named["collate_fn"] = Given(collate, None)
    starts = [(s, o) for s in script.methods("train") for o in s if o.this in trainer.things]
    uses = [Use(site.node, occurrence.stack, True, True) for site, occurrence in starts]
    loader = Loader(
        [], trainer.node, args, describe(interp, datasets), uses[:1], framework="hf-trainer"
    )
    loader.guarded = surely(is_guarded(o.stack) for _, o in starts)
    trainer.loader = loader
