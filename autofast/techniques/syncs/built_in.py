"""Python's own ``max``, ``min`` and ``sum`` of tensors of the device: they take the elements one by
one, each with a kernel, or a read; torch's take them at once.

``max(lengths)`` becomes ``lengths.max()``, ``sum(guess == y)`` becomes ``(guess == y).sum(0)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.facts.looked_at import is_tensor
from autofast.facts.switches import in_every_batch
from autofast.flow.scopes import mentions
from autofast.model.calls import put_into
from autofast.model.script import Script
from autofast.model.source import function_of, parent_of
from autofast.model.values import Tensor
from autofast.techniques.syncs.unspelled import is_mask

# The same of whole numbers; of others but for NaN, or for the order in which they are added.
TORCH = {"max": ".max()", "min": ".min()", "sum": ".sum(0)"}
READS = (ast.Slice, ast.Call, ast.keyword, ast.BinOp, ast.Compare)


def built_in(script: Script) -> Iterator[tuple[ast.Call, str, Edit | None]]:
    """Each such call in what runs for each batch, with the function, and the edit where torch's
    gives the same."""
    for name, code in TORCH.items():
        for site in script.calls(f"builtins.{name}"):
            match site.call:
                case ast.Call(args=[tensor], keywords=[]) as call if in_every_batch(script, site):
                    of = script.values(tensor)
                    if of and all(isinstance(t, Tensor) and t.device == "dev" for t in of):
                        simple = isinstance(tensor, (ast.Name, ast.Attribute, ast.Call))
                        form = f"{{x}}{code}" if simple else f"({{x}}){code}"
                        edit = Rewrite(call, form, {"x": tensor})
                        yield call, name, edit if _is_same(script, call, tensor, name) else None


def _is_same(script: Script, call: ast.Call, tensor: ast.expr, name: str) -> bool:
    if not is_tensor(script, tensor) or name == "sum":
        return is_tensor(script, tensor) and is_mask(script, tensor, 0)
    # Python's gives a view of the tensor, which somebody might write to.
    target = put_into(call)
    uses = mentions(function_of(call), target.id) if isinstance(target, ast.Name) else [call]
    read = all(isinstance(parent_of(use), READS) for use in uses if use is not target)
    whole = all(isinstance(t, Tensor) and t.dtype == "int" for t in script.values(tensor))
    return whole and read and not is_mask(script, tensor, 0)
