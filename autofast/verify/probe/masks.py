"""The masks of dropout that are drawn, by modules or by functions: their sizes and rates in the
first steps, and whether some are drawn without gradients. What a backward computes again is not
counted.

One mask for a whole batch, or for all steps of a sequence, draws fewer numbers than one for each;
dropout that is left on in an evaluation draws some there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as functional

from .core import Data, Probe
from .instead import instead_of, registered
from .sizes import task
from .training import compiling

FIRST = 2  # steps in which sizes are kept
MOST = 4000
# Of torch._VF, which torch.nn.functional calls: whether a mask has one number for each channel
# instead of each entry.
KINDS = {
    name + end: name.startswith("feature")
    for name in ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
    for end in ("", "_")
}


class Masks:
    """``drawn``: sizes and rates of masks drawn with gradients in the first steps; ``idle``: how
    many were drawn without.
    """

    def __init__(self, probe: Probe, idle: Callable[[], bool]) -> None:
        self.probe = probe
        self.no_training = idle
        self.drawn: list[tuple[int, float]] = []
        self.idle = 0
        for name, channels in KINDS.items():
            if hasattr(torch._VF, name):
                self.wrap(torch._VF, name, self.dropout(channels))
        name = "scaled_dot_product_attention"
        if hasattr(functional, name):
            self.wrap(functional, name, self.attention)

    def wrap(self, owner: Any, name: str, look: Any) -> None:
        @instead_of(name, owner, hidden=True)
        def watched(original: Any, *args: Any, **kwargs: Any) -> Any:
            if not compiling():
                look(*args, **kwargs)
            return original(*args, **kwargs)

        registered(name, owner)

    def found(self) -> Data:
        sizes, rates = ([one[k] for one in self.drawn] for k in (0, 1))
        return {"masks": sizes, "mask_rates": rates, "idle_masks": self.idle}

    def draws(self, size: int, rate: Any) -> None:
        if self.no_training():
            self.idle += 1
        elif self.probe.steps < FIRST and len(self.drawn) < MOST and task() == -1:
            self.drawn.append((size, float(rate)))

    def dropout(self, channels: bool) -> Any:
        def look(tensor: Any, p: Any = 0.5, train: Any = True, *rest: Any) -> None:
            if train and p:
                shape = tensor.shape[:2] if channels else tensor.shape
                self.draws(math.prod(shape), p)

        return look

    def attention(
        self, query: Any, key: Any, value: Any, mask: Any = None, dropout_p: float = 0.0, *rest: Any, **more: Any
    ) -> None:  # fmt: skip
        if dropout_p:
            self.draws(math.prod(query.shape[:-1]) * int(key.shape[-2]), dropout_p)
