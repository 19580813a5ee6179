"""Norms of gradients and of the change of parameters at every step (Detail.gradients)."""

from __future__ import annotations

from typing import Any

import torch


def norm(tensors: list[Any]) -> Any:
    """2-norm of all values together, in float64, on their device."""
    parts = []
    for tensor in tensors:
        values = tensor.coalesce().values() if tensor.layout == torch.sparse_coo else tensor
        parts.append(
            torch.linalg.vector_norm(
                values, dtype=torch.complex128 if values.is_complex() else torch.float64
            )
        )
    if not parts:
        return 0.0
    return torch.linalg.vector_norm(torch.stack([part.to(parts[0].device) for part in parts]))


def parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class Watch:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def before(self, optimizer: Any, extras: dict[str, Any]) -> None:
        """Gradients as the step will use them. A fused optimizer gets them scaled from GradScaler, and unscales in its kernel."""
        with torch.no_grad():
            extras["norm"] = norm(
                [
                    parameter.grad.detach()
                    for parameter in parameters(optimizer)
                    if parameter.grad is not None
                ]
            )
            scale = getattr(optimizer, "grad_scale", None)
            if scale is not None:
                extras["norm"] = extras["norm"] / scale.detach().clone()
            self.values = [parameter.detach().clone() for parameter in parameters(optimizer)]

    def after(self, optimizer: Any, extras: dict[str, Any]) -> None:
        with torch.no_grad():
            changes = [
                new.detach() - old
                for new, old in zip(parameters(optimizer), self.values)  # noqa: B905
                if new.shape == old.shape
            ]
            extras["update"] = norm(changes)
        self.values = []
