"""What `sdpa` saves: written-out causal attention against the one call, forward and backward in
turns.

One thread, and its CPU time, which other people's load changes little. The range is that of the
pairs.

python benchmarks/attention.py [PAIRS]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

SIZES = ((32, 256, 64), (16, 1024, 64))  # heads in all, positions, width of a head
Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def written_out(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    lower = torch.ones(q.size(-2), q.size(-2)).tril()
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    return F.softmax(scores.masked_fill(lower == 0, float("-inf")), dim=-1) @ v


def one_call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def seconds(attention: Attention, heads: int, positions: int, width: int) -> float:
    """CPU seconds of a forward and a backward."""
    q, k, v = (torch.randn(1, heads, positions, width, requires_grad=True) for _ in range(3))
    begin = time.process_time()
    torch.autograd.backward(attention(q, k, v).sum())
    return time.process_time() - begin


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one CPU thread, {pairs} pairs")
    for size in SIZES:
        for attention in (written_out, one_call):
            seconds(attention, *size)
        ratios = sorted(
            seconds(written_out, *size) / seconds(one_call, *size) for _ in range(pairs)
        )
        quarter = pairs // 4
        print(
            f"{size[0]} heads, {size[1]} positions: {ratios[pairs // 2]:.2f} times as fast in the median, "
            f"{ratios[quarter]:.2f} to {ratios[-1 - quarter]:.2f} in half of the pairs"
        )


if __name__ == "__main__":
    main()
