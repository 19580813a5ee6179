"""A machine with a device, played on the host: what is sent to "cuda" is marked as being there.

Operations between both raise as torch's do, NumPy gets nothing from there, and what waits for the
device is counted. Parameters, and tensors without dimensions, go with either.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

READS = {"item", "tolist", "cpu", "nonzero", "__int__", "__index__", "__bool__", "__float__"}
PACKED = {"_pack_padded_sequence", "_pad_packed_sequence", "gru", "lstm"}  # their sizes stay here
ANYWHERE = {"to", "cuda", "cpu", "copy_", "__set__", "ctc_loss"} | PACKED


class TwoDevices(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.there = WeakTensorKeyDictionary()
        self.waits = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if func is torch.device or name == "_parse_to":
            return func(*args, **kwargs)
        bounds = [b for part in _leaves(args) if isinstance(part, slice) for b in _ends(part)]
        given = [t for t in (*_leaves((args, kwargs)), *bounds) if isinstance(t, torch.Tensor)]
        marked = [t in self.there for t in given]
        of = getattr(func, "__self__", None) if name == "__get__" else None
        if of is torch.Tensor.device:
            return torch.device("cuda" if any(marked) else "cpu")
        if of is torch.Tensor.is_cuda:
            return any(marked)
        if name == "numpy" and any(marked):
            raise TypeError("copy it to the host first")
        self.waits += any(marked) and name in READS
        self.waits += any(isinstance(b, torch.Tensor) and b in self.there for b in bounds)
        whole = {m for t, m in zip(given, marked, strict=True) if t.dim() and not _is_anywhere(t)}
        if name not in ANYWHERE and len(whole) > 1:
            raise RuntimeError(f"{name}: tensors on two devices")
        if name == "_pack_padded_sequence" and args[1] in self.there:
            raise RuntimeError("lengths must be on the host")
        goes = ["cuda"] if name == "cuda" else [d for d in _leaves((args, kwargs)) if _is_device(d)]
        there = "cuda" in str(goes[0]) if goes else any(marked) and name != "cpu"
        if name == "cuda":
            result = torch.clone(args[0])
        else:
            args, kwargs = tree_map(lambda a: "cpu" if _is_device(a) else a, (args, kwargs))
            result = func(*args, **kwargs)
        if name in ("to", "cpu") and result is given[0] and there != marked[0]:
            result = torch.clone(result)
        for out in _leaves(result[0] if name in PACKED else result) if there else ():
            if isinstance(out, torch.Tensor):
                self.there[out] = True
        return result


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = tree_flatten(tree)[0]
    return found


def _ends(bounds: slice) -> Iterator[Any]:
    yield from (bounds.start, bounds.stop)


def _is_device(given: object) -> bool:
    return isinstance(given, torch.device) or (isinstance(given, str) and given in ("cuda", "cpu"))


def _is_anywhere(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, torch.nn.Parameter)


def run_on_both(text: str) -> tuple[dict[str, Any], int]:
    """The variables of a script after it has run, and how often it has waited."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    with TwoDevices() as machine:
        exec(compile(textwrap.dedent(text), "train.py", "exec"), scope)
    return scope, machine.waits
