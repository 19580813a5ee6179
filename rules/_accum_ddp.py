"""DistributedDataParallel: the ranks exchange their gradients once for each window, not once for each batch."""

from __future__ import annotations

import ast

from autofast.edits import Around, Edit, Import
from autofast.order import Rank
from autofast.read.names import DDP
from autofast.read.source import ancestors, function_of, source_of, statement_of
from autofast.read.values import Ext
from autofast.script import Script

from ._accum_events import Turn
from ._accum_window import Window
from ._places import block, index
from ._turns import stored_in, within

SLOW = "the ranks exchange gradients after every batch: put model.no_sync() around forward and backward of all but the last"


def communicates(script: Script, turn: Turn, window: Window, edits: list[Edit]) -> str:
    """Adds ``no_sync()`` to ``edits`` where the model is certainly a DistributedDataParallel; a note where it may be one."""
    sites = [s for s in turn.step.forwards if any(_is_ddp(o.this) for o in s)]
    if not sites:
        return ""
    calls = [s.node for s in sites if isinstance(s.node, ast.Call)]
    names = {ast.unparse(c.func) for c in calls}
    backwards = [statement_of(e.node) for e in turn.of("backward")]
    here = block(backwards[0])
    first = [_holder(here, c) for c in calls]
    last = [index(here, b) for b in backwards]
    model = calls[0].func
    plain = (
        len(names) == 1
        and isinstance(model, (ast.Name, ast.Attribute))
        and not {n.id for n in ast.walk(model) if isinstance(n, ast.Name)} & stored_in(turn.loop)
        and all(function_of(b) is function_of(turn.loop) and within(b, turn.loop) for b in backwards)
        and min(*first, *last) >= 0
    )
    if not plain or any(isinstance(e, Around) and _crosses(e, here, min(first), max(last)) for e in edits):
        return SLOW
    name = names.pop()
    condition = window.is_last.replace("{", "{{").replace("}", "}}")
    if not all(_is_ddp(t) for t in script.values(model)):
        condition += f' or not hasattr({name}, "no_sync")'
    header = f"with nullcontext() if {condition} else {name}.no_sync():"
    edits.append(Around(here[min(first)], here[max(last)], header, rank=Rank.GRAD_MODE))
    edits.append(Import(source_of(turn.loop), "from contextlib import nullcontext"))
    return ""


def _is_ddp(thing: object) -> bool:
    return isinstance(thing, Ext) and thing.name == DDP


def _holder(here: list[ast.stmt], node: ast.AST) -> int:
    """The statement of a block in which a node stands; -1 where it is none of them."""
    return next((n for outer in (node, *ancestors(node)) if isinstance(outer, ast.stmt) and (n := index(here, outer)) >= 0), -1)


def _crosses(edit: Around, here: list[ast.stmt], first: int, last: int) -> bool:
    """Something of the update stands between forward and backward."""
    return any(first <= index(here, s) <= last for s in (edit.first, edit.last))
