"""Room for code that is nested deeply: long chains of calls, of ``elif``, of ``+``, which trees are
as deep for as they are long.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import ParamSpec, TypeVar

LEVELS = 4_000  # of Python's stack; a level of a tree takes several
BYTES = 256 * 1024 * 1024  # of the thread's own stack: memory only as far as it is used
# CPython takes memory for Python's own frames in chunks of 16 KB and gives a chunk back as soon as
# it is empty (_PyThreadState_PushFrame in
# Python/pystate.c): calls that go to and fro over the end of one ask the system each time, a third
# of all CPU time in some scripts. A chunk has a power of two of room for the frame that it begins
# with, so what is below a frame of this many words shares its chunk.
WORDS = 280_000

P = ParamSpec("P")
T = TypeVar("T")


def deeply(function: Callable[P, T]) -> Callable[P, T]:
    """``function``, run with a deep stack. What it raises is raised here."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        if sys.getrecursionlimit() >= LEVELS:
            return function(*args, **kwargs)
        results: list[T] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                results.append(function(*args, **kwargs))
            except BaseException as error:
                errors.append(error)

        work.__code__ = work.__code__.replace(co_stacksize=WORDS)
        before = sys.getrecursionlimit(), threading.stack_size()
        try:
            threading.stack_size(BYTES)
            thread = threading.Thread(target=copy_context().run, args=(work,), daemon=True)
            sys.setrecursionlimit(LEVELS)
            thread.start()
        except (ValueError, RuntimeError, MemoryError):  # no such stack is to be had here
            sys.setrecursionlimit(before[0])
            return function(*args, **kwargs)
        finally:
            threading.stack_size(before[1])
        try:
            thread.join()
        finally:
            sys.setrecursionlimit(before[0])
        if errors:
            raise errors[0]
        return results[0]

    return run
