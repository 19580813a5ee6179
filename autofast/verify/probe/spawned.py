"""Processes that the script starts by ``torch.multiprocessing.spawn``: each is a rank of the run, with a probe of its own.

The function that the script hands to spawn is replaced by an object that installs a probe and then calls it. Such a process begins with the
script's own imports, so nothing of ours can be found by its name there: the object is unpickled by a path.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import torch.multiprocessing

from . import program, settings, surroundings
from .core import Probe

MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
MAKE = "(lambda kind: kind.__new__(kind))(__import__('runpy').run_path({path!r})['module']('spawned').Spawned)"


class Spawned:
    """``function(rank, *arguments)``, in a new process, under a probe."""

    def __init__(self, function: Callable[..., Any], script: str, world: int) -> None:
        self.function, self.script, self.world = function, script, world

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (MAKE.format(path=MAIN),), self.__dict__

    def __call__(self, place: int, *arguments: Any) -> None:
        probe = program.installed(
            self.script, settings.read(place), surroundings.born(), (place, self.world)
        )
        probe.has_ranks = True
        program.run(probe, functools.partial(self.function, place, *arguments))


def install(probe: Probe, script: str) -> None:
    """Put ``Spawned`` in the place of what the script hands to spawn."""
    multiprocessing: Any = torch.multiprocessing
    original = multiprocessing.spawn

    @functools.wraps(original)
    def spawn(
        fn: Callable[..., Any], args: Any = (), nprocs: int = 1, *rest: Any, **more: Any
    ) -> Any:
        method = rest[2] if len(rest) > 2 else more.get("start_method", "spawn")
        if not probe.ours or method != "spawn":
            return original(fn, args, nprocs, *rest, **more)
        probe.has_ranks = True
        return original(Spawned(fn, os.path.abspath(script), nprocs), args, nprocs, *rest, **more)

    multiprocessing.spawn = spawn
