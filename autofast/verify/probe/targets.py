"""What losses are given beside what a model puts out: labels, noise, values to come near to
(record.Record.targets).

Labels are given to no model. Two scripts that draw otherwise are compared by the law by which these
are drawn (laws.py), and by whether a sample that comes again, with the input that it had before,
has the label of before: noise of labels is drawn once, or anew. Labels that a loss leaves out
(``ignore_index``), pads as a rule, are counted.

A loss is known by torch's own function for it, whoever calls that (a module, a function of
torch.nn.functional)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from .core import Data, Probe
from .instead import instead_of, registered
from .laws import Laws
from .loaders import weights
from .sizes import task
from .training import compiling
from .unaided import unwrapped

MOST = 100_000  # samples whose targets are kept
CLOSE = 1e-4  # of a target's size: what a teacher gives to a sample of another batch is rounded
NEURAL = (
    "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss multilabel_margin_loss".split()
)
# Losses of one kind of target go by one name.
KINDS = {
    **dict.fromkeys(NEURAL[:4], "values"),
    **{name: name for name in NEURAL[4:]},
    **dict.fromkeys(("cross_entropy_loss", "nll_loss_nd", "multi_margin_loss"), "classes"),
    "binary_cross_entropy": "shares",
}
OTHERS = {
    "binary_cross_entropy_with_logits": "shares",
    "kl_div": "distributions",
    "poisson_nll_loss": "counts",
    "hinge_embedding_loss": "signs",
}
# At which places these are given their weights, how they put losses together (0: not at all), and
# the class that they leave out.
CLASSES = {"cross_entropy_loss": (2, 3, 4), "nll_loss_nd": (2, 3, 4)}
Kept = tuple[float, float]


class Targets:
    def __init__(self, probe: Probe, inputs: Any, idle: Callable[[], bool]) -> None:
        self.probe, self.inputs, self.no_training = probe, inputs, idle
        self.laws = Laws()
        self.seen: dict[str, dict[str, Any]] = {}
        self.known: dict[tuple[str, float], Kept] = {}
        neural: Any = torch._C._nn
        for owner, kinds in ((neural, KINDS), (torch, OTHERS)):
            for name, kind in kinds.items():
                if hasattr(owner, name):
                    self.wrap(owner, name, kind)

    def wrap(self, owner: Any, name: str, kind: str) -> None:
        @instead_of(name, owner, hidden=True)
        def watched(original: Any, *args: Any, **kwargs: Any) -> Any:
            if not compiling() and task() == -1 and not self.no_training():
                given = [*args, *(kwargs[k] for k in ("input", "target") if k in kwargs)]
                found = self.looked(kind, given)
                if found is not None and name in CLASSES:
                    left_out(given, found, *(args[k] for k in CLASSES[name] if k < len(args)))
            return original(*args, **kwargs)

        registered(name, owner)

    def looked(self, kind: str, given: list[Any]) -> dict[str, Any] | None:
        """Of the two that a loss compares one is an output, whichever comes first; None where that
        is not so."""
        one, two, *_ = [*given, None, None]
        if not isinstance(one, torch.Tensor) or not isinstance(two, torch.Tensor):
            return None
        if one.requires_grad == two.requires_grad or not one.dim() or not two.dim():
            return None
        target = unwrapped(two if one.requires_grad else one).detach()
        kind += " as shares" * (kind == "classes" and target.is_floating_point())
        if target.is_cuda and torch.cuda.is_current_stream_capturing():
            return None
        found = self.seen.setdefault(
            kind,
            dict.fromkeys("calls numbers again same left_out by_hand".split(), 0) | {"laws": []},
        )
        found["calls"] += 1
        found["numbers"] += target.numel()
        with contextlib.suppress(Exception):  # a meta tensor, or a layout of its own
            found["laws"] += self.laws.called(0, [(kind, target)]).values()
            self.compared(kind, target, found)
        return found

    def compared(self, kind: str, target: Any, found: dict[str, Any]) -> None:
        """Each sample's target with that which it had when its input was the same."""
        given = self.inputs.latest
        many = len(given) if given is not None and given.dim() else 0
        if not many or target.numel() % many or len(self.known) >= MOST:
            return
        samples = (float(f"{x:.9g}") for x in _sums(given)[0])
        for sample, *now in zip(samples, *_sums(target.reshape(many, -1))):  # noqa: B905
            before = self.known.get((kind, sample))
            self.known[kind, sample] = (now[0], now[1])
            if before is not None:
                found["again"] += 1
                found["same"] += abs(now[0] - before[0]) <= CLOSE * max(now[1], before[1])

    def found(self) -> Data:
        return {"targets": self.seen}


def left_out(
    given: list[Any], found: dict[str, Any], weight: Any = None, together: Any = 0, without: Any = 0
) -> None:
    """Of a loss of classes."""
    target = given[1]
    if target.is_floating_point():
        return  # shares of all classes
    if weight is not None or not together:
        found["by_hand"] += target.numel()
        return
    with contextlib.suppress(Exception), torch.no_grad():
        found["left_out"] += int((unwrapped(target).detach() == without).sum())


def _sums(rows: Any) -> tuple[list[float], list[float]]:
    """Of each row a checksum, and its size."""
    with torch.no_grad():
        rows = rows.detach().cpu().double().reshape(len(rows), -1)
        rows = rows * weights(rows.shape[1])
        return rows.sum(1).tolist(), rows.abs().sum(1).tolist()
