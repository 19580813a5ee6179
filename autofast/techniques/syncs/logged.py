"""``self.log("loss", loss.item())`` in a module of Lightning: log() takes the tensor, keeps a copy
without its graph, and reads it when it is shown.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.model.values import Inst
from autofast.techniques.syncs.floats import kind_of
from autofast.techniques.syncs.reads import Read, reads
from autofast.techniques.syncs.scalars import is_scalar

MODULES = frozenset({"lightning.LightningModule", "lightning.core.LightningModule"})


def logged(script: Script) -> Iterator[tuple[Read, Edit]]:
    """The reads whose number goes nowhere but to ``self.log()`` or ``self.log_dict()``, and how the
    tensor goes there.
    """
    for read in reads(script):
        if read.how != "item" or not _is_logged(script, read.node):
            continue
        if is_scalar(script, read.core) and kind_of(script, read.core) == "float":
            yield read, Rewrite(read.node, "{tensor}", {"tensor": read.core})


def _is_logged(script: Script, number: ast.expr) -> bool:
    holder = parent_of(number)
    method = "log"
    if isinstance(holder, ast.Dict):
        holder, method = parent_of(holder), "log_dict"
    if isinstance(holder, ast.keyword):
        holder = parent_of(holder)
    if not is_method(holder):
        return False
    owners = script.values(holder.func.value)
    return (
        holder.func.attr == method
        and bool(owners)
        and all(isinstance(t, Inst) and bool(t.cls.external & MODULES) for t in owners)
    )
