"""Settings of optimizers (record.Record.settings): what their parameter groups say at the first and
at the last step.
"""

from __future__ import annotations

from typing import Any

import torch

LEFT_OUT = frozenset(
    "params param_names lr initial_lr max_lr min_lr fused foreach capturable differentiable".split()
)
MOST = 8  # entries of a tuple


def written(value: Any) -> str | None:
    """A number as a float, so that 0 and 0.0 are one; None for what is no setting."""
    if value is None or isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, (int, float)):
        return repr(float(value))
    if isinstance(value, torch.Tensor):
        return (
            repr(float(value.detach())) if value.numel() == 1 and not value.is_complex() else None
        )
    if isinstance(value, (tuple, list)) and len(value) <= MOST:
        parts = [written(entry) for entry in value]
        return None if None in parts else ", ".join(map(str, parts))
    return None


def groups(optimizer: Any) -> dict[str, str]:
    found = {}
    for place, group in enumerate(optimizer.param_groups):
        for name, value in group.items():
            text = None if name in LEFT_OUT else written(value)
            if text is not None:
                found[f"{place}/{name}"] = text
        sizes = [tensor.numel() for tensor in group["params"] if tensor.requires_grad]
        found[f"{place}/tensors"], found[f"{place}/elements"] = (
            repr(float(len(sizes))),
            repr(float(sum(sizes))),
        )
    return found


class Options:
    """The last step of a run is not known when it is made, so each is looked at: only in runs that
    are not timed.
    """

    def __init__(self) -> None:
        self.first: dict[int, dict[str, str]] = {}
        self.last: dict[int, dict[str, str]] = {}

    def seen(self, number: int, optimizer: Any) -> None:
        self.last[number] = groups(optimizer)
        self.first.setdefault(number, self.last[number])

    def flat(self) -> dict[str, str]:
        times = ("first", self.first), ("last", self.last)
        return {
            f"{n}/{when}/{key}": text
            for when, known in times
            for n, found in known.items()
            for key, text in found.items()
        }
