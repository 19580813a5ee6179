"""Indices that go to the host for a tensor there, whose elements come back: a schedule by its
steps.

``a.gather(-1, t.cpu()).view(-1, 1).to(t.device)`` waits for the device in every step. What is
picked from is copied to where the index is, and the index stays there. A table that nobody else
needs on the host is copied once, where the host has computed it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.edit.edits import After, Edit, Rewrite
from autofast.facts.aliases import why_trainable
from autofast.flow.callgraph import CallGraph
from autofast.flow.memory import Memory
from autofast.flow.positions import place_in
from autofast.flow.program import Flow, holder_of
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import mentions, own_nodes
from autofast.model.calls import is_method, parts_of
from autofast.model.roles import GPUS, Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import ByNode, function_of, statement_of, within
from autofast.model.syntax import is_read
from autofast.model.tensors import device_kinds
from autofast.model.values import Given, Tensor
from autofast.rule import Effect
from autofast.techniques.transfers.factories import KEEPS, Creation, runs_often
from autofast.write.spelling import has_float64

# One number for each index: what is picked from has one dimension, and is short.
COLUMN = re.compile(
    r"\.(?:view|reshape)\(.*(?:, 1\b|\(1,\) ?\*|\[1\] ?\*)|\.unsqueeze\((?:1|-1)\)|\[:, None\b"
)
NO_DOUBLES = "`{}` may be of float64, which MPS has not"
HELD = {"f32", "half", "int"}
SHAPES = KEEPS - {"expand"} | {"detach"}  # others may need the memory that a copy has of its own


def round_trips(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """One for each tensor that comes back to the device, by indices that were there."""
    flow = script.analysis(Flow)
    copies: ByNode[Transfer] = {t.node: t for t in script.transfers}
    for back in script.transfers:
        if (made := back.operand) is None:
            continue
        match behind_shapes(script, made):
            case (
                ast.Subscript(value=base, slice=by)
                | ast.Call(func=ast.Attribute(value=base, attr="gather"), args=[_, by], keywords=[])
            ) if script.may_be(base, Tensor) and COLUMN.search(
                ast.unparse(statement_of(back.node))
            ):
                pass
            case _:
                continue
        copy = copies.get(behind_shapes(script, by))
        if copy is None or copy.how != "cpu" or (index := copy.operand) is None:
            continue
        match behind_shapes(script, index):
            case ast.Name(id=held) as name if (
                _is_of(flow, back, name) or (back.to_device and within(copy.node, by))
            ) and runs_often(back.site, hot):
                there = Rewrite(base, f"{{base}}.to({held}.device)", {"base": base})
                edits = [there, Rewrite(copy.node, "{index}", {"index": index})]
                if _is_of(flow, back, name):
                    edits += [*(_tables(script, base) if back.to_device else ())]
                    edits += [Rewrite(back.node, "{made}", {"made": made})] * back.only_moves
                why = "" if _fits_there(script, base) else NO_DOUBLES.format(ast.unparse(base))
                yield Creation(back.node, back.site, tuple(edits), Effect.EXACT, refusal=why)


def _fits_there(script: Script, base: ast.expr) -> bool:
    """Whether the device holds such numbers: MPS has no float64."""
    dtypes = {t.dtype for t in of_kind(script.values(base), Tensor)}
    return has_float64(script) or dtypes <= HELD


def _is_of(flow: Flow, back: Transfer, index: ast.Name) -> bool:
    """Whether it comes back to where the index is: ``.to(index.device)``."""
    match back.target:
        case Given(expr=ast.Attribute(value=name, attr="device")):
            return flow.is_same(name, index)
    return False


def _tables(script: Script, base: ast.expr) -> Iterator[Edit]:
    """The copy of each that comes to ``base``, and else is only computed with where it is made."""
    flow, memory, given = script.analysis(Flow), script.analysis(Memory), [base]
    if isinstance(base, ast.Name) and flow.is_given(base):
        alone = len(mentions(function := function_of(base), base.id)) == 1
        pairs = script.analysis(CallGraph).arguments(function, base.id)  # type: ignore[arg-type]
        given = [e for _, e in pairs if e is not None and alone]
    for name in {n.id: n for n in of_kind(given, ast.Name)}.values():
        scope = holder_of(name)
        body: list[ast.stmt] = scope.body  # type: ignore[assignment]
        devices = [
            n.id
            for call in own_nodes(scope)
            if is_method(call, "to")
            for n in of_kind(call.args, ast.Name)
            if device_kinds(script.values(n)) & GPUS
        ]
        uses = [n for n in mentions(scope, name.id) if n not in given]
        statements = {statement_of(n) for n in uses}
        values = [value for s in statements for _, value in parts_of(s)]
        made = [m for value in values for m in memory.made_by(value) or 2 * [None]]
        if (
            devices
            and not all(map(is_read, uses))
            and all(s in body and parts_of(s) for s in statements)
            and len(set(made)) == len(made)  # each computes: none is another one, or a view of it
            and not flow.is_exported(scope)
            and not namespace_calls(scope)
            and not why_trainable(script, name)
        ):
            uses += [n for n in mentions(scope, devices[0]) if not is_read(n)]
            if all(function_of(n) is scope for n in uses):
                last = body[max(place_in(body, n) for n in uses)]
                yield After(last, f"{name.id} = {name.id}.to({devices[0]})")


def behind_shapes(script: Script, expr: ast.expr) -> ast.expr:
    """What stands behind shapes and casts, and behind names that are read once."""
    match expr:
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in SHAPES:
            return behind_shapes(script, inner)
        case ast.Attribute(value=inner, attr="data"):
            return behind_shapes(script, inner)
        case ast.Name() if made := script.analysis(Flow).value_of_its_own(expr):
            return behind_shapes(script, made)
    return expr
