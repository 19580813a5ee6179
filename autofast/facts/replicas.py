"""Evaluations that DataParallel spreads over threads, which know of ``no_grad`` but not of
``inference_mode``.
"""

from __future__ import annotations

from autofast.facts.model_mode import trains_at
from autofast.model.script import Evaluation, Script
from autofast.model.source import at
from autofast.read.recover.evaluations import region_of


def trained_replicas(script: Script, evaluation: Evaluation) -> str:
    """Why an evaluation may not run under inference_mode; empty where nothing speaks against.

    The replicas' buffers are copied under it, and their threads run outside of it: BatchNorm and
    spectral_norm, which change buffers in training mode, raise there ("Inplace update to inference
    tensor outside InferenceMode"). In evaluation mode they change none.
    """
    sites = script.calls("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
    if not sites:
        return ""
    region = region_of(script, evaluation)  # training may run the same code
    passes = [(s, o) for s in evaluation.forwards for o in s if region.meets(s, o)]
    if passes and all(trains_at(script, o) is False for _, o in passes):
        return ""
    return f"threads of DataParallel ({at(sites[0].node)}) may change buffers of models that are not in evaluation mode"
