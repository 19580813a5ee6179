"""The walk through a training in which all that the processes decide together, and do together, is
known from the start.
"""

from __future__ import annotations

import ast

from autofast.facts.host_io import effects
from autofast.model.script import Script
from autofast.rule import Refusal
from autofast.techniques.ddp.guards import Host
from autofast.techniques.ddp.names import Training
from autofast.techniques.ddp.uniformity.walk import Walk


def followed(script: Script, training: Training) -> tuple[Host, Walk]:
    """The effects of a script, and the walk that knows what becomes of them; raises
    :class:`Refusal`.
    """
    decided: dict[int, ast.expr] = {}
    hoists: dict[int, ast.Call] = {}
    splits: frozenset[int] = frozenset()
    every = list(effects(script))
    for _ in range(16):
        before = set(decided), set(hoists), splits
        host = Host(script, every, splits)
        walk = Walk(script, training, host, decided, hoists)
        try:
            walk.run()
        except Refusal:
            if (set(decided), set(hoists), splits | walk.splits) == before:
                raise
        splits |= walk.splits
        if (set(decided), set(hoists), splits) == before:
            return host, walk
    raise Refusal("what the processes must decide together is not known")
