"""Which loops over rows have a form for whole tensors, and what is written in their place."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from autofast.edit.edits import Edits, Remove, Replace, Rewrite
from autofast.facts.element_reads import runs_here
from autofast.facts.switches import frequent_nodes
from autofast.facts.turns import Turning
from autofast.model.script import Script
from autofast.model.several import any_of, of_kind
from autofast.model.source import statement_of, within, within_any
from autofast.rule import Effect, Options, Refusal
from autofast.techniques.loops.counts import count_edits
from autofast.techniques.loops.gathers import gather_edits
from autofast.techniques.loops.groups import group_edits
from autofast.techniques.loops.largest import largest_edits
from autofast.techniques.loops.masks import mask_edits
from autofast.techniques.loops.numbers import number_edits
from autofast.techniques.loops.pairs import pair_edits
from autofast.techniques.loops.recurrent import recurrent_edits
from autofast.techniques.loops.rows import Planned, Rows
from autofast.techniques.loops.spans import span_edits

Planner = Callable[[Script, Any, bool], Planned]


def of_rows(edits_of: Callable[[Script, Rows], Planned]) -> Planner:
    """The same of a loop over rows."""
    return lambda script, loop, half: edits_of(script, Rows(script, loop, half))


MASK = "fills a mask row by row, each with kernels of its own"
KINDS = (
    (of_rows(mask_edits), MASK),
    (of_rows(span_edits), "fills spans row by row, each with a kernel of its own"),
    (
        of_rows(pair_edits),
        "computes one pair of columns after the other, each with kernels of its own",
    ),
    (
        of_rows(number_edits),
        "computes a number of one row after the other, each with kernels of its own",
    ),
    (
        of_rows(group_edits),
        "sums the rows of one group after the other, each with kernels of its own",
    ),
    (
        lambda script, loop, half: largest_edits(script, loop),
        "asks for the largest place of one row after the other, and waits for each",
    ),
    (of_rows(count_edits), "counts row by row, each with kernels of its own"),
    (
        lambda script, loop, half: recurrent_edits(script, loop),
        "applies layers in each turn that need not wait for the turn before",
    ),
    (
        lambda script, loop, half: gather_edits(script, loop),
        "picks out of one row of a tensor after the other, each with kernels of its own",
    ),
)


@dataclass(frozen=True, eq=False)
class Batched:
    """A loop over rows: what is written in its place, or why it stays."""

    loop: Turning
    message: str
    edits: Edits = ()
    refusal: str = ""
    effect: Effect | None = None

    @property
    def gone(self) -> list[ast.stmt]:
        """The statements that are not there any more, or read something else in the loop."""
        inside = [e.expr for e in of_kind(self.edits, Rewrite) if within(e.expr, self.loop)]
        gone = [e.stmt for e in self.edits if isinstance(e, (Remove, Replace))]
        return [*gone, *map(statement_of, inside)]


def batched(script: Script, half: bool = False) -> list[Batched]:
    """The loops that run in every step, each of whose turns does the same to a row."""
    found: list[Batched] = []
    often = dict.fromkeys(n for _, n in frequent_nodes(script, (ast.For, ast.ListComp)))
    loops: list[Turning] = [*of_kind(often, ast.For), *of_kind(often, ast.ListComp)]
    for loop in loops:
        if not runs_here(loop) or within_any(loop, [f.loop for f in found if f.edits]):
            continue
        for edits_of, message in KINDS if any_of([loop], ast.For) else KINDS[-1:]:
            try:
                edits, effect = edits_of(script, loop, half)
                found.append(Batched(loop, message, edits, effect=effect))
                break
            except Refusal as why:
                if str(why):
                    found.append(Batched(loop, message, refusal=str(why)))
    return found


def in_half(script: Script) -> list[Batched]:
    """The same where they will run under autocast."""
    return batched(script, True)


def gone(script: Script, options: Options, *, masks: bool = True) -> list[ast.stmt]:
    """The statements that this plan takes away; without those that fill masks, where what is
    written takes lengths from wherever they are.
    """
    plans = script.analysis(batched) if options.decides(Batched) else []
    return [stmt for p in plans if masks or p.message is not MASK for stmt in p.gone]
