"""Random splits into training and validation data, which depend on how many random numbers were
drawn before.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.flow.program import Flow
from autofast.model.events import Stack
from autofast.model.script import Script
from autofast.model.values import Const

SPLITS = ("torch.utils.data.random_split", "torch.utils.data.dataset.random_split")


def split_after(script: Script, places: Iterable[tuple[ast.AST, Stack]]) -> ast.AST | None:
    """A split by torch's own generator that may happen after one of these places: with other draws
    before it, it would be another one.
    """
    flow = script.analysis(Flow)
    ways = list(places)
    for site in script.calls(*SPLITS):
        for o in site:
            given = o.args.given(2, "generator") if o.args is not None else None
            shared = given is None or Const(None) in given.values
            if shared and any(flow.may_follow(site.node, o.stack, *place) for place in ways):
                return site.node
    return None
