"""Where a script trains while its options have their defaults: on the CPU, GPU or none."""

from __future__ import annotations

import ast
import re
from collections.abc import Set
from itertools import chain

from autofast.facts.by_default import not_by_default, value_by_default
from autofast.model.events import Occurrence, Site
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import at
from autofast.model.values import Arg, Given, of_kind
from autofast.read.requirements import rules_out

TRAINER = "lightning.Trainer"
FROM_ARGUMENTS = f"{TRAINER}.from_argparse_args"
# Arguments of Lightning's Trainer, and methods of its modules, that 2.0.0 has no longer.
ONLY_1 = wordset(
    "gpus tpu_cores ipus num_processes auto_select_gpus auto_lr_find auto_scale_batch_size replace_sampler_ddp resume_from_checkpoint "
    "amp_backend amp_level move_metrics_to_cpu multiple_trainloader_mode track_grad_norm progress_bar_refresh_rate weights_summary "
    "checkpoint_callback distributed_backend process_position log_gpu_memory flush_logs_every_n_steps weights_save_path "
    "reload_dataloaders_every_epoch prepare_data_per_node stochastic_weight_avg terminate_on_nan"
)
OLD_HOOKS = wordset("training_epoch_end validation_epoch_end test_epoch_end")
SWITCH = re.compile("cuda|gpu|device")
CHOOSES = wordset("gpus accelerator devices strategy tpu_cores distributed_backend")


def kept_on_host(script: Script) -> str:
    """``script.analysis(kept_on_host)``: the place that leaves what is trained on the CPU while
    options have their defaults; empty where none certainly does.
    """
    every = script.log.of("move_model")
    moves = [s for s in every if any(map(_leaves, s))]
    moved = [t.site for t in script.transfers if t.kinds == {"cuda"}]
    if every and not (moves or moved or script.frameworks):
        return at(every[0])  # `torch.device("cpu")`
    if script.frameworks:
        old = script.frameworks.keys() == {"lightning"} and _is_lightning_1(script)
        moves = script.calls(TRAINER, FROM_ARGUMENTS) if old else []
        stays = surely(_names_no_device(script, site) for site in moves)
    else:
        stays = surely(_stays(script, o) for s in moves for o in s if _leaves(o))
        stays = stays and all(not_by_default(script, [o.stack for o in s]) for s in moved)
        stays = stays and not _is_switched_on(script)
    return at(moves[0]) if stays else ""


def _is_switched_on(script: Script) -> bool:
    """Whether a switch asks for the GPU, ``--cuda``: whoever has one gives it."""
    options = {t for n in script.each(ast.Attribute) for t in of_kind(script.values(n), Arg)}
    return any(t.kind == "flag" and SWITCH.search(t.name) for t in options)


def _leaves(move: Occurrence) -> bool:
    return bool(move.data["kinds"] != {"cpu"})


def _stays(script: Script, move: Occurrence) -> bool:
    target: Given | None = move.data["target"]
    named = target.expr if target is not None and not target.via else None
    cpu = named is not None and value_by_default(script, named) == "cpu"
    return cpu or bool(not_by_default(script, [move.stack]))


def _names_no_device(script: Script, site: Site) -> bool:
    """Whether nothing says which device a Trainer of Lightning 1.x takes: the CPU, then."""
    words = {n.value for n in script.each(ast.Constant) if isinstance(n.value, str)}
    words |= {n.attr for n in script.each(ast.Attribute)}
    words |= {str(n.arg) for n in script.each(ast.keyword)}
    return all(_given(site)) and CHOOSES.isdisjoint(word.lstrip("-") for word in words)


def _given(site: Site) -> list[str | None]:
    return [k.arg for k in getattr(site.node, "keywords", ())]


def _is_lightning_1(script: Script) -> bool:
    given = {name for s in script.calls(TRAINER) for name in _given(s) if name}
    return bool(script.calls(FROM_ARGUMENTS) or old_lightning(script, given))


def old_lightning(script: Script, given: Set[str]) -> str:
    """What says that Lightning is 1.x: a pin, an argument that a Trainer is ``given``, a hook."""
    pins = (rules_out(script, (2, 0), name) for name in ("lightning", "pytorch-lightning"))
    hooks = (f.name for f in script.each(ast.FunctionDef) if f.name in OLD_HOOKS)
    return next(chain(filter(None, pins), sorted(given & ONLY_1), hooks), "")
