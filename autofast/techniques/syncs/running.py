"""Sums that stay on the device while the loop runs: ``total += loss.item()`` becomes ``total +=
loss.detach().double()``.

The sum is read once, where it is used: ``float(total) / len(loader)``, or ``total = float(total)``
below the loop where it is used more than once.
"""

from __future__ import annotations

import ast

from autofast.edit.edits import After, Before, Edit, Rewrite
from autofast.edit.order import Rank
from autofast.flow.defuse import Definition
from autofast.flow.loops import Loop, loop_of, loops_around
from autofast.flow.program import Flow
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, within
from autofast.model.syntax import COMPREHENSIONS, is_read
from autofast.techniques.syncs.freshness import without_graph
from autofast.techniques.syncs.liveness import Needs
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.steps import first_in
from autofast.techniques.syncs.summable import (
    begins_as,
    is_summed,
    kind_of_sum,
    own_uses,
    target_of,
)
from autofast.write.spelling import is_taken, torch_in


def summed(script: Script, sink: Sink, loop: Loop, needs: Needs, *, around: ast.stmt) -> list[Edit]:
    """The edits that keep the sum on the device; none where it would not be the same number.

    ``around`` is the loop, or the block that holds nothing else.
    """
    if not is_summed(script, sink):
        return []
    kind, begins = kind_of_sum(script, sink), begins_as(script, sink)
    edits: list[Edit] = [
        Rewrite(r.node, _kept(script, r, kind), holes={"core": r.core}) for r in sink.reads
    ]
    name, uses = sink.source.segment(sink.holder), _uses_of_result(script, sink)
    # without a turn, a sum of floats that began as 0 becomes 0.0
    numbers = begins == {kind} or kind == "float"
    reading = f"{kind}({name})" if numbers and not is_taken(sink.source, kind) else ""
    if reading and not needs.moves and (single := _each_alone(uses, needs, loop)):
        return [*edits, *(Rewrite(use, reading) for use in single)]
    torch, imports = torch_in(sink.source)
    if reading:
        read = f"{name} = {reading}"
    else:  # what has no turn stays the number that it began as
        read = f"if {torch}.is_tensor({name}):\n    {name} = {name}.item()"
        edits += imports
    for gate, nodes in needs.gates.values():
        if any(within(use, gate) for use in uses) or needs.moves:
            edits.append(Before(first_in(gate, nodes), read))
    edits += [e for move in needs.moves.values() for e in move.edits]
    if needs.after:
        edits.append(After(around, read, rank=Rank.GRAD_MODE))
    return edits


def _kept(script: Script, read: Read, kind: str) -> str:
    """The tensor without its graph, as float64 where the sum is no count."""
    tensor = "{core}" if read.ready else without_graph(script, read.core)
    return tensor if kind == "int" else f"{tensor}.double()"


def _uses_of_result(script: Script, sink: Sink) -> list[ast.Name]:
    """Where the sum is used, but for the statement that makes it."""
    flow, target = script.analysis(Flow).definitions(sink.statement), target_of(sink)
    own = set(map(id, own_uses(sink)))
    assert isinstance(target, ast.Name)
    return [n for n in flow.uses(Definition(target.id, target)) if id(n) not in own]


def _each_alone(uses: list[ast.Name], needs: Needs, loop: Loop) -> list[ast.Name]:
    """The uses, where each condition of the loop, and what comes after it, has one at most, that
    may read the sum itself.
    """
    gates = [gate for gate, _ in needs.gates.values()]
    inside = [[use for use in uses if within(use, gate)] for gate in gates]
    after = [use for use in uses if not within(use, loop)]
    alone = all(len(found) <= 1 for found in (*inside, after)) and all(
        is_read(use)
        and function_of(use) is function_of(loop)
        and loop_of(use) in (None, loop, *loops_around(loop))
        and not any(isinstance(a, (*COMPREHENSIONS, ast.Lambda)) for a in ancestors(use))
        for use in uses
    )
    return uses if alone else []
