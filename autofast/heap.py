"""Python's collector of garbage, held back while one script is read: nearly all that reading makes lives as long as the script,
and the collector would look at all of it again and again (a third of the time)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def growing() -> Iterator[None]:
    """Nothing is collected meanwhile. What is garbage then goes when the next objects are made."""
    held = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if held:
            gc.enable()
