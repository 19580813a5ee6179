"""The learning rates of a script, for each of its optimizers: those of every update, and those that
it ends with.

As a program: ``python schedules.py OUT SCRIPT [ARGUMENT ...]`` runs a script and writes its
learning rates to OUT.
"""

from __future__ import annotations

import json
import math
import runpy
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

if __name__ != "__main__":
    from tests.zygote import PROGRAM, QUIET, ZYGOTE

Rates = list[list[list[float]]]  # optimizer, update, parameter group


class Recorder:
    """Notes the learning rates of all parameter groups at each ``optimizer.step()`` while it is
    entered.
    """

    def __init__(self) -> None:
        self._rates: dict[int, list[list[float]]] = {}
        self._optimizers: dict[int, Any] = {}

    def __enter__(self) -> Recorder:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        self._handle = register_optimizer_step_pre_hook(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _note(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._optimizers[id(optimizer)] = optimizer
        self._rates.setdefault(id(optimizer), []).append(_rates(optimizer))

    @property
    def all(self) -> Rates:
        """Those of every update, and last those that each optimizer has at the end."""
        return [[*rates, _rates(self._optimizers[key])] for key, rates in self._rates.items()]


def _rates(optimizer: Any) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]


def rates_of(text: str, **given: Any) -> Rates:
    """The rates of a script that runs in this process."""
    with Recorder() as recorder:
        scope: dict[str, Any] = {"__name__": "__main__", **given}
        exec(compile(text, "train.py", "exec"), scope)
    return recorder.all


def rates_in(
    folder: Path, files: Mapping[str, bytes], args: Iterable[str] = (), entry: str = "train.py"
) -> Rates:
    """The rates of a script of several files, with ``files`` written over a copy of ``folder``; it
    runs in a process of its own.
    """
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / "copy"
        shutil.copytree(folder, copy)
        for name, content in files.items():
            (copy / name).write_bytes(content)
        out, said = Path(temporary) / "rates.json", Path(temporary) / "said"
        code = ZYGOTE.run(
            PROGRAM,
            [__file__, str(out), entry, *args],
            limit=120,
            cwd=copy,
            environment=QUIET,
            stdout=said,
            stderr=said,
        )
        assert code == 0, said.read_text()
        found: Rates = json.loads(out.read_text())
        return found


def difference(before: Rates, after: Rates, epochs: int) -> str:
    """How the rates differ at the ends of epochs; empty where they agree to 1e-12."""
    for old, new in zip(before, after, strict=True):
        if len(old) != len(new):
            return f"{len(old)} and {len(new)} updates"
        count = (len(old) - 1) / epochs
        if not count.is_integer():
            return f"{len(old) - 1} updates in {epochs} epochs"
        for n in range(0, len(old), int(count)):
            for a, b in zip(old[n], new[n], strict=True):
                if not math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-12):
                    return f"after {n // int(count)} epochs: {a!r} and {b!r}"
    return ""


if __name__ == "__main__":
    out, script, *rest = sys.argv[1:]
    sys.argv = [script, *rest]
    sys.path.insert(0, str(Path(script).resolve().parent))
    with Recorder() as recorder:
        runpy.run_path(script, run_name="__main__")
    Path(out).write_text(json.dumps(recorder.all))
