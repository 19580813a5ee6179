"""The gradients that a script makes its updates with, and the learning rates: of every
``optimizer.step()``, in order.
"""

from __future__ import annotations

from typing import Any


class Recorder:
    """Notes them while it is entered. ``updates`` holds one entry for each step: the optimizer's
    number, its gradients (a list of lists), its rates.
    """

    def __init__(self) -> None:
        self.updates: list[tuple[int, list[Any], list[float]]] = []
        self._optimizers: dict[int, int] = {}
        self._held: list[Any] = []

    def __enter__(self) -> Recorder:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._handle = register_optimizer_step_pre_hook(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _note(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._held.append(optimizer)
        number = self._optimizers.setdefault(id(optimizer), len(self._optimizers))
        params = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = [None if p.grad is None else p.grad.detach().clone() for p in params]
        self.updates.append((number, gradients, [float(g["lr"]) for g in optimizer.param_groups]))


def updates_of(
    text: str, **given: Any
) -> tuple[list[tuple[int, list[Any], list[float]]], dict[str, Any]]:
    """The updates of a script that runs in this process, and its variables at the end."""
    import torch

    default = torch.get_default_dtype()
    scope: dict[str, Any] = {"__name__": "__main__", **given}
    try:
        with Recorder() as recorder:
            exec(compile(text, "train.py", "exec"), scope)
    finally:
        torch.set_default_dtype(
            default
        )  # what the script sets is not for the tests that come after
    return recorder.updates, scope


def difference(before: list[Any], after: list[Any], tolerance: float = 1e-9) -> str:
    """How the updates differ; empty where there are as many, of the same gradients and rates."""
    import torch

    if len(before) != len(after):
        return f"{len(before)} and {len(after)} updates"
    for n, (old, new) in enumerate(zip(before, after, strict=True)):
        if old[0] != new[0]:
            return f"update {n} is one of optimizer {old[0]}, then {new[0]}"
        for a, b in zip(old[1], new[1], strict=True):
            if (a is None) != (b is None) or (
                a is not None and not torch.allclose(a, b, rtol=tolerance, atol=tolerance)
            ):
                return f"gradients of update {n}: {a} and {b}"
        if any(abs(a - b) > 1e-12 for a, b in zip(old[2], new[2], strict=True)):
            return f"rates of update {n}: {old[2]} and {new[2]}"
    return ""
