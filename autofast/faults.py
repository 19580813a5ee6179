"""What is said when the mistake is ours."""

from __future__ import annotations

import os
import traceback
from contextvars import ContextVar
from pathlib import Path

REPORT = "please report it together with the script"
DEBUG = "AUTOFAST_DEBUG"
_DEBUGGING: ContextVar[bool] = ContextVar("debugging", default=False)


class PostConditionError(Exception):
    """The output is not fit to be written: a mistake in a rule or in autofast itself. ``str()`` is
    the one line that is shown.

    ``rule`` is the rule to leave out, where it is known.
    """

    def __init__(self, message: str, rule: str = ""):
        super().__init__(message)
        self.rule = rule


def debug(on: bool) -> None:
    """Whether traces are shown from now on (``--debug``); ``AUTOFAST_DEBUG`` in the environment
    asks for them, too.
    """
    _DEBUGGING.set(on)


def internal(error: Exception) -> str:
    """One line about an exception that nobody expected."""
    return f"internal error ({described(error)}); {REPORT}{trace(error)}"


def described(error: BaseException) -> str:
    """The type, the text and the line of code of an exception: of the one it comes from, where one
    was made of another.
    """
    error = origin(error)
    what = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")[:200]
    frames = traceback.extract_tb(error.__traceback__)
    return f"{what}, {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else what


def origin(error: BaseException) -> BaseException:
    """The exception that ``error`` was made of: for ``generator raised StopIteration`` the
    StopIteration.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def trace(error: BaseException) -> str:
    """What follows the line about ``error``: its trace, or how to get one."""
    if _DEBUGGING.get() or os.environ.get(DEBUG):
        return "\n" + "".join(traceback.format_exception(error)).rstrip()
    return " (--debug shows the trace)"
