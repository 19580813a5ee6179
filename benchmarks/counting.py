"""What a training asks of a GPU in each step, counted exactly and without one: ``counting.py STEPS
SCRIPT [ARG...]``.

The script runs on the CPU and believes in a GPU: ``torch.cuda.is_available()`` holds, and every
tensor that it makes on or copies to ``cuda`` lies in memory that is noted as the device's. What is
computed from such tensors is the device's, too. Counted are

- operators: those that reach torch's dispatcher with a tensor of the device, forward, backward and
  update; views and allocations are none. They are the CPU's (dropout is three there, one on a GPU),
  without torch.compile, autocast's casts included
- bytes: copied from the host to the device
- waits: reads of a value by the host (``item``, ``tolist``, ``cpu``, ``nonzero``, a mask as an
  index) and copies to the device without ``non_blocking``

The figures are the median of the steps (from an update of the first optimizer to its next), and the
bytes before the first update. One JSON line.
"""

from __future__ import annotations

import json
import os
import runpy
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_iter, tree_map, tree_unflatten

GPU = torch.device("cuda", 0)
HOST = torch.device("cpu")
KINDS = ("operators", "bytes", "waits")
ALLOCATIONS = frozenset(
    "empty empty_like empty_strided new_empty new_empty_strided set_ resize_ _local_scalar_dense".split()
)
READS = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "is_nonzero", "equal"}
ONE_CALL = {"scaled_dot_product_attention", "lstm", "gru"}
weak: Any = reductions.StorageWeakRef  # torch has no types for these
Mode: Any = TorchDispatchMode
MEMORY = 80 * 2**30


class Enough(SystemExit):
    """The steps that were asked for are done."""


class Counts:
    """What was counted so far, and which memory is the device's."""

    def __init__(self) -> None:
        self.now = dict.fromkeys(KINDS, 0)
        # By address; a weak reference keeps it from being used again.
        self._memory: dict[int, Any] = {}

    def holds(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._memory

    def hold(self, made: Any) -> None:
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor) and not self.holds(tensor):
                storage = tensor.untyped_storage()
                self._memory[storage._cdata] = weak(storage)
        if len(self._memory) > 20_000:
            self._memory = {k: ref for k, ref in self._memory.items() if not ref.expired()}


class Operators(Mode):  # type: ignore[misc]
    """Counts what is computed on the device."""

    def __init__(self, counts: Counts) -> None:
        super().__init__()
        self.counts = counts
        self.made_there = False  # what is made now, is made on the device
        self.copying = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunction():
            given = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
            there = self.made_there or any(self.counts.holds(x) for x in given)
            made = func(*args, **(kwargs or {}))
            if there and not self.copying:
                self.counts.hold(made)
                name = func.overloadpacket.__name__
                if name in READS or name.startswith("index") and _has_mask(given):
                    self.counts.now["waits"] += 1
                if not func.is_view and name not in ALLOCATIONS:
                    self.counts.now["operators"] += 1
            return made


def _has_mask(given: list[torch.Tensor]) -> bool:
    return any(x.dtype in (torch.bool, torch.uint8) for x in given[1:])


class OneCall(torch.autograd.Function):
    """A library's function that is one operator on a GPU, forward and backward, and many here."""

    @staticmethod
    def forward(ctx: Any, device: Device, func: Any, form: Any, *given: Any) -> Any:
        ctx.device = device
        with torch.enable_grad(), torch.backends.mkldnn.flags(enabled=False):
            ctx.given = [
                x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
                for x in given
            ]
            args, kwargs = tree_unflatten(ctx.given, form)
            ctx.made = func(*args, **kwargs)
        device.counts.now["operators"] += 1
        return tree_map(torch.Tensor.detach, ctx.made)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        made = ctx.made if isinstance(ctx.made, tuple) else (ctx.made,)
        wanted = [x for x in ctx.given if isinstance(x, torch.Tensor) and x.requires_grad]
        pairs = [(m, g) for m, g in zip(made, grads, strict=True) if g is not None]
        with ctx.device.copies():
            found = iter(
                torch.autograd.grad(
                    [m for m, _ in pairs], wanted, [g for _, g in pairs], allow_unused=True
                )
            )
            back = [next(found) if any(x is w for w in wanted) else None for x in ctx.given]
        ctx.device.counts.hold(back)
        ctx.device.counts.now["operators"] += 1
        return None, None, None, *back


one_call: Any = OneCall.apply


class Device(TorchFunctionMode):
    """Copies, reads and makes tensors as if there were a GPU."""

    def __init__(self, counts: Counts, operators: Operators) -> None:
        super().__init__()
        self.counts, self.operators = counts, operators

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        tensor = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if func is torch.device:
            return func(*args, **kwargs)
        if name in ONE_CALL and tensor is not None and self.counts.holds(tensor):
            given, form = tree_flatten((args, kwargs))
            with self.copies():
                made = one_call(self, func, form, *given)
            self.counts.hold(made)
            return made
        if name == "__get__" and tensor is not None:
            return self.property(func, tensor)
        if tensor is not None and name in ("to", "cuda", "cpu", "numpy", "tolist", "pin_memory"):
            return self.moved(func, name, tensor, args, kwargs)
        if tensor is not None and name == "record_stream":
            return None
        if not any(_is_gpu(x) for x in (*args, *kwargs.values())):
            return func(*args, **kwargs)
        args, kwargs = tree_map(_here, (args, kwargs))
        known = any(isinstance(x, (list, tuple, torch.Tensor)) for x in args[:1])
        with self.making():
            made = func(*args, **kwargs)
        if known and name in (
            "tensor",
            "as_tensor",
            "asarray",
        ):  # out of Python's numbers or an array
            self.counts.now["bytes"] += made.numel() * made.element_size()
            self.counts.now["waits"] += 1
        self.counts.hold(made)
        return made

    def property(self, func: Any, tensor: torch.Tensor) -> Any:
        what = getattr(func.__self__, "__name__", "")
        if what in ("device", "is_cuda", "is_cpu") and self.counts.holds(tensor):
            return {"device": GPU, "is_cuda": True, "is_cpu": False}[what]
        return func(tensor)

    def moved(self, func: Any, name: str, tensor: torch.Tensor, args: Any, kwargs: Any) -> Any:
        there = self.counts.holds(tensor)
        if name == "pin_memory":
            return tensor
        if name in ("cpu", "numpy", "tolist"):
            self.counts.now["waits"] += there
            with self.copies():
                return tensor.clone() if name == "cpu" and there else func(*args, **kwargs)
        others = [x for x in (*args[1:], *kwargs.values()) if isinstance(x, torch.Tensor)]
        to_gpu = name == "cuda" or any(_is_gpu(x) for x in (*args[1:], *kwargs.values()))
        to_gpu = to_gpu or any(self.counts.holds(x) for x in others)
        to_host = any(
            x == HOST or x == "cpu"
            for x in (*args[1:], *kwargs.values())
            if isinstance(x, (str, torch.device))
        )
        if name == "cuda":
            args, kwargs = args[:1], {k: v for k, v in kwargs.items() if k != "device"}
        args, kwargs = tree_map(_here, (args, kwargs))
        waits = not kwargs.get("non_blocking")
        if name == "cuda":
            func = torch.Tensor.to
            args = (*args, HOST)
        if there and to_host:
            self.counts.now["waits"] += waits
            with self.copies():
                return func(tensor.clone(), *args[1:], **kwargs)
        if to_gpu and not there:
            with self.copies():
                made = func(tensor, *args[1:], **kwargs)
                made = tensor.clone() if made is tensor else made
            self.counts.hold(made)
            self.counts.now["bytes"] += made.numel() * made.element_size()
            self.counts.now["waits"] += waits
            return made
        return func(*args, **kwargs)

    @contextmanager
    def copies(self) -> Iterator[None]:
        self.operators.copying, before = True, self.operators.copying
        yield
        self.operators.copying = before

    @contextmanager
    def making(self) -> Iterator[None]:
        self.operators.made_there, before = True, self.operators.made_there
        yield
        self.operators.made_there = before


def _is_gpu(x: Any) -> bool:
    return (isinstance(x, torch.device) and x.type == "cuda") or (
        isinstance(x, str) and x.split(":")[0] == "cuda"
    )


def _here(x: Any) -> Any:
    return HOST if _is_gpu(x) else x


def pretend(counts: Counts) -> None:
    """What a script may ask about the GPU, and use of it."""
    cuda: Any = torch.cuda

    def waiting(*_: Any, **__: Any) -> None:
        counts.now["waits"] += 1

    cuda.is_available = cuda.is_bf16_supported = lambda *_, **__: True
    cuda.device_count, cuda.current_device = (lambda: 1), (lambda: 0)
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.get_device_name = lambda *_: "a GPU that is not there"
    cuda.mem_get_info = lambda *_: (MEMORY, MEMORY)
    cuda.get_device_properties = lambda *_: SimpleNamespace(total_memory=MEMORY, major=9, minor=0)
    cuda.synchronize = cuda.empty_cache = waiting
    group: Callable[..., Any] = torch._C._group_tensors_by_device_and_dtype

    def grouped(lists: Any, with_indices: bool = False) -> Any:
        """By the device that the script believes in: clipping and optimizers copy to it."""
        found = group(lists, with_indices)
        ours = {k: next(x for x in v[0][0] if x is not None) for k, v in found.items()}
        return {(GPU if counts.holds(ours[k]) else k[0], k[1]): v for k, v in found.items()}

    vars(torch._C)["_group_tensors_by_device_and_dtype"] = grouped
    init: Callable[..., None] = torch.autocast.__init__

    def autocast(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        init(self, "cpu", *args, **kwargs)

    torch.autocast.__init__ = autocast  # type: ignore[method-assign]
    torch.get_autocast_gpu_dtype = lambda: torch.bfloat16

    def as_it_is(model: Any = None, **_: Any) -> Any:
        return model if model is not None else lambda function: function

    torch.compile = as_it_is
    torch.nn.Module.compile = lambda self, *_, **__: None  # type: ignore[method-assign]


def count(steps: int, script: str, arguments: list[str]) -> dict[str, float]:
    """The median of each figure over the steps, and ``once``: the bytes before the first update."""
    counts = Counts()
    notes: list[dict[str, int]] = []
    first: list[torch.optim.Optimizer] = []

    def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        first.append(optimizer)
        if optimizer is first[0]:
            notes.append(dict(counts.now))
            if len(notes) > steps:
                raise Enough

    register_optimizer_step_post_hook(stepped)
    pretend(counts)
    warnings.simplefilter("ignore")  # that this torch was built without CUDA
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    operators = Operators(counts)
    with suppress(Enough), operators, Device(counts, operators):
        runpy.run_path(script, run_name="__main__")
    if len(notes) < 3:
        raise SystemExit(f"{script} made {len(notes)} steps, which are too few")
    pairs = list(zip(notes, notes[1:], strict=False))
    found = {k: statistics.median(b[k] - a[k] for a, b in pairs) for k in KINDS}
    return {**found, "once": notes[0]["bytes"] - found["bytes"]}


if __name__ == "__main__":
    print(json.dumps(count(int(sys.argv[1]), sys.argv[2], sys.argv[3:])))
