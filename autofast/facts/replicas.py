"""Evaluations that DataParallel spreads over threads, which know of ``no_grad`` but not of ``inference_mode``."""

from __future__ import annotations

from autofast.model.script import Evaluation, Script
from autofast.model.source import function_of, line_of
from autofast.read.recover.eval_mode import switching_functions


def trained_replicas(script: Script, evaluation: Evaluation) -> str:
    """Why an evaluation may not run under inference_mode; empty where nothing speaks against.

    The replicas' buffers are copied under it, and their threads run outside of it: BatchNorm and spectral_norm, which change buffers in
    training mode, raise there ("Inplace update to inference tensor outside InferenceMode"). In evaluation mode they change none.
    """
    sites = script.calls("torch.nn.DataParallel", "torch.nn.parallel.DataParallel")
    homes = {evaluation.node, function_of(evaluation.node)}
    if not sites or homes & switching_functions(script):
        return ""
    return f"threads of DataParallel (line {line_of(sites[0].node)}) may change buffers of models that are not in evaluation mode"
