"""How many operations a step begins, and how long the GPU does nothing, from torch's own profiler
over a few steps.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from .core import Data, Probe

cuda: Any = torch.cuda  # most of it has no types
FIRST = 4  # the profiler starts after so many steps
STEPS = (3, 3, 1, 1, 1)  # and looks at so many; again where an evaluation came in between
FETCH = "autofast fetch"
KERNELS = ("Memcpy", "Memset")  # the names of what is no kernel begin so


class Operations:
    """``step_ended`` is called at the end of every step. An evaluation among the steps spoils them,
    and others are looked at.
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.profiler: Any = None
        self.began, self.start = 0, 0.0
        self.spoilt = False
        self.attempts = 0
        self.result: Data = {}

    @property
    def looks(self) -> bool:
        """Whether the profiler is at work, which takes time."""
        return self.profiler is not None

    def fetching(self) -> Any:
        """Around the making of a batch."""
        if self.profiler is None:
            return contextlib.nullcontext()
        return torch.autograd.profiler.record_function(FETCH)

    def disturbed(self) -> None:
        self.spoilt = True

    def step_ended(self) -> None:
        steps = self.probe.steps
        if self.profiler is None:
            if steps >= FIRST and not self.result and self.attempts < len(STEPS):
                self.begin(steps)
        elif steps - self.began >= STEPS[self.attempts - 1]:
            self.end(steps - self.began)

    def begin(self, steps: int) -> None:
        self.attempts += 1
        try:
            gpu = cuda.is_initialized()
            kind = torch.profiler.ProfilerActivity
            self.profiler = torch.profiler.profile(activities=[kind.CUDA if gpu else kind.CPU])
            self.profiler.__enter__()
            if gpu:
                cuda.synchronize()
        except Exception as error:  # no CUPTI, another profiler at work
            self.probe.note(f"operations not counted: {type(error).__name__}: {error}")
            self.profiler, self.attempts = None, len(STEPS)
            return
        self.began, self.start, self.spoilt = steps, self.probe.clock(), False

    def end(self, steps: int) -> None:
        profiler, self.profiler = self.profiler, None
        gpu = cuda.is_initialized()
        try:
            if gpu:
                cuda.synchronize()
            seconds = self.probe.clock() - self.start
            profiler.__exit__(None, None, None)
            if not self.spoilt:
                self.result = on_gpu(profiler, steps, seconds) if gpu else on_cpu(profiler, steps)
        except Exception as error:
            self.probe.note(f"operations not counted: {type(error).__name__}: {error}")

    def found(self) -> Data:
        if self.profiler is not None:
            self.profiler.__exit__(None, None, None)
        return self.result


def on_cpu(profiler: Any, steps: int) -> Data:
    """Operations that no other operation calls, without those that make batches."""
    count = sum(event.name.startswith("aten::") and is_outer(event) for event in profiler.events())
    return {"operations": count / steps} if count else {}


def is_outer(event: Any) -> bool:
    parent = event.cpu_parent
    while parent is not None:
        if parent.name == FETCH or parent.name.startswith("aten::"):
            return False
        parent = parent.cpu_parent
    return True


def on_gpu(profiler: Any, steps: int, seconds: float) -> Data:
    """Kernels, and the share of the time in which neither one nor a copy was at work. Not run on a
    GPU yet.
    """
    device: Any = torch.autograd.DeviceType.CUDA  # type: ignore[attr-defined]
    spans = [
        (event.time_range.start, event.time_range.end, event.name)
        for event in profiler.events()
        if event.device_type == device
    ]
    kernels = sum(not name.startswith(KERNELS) for _, _, name in spans)
    busy, last = 0.0, 0.0
    for start, end, _ in sorted(spans):
        busy += max(0.0, end - max(start, last))
        last = max(last, end)
    if not kernels or seconds <= 0:
        return {}
    return {"operations": kernels / steps, "idle": min(1.0, max(0.0, 1 - busy / 1e6 / seconds))}
