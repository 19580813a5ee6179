"""What is happening, on standard error: a line that changes on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

EVERY = 15.0  # seconds between lines of one stage, where there is no terminal


@contextlib.contextmanager
def progress(budget: float = 0.0) -> Iterator[Callable[[str], None]]:
    """Gives a function that shows a line in place of the one before, with a spinner and the time, and a bar of the ``budget``, where one is given.

    In pipes and logs the first line of each stage (what stands before the colon) is written, and further ones every ``EVERY`` seconds.
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


def _lines() -> Callable[[str], None]:
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
