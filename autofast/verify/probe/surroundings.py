"""What surrounds the run: when the process was born, memory, versions and flags, the state of
random generators.
"""

from __future__ import annotations

import hashlib
import os
import platform
import random
import re
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

UNIT = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss: bytes there, KiB on Linux


def born() -> float:
    """The start of this process by the operating system, in the time of perf_counter. Linux counts
    it in ticks since boot (proc(5)).
    """
    now = time.perf_counter()
    try:
        with open("/proc/self/stat") as file:
            ticks = int(file.read().rsplit(")", 1)[1].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
        return now - max(0.0, age)
    except (OSError, AttributeError, ValueError, IndexError):
        return now  # elsewhere: the interpreter's own start is missing


def field(path: str, name: str) -> float:
    """MiB."""
    try:
        with open(path) as file:
            found = re.search(rf"^{name}:\s+(\d+) kB", file.read(), re.M)
        return int(found[1]) / 1024 if found else 0.0
    except OSError:
        return 0.0


def peak_memory() -> float:
    """Of this process. ru_maxrss would include the time before exec, when it was a copy of its
    parent (getrusage(2)).
    """
    return (
        field("/proc/self/status", "VmHWM")
        or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / UNIT
    )


def children_memory() -> float:
    """Of living children together, shared pages divided among those who share them; at least that
    of the largest child that has ended.
    """
    living = 0.0
    try:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as file:
                living += sum(
                    field(f"/proc/{child}/smaps_rollup", "Pss") for child in file.read().split()
                )
    except OSError:
        pass
    return max(living, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / UNIT)


def compiling() -> float:
    """Seconds in torch.compile, by torch's own count; 0 where it was never used."""
    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return 0.0
    if hasattr(utils, "calculate_time_spent"):  # 2.2 and later
        return float(utils.calculate_time_spent().get("total_wall_time", 0.0))
    return float(
        sum(
            sum(times)
            for name, times in getattr(utils, "compilation_metrics", {}).items()
            if name.endswith("compile_inner")
        )
    )


def random_state() -> dict[str, str]:
    states = {"python": repr(random.getstate()).encode()}
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = repr(
            [
                part.tobytes() if hasattr(part, "tobytes") else part
                for part in numpy.random.get_state()
            ]
        ).encode()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        states["torch"] = bytes(torch.get_rng_state().tolist())
        if torch.cuda.is_initialized():
            states["cuda"] = bytes(torch.cuda.get_rng_state().tolist())
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


def random_digest() -> str:
    """Of all generators together: equal in two runs that have drawn the same numbers so far."""
    return hashlib.sha256(repr(random_state()).encode()).hexdigest()[:12]


def asked(function: Callable[[], Any]) -> Any:
    """None where this version of torch has no answer, or refuses to give one."""
    try:
        return function()
    except Exception:
        return None


def tf32(place: Any) -> bool:
    """Whether a backend (``torch.backends.cuda.matmul``, ...) may compute float32 in TF32. There
    are two interfaces, and the older one raises when asked after the newer one was used."""
    return asked(lambda: place.fp32_precision) == "tf32" or bool(asked(lambda: place.allow_tf32))


def environment() -> dict[str, str]:
    """At the end of the run, as scripts set flags."""
    found: dict[str, object] = {
        "python": platform.python_version(),
        # platform.platform() starts a process, to ask for the processor.
        "platform": f"{platform.system()}-{platform.release()}-{platform.machine()}",
        "cpu": cpu(),
        "cpus": os.cpu_count(),
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        found.update(
            torch=torch.__version__, cuda=torch.version.cuda, threads=torch.get_num_threads()
        )
        backends: Any = torch.backends
        found["float32 matmul"] = asked(torch.get_float32_matmul_precision) or asked(
            lambda: backends.cuda.matmul.fp32_precision
        )
        found["deterministic"] = asked(torch.are_deterministic_algorithms_enabled)
        found["cudnn.benchmark"] = asked(lambda: backends.cudnn.benchmark)
        if torch.cuda.is_initialized():
            found["gpu"] = asked(torch.cuda.get_device_name)
            found["cudnn tf32"] = cudnn_tf32(backends)
            found["driver"] = driver()
    return {name: str(value) for name, value in found.items() if value is not None}


def cudnn_tf32(backends: Any) -> bool:
    cudnn = backends.cudnn
    return any(tf32(getattr(cudnn, name, None)) for name in ("conv", "rnn")) or tf32(cudnn)


def gpu_possible() -> bool:
    """Without asking CUDA: ``torch.cuda.is_available()`` may start it, after which forks fail and
    CUDA_VISIBLE_DEVICES has no effect.
    """
    torch: Any = sys.modules["torch"]
    built = torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None
    return built and any(
        os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
    )


def cpu() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.M)
        return found[1] if found else platform.processor()
    except OSError:
        return platform.processor()


def driver() -> str | None:
    try:
        with open("/proc/driver/nvidia/version") as file:
            found = re.search(r"\b(\d{3}\.\d+(\.\d+)?)\b", file.read())
        return found[1] if found else None
    except OSError:
        return None
