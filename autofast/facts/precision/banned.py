"""Losses that are an error under autocast for CUDA."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.model.events import Site
from autofast.model.names import last_part
from autofast.model.source import at
from autofast.model.values import Ext, Inst, Ref, Thing

# An error under CUDA autocast.
BANNED = ("torch.nn.BCELoss", "torch.nn.functional.binary_cross_entropy")


@dataclass(frozen=True)
class Probabilities:
    """What becomes of the probabilities that a binary cross entropy is taken of.

    ``logits``: the losses that are to take logits, and the sigmoids that go. ``full``: the sigmoids
    that compute in fp32 where the rest runs in 16 bits.
    """

    logits: frozenset[ast.AST] = frozenset()
    full: frozenset[ast.AST] = frozenset()


AS_THEY_ARE = Probabilities()


def banned_loss(loss: Thing | None) -> str:
    """The name of a loss that is an error under autocast; empty for any other."""
    if isinstance(loss, Inst):
        return next((n for n in BANNED if n in loss.cls.external), "")
    return loss.name if isinstance(loss, (Ext, Ref)) and loss.name in BANNED else ""


def error_of(name: str, site: Site) -> str:
    """What is wrong with a banned loss, in words."""
    short = last_part(name)
    better = "BCEWithLogitsLoss" if short == "BCELoss" else f"{short}_with_logits"
    return f"{short} ({at(site)}) is an error under autocast: use {better} and leave out the sigmoid before it (--extend-select bce-with-logits)"
