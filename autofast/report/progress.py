"""What is happening, on standard error: a line that changes on a terminal, now and then a line
elsewhere.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator

EVERY = 15.0  # seconds between lines of one stage, where there is no terminal
AFTER = 1.0  # seconds until a bar is shown: most runs are over by then
FRAME = 0.1  # seconds between looks at what is told
Tell = Callable[[str], None]  # shows a line


@contextlib.contextmanager
def progress(budget: float = 0.0) -> Iterator[Tell]:
    """Gives a function that shows a line in place of the one before, with a spinner and the time,
    and a bar of the ``budget``, where one is given.

    In pipes and logs the first line of each stage (what stands before the colon) is written, and
    further ones every ``EVERY`` seconds.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    with Progress(
        SpinnerColumn(),
        TimeElapsedColumn(),
        *([BarColumn(bar_width=24)] if budget else []),
        TextColumn("{task.description}"),
        console=console,
        transient=True,
    ) as shown:
        began = time.monotonic()
        task = shown.add_task("", total=budget or None)

        def tell(line: str) -> None:
            done = min(time.monotonic() - began, budget) if budget else None
            shown.update(task, description=line, completed=done)

        yield tell


def _lines() -> Tell:
    began = last = time.monotonic()
    stage = ""

    def tell(line: str) -> None:
        nonlocal last, stage
        now, here = time.monotonic(), line.partition(":")[0]
        if here == stage and now - last < EVERY:
            return
        last, stage = now, here
        print(f"{now - began:5.0f} s  {line}", file=sys.stderr, flush=True)

    return tell


@contextlib.contextmanager
def counted() -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function that is told how many of how many things are done, and the name of the one
    in hand.

    On a terminal that is a bar, where the work takes longer than ``AFTER`` seconds; elsewhere a
    line every ``EVERY`` seconds.
    It is shown from a thread of its own: one thing may take a minute.
    """
    now, over = [(0, 0, "")], threading.Event()
    shown = threading.Thread(target=_show, args=(now, over), daemon=True)
    shown.start()

    def tell(done: int, of: int, name: str) -> None:
        now[0] = done, of, name

    try:
        yield tell
    finally:
        over.set()
        shown.join()


def _show(now: list[tuple[int, int, str]], over: threading.Event) -> None:
    began = time.monotonic()
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        while not over.wait(EVERY):
            done, of, name = now[0]
            count = f"{done} of {of}: " if of > 1 else ""
            line = f"{time.monotonic() - began:5.0f} s  {count}{name}"
            print(line, file=sys.stderr, flush=True)
        return
    if over.wait(AFTER):
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    counts = [MofNCompleteColumn()] if now[0][1] > 1 else []
    columns = TimeElapsedColumn(), BarColumn(bar_width=24), *counts
    console = Console(stderr=True)
    with Progress(
        *columns, TextColumn("{task.description}"), console=console, transient=True
    ) as bar:
        task = bar.add_task("", total=None)
        while True:
            done, of, name = now[0]
            bar.update(task, completed=done, total=of or None, description=escape(name))
            if over.wait(FRAME):
                return
