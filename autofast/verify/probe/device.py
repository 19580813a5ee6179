"""CUDA: the end of each step as an event on the device, waits of the host, utilisation and power.

Nothing here initialises CUDA: a script that stays on the CPU, or forks before it uses the GPU,
shall go on doing so. Not run on a GPU yet.
"""

from __future__ import annotations

import sys
import threading
import warnings
from typing import Any

import torch

from .core import Data, Probe

PERIOD = 0.1  # seconds between two samples of utilisation and power
cuda: Any = torch.cuda  # most of it has no types
SYNC = "called a synchronizing CUDA operation"  # torch/csrc/cuda: c10::cuda::warn_or_error_on_sync


class Device:
    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.marks: list[Any] = []  # for each step the event at its end, None before CUDA was used
        self.started = False
        self.syncs: dict[str, int] = {}
        self.samples: dict[int, tuple[list[float], list[float]]] = {}

    def step_ended(self) -> None:
        if not cuda.is_initialized():
            self.marks.append(None)
            return
        first = not self.started
        if first:
            self.start()
            cuda.synchronize()  # the measured window begins with nothing queued
        mark = cuda.Event(enable_timing=True)
        mark.record()
        self.marks.append(mark)
        if self.probe.settings.detailed:
            self.listen(first)

    def start(self) -> None:
        self.started = True
        threading.Thread(target=self.sample, name="autofast probe", daemon=True).start()

    def finish(self) -> Data:
        """Everything that is read from the device, after waiting for it."""
        if not cuda.is_initialized():
            return {"walls": [], "devices": []}
        cuda.synchronize()
        walls: list[float | None] = []
        for before, mark in zip([None, *self.marks], self.marks):  # noqa: B905
            walls.append(
                before.elapsed_time(mark) / 1000
                if before is not None and mark is not None
                else None
            )
        devices = []
        for index in range(cuda.device_count()):
            peak = cuda.max_memory_allocated(index) / 2**20
            if peak:
                use, power = self.samples.get(index, ([], []))
                devices.append(
                    {
                        "name": cuda.get_device_name(index),
                        "peak_memory": peak,
                        "utilisation": use,
                        "power": power,
                    }
                )
        return {"walls": walls, "devices": devices}

    # ----------------------------------------------------------------------------------- host waits
    def listen(self, first: bool) -> None:
        """In detailed runs only: each wait is a Python warning. Scripts silence warnings, so the
        filter is put back at every step.
        """
        if first:
            cuda.set_sync_debug_mode("warn")
            original = warnings.showwarning

            def show(
                message: Any, category: Any, filename: str, lineno: int, *rest: Any, **named: Any
            ) -> None:
                if SYNC in str(message):
                    place = self.place()
                    if place:
                        self.syncs[place] = self.syncs.get(place, 0) + 1
                else:
                    original(message, category, filename, lineno, *rest, **named)

            warnings.showwarning = show
        if not warnings.filters or SYNC not in str(getattr(warnings.filters[0][1], "pattern", "")):
            warnings.filterwarnings("always", message=f".*{SYNC}")

    def place(self) -> str:
        """The innermost line that is neither torch's, the standard library's nor the probe's (then
        nothing: it is not the script's wait).
        """
        frame: Any = sys._getframe(2)
        while frame is not None:
            code = frame.f_code.co_filename
            if (
                frame.f_globals.get("__package__") == __package__
                and frame.f_globals.get("__name__") != __name__
            ):
                return ""
            if code.startswith(self.probe.folder) and "site-packages" not in code:
                return f"{code[len(self.probe.folder) :].lstrip('/')}:{frame.f_lineno}"
            frame = frame.f_back
        return "elsewhere"

    # ---------------------------------------------------------------------------------- utilisation
    def sample(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            handles = {}
            for index in range(cuda.device_count()):
                identity = getattr(cuda.get_device_properties(index), "uuid", None)
                # Numbers of NVML are those of the machine, not those that CUDA_VISIBLE_DEVICES
                # leaves.
                handles[index] = (
                    pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{identity}")
                    if identity
                    else pynvml.nvmlDeviceGetHandleByIndex(index)
                )
        except (
            Exception
        ) as error:  # no such package, no permission, no NVML: figures that are nice to have
            self.probe.note(f"no utilisation of the GPU: {type(error).__name__}: {error}")
            return
        while not self.probe.stopped.wait(PERIOD):
            for index, handle in handles.items():
                use, power = self.samples.setdefault(index, ([], []))
                try:
                    use.append(float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
                    power.append(pynvml.nvmlDeviceGetPowerUsage(handle) / 1000)
                except Exception:
                    return
