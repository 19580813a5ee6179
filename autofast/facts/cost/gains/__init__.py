"""The questions that rules ask of the cost model: what a fix of theirs is expected to save, and
why.

A rule names one of them (``@rule(..., asks=gains.half)``), and ``autofast.edit.worth`` decides by
the answer. Where the sizes of a script are not known, the answer is what is usual for the technique
(from published measurements, see the cards), which only ranks it.
"""

from __future__ import annotations

from autofast.facts.cost.gains.arithmetic import (
    algorithms,
    counting,
    half,
    launches,
    layout,
    tensor_cores,
)
from autofast.facts.cost.gains.asking import nothing, one_pass, renaming, usual
from autofast.facts.cost.gains.batches import (
    copies,
    fetching,
    for_others,
    in_steps,
    keeping,
    more_workers,
    pinning,
    remembered,
    together,
)
from autofast.facts.cost.gains.reads import (
    elements,
    metered,
    read_again,
    read_at_once,
    read_back,
    read_late,
    read_once,
    read_twice,
    reads,
    scores,
    unasked,
    waits,
)

__all__ = [
    "algorithms", "copies", "counting", "elements", "fetching", "for_others", "half",
    "in_steps", "keeping", "launches", "layout", "metered", "more_workers", "nothing", "one_pass",
    "pinning", "read_again", "read_at_once", "read_back", "read_late", "read_once", "read_twice", "reads", "scores",
    "remembered", "renaming", "tensor_cores", "together", "unasked", "usual", "waits"
]  # fmt: skip
