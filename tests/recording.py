"""What a run of a training script records, seen from outside: in the forked process, no trace
function and no change of the script's source.

``record`` is called with a ``tests.harness.Job`` and leaves the fields of a ``tests.harness.Run``
beside the scratch copy of the script's folder.
"""

from __future__ import annotations

import atexit
import linecache
import multiprocessing
import os
import pickle
import random
import runpy
import sys
import time
import traceback
import warnings
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim import optimizer
from torch.utils.data import dataloader

from tests.harness import STANDINS


class Stop(BaseException):
    """Ends the script from inside ``optimizer.step()``; not an Exception, so that ``except
    Exception`` lets it through.
    """


def record(job: Mapping[str, Any], place: str, *, files: bool = True) -> int:
    """Run the script of ``job``, whose scratch copy is ``work`` beside ``place``, and leave
    ``record`` in ``place``; 1 if it ended with an error.

    ``files`` says whether the files that it has written are recorded.
    """
    folder = Path(place).parent / "work"
    os.chdir(folder / job["cwd"])
    entry = os.path.relpath(folder / job["entry"])
    sys.argv = [entry, *job["args"]]
    sys.path[0:1] = [
        str((folder / job["entry"]).parent),
        *(str(folder / name) for name in job["path"]),
        str(STANDINS),
    ]
    if job["before"]:
        runpy.run_path(job["before"])
    _pretend_cpus(job["cpus"])
    if job["start_method"]:
        multiprocessing.set_start_method(job["start_method"])
        multiprocessing.process.ORIGINAL_DIR = (
            os.getcwd()
        )  # where spawned processes look for the script
    random.seed(job["seed"])
    np.random.seed(job["seed"])
    torch.manual_seed(job["seed"])
    probe = Probe(job["stop_after"])
    probe.install()
    if job["fake_cuda_amp"]:
        _fake_cuda_amp()
    _compile_without_kernels()
    existing = {path for path in folder.rglob("*") if path.is_file()}
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ResourceWarning)  # as Python does
        try:
            runpy.run_path(entry, run_name="__main__")
        except Stop:
            pass
        except SystemExit as end:
            probe.error = "" if end.code in (None, 0) else f"SystemExit: {end.code}"
        except BaseException as error:
            probe.error, probe.traceback = (
                f"{type(error).__name__}: {error}",
                traceback.format_exc(),
            )
        atexit._run_exitfuncs()
    found = {
        **probe.record(),
        "seconds": time.perf_counter() - started,
        "warnings": [f"{w.category.__name__}: {w.message}" for w in caught],
        "files": written(folder, existing) if files else {},
    }
    sys.stdout.flush()
    sys.stderr.flush()
    unfinished = Path(place) / "record.part"
    unfinished.write_bytes(pickle.dumps(found))
    unfinished.rename(Path(place) / "record")
    return int(bool(probe.error))


class Probe:
    """Watches a script from outside: no trace function and no change of its source."""

    def __init__(self, stop_after: int = 0):
        self.stop_after = stop_after
        self.pid = os.getpid()
        self.losses: list[Any] = []
        self.steps = self.skipped = 0
        self.optimizers: dict[int, Any] = {}
        self.start: list[list[Any]] = []
        self.loads: list[list[float]] = []
        self.unscaled: dict[int, Any] = {}  # id of a scaled loss -> (it, the loss)
        self.error = self.traceback = ""

    def install(self) -> None:
        optimizer.register_optimizer_step_pre_hook(lambda opt, args, kwargs: self._before_step(opt))
        optimizer.register_optimizer_step_post_hook(lambda opt, args, kwargs: self._after_step())
        real_backward = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
                loss = self.unscaled.pop(id(tensor), (None, tensor))[1].detach()
                self.losses.append(loss.clone() if loss.numel() == 1 else loss.sum())
            return real_backward(tensors, *args, **kwargs)

        torch.autograd.backward = backward
        scaler = torch.amp.GradScaler
        real_scale, real_step = scaler.scale, scaler.step

        def scale(this: Any, outputs: Any) -> Any:
            scaled = real_scale(this, outputs)
            if isinstance(scaled, torch.Tensor):
                self.unscaled[id(scaled)] = (scaled, outputs.detach())
            return scaled

        def step(this: Any, opt: Any, *args: Any, **kwargs: Any) -> Any:
            steps = self.steps
            result = real_step(this, opt, *args, **kwargs)
            self.skipped += self.steps == steps
            return result

        scaler.scale, scaler.step = scale, step
        passes: dict[int, tuple[Any, list[float]]] = {}
        real_iter, real_next = (
            dataloader.DataLoader.__iter__,
            dataloader._BaseDataLoaderIter.__next__,
        )

        def __iter__(this: Any) -> Any:
            iterator = real_iter(this)
            load = [0, 0, 0.0]
            if os.getpid() == self.pid:
                self.loads.append(load)
                passes[id(iterator)] = (iterator, load)
            return iterator

        def __next__(this: Any) -> Any:
            batch = real_next(this)
            if id(this) in passes:
                load = passes[id(this)][1]
                size, total = _measure(batch)
                load[:] = [load[0] + 1, load[1] + size, load[2] + total]
            return batch

        def __init_subclass__(cls: Any, **given: Any) -> None:
            """A class that gives batches of its own accord (gpu-data) is counted as if DataLoader
            gave them.
            """
            own = cls.__dict__.get("batches")
            if own is not None:
                cls.batches = lambda this: self._counted(own(this))

        dataloader.DataLoader.__init_subclass__ = classmethod(__init_subclass__)
        dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__ = __iter__, __next__

    def _counted(self, batches: Any) -> Any:
        load = [0, 0, 0.0]
        self.loads.append(load)
        for batch in batches:
            size, total = _measure(batch)
            load[:] = [load[0] + 1, load[1] + size, load[2] + total]
            yield batch

    def _before_step(self, opt: Any) -> None:
        if id(opt) not in self.optimizers:
            self.optimizers[id(opt)] = opt
            self.start.append(_parameters(opt))

    def _after_step(self) -> None:
        self.steps += 1
        if self.steps == self.stop_after:
            raise Stop

    def record(self) -> dict[str, Any]:
        return {
            "losses": [float(loss) for loss in self.losses],
            "steps": self.steps,
            "skipped": self.skipped,
            "start": self.start,
            "params": [_parameters(opt) for opt in self.optimizers.values()],
            "loads": self.loads,
            "error": self.error,
            "traceback": self.traceback,
        }


def _parameters(opt: Any) -> list[Any]:
    return [_array(p) for group in opt.param_groups for p in group["params"]]


def _array(tensor: Any) -> Any:

    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return tensor.contiguous().numpy().copy()


def _measure(batch: Any) -> tuple[int, float]:
    """The number of samples in a batch, and the sum of all its values."""

    parts = list(tensors(batch))
    total = sum(float(t.detach().to(torch.float64).sum()) for t in parts if not t.is_complex())
    return (parts[0].shape[0] if parts and parts[0].dim() else len(parts)), total


def tensors(batch: Any) -> Iterator[Any]:

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from tensors(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from tensors(value)


def written(folder: Path, before: Collection[Path]) -> dict[str, Any]:
    """The contents of all files in ``folder`` that were not there before."""
    return {
        p.relative_to(folder).as_posix(): _content(p)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p not in before
    }


def _content(path: Path) -> Any:
    """The text of a file, the flattened contents of a checkpoint, or None for anything else."""

    if path.suffix in (".pt", ".pth", ".ckpt", ".tar"):
        return dict(_flat("", torch.load(path, weights_only=False, map_location="cpu")))
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:

    if isinstance(value, torch.nn.Module):
        value = {"class": type(value).__name__, **value.state_dict()}
    if isinstance(value, torch.Tensor):
        yield name, _array(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)) and value:
        for i, item in enumerate(value):
            yield from _flat(f"{name}[{i}]", item)
    elif value is None or isinstance(value, (bool, int, float, str, bytes, list, tuple)):
        yield name, value
    else:
        yield name, repr(type(value))


def _pretend_cpus(count: int) -> None:
    os.cpu_count = lambda: count
    if hasattr(os, "sched_getaffinity"):
        os.sched_getaffinity = lambda pid: set(range(count))
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = lambda: count


def _compile_without_kernels() -> None:

    real = torch.compile

    def compile_(model: Any = None, mode: str | None = None, **kwargs: Any) -> Any:
        backend = _as_recorded() if mode == "reduce-overhead" else "aot_eager"
        return real(model, **{"backend": backend, **kwargs})

    torch.compile = compile_


def _as_recorded() -> Any:
    """A backend that does to memory what CUDA graphs do: each run of a graph overwrites what its
    run before gave, be it outputs or gradients.
    """
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def record(graph: Any, example: Any) -> Any:
        held: list[Any] = []

        def run(*given: Any) -> list[Any]:
            made = graph(*given)
            if not held:
                held.extend(torch.empty_like(x) if torch.is_tensor(x) else x for x in made)
            for old, new in zip(held, made, strict=True):
                if torch.is_tensor(old):
                    old.copy_(new)
            return [x.detach() if torch.is_tensor(x) else x for x in held]

        return make_boxed_func(run)

    return aot_autograd(fw_compiler=record, bw_compiler=record, inference_compiler=record)


def _fake_cuda_amp() -> None:
    """See ``tests.harness``."""

    torch.backends.mkldnn.set_flags(
        False
    )  # it has no recurrent layers in fp16; the plain kernels have
    autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
    real_autocast, real_scaler = autocast.__init__, scaler.__init__

    def autocast_init(
        this: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: Any = None,
    ) -> None:
        caller = sys._getframe(1)
        while caller.f_back is not None and os.sep + "torch" + os.sep in caller.f_code.co_filename:
            caller = caller.f_back  # torch.cuda.amp.autocast calls this one
        line = " ".join(
            linecache.getline(caller.f_code.co_filename, caller.f_lineno + n).strip()
            for n in range(3)
        )
        kind = torch.bfloat16 if "torch.bfloat16" in line.split(":")[0] else torch.float16
        real_autocast(
            this,
            "cpu",
            dtype=kind,
            enabled="enabled=False" not in line,
            cache_enabled=cache_enabled,
        )

    def scaler_init(
        this: Any, device: str = "cuda", init_scale: float = 2.0**16, *args: Any, **kwargs: Any
    ) -> None:
        real_scaler(
            this,
            "cpu",
            2.0**8 if init_scale == 2.0**16 else init_scale,
            *args[:3],
            **{**kwargs, "enabled": True},
        )

    autocast.__init__, scaler.__init__ = autocast_init, scaler_init
    real_normalize = torch.nn.functional.normalize

    def normalize(given: Any, *args: Any, **kwargs: Any) -> Any:
        """On CUDA, autocast takes norms in fp32, and what is divided by one is fp32, too."""
        if torch.is_autocast_enabled("cpu") and given.is_floating_point():
            given = given.float()
        return real_normalize(given, *args, **kwargs)

    torch.nn.functional.normalize = normalize
