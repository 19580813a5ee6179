"""Numbers that are read to be logged by Lightning, which takes tensors: ``self.log("loss",
loss.item())`` becomes ``self.log("loss", loss.detach())``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.model.values import Inst, Tensor, certainly
from autofast.read.library.frameworks import is_lightning
from autofast.techniques.syncs.freshness import without_graph
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.scalars import is_scalar


def logged(script: Script, reads: list[Read]) -> Iterator[tuple[Read, Edit | None]]:
    """Each such read, with the edit where the tensor has no dimensions. Lightning makes fp32 of
    numbers, and keeps what tensors are."""
    plain = not script.calls("torch.set_default_dtype", "torch.set_default_tensor_type")
    for read in reads:
        if read.how in ("item", "float") and _is_logged(script, read.node):
            found = script.values(read.core)
            full = all(isinstance(t, Tensor) and t.dtype == "f32" for t in found)
            code = without_graph(script, read.core) + ("" if full else ".float()")
            same = plain and certainly(found, Tensor) and is_scalar(script, read.core)
            yield read, Rewrite(read.node, code, {"core": read.core}) if same else None


def _is_logged(script: Script, node: ast.expr) -> bool:
    """``self.log(name, node)``, ``self.log_dict({name: node})``"""
    outer = parent_of(node)
    call = parent_of(outer) if isinstance(outer, (ast.Dict, ast.keyword)) else outer
    if not is_method(call, "log_dict" if isinstance(outer, ast.Dict) else "log"):
        return False
    found = script.values(call.func.value)
    own = any(isinstance(t, Inst) and t.cls.find(call.func.attr) for t in found)
    return bool(found) and all(map(is_lightning, found)) and not own
