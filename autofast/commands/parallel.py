"""Work on many things, in several processes where the system has them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from autofast.model.source import BadInput

KILLED = "a process that read scripts was ended from outside; is there too little memory?"
FEW = 8  # things for which starting processes does not pay
_work: Callable[[Any], Any] | None = None  # what processes inherit: it cannot be sent


def in_processes(
    work: Callable[[int], Any], things: Sequence[int], tell: Callable[[int], None]
) -> Iterator[Any]:
    """What ``work`` makes of each thing, in order. ``tell`` is called with how many are done."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    if len(things) < FEW or cores < 2:  # elsewhere a fork is not safe, or is none
        for done, thing in enumerate(things):
            tell(done)
            yield work(thing)
        return
    import multiprocessing

    from autofast.commands import planning  # noqa: F401 (once, for all of them)
    from autofast.registry import all_rules

    all_rules()
    global _work
    _work = work
    with multiprocessing.get_context("fork").Pool(min(cores, 8), _begin) as pool:
        ours, made = multiprocessing.active_children(), pool.imap(_one, things)
        for done in range(len(things)):
            tell(done)
            while True:
                try:
                    yield made.next(timeout=1)
                    break
                except multiprocessing.TimeoutError:  # a pool waits forever for one that is killed
                    if not all(process.is_alive() for process in ours):
                        raise BadInput(KILLED) from None


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it


def _one(thing: int) -> Any:
    assert _work is not None
    return _work(thing)
