"""Evaluations that DataParallel spreads over threads, which know of ``no_grad`` but not of ``inference_mode``."""

from __future__ import annotations

from autofast.model.events import Occurrence
from autofast.model.script import Evaluation, Script
from autofast.model.source import line_of
from autofast.model.values import Const
from autofast.read.recover.build import unwrapped


def trained_replicas(script: Script, evaluation: Evaluation) -> str:
    """Why an evaluation may not run under inference_mode; empty where nothing speaks against.

    The replicas' buffers are copied under it, and their threads run outside of it: BatchNorm and spectral_norm, which change buffers in
    training mode, raise there ("Inplace update to inference tensor outside InferenceMode"). In evaluation mode they change none.
    """
    sites = script.calls("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
    if not sites or all(_is_switched(script, o) for site in evaluation.forwards for o in site):
        return ""
    return f"threads of DataParallel (line {line_of(sites[0].node)}) may change buffers of models that are not in evaluation mode"


def _is_switched(script: Script, forward: Occurrence) -> bool:
    """Whether the model was last switched to evaluation before this forward pass."""
    if forward.this is None:
        return False
    mine = {id(x) for x in unwrapped(forward.this)}
    last = max(
        (
            (o.order, site.kind == ".eval" or _is_false(o))
            for site in script.methods("eval", "train")
            for o in site
            if o.order < forward.order
            and o.this is not None
            and any(id(x) in mine for x in unwrapped(o.this))
        ),
        default=(0, False),
    )
    return last[1]


def _is_false(train: Occurrence) -> bool:
    return train.args is not None and train.args.get(0, "mode") == {Const(False)}
