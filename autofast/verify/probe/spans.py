"""Host time in transfers to another device and in collectives. Nothing is wrapped where there is no
GPU or only one process.

A copy with ``non_blocking=True`` from pinned memory returns at once: its span is short because it
does not hold the script up. DDP's own all-reduce runs in C++ during backward and counts as
backward.
"""

from __future__ import annotations

from typing import Any

import torch

from .core import Probe
from .instead import instead_of
from .surroundings import gpu_possible
from .training import compiling

COLLECTIVES = (
    "all_reduce reduce broadcast barrier all_gather all_gather_into_tensor all_gather_object broadcast_object_list gather scatter "
    "reduce_scatter reduce_scatter_tensor all_to_all all_to_all_single send recv"
).split()


class Spans:
    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        if gpu_possible():
            for name in ("to", "cuda", "cpu"):
                self.transfer(torch.Tensor, name)
            for name in ("to", "cuda"):
                self.timed(torch.nn.Module, name, "t")
        if torch.distributed.is_available() and probe.world != 1:
            for name in COLLECTIVES:
                self.timed(torch.distributed, name, "c")

    def transfer(self, owner: Any, name: str) -> None:
        """Only what changes the device: a mere cast is computation."""
        probe, clock = self.probe, self.probe.clock

        @instead_of(name, owner)
        def moved(original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
            start = clock()
            result = original(tensor, *args, **kwargs)
            if result is not tensor and not compiling() and result.device != tensor.device:
                probe.events.append(("t", start, clock()))
            return result

    def timed(self, owner: Any, name: str, kind: str) -> None:
        if not hasattr(owner, name):
            return
        probe = self.probe

        @instead_of(name, owner, hidden=True)
        def timed(original: Any, *args: Any, **kwargs: Any) -> Any:
            start = probe.clock()
            result = original(*args, **kwargs)
            probe.events.append((kind, start, probe.clock()))
            return result
