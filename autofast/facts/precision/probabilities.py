"""Logarithms of probabilities: a sigmoid in 16 bits is 1 from 6 (bf16) or 8 (fp16) on, and the
logarithm of the rest is that of 0.

Autocast computes ``log_softmax`` in fp32 and losses with logits too; what it cannot see is a
logarithm that is taken, far away, of what a sigmoid in the model has rounded.
"""

from __future__ import annotations

import ast

from autofast.facts.precision.banned import banned, error_of
from autofast.facts.precision.code import Code
from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.tensors import tensors_in

LOGARITHMS = ("torch.log", ".log", "torch.log1p", ".log1p", "torch.log2", "torch.log10")


def log_of_rounded(script: Script, code: Code, outputs: list[ast.Call]) -> str:
    """Where ``code`` takes the logarithm of a probability that a model has computed in 16 bits, in
    words; empty where it does not.
    """
    given = [t.prob for call in outputs for t in tensors_in(script.values(call))]
    rounded = any(p is not None and id(p) not in code.logits for p in given)
    for site, occurrence in code.events("loss"):
        if id(site.node) not in code.logits and (name := banned(occurrence.this)):
            taken = tensors_in(occurrence.args.get(0, "input")) if occurrence.args else []
            if rounded or not taken or not all(t.prob for t in taken):
                return error_of(name, site)
    if rounded:
        for site, occurrence in code.events(*LOGARITHMS):
            of = occurrence.args.get(0, "input") if occurrence.args is not None else frozenset()
            this = frozenset({occurrence.this}) if occurrence.this is not None else frozenset()
            if any(t.models for t in tensors_in(of | this)):
                return f"{at(site.node)} takes the logarithm of a sigmoid, which in 16 bits is 1 for what is nearly 1: compute it from the logits"
    return ""
