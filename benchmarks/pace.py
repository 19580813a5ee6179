"""How long a training script takes for a step, unchanged: ``pace.py WARM_UP STEPS SCRIPT
[ARG...]``.

Prints one JSON line: seconds for each update of the first optimizer after the warm-up (evaluations
and new epochs that lie between them included), seconds from the start of the process to the end of
the warm-up, peak memory in MB (of the GPU where there is one).
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import sys
import time
from contextlib import suppress
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

cuda: Any = torch.cuda  # most of it has no types


class Enough(SystemExit):
    """The steps that were asked for are done."""


def pace(warm_up: int, steps: int, script: str, arguments: list[str]) -> dict[str, float]:
    """What was measured; as many steps as there are, where there are fewer."""
    begin = time.time() - time.process_time()  # about when the process started
    first: list[torch.optim.Optimizer] = []
    moments: list[float] = []

    def stepped(optimizer: torch.optim.Optimizer, *_: object) -> None:
        first.append(optimizer)
        if optimizer is not first[0]:
            return
        if cuda.is_initialized() and len(moments) in (warm_up - 1, warm_up + steps - 1):
            cuda.synchronize()
        moments.append(time.time())
        if len(moments) == warm_up + steps:
            raise Enough

    register_optimizer_step_post_hook(stepped)
    sys.argv[:] = [script, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    with suppress(Enough):
        runpy.run_path(script, run_name="__main__")
    if cuda.is_initialized():
        memory = cuda.max_memory_allocated() / 2**20
    else:
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    done = len(moments) - warm_up
    if done < 1:
        raise SystemExit(f"{script} made {len(moments)} steps, which are too few")
    return {
        "step": (moments[-1] - moments[warm_up - 1]) / done,
        "start": moments[warm_up - 1] - begin,
        "memory": memory,
    }


if __name__ == "__main__":
    print(json.dumps(pace(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])))
