"""DistributedDataParallel: the ranks exchange their gradients once for each window, not once for
each batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.edit.edits import Around, Edit, Import, literal
from autofast.edit.order import Rank
from autofast.facts.updates.events import Iteration
from autofast.flow.positions import block, index, place_in
from autofast.flow.scopes import stored_in
from autofast.model.calls import names_in
from autofast.model.names import DDP
from autofast.model.script import Script
from autofast.model.source import function_of, source_of, statement_of, within
from autofast.model.syntax import VARIABLES
from autofast.model.values import Ext
from autofast.techniques.accumulation.window import Window

SLOW = "the ranks exchange gradients after every batch: put model.no_sync() around forward and backward of all but the last"


def communicates(script: Script, iteration: Iteration, window: Window, edits: list[Edit]) -> str:
    """Adds ``no_sync()`` to ``edits`` where the model is certainly a DistributedDataParallel; a
    note where it may be one.
    """
    calls = [s.call for s in iteration.step.forwards if s.call and any(_is_ddp(o.this) for o in s)]
    if not calls:
        return ""
    model = calls[0].func
    same = len({ast.unparse(c.func) for c in calls}) == 1 and isinstance(model, VARIABLES)
    if not same or names_in(model) & stored_in(iteration.loop):
        return SLOW
    condition = literal(window.is_last)
    backwards = [e.node for e in iteration.of("backward")]
    quiet = no_sync(
        iteration.loop,
        backwards,
        condition,
        edits,
        calls,
        ast.unparse(model),
        all(_is_ddp(t) for t in script.values(model)),
    )
    edits += quiet
    return "" if quiet else SLOW


def no_sync(
    loop: ast.For,
    backwards: Iterable[ast.AST],
    condition: str,
    edits: Iterable[Edit],
    calls: list[ast.Call],
    name: str,
    always: bool,
) -> list[Edit]:
    """``no_sync()`` around forward and backward of all batches but the last of a window; none where
    ``edits`` put something between them.

    ``condition`` is a template for "the last batch of a window". ``calls`` run the model, which is
    called ``name`` there and is ``always`` a DistributedDataParallel, or only in some runs.
    """
    ends = [statement_of(b) for b in backwards]
    here = block(ends[0])
    first = min(place_in(here, c) for c in calls)
    last = [index(here, b) for b in ends]
    if min(first, *last) < 0 or not all(
        function_of(b) is function_of(loop) and within(b, loop) for b in ends
    ):
        return []
    if any(isinstance(e, Around) and _crosses(e, here, first, max(last)) for e in edits):
        return []
    if not always:
        condition += f' or not hasattr({name}, "no_sync")'
    header = f"with nullcontext() if {condition} else {name}.no_sync():"
    return [
        Around(here[first], here[max(last)], header, rank=Rank.GRAD_MODE),
        Import(source_of(loop), "from contextlib import nullcontext"),
    ]


def _is_ddp(thing: object) -> bool:
    return isinstance(thing, Ext) and thing.name == DDP


def _crosses(edit: Around, here: list[ast.stmt], first: int, last: int) -> bool:
    """Something of the update stands between forward and backward."""
    return any(first <= index(here, s) <= last for s in (edit.first, edit.last))
