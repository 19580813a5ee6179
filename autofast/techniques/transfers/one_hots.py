"""Rows of zeros and ones that are filled, or picked, by labels which come to the host for that:
they are made where the labels are.

``torch.zeros(n, k).scatter_(1, y.cpu().unsqueeze(1), 1).to(device)`` waits for the device in every
step, and so does ``torch.eye(k)[y.cpu().numpy()].to(device)``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from autofast.edit.edits import Edits, Rewrite
from autofast.facts.index_types import are_long
from autofast.flow.program import Flow
from autofast.flow.usage import Act, usage_of
from autofast.model.calls import is_method
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.source import ByNode, enclosing, statement_of
from autofast.model.syntax import is_attribute
from autofast.rule import Effect
from autofast.techniques.transfers.creations import creation_of
from autofast.techniques.transfers.factories import Creation, factory, runs_often
from autofast.techniques.transfers.round_trips import behind_shapes


def one_hots(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """One for each copy of such rows to the device."""
    flow = script.analysis(Flow)
    for back in script.transfers:
        if back.operand is None or not back.to_device or not runs_often(back.site, hot):
            continue
        match behind_shapes(script, flow.value(back.operand) or back.operand):
            case ast.Call(
                func=ast.Attribute(value=base, attr="scatter_" | "scatter"),
                args=[_, by, ast.Constant()],
                keywords=[],
            ):
                call = factory(script, behind_shapes(script, base))
            case ast.Subscript(value=base, slice=ast.Tuple(elts=[by]) | by):
                call = factory(script, behind_shapes(script, base))
                call = call if script.is_call(call, "torch.eye") else None
            case _:
                continue
        found = _label(script, by) if call is not None else None
        if call is None or found is None or not _only_goes(script, back, found[0]):
            continue
        label, stays = found
        here = statement_of(call) is statement_of(by) or flow.is_given(label)
        creation = creation_of(script, call, f"{label.id}.device")
        if here and creation is not None and creation.edits and creation.effect is Effect.EXACT:
            edits = [*stays, *creation.edits]
            match back.target and back.target.expr:
                case ast.Attribute(value=other, attr="device") if back.only_moves and flow.is_same(
                    other, label
                ):
                    edits.append(Rewrite(back.node, "{made}", {"made": back.operand}))
            yield replace(creation, edits=tuple(edits))


def _label(script: Script, by: ast.expr) -> tuple[ast.Name, Edits] | None:
    """``y`` of ``y.unsqueeze(1).cpu()`` and ``y.cpu().data.numpy()``, and the edits by which it
    stays where it is.
    """
    copies: ByNode[Transfer] = {t.node: t for t in script.transfers}
    inner = by.func.value if is_method(by, "numpy") else by
    while is_attribute(inner, "data"):
        inner = inner.value
    copy = copies.get(behind_shapes(script, inner))
    index = copy.operand if copy is not None and copy.how == "cpu" else None
    label = behind_shapes(script, index) if index is not None else None
    if not isinstance(label, ast.Name) or copy is None or index is None:
        return None
    stays: Edits = (Rewrite(copy.node, "{index}", {"index": index}),)
    if is_method(by, "numpy"):  # an array of truths is a mask
        stays += (Rewrite(by, "{inner}.long()", {"inner": inner}),)
        return (label, stays) if are_long(script, inner) else None
    return label, stays


def _only_goes(script: Script, back: Transfer, label: ast.Name) -> bool:
    """Whether nothing but the copy needs the rows on the host: else they are computed with, or
    handed back where the labels are on the host, as below ``if y.is_cuda: return rows.cuda()``.
    """
    flow, made = script.analysis(Flow), back.operand
    if not isinstance(made, ast.Name):
        return True
    definition = flow.definition(made)
    if definition is None or definition.value is None:
        return False
    gate = enclosing(back.node, ast.If)
    on_host = (
        gate is not None
        and is_attribute(gate.test, "is_cuda")
        and flow.is_same(gate.test.value, label)
        and usage_of(back.node).act is Act.RETURNED
        and statement_of(back.node) is gate.body[-1]
    )
    uses = (usage_of(n).act for n in flow.definitions(made).uses(definition) if n is not made)
    return all(act is Act.COMPUTED or (on_host and act is Act.RETURNED) for act in uses)
