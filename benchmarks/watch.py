"""Run a training script unchanged for some optimizer steps and tell time and loss of each:
``watch.py STEPS SCRIPT [ARG...]``.

Prints one JSON line at the end. The loss is what ``backward()`` is called on; a step lasts from one
optimizer step to the next.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook


class Enough(SystemExit):
    """The steps that were asked for are done."""


def watch(steps: int, script: str, arguments: list[str]) -> dict[str, list[float]]:
    """Times in seconds between optimizer steps, and the losses."""
    losses: list[torch.Tensor] = []
    moments: list[float] = []
    backward: Callable[..., None] = torch.Tensor.backward

    def noting(self: torch.Tensor, *args: Any, **kwargs: Any) -> None:
        losses.append(self.detach())
        backward(self, *args, **kwargs)

    def count(*_: Any) -> None:
        moments.append(time.perf_counter())
        if len(moments) > steps:
            raise Enough

    torch.Tensor.backward = noting  # type: ignore[method-assign]
    register_optimizer_step_post_hook(count)
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    with suppress(Enough):
        runpy.run_path(script, run_name="__main__")
    times = [later - earlier for earlier, later in zip(moments, moments[1:], strict=False)]
    return {"times": times, "losses": [float(loss) for loss in losses[:steps]]}


if __name__ == "__main__":
    print(json.dumps(watch(int(sys.argv[1]), sys.argv[2], sys.argv[3:])))
