"""The log of one run and its end: every hook appends an event, and the one that ends a step asks
here whether the run is over.

An event is a tuple: a letter, two times, and what belongs to it. Times are ``time.perf_counter``.

    i  iterator of a loader made: pass, loader, workers, length  n  fetch: pass, samples
    e  iterator came to its end: pass                            b  backward: loss
    f  closure given to an optimizer (forward and backward)      t  transfer to another device
    o  optimizer step: optimizer, learning rates, extras         c  communication between processes
    k  step skipped by a GradScaler: optimizer, learning rates   g  gradient, no backward: loss
    u  parameters changed by hand: what is known of the step

Values may be tensors that still lie on a device: they are read once, when the record is written, so
that no hook waits for the device.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from .settings import Settings
from .surroundings import children_memory

Event = Any  # a plain tuple of the shapes above, as a class would cost time at every event
Data = dict[str, Any]  # what goes into the record, by name


class StopRun(BaseException):
    """Raised in the script after its last wanted step. Not an Exception: ``except Exception`` lets
    it pass, ``finally`` still runs.
    """


class Probe:
    """What all hooks share.

    Attributes:
        main: the thread that trains; waits of other threads cost nothing, as they overlap with it.
        optimizers: class names in the order of first steps.
        made: how many optimizers were constructed.
        device: set when torch arrives, where it was built for CUDA (device.Device).
        folder: of the script, with a separator at its end; lines in it are the script's own.
        stopped: set when the record is written.
        children: memory of worker processes at the end of the run.
        world: number of ranks.
        has_ranks: this process has started processes that may be the ranks (spawned.py).
    """

    def __init__(self, settings: Settings, born: float, place: tuple[int, int]) -> None:
        self.settings = settings
        self.rank, self.world = place
        self.has_ranks = False
        self.born = born
        self.pid = os.getpid()
        self.main = threading.get_ident()
        self.clock = time.perf_counter
        self.events: list[Event] = []
        self.steps = 0
        self.backwards = 0
        self.optimizers: list[str] = []
        self.made = 0
        self.first_step: float | None = None
        self.stopping = False
        self.stopped = threading.Event()
        self.folder = ""
        self.notes: list[str] = []
        self.device: Any = None
        self.lines: Any = None  # lines.Lines
        self.operations: Any = None  # operations.Operations
        self.common: Any = None  # common.Common
        self.write: Callable[..., None] = lambda ending, **more: None  # writing.Writer
        self.moments: dict[str, float] = {}
        self.children = 0.0
        os.register_at_fork(after_in_child=self.disown)

    def disown(self) -> None:
        """In a forked child: hooks run on, but nothing is written and nothing is stopped. Its pid
        tells.
        """
        self.events = []
        self.settings = self.settings._replace(steps=0, seconds=0.0)

    @property
    def ours(self) -> bool:
        return os.getpid() == self.pid

    def trains(self) -> None:
        """A backward begins: nobody follows it in a process that was forked."""
        if not self.ours:
            leave_mark(self.settings.out)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def step_ended(self, now: float) -> None:
        """After every optimizer step (or skipped step, or backward where no optimizer is known);
        raises StopRun after the last.
        """
        self.steps += 1
        if self.device is not None:
            self.device.step_ended()
        if self.operations is not None:
            self.operations.step_ended()
        if self.common is not None:
            self.common.step_ended()
        if self.first_step is None:
            self.first_step = now
        limit = self.settings
        if (
            limit.steps
            and self.steps >= limit.steps
            or limit.seconds
            and now - self.first_step >= limit.seconds
            and self.steps > 1
        ):
            self.stop()

    def stop(self) -> None:
        if self.stopping:
            return
        self.stopping = True
        self.moments["ended"] = self.clock()
        self.children = children_memory()  # while the workers are alive
        raise StopRun(f"{self.steps} steps")

    def resumed(self) -> None:
        """A step begins. After StopRun that means that a bare ``except:`` swallowed it: the script
        would train on for ever.
        """
        if self.stopping and self.ours:
            self.note(
                "a bare except: in the script swallowed the end of the run; finally blocks and atexit functions did not run"
            )
            self.write("steps")
            leave(0, orderly=False)


def leave_mark(out: str) -> None:
    """That a process trains which is not followed."""
    with contextlib.suppress(OSError), open(out + ".trains", "a"):
        pass


def leave(code: int, orderly: bool) -> None:
    """Ends the process at once: children, then (if orderly) atexit functions, then buffers. Never
    waits for threads, which may wait for us.
    """
    import atexit
    import multiprocessing
    import signal

    try:
        # Torch's handler would report the ended workers as an error.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for child in multiprocessing.active_children():
            child.terminate()
        if orderly:
            atexit._run_exitfuncs()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):
                stream.flush()
        getattr(os._exit, "autofast_original", os._exit)(code)
