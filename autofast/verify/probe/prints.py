"""A tensor in a few numbers (record.TensorPrint): a digest of its bytes, its norm, and a random
projection by which two can be compared.

The projection's signs come from generators of their own with fixed seeds: the script's random state
is not touched. The sign of element i is
the product of two, by i modulo COLUMNS and i div COLUMNS: pairwise independent, which is what the
Johnson-Lindenstrauss estimate of a distance needs, and COLUMNS + n / COLUMNS random numbers instead
of n.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from typing import Any

import torch

from .core import Data

WIDTH = 16
COLUMNS = 4096


def signs(count: int, width: int, seed: int) -> Any:
    """The first numbers do not depend on how many are asked for: one row of ``width`` for each
    element, drawn in order.
    """
    generator = torch._C.Generator()
    # Not by the method, which a shift of seeds may have replaced.
    torch._C.Generator.manual_seed(generator, seed)
    return (
        torch.randint(0, 2, (count, width), generator=generator, dtype=torch.int64).double() * 2 - 1
    )


class Printer:
    def __init__(self) -> None:
        self.columns = signs(COLUMNS, WIDTH, 20_011)
        self.rows = signs(1, WIDTH, 20_021)

    def sketch(self, values: Any) -> list[float]:
        count = values.numel()
        full = math.ceil(count / COLUMNS)
        padded = torch.zeros(full * COLUMNS, dtype=torch.float64)
        padded[:count] = values
        if full > len(self.rows):
            self.rows = signs(2 * full, WIDTH, 20_021)
        by_column = padded.reshape(full, COLUMNS) @ self.columns
        result: list[float] = ((by_column * self.rows[:full]).sum(0) / math.sqrt(WIDTH)).tolist()
        return result

    def __call__(self, tensor: Any) -> Data:
        with torch.no_grad():
            data = tensor.detach()
            data = data.to_dense() if data.layout != torch.strided else data
            # Logical order, so that channels_last compares.
            data = data.cpu().resolve_conj().resolve_neg().contiguous()
            size = data.numel() * data.element_size()
            raw = ctypes.string_at(data.data_ptr(), size) if size else b""
            values = (torch.view_as_real(data) if data.is_complex() else data).reshape(-1).double()
            return {
                "shape": list(data.shape),
                "dtype": str(data.dtype).replace("torch.", ""),
                "sha": hashlib.sha256(raw).hexdigest(),
                "norm": float(torch.linalg.vector_norm(values)) if size else 0.0,
                "sketch": self.sketch(values) if size else [0.0] * WIDTH,
            }
