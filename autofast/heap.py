"""Python's collector of garbage, held back while one script is read: nearly all that reading makes lives as long as the script,
and the collector would look at all of it again and again (a third of the time)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1_000_000  # new objects that are kept from the collector before it looks at them once more
_left = 0  # by its last look: what lives on is not looked at again until there is as much anew


@contextmanager
def growing() -> Iterator[None]:
    """Nothing is collected meanwhile, and afterwards the collector passes over all that was made: a process that ends has nothing
    to collect, and in one that goes on to many more scripts, what is garbage by then goes with the next of them."""
    global _left
    if not gc.isenabled():
        yield
        return
    if gc.get_freeze_count() > MANY + 2 * _left:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _left = gc.get_freeze_count()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
