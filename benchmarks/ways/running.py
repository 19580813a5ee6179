"""Runs a script in a fork, on a device that only seems to be another one: copies to it are copies.

What a script prints, and the parameters, buffers and optimizer states that are left, are compared.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # by the first optimizer; here before the forks

from benchmarks.ways import device

SECONDS = 60
WAITS = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
STALE = "changed before it was copied"


def run(text: str, cuda: bool = False) -> tuple[str, str]:
    """What a script shows, and the last line of its error, if it has one."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(text)
        sys.stdout.flush()
        if not (pid := os.fork()):
            code = 1
            try:
                os.chdir(folder)
                code = inside(folder, cuda)
            finally:
                os._exit(code)
        os.waitpid(pid, 0)
        shown, error = (folder / "shown", folder / "error")
        if not error.exists():
            return "", "ended without a word"
        return shown.read_text(), error.read_text()


def inside(folder: Path, cuda: bool) -> int:
    signal.alarm(SECONDS)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    sys.stdout = (folder / "shown").open("w")
    sys.stderr = (folder / "noise").open("w")
    scope: dict[str, Any] = {"__name__": "__main__", "__file__": "train.py"}
    sys.modules["__main__"].__dict__.update(scope)
    scope = sys.modules["__main__"].__dict__
    if cuda:
        device.install()
    else:
        stand_in()
    error = ""
    try:
        exec(compile((folder / "train.py").read_text(), "train.py", "exec"), scope)
        torch.zeros(()).item()  # nothing may be on its way any more
        for name, value in sorted(scope.items()):
            if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
                print(name, digest(value.state_dict()))
    except Exception as raised:
        error = traceback.format_exception_only(raised)[-1].strip()
    sys.stdout.flush()
    (folder / "error").write_text(error)
    return 0


def digest(value: object) -> str:
    """Of all numbers in it, to the last bit."""
    if isinstance(value, torch.Tensor):
        return hashlib.sha1(value.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:12]
    if isinstance(value, dict):
        return " ".join(f"{k}={digest(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(digest, value))
    return repr(value)


def stand_in() -> None:
    """Copies to the device and back are copies also where both are the CPU; those that nobody waits
    for are looked at again at the next wait: their source must be what it was.
    """
    pending: list[tuple[torch.Tensor, torch.Tensor]] = []
    here = torch.Tensor

    def copying(old: Callable[..., Any]) -> Callable[..., Any]:
        def moved(this: torch.Tensor, *given: Any, **named: Any) -> torch.Tensor:
            waits = not named.get("non_blocking", False)
            to = [g for g in (*given, named.get("device")) if isinstance(g, torch.device)]
            if old is not to_ or not to:
                made: torch.Tensor = old(this, *given, **named)
            else:
                made = to_(this, *given, **named)
            if made is not this or (old is to_ and not to):
                return made
            made = this.clone()
            if not waits:
                pending.append((this.detach(), made.detach().clone()))
            return made

        return moved

    def waiting(old: Callable[..., Any]) -> Callable[..., Any]:
        def waited(this: torch.Tensor, *given: Any, **named: Any) -> Any:
            for source, copied in pending:
                if not torch.equal(source, copied):
                    print(STALE)
            pending.clear()
            return old(this, *given, **named)

        return waited

    to_ = here.to
    for name, method in (("to", to_), ("cpu", here.cpu), ("cuda", lambda this, *_, **__: this)):
        setattr(here, name, copying(method))
    for name in WAITS:
        setattr(here, name, waiting(getattr(here, name)))
