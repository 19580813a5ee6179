"""graph-kept: do not keep the autograd graph of every step in a running sum."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Wrap
from autofast.facts.cost import gains
from autofast.facts.running_sums import Kept, kept_graphs
from autofast.model.script import Script
from autofast.model.syntax import is_operation
from autofast.rule import Effect, Finding, Options, rule

MESSAGE = "keeps the autograd graphs of all steps, until {} is dropped"


@rule(
    "graph-kept",
    Effect.EXACT,
    groups=("sync",),
    asks=gains.usual(0.05, "graphs of earlier steps stay in memory"),
)
def find(script: Script, options: Options) -> Iterator[Finding]:
    """Do not keep the autograd graph of every step in a running sum."""
    for kept in kept_graphs(script):
        message = MESSAGE.format(f"`{ast.unparse(kept.target)}`")
        if kept.unknown:
            yield Finding(kept.statement, message, refusal=kept.unknown)
        else:
            yield Finding(
                kept.statement, message, edits=(Wrap(_tensor(script, kept), "{}.detach()"),)
            )


def _tensor(script: Script, kept: Kept) -> ast.expr:
    """What to detach in ``total += loss * n``: ``loss``, the only thing there that has a graph."""
    expr = kept.value
    while is_operation(expr, ast.Mult, ast.Div):
        sides = [
            e
            for e in (expr.left, expr.right)
            if any(getattr(t, "grad", False) for t in script.values(e))
        ]
        if len(sides) != 1:
            break
        expr = sides[0]
    return expr
