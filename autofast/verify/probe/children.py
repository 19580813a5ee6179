"""Processes that the script starts itself. Those of ``torch.multiprocessing.spawn`` are ranks of
the run, with a probe in each (program.Spawned). Of others it is recorded that they train, or that
they are programs of the project: what they do is not seen, so no verdict reaches it.

What a new process is handed is unpickled by a path: such a process begins with the script's own
imports, so nothing of ours can be found by its name there.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.process
import os
import sys
from collections.abc import Callable
from typing import Any

import torch.multiprocessing

from .core import Data, Probe, leave_mark
from .instead import instead_of

MAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
MAKE = "(lambda kind: kind.__new__(kind))(__import__('runpy').run_path({path!r})['module']({module!r}).{kind})"
TRAINS = "a process that the script starts trains, and only those of torch.multiprocessing.spawn are followed"
TWICE = "torch.multiprocessing.spawn starts processes beside or after others that train"


def unpickled(handed: Any) -> tuple[Any, ...]:
    """``__reduce__`` of what a new process is handed."""
    kind = type(handed)
    module = kind.__module__.rpartition(".")[2]
    made = MAKE.format(path=MAIN, module=module, kind=kind.__name__)
    return eval, (made,), handed.__dict__


class Unfollowed:
    """A function that is handed to a new process, where the first backward leaves a mark."""

    def __init__(self, function: Callable[..., Any], out: str) -> None:
        self.function, self.out = function, out

    def __reduce__(self) -> tuple[Any, ...]:
        return unpickled(self)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        @instead_of("backward", torch.autograd)
        def backward(original: Any, *args: Any, **kwargs: Any) -> None:
            leave_mark(self.out)
            original(*args, **kwargs)

        return self.function(*arguments, **keywords)


class Children:
    def __init__(self, probe: Probe, ranked: Callable[[Any, int], Any]) -> None:
        """``ranked``: what a rank is handed, of its function and their number."""
        self.probe = probe
        self.programs: dict[str, None] = {}
        self.spawns = 0
        self.follow(ranked)
        self.note_others()
        sys.addaudithook(self.audit)

    def found(self) -> Data:
        unseen = [f"{name} is started by the script and not followed" for name in self.programs]
        if os.path.exists(self.probe.settings.out + ".trains"):
            unseen.append(TRAINS)
        if self.spawns > 1 or self.spawns and (self.probe.steps or self.probe.backwards):
            unseen.append(TWICE)
        return {"unseen": unseen}

    def follow(self, ranked: Callable[[Any, int], Any]) -> None:
        probe = self.probe

        @instead_of("spawn", torch.multiprocessing)
        def spawn(
            original: Any,
            fn: Callable[..., Any],
            args: Any = (),
            nprocs: int = 1,
            *rest: Any,
            **more: Any,
        ) -> Any:
            method = rest[2] if len(rest) > 2 else more.get("start_method", "spawn")
            if not probe.ours or method != "spawn":
                return original(fn, args, nprocs, *rest, **more)
            probe.has_ranks = True
            self.spawns += 1
            return original(ranked(fn, nprocs), args, nprocs, *rest, **more)

    def note_others(self) -> None:
        """Forked ones have our hooks already."""
        probe = self.probe

        @instead_of("start", multiprocessing.process.BaseProcess)
        def start(original: Any, process: Any) -> Any:
            method = getattr(process, "_start_method", None) or multiprocessing.get_start_method()
            target = getattr(process, "_target", None)
            known = getattr(target, "__module__", "").startswith("torch.utils.data.")
            known = known or any(type(a).__module__.startswith(__package__) for a in process._args)
            if probe.ours and method != "fork" and target is not None and not known:
                process._target = Unfollowed(target, probe.settings.out)
            return original(process)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.exec", "os.posix_spawn"):
            self.started([os.fsdecode(word) for word in arguments[1]])
        elif event == "os.system":
            self.started([os.fsdecode(arguments[0])])

    def started(self, words: list[str]) -> None:
        """A command line: does it run a Python program of the project?"""
        if "-c" in words[:-1] and "import torch" in words[words.index("-c") + 1]:
            self.programs["a program (-c)"] = None
        words = " ".join(words).split()
        names = [word for word in words if word.endswith(".py")]
        names += [
            after.replace(".", os.sep) + end
            for word, after in zip(words, words[1:])  # noqa: B905
            if word == "-m"
            for end in (".py", os.sep + "__main__.py")
        ]
        for name in names:
            path = os.path.realpath(name)
            if path.startswith(self.probe.settings.scratch + os.sep) and os.path.isfile(path):
                self.programs[os.path.relpath(path, self.probe.settings.scratch)] = None
