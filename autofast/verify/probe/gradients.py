"""Norms of gradients and of the change of parameters at every step (Detail.gradients)."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from .core import Data

# groups of parameters, one after the other as the optimizer holds them: layers from the first to
# the last
PARTS = 6
# What a backward left is asked of those optimizers that were made or made a step last: of LATELY,
# or more if they hold TENSORS at most. A script may have one for every fold, or client.
LATELY, TENSORS = 16, 300


def norm(tensors: list[Any]) -> Any:
    """2-norm of all values together, in float64, on their device."""
    return together(norms(tensors))


def norms(tensors: list[Any]) -> list[Any]:
    parts = []
    for tensor in tensors:
        values = tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor
        parts.append(
            torch.linalg.vector_norm(
                values, dtype=torch.complex128 if values.is_complex() else torch.float64
            )
        )
    return parts


def by_parts(values: list[Any]) -> list[Any]:
    """The norms of the groups, from those of single tensors (None: it has no gradient)."""
    size = -(-len(values) // PARTS) or 1
    groups = [values[i : i + size] for i in range(0, len(values), size)]
    return [together([one for one in group if one is not None]) for group in groups]


def together(parts: list[Any]) -> Any:
    if not parts:
        return 0.0
    return torch.linalg.vector_norm(torch.stack([part.to(parts[0].device) for part in parts]))


def parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class Watch:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self.known: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()
        self.left: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.drive: Any = None  # state.State.drive

    def used(self, optimizer: Any) -> None:
        """The last of the optimizers that are known."""
        self.known.pop(optimizer, None)
        self.known[optimizer] = None

    def after_backward(self, scale: Any) -> None:
        """Gradients as this backward left them. ``scale``: of the losses, or None."""
        found: dict[tuple[int, ...], Any] = {}  # of optimizers that hold the same parameters, once
        with torch.no_grad():
            tensors = 0
            for place, optimizer in enumerate(reversed(list(self.known))):
                held = parameters(optimizer)
                tensors += len(held)
                if place >= LATELY and tensors > TENSORS:
                    break
                key = tuple(map(id, held))
                if key not in found:
                    left = norm([one.grad.detach() for one in held if one.grad is not None])
                    found[key] = left if scale is None else left / scale.detach().clone()
                self.left[optimizer] = found[key]

    def before(self, optimizer: Any, extras: Data) -> None:
        """Gradients as the step will use them. A fused optimizer gets them scaled from GradScaler,
        and unscales in its kernel.
        """
        self.used(optimizer)
        with torch.no_grad():
            held = [parameter.grad for parameter in parameters(optimizer)]
            single = iter(norms([grad.detach() for grad in held if grad is not None]))
            parts = by_parts([None if grad is None else next(single) for grad in held])
            scale = getattr(optimizer, "grad_scale", None)
            if scale is not None:
                parts = [part / scale.detach().clone() for part in parts]
            extras["grad_norm"] = together([part for part in parts if torch.is_tensor(part)])
            extras["grad_norms"] = parts
            extras["left_norm"] = self.left.pop(optimizer, None)
            self.values = [parameter.detach().clone() for parameter in parameters(optimizer)]
            if self.drive is not None:
                self.drive(optimizer)

    def after(self, optimizer: Any, extras: Data) -> None:
        with torch.no_grad():
            changes = [
                new.detach() - old
                for new, old in zip(parameters(optimizer), self.values)  # noqa: B905
                if new.shape == old.shape
            ]
            extras["update_norms"] = by_parts(norms(changes))
            extras["update_norm"] = norm(changes)
        self.values = []
