"""Python's own ``max``, ``min``, ``sum``, ``any`` and ``all`` of tensors of the device: they take
the elements one by one, each with a kernel, or a read; torch's take them at once.

``max(lengths)`` becomes ``lengths.max()``, ``sum(guess == y)`` becomes ``(guess == y).sum(0)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Rewrite
from autofast.facts.looked_at import is_tensor
from autofast.facts.switches import goes_by_batch, in_every_iteration
from autofast.flow.scopes import mentions
from autofast.flow.usage import Act, usage_of
from autofast.model.calls import put_into
from autofast.model.script import Script
from autofast.model.source import function_of, parent_of
from autofast.model.values import Tensor
from autofast.techniques.syncs.unspelled import is_mask

# The same of whole numbers; of others but for NaN, or for the order in which they are added.
TORCH = {
    "max": "{x}.max()",
    "min": "{x}.min()",
    "sum": "{x}.sum(0)",
    "any": "{x}.any()",
    "all": "{x}.all()",
}
SIMPLE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


def built_in(script: Script) -> Iterator[tuple[ast.Call, str, Edit | None]]:
    """Each such call in what runs for each batch, with the function, and the edit where torch's
    gives the same."""
    for name, code in TORCH.items():
        for site in script.calls(f"builtins.{name}"):
            call = site.call
            if call is None or len(call.args) != 1 or call.keywords:
                continue
            tensor, found = call.args[0], in_every_iteration(script, site, or_none=True)
            if found is None or not goes_by_batch(script, found[0]):
                continue
            of = script.values(tensor)
            if of and all(isinstance(t, Tensor) and t.device == "dev" for t in of):
                form = code if isinstance(tensor, SIMPLE) else code.replace("{x}", "({x})")
                if name in ("any", "all") and usage_of(call).act is not Act.TESTED:
                    form = f"bool({form})"
                edit = Rewrite(call, form, {"x": tensor})
                yield call, name, edit if _is_same(script, call, name) else None


def _is_same(script: Script, call: ast.Call, name: str) -> bool:
    tensor = call.args[0]
    mask = is_mask(script, tensor, 0)
    if not is_tensor(script, tensor) or name in ("any", "all"):
        return is_tensor(script, tensor)
    whole = all(isinstance(t, Tensor) and t.dtype == "int" for t in script.values(tensor))
    return mask if name == "sum" else whole and not mask and not _may_be_changed(call)


def _may_be_changed(call: ast.Call) -> bool:
    """Whether the result, which is a view of the tensor, may be written to, or indexed."""
    target = put_into(call)
    if isinstance(target, ast.Name):
        return any(_changes(n) for n in mentions(function_of(call), target.id))
    return isinstance(parent_of(call), ast.Assign) or _changes(call)


def _changes(expr: ast.AST) -> bool:
    match parent_of(expr):
        case ast.Subscript(value=value):
            return value is expr
        case ast.AugAssign(target=target):
            return target is expr
    return isinstance(parent_of(expr), ast.Attribute)
