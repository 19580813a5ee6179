"""Python's collector of garbage, held back while one script is read: nearly all that reading makes
lives as long as the script, and the collector would look at all of it again and again (a third of
the time)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 1_000_000  # new objects that are kept from the collector before it looks at them once more
_left = 0  # by its last look: what lives on is not looked at again until there is as much anew
_made = 0  # since then; the collector could count them, but goes through all of them for that


@contextmanager
def growing() -> Iterator[None]:
    """Nothing is collected meanwhile, and afterwards the collector passes over all that was made: a
    process that ends has nothing to collect, and in one that goes on to many more scripts, what is
    garbage by then goes with the next of them."""
    global _left, _made
    if not gc.isenabled():
        yield
        return
    if _made > MANY + _left:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        _left, _made = gc.get_freeze_count(), 0
    gc.disable()
    try:
        yield
    finally:
        _made += gc.get_count()[0]  # begins anew with each look and each freeze
        gc.freeze()
        gc.enable()
