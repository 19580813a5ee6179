"""DistributedDataParallel: the ranks exchange their gradients once for each window, not once for
each batch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping

from autofast.edit.edits import Around, Edit, Import, literal
from autofast.edit.order import Rank
from autofast.facts.updates.events import Iteration, check_hooks
from autofast.flow.positions import block, index, place_in
from autofast.flow.scopes import stored_in
from autofast.model.calls import names_in
from autofast.model.names import DDP
from autofast.model.script import Script, Step
from autofast.model.source import function_of, nodes_in, parent_of, source_of, statement_of, within
from autofast.model.syntax import VARIABLES, is_read
from autofast.model.values import Ext
from autofast.techniques.accumulation.existing import existing
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
    holes: Mapping[str, ast.expr] | None = None,
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
        Around(here[first], here[max(last)], header, holes or {}, rank=Rank.GRAD_MODE),
        Import(source_of(loop), "from contextlib import nullcontext"),
    ]


def last_of_window(script: Script, step: Step) -> ast.expr | None:
    """The condition for the last batch of a window in a script that gathers gradients already, if
    it says the same at the begin of a batch.

    None where it does not, or where anything that needs the gradients of all ranks stands outside
    of it.
    """
    check_hooks(script)
    present = existing(script, step)
    outer = parent_of(present.test) if present is not None else None
    if (
        present is None
        or not isinstance(outer, ast.If)
        or outer.test is not present.test
        or not isinstance(step.loop, ast.For)
    ):
        return None
    inside = {id(n) for statement in outer.body for n in ast.walk(statement)}
    mine = {id(t) for t in step.optimizers}
    needing = [s.node for s in script.methods("step") if any(id(o.this) in mine for o in s)]
    needing += [
        u.node for o in script.optimizers if any(id(t) in mine for t in o.things) for u in o.updates
    ]
    needing += [u.node for u in step.updates]
    needing += [
        s.node
        for sites in (step.clips, step.unscales, step.scaler_updates, step.grad_reads)
        for s in sites
    ]
    set_here = {name for statement in step.loop.body for name in stored_in(statement)}
    for node in ast.walk(present.test):
        if isinstance(node, ast.Call) and ast.unparse(node.func) != "len":
            return None
        if isinstance(node, VARIABLES) and ast.unparse(node) in set_here:
            return None
        if isinstance(node, ast.Attribute) and any(
            not is_read(n) for n in nodes_in(step.loop, ast.Attribute)
        ):
            return None
    return (
        present.test
        if all(id(n) in inside for n in needing) and parent_of(outer) is step.loop
        else None
    )


def _is_ddp(thing: object) -> bool:
    return isinstance(thing, Ext) and thing.name == DDP


def _crosses(edit: Around, here: list[ast.stmt], first: int, last: int) -> bool:
    """Something of the update stands between forward and backward."""
    return any(first <= index(here, s) <= last for s in (edit.first, edit.last))
