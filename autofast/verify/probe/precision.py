"""In which precision a run computed (record.Record.precision): autocast regions entered, types of
outputs and of gradients, TF32 flags.

The tolerance of the judge follows from this and from nothing else: a difference too large for
float32 is no proof of 16 bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as modules

from .instead import instead_of
from .surroundings import cudnn_tf32, tf32
from .training import compiling
from .walk import walk


def short(dtype: Any) -> str:
    return str(dtype).replace("torch.", "")


def tensors(value: Any) -> list[Any]:
    return [leaf for _, leaf in walk(value) if isinstance(leaf, torch.Tensor)]


def channels_last(tensor: Any) -> bool:
    if tensor.layout != torch.strided or tensor.is_contiguous():
        return False
    if tensor.dim() == 4:
        return bool(tensor.is_contiguous(memory_format=torch.channels_last))
    return tensor.dim() == 5 and bool(tensor.is_contiguous(memory_format=torch.channels_last_3d))


class Precision:
    """``seen``: "autocast cpu bfloat16", "forward float32", "gradient float32"; a set that is kept
    small.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.kinds: set[str] = set()

        def after(module: Any, arguments: Any, output: Any) -> None:
            if compiling():
                return
            self.kinds.add(type(module).__name__)
            for tensor in tensors(output):
                if tensor.is_floating_point() or tensor.is_complex():
                    self.seen.add(f"forward {short(tensor.dtype)}")
                if channels_last(tensor):
                    self.seen.add("channels_last")

        modules.register_module_forward_hook(after)
        self.wrap_autocast()

    def wrap_autocast(self) -> None:
        @instead_of("__enter__", torch.amp.autocast_mode.autocast)
        def enter(original: Any, this: Any) -> Any:
            if getattr(this, "_enabled", False):
                kind = short(getattr(this, "fast_dtype", ""))
                self.seen.add(f"autocast {getattr(this, 'device', '')} {kind}")
            return original(this)

    def gradients(self, parameters: list[Any]) -> None:
        for parameter in parameters:
            if parameter.grad is not None:
                self.seen.add(f"gradient {short(parameter.grad.dtype)}")

    def found(self) -> dict[str, list[str]]:
        """TF32 counts where CUDA was used: cuDNN has it on by default, for what it computes."""
        cuda: Any = torch.cuda
        if cuda.is_available() and cuda.is_initialized():
            if tf32(torch.backends.cuda.matmul):
                self.seen.add("TF32 matmul")
            own = any("Conv" in k or k in ("LSTM", "GRU", "RNN") for k in self.kinds)
            if own and cudnn_tf32(torch.backends):
                self.seen.add("TF32 cudnn")
        return {"precision": sorted(self.seen)}
