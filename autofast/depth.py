"""Room for code that is nested deeply: long chains of calls, of ``elif``, of ``+``, which trees are as deep for as they are long."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from typing import ParamSpec, TypeVar

LEVELS = 4_000  # of Python's stack; a level of a tree takes several
BYTES = 256 * 1024 * 1024  # of the thread's own stack: memory only as far as it is used

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
