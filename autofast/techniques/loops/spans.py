"""Spans of rows that a loop fills with a number, each row at its own place: SpecAugment.

The loop stays for what it draws, in its order; the spans are kept in a list, and filled at once
behind it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autofast.edit.edits import After, Before, Edits, Replace
from autofast.facts.smallest import Smallest
from autofast.flow.scopes import stored_in
from autofast.model.calls import is_name, is_same_code, items_of, variable_name
from autofast.model.script import Script
from autofast.model.several import all_of, any_of, of_kind
from autofast.model.source import nodes_in, parent_of, running, source_of
from autofast.model.syntax import is_attribute
from autofast.model.values import Tensor
from autofast.rule import Effect, Refusal
from autofast.techniques.loops.rows import Planned, Rows, one_cut
from autofast.write.spelling import torch_in

ASKED = ("size", "shape", "dim", "device", "dtype")


@dataclass(frozen=True, eq=False)
class Span:
    """``x[i, :, f:f + w] = 0``: the slice, its dimension, how often a row has one."""

    statement: ast.Assign
    tensor: ast.Name
    cut: ast.Slice
    axis: int
    times: int


def span_edits(script: Script, rows: Rows) -> Planned:
    """What fills all spans at once; raises :class:`Refusal`, without words where it is another
    loop.
    """
    found = list(_spans(script, rows, rows.loop.body, 1))
    if not found:
        raise Refusal
    first = found[0]
    if not all(
        is_name(s.tensor, first.tensor.id)
        and is_same_code(s.statement.value, first.statement.value)
        for s in found
    ):
        raise Refusal
    if not any(t.device != "cpu" for t in of_kind(script.values(first.tensor), Tensor)):
        raise Refusal
    if len({s.times for s in found}) > 1:
        raise Refusal
    _check(script, rows, found)
    return _written(rows, found), Effect.EXACT


def _spans(script: Script, rows: Rows, body: Sequence[ast.stmt], times: int) -> Iterator[Span]:
    """The spans that the statements fill, where they do nothing else than to draw numbers."""
    for statement in running(body):
        match statement:
            case ast.For(body=inner, orelse=[], iter=ast.Call(args=[count]) as over) if (
                script.is_call(over, "builtins.range")
                and isinstance(turns := script.constant(count), int)
                and turns > 0
            ):
                yield from _spans(script, rows, inner, times * turns)
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name() as tensor, slice=ast.Tuple(elts=elts))]
            ):
                index, *cuts = elts
                cut = one_cut(cuts)
                if not is_name(index, rows.index or "?") or not script.must_be(tensor, Tensor):
                    raise Refusal
                if not isinstance(script.constant(statement.value), (int, float)):
                    raise Refusal
                yield Span(statement, tensor, cut, 1 + cuts.index(cut), times)
            case ast.Assign(targets=[target]) if all_of(items_of(target), ast.Name):
                pass
            case _:
                raise Refusal


def _check(script: Script, rows: Rows, found: list[Span]) -> None:
    """Raises where the rows may be others, or the loop does more with the tensor, or with others,
    than to ask for sizes.
    """
    tensor, least = found[0].tensor, script.analysis(Smallest)
    for node in nodes_in(rows.loop, ast.Name):
        if any_of(script.values(node), Tensor) and not any(node is s.tensor for s in found):
            outer = parent_of(node)
            if not is_attribute(outer, *ASKED) and not script.is_call(outer, "builtins.len"):
                raise Refusal
    if tensor.id in stored_in(rows.loop):
        raise Refusal
    measured = rows.measured(rows.count) if rows.count is not None else None
    if not is_name(measured, tensor.id):
        raise Refusal(f"nothing shows that it goes over all rows of `{tensor.id}`")
    for bound in (b for s in found for b in (s.cut.lower, s.cut.upper) if b is not None):
        smallest = least.of(bound)
        if smallest is None or smallest < 0:
            named = ast.unparse(bound)
            raise Refusal(
                f"nothing shows that `{named}` is never negative: it would count from the end"
            )


def _written(rows: Rows, found: list[Span]) -> Edits:
    source, tensor = source_of(rows.loop), found[0].tensor.id
    torch, imports = torch_in(source)
    names: list[str] = []
    edits: Edits = imports
    for span in found:
        stem = variable_name(span.cut.lower) or variable_name(span.cut.upper)
        wanted = [f"{stem}_spans"] * bool(stem) + ["spans", *(f"spans_{n}" for n in range(2, 9))]
        names.append(source.fresh(*(w for w in wanted if w not in names)))
        low = rows.hole(span.cut.lower) if span.cut.lower else "0"
        high = rows.hole(span.cut.upper) if span.cut.upper else f"{tensor}.size({span.axis})"
        edits += (Replace(span.statement, f"{names[-1]}.append(({low}, {high}))", rows.holes),)
    axis, spans, times = str(found[0].axis), names[0], found[0].times
    if several := len(found) > 1:
        axis, spans = source.fresh("axis"), source.fresh("spans")
    bounds, positions, inside = map(source.fresh, ("bounds", "positions", "inside"))
    each = ":, :, " if times > 1 else ":, "
    view = f"{tensor}.size(0), -1, 2, 1" if times > 1 else "-1, 2, 1"
    turned = f"{tensor}.transpose(1, {axis})" if axis != "1" else tensor
    lines = [
        f"{bounds} = {torch}.tensor({spans}, device={tensor}.device).view({view})",
        f"{positions} = {torch}.arange({tensor}.size({axis}), device={tensor}.device)",
        f"{inside} = ({positions} >= {bounds}[{each}0]) & ({positions} < {bounds}[{each}1])",
        f"{turned}[{inside}{'.any(1)' if times > 1 else ''}] = {rows.hole(found[0].statement.value)}",
    ]
    if several:
        pairs = ", ".join(f"({s.axis}, {n})" for s, n in zip(found, names, strict=True))
        lines = [f"for {axis}, {spans} in ({pairs}):", *(f"    {line}" for line in lines)]
    made = f"{', '.join(names)} = {', '.join(['[]'] * len(names))}"
    return (*edits, Before(rows.loop, made), After(rows.loop, "\n".join(lines), rows.holes))
