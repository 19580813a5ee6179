"""Tensors that a loop fills with numbers, made on the device: ``losses[k] = loss.item()`` becomes
``losses[k] = loss``.

    losses = torch.zeros(steps, device=device)
    for k in range(steps):
        losses[k] = model(x)
    mean = losses.cpu().mean()

The numbers are copied to the host once, where they are used, and what is computed with them is
computed there, as before. ``sums += torch.tensor([a.item(), b.item()])`` is one, too: floats of 32
bits are added on the device as on the host.

Lists that a loop extends by the numbers of a tensor: the tensors are kept, and become numbers
below the loop.

``targets.extend(y.tolist())`` becomes ``targets.append(y)``, and below ``targets = [value for part
in targets for value in part.tolist()]``: the same numbers in the same order, whatever the shapes,
and whether or not there was a batch at all.

Sums that stay on the device while the loop runs: ``total += loss.item()`` becomes ``total +=
loss.detach().double()``.

The sum is read once, where it is used: ``float(total) / len(loader)``, or ``total = float(total)``
below the loop where it is used more than once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Before, Edit, Edits, Keyword, Rewrite, plain_code
from autofast.edit.order import Rank
from autofast.flow.defuse import Definition
from autofast.flow.filled_lists import is_only_filled
from autofast.flow.loops import Loop, loop_of, loops_around
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import call_of, is_method
from autofast.model.roles import Sync
from autofast.model.script import Script
from autofast.model.several import of_kind, surely, wordset
from autofast.model.source import (
    ancestors,
    function_of,
    is_same_function,
    parent_of,
    statement_of,
    within,
    within_any,
)
from autofast.model.syntax import COMPREHENSIONS, is_read
from autofast.model.values import Tensor, any_of
from autofast.techniques.syncs.kept import kept_template, without_graph
from autofast.techniques.syncs.liveness import Needs
from autofast.techniques.syncs.reads import Read, on_device, without_detach
from autofast.techniques.syncs.scalar_tensors import is_scalar
from autofast.techniques.syncs.sinks import Sink
from autofast.techniques.syncs.steps import first_in
from autofast.techniques.syncs.summable import (
    begins_as,
    is_summed,
    kind_of_sum,
    own_uses,
    target_of,
)
from autofast.write.spelling import device_named_before, has_float64, is_taken, torch_in

MAKERS = wordset("zeros ones empty full", "torch.")


def filled_edits(
    script: Script, sink: Sink, loop: Loop, needs: Needs, *, around: ast.stmt
) -> list[Edit]:
    """The edits that keep the numbers on the device; none where the statement fills no such tensor,
    or it is used in the loop.
    """
    match sink:
        case Sink(
            statement=ast.Assign(targets=[ast.Subscript(value=ast.Name() as tensor)], value=value),
            reads=[Read(how="item", node=node) as read],
        ) if node is value:
            kept = "{core}" if read.ready else without_graph(script, read.core)
            keeps: Edits = (Rewrite(value, kept, {"core": read.core}),)
        case Sink(
            statement=ast.AugAssign(ast.Name() as tensor, ast.Add(), ast.Call(args=[ast.List()]))
        ) if stacked := _stacked(script, sink):
            keeps = stacked
        case _:
            return []
    if needs.gates or needs.moves or not needs.after:
        return []
    flow = definitions_of(script, tensor)
    match [d for d in flow.reaching(tensor) if d.node is not tensor]:
        case [Definition(value=ast.Call() as made) as definition] if not within(made, loop):
            pass
        case _:
            return []
    device = device_named_before(script, made) if _makes_floats(script, made) else None
    uses = [use for use in flow.uses(definition) if use is not tensor]
    inside = any(within(u, loop) or not is_same_function(u, loop) for u in uses)
    if device is None or not uses or inside:
        return []
    edits: list[Edit] = [Keyword(made, "device", device), *keeps]
    near = loop_of(uses[0]) in (None, *loops_around(made))
    if len(uses) == 1 and near and _is_once(uses[0]):
        attribute = parent_of(uses[0])
        copies = attribute is not None and is_method(call_of(attribute), "tolist", "cpu")
        return edits if copies else [*edits, Rewrite(uses[0], f"{tensor.id}.cpu()")]
    return [*edits, After(around, f"{tensor.id} = {tensor.id}.cpu()", rank=Rank.GRAD_MODE)]


def _stacked(script: Script, sink: Sink) -> Edits:
    """``torch.stack([a.detach(), b.detach()]).float()`` for ``torch.tensor([a.item(), b.item()])``,
    as it is added to floats of 32 bits.
    """
    value = sink.statement.value  # type: ignore[attr-defined]
    reads = [r for r in sink.reads if r.how == "item" and is_scalar(script, r.core)]
    begun = definitions_of(script, sink.statement).reaching(sink.holder)  # type: ignore[arg-type]
    made = [t for d in begun if d.value is not None for t in script.values(d.value)]
    if (
        script.library_function(value) != "torch.tensor"
        or value.keywords
        or [r.node for r in reads] != value.args[0].elts
        or not all(isinstance(t, Tensor) and t.dtype == "f32" for t in made)
    ):
        return ()
    torch, imports = torch_in(sink.source)
    parts = [
        without_graph(script, r.core).replace("{core}", f"{{c{n}}}") for n, r in enumerate(reads)
    ]
    holes = {f"c{n}": r.core for n, r in enumerate(reads)}
    return *imports, Rewrite(value, f"{torch}.stack([{', '.join(parts)}]).float()", holes)


def _makes_floats(script: Script, call: ast.Call) -> bool:
    """``torch.zeros(n)``: floats in memory of the host, for which nothing else is asked."""
    if script.library_function(call) not in MAKERS:
        return False
    given = {k.arg for k in call.keywords}
    kinds = ("f32", "f64") if has_float64(script) else ("f32",)
    floats = all(isinstance(t, Tensor) and t.dtype in kinds for t in script.values(call))
    return floats and bool(script.values(call)) and given <= {"dtype", "size", "fill_value"}


def _is_once(use: ast.Name) -> bool:
    """Whether the use is come to once, and nothing is stored to it."""
    inner = (*COMPREHENSIONS, ast.Lambda, ast.Subscript)
    return not any_of(ancestors(use), inner)


def extended_lists(script: Script) -> Iterator[tuple[ast.stmt, str, list[Edit]]]:
    """The statements that extend a list in each step, each with the list, and the edits that put
    the reads off.
    """
    for sync in script.syncs:
        if sync.how == "tolist" and sync.loop is not None and not sync.unknown:
            if (made := _put_off(script, sync)) is not None:
                yield statement_of(sync.node), *made


def _put_off(script: Script, sync: Sync) -> tuple[str, list[Edit]] | None:
    call = parent_of(sync.node)
    match call, statement_of(sync.node), sync.loop:
        case (
            ast.Call(func=ast.Attribute(value=ast.Name() as held, attr="extend"), args=[_]),
            ast.Expr(value=whole),
            ast.For() as loop,
        ) if whole is call and is_method(sync.node):
            core = without_detach(sync.node.func.value)
        case _:
            return None
    found = script.values(core)
    several = surely(isinstance(t, Tensor) and t.rank != "0d" for t in found)
    if not several or not any(map(on_device, found)) or not is_only_filled(held, loop):
        return None
    part, value = ("part", "value") if held.id not in ("part", "value") else ("tensor", "number")
    numbers = f"{held.id} = [{value} for {part} in {held.id} for {value} in {part}.tolist()]"
    keep = "{held}.append(" + kept_template(script, core) + ")"
    edits = [Rewrite(whole, keep, {"held": held, "core": core}), After(loop, plain_code(numbers))]
    return held.id, edits


def summed_edits(
    script: Script, sinks: list[Sink], loop: Loop, needs: Needs, *, around: ast.stmt
) -> list[Edit]:
    """The edits that keep a sum on the device, to which one statement adds or several do; none
    where it would not be the same number.

    ``around`` is the loop, or the block that holds nothing else.
    """
    sink, *others = sinks
    if list(sink.beside) != others or not is_summed(script, sink):
        return []
    kind, begins = kind_of_sum(script, sink), begins_as(script, sink)
    edits: list[Edit] = [
        Rewrite(r.node, _kept(script, r, kind), {"core": r.core}) for s in sinks for r in s.reads
    ]
    name, uses = sink.source.segment(sink.holder), _uses_of_result(script, sinks)
    # without a turn, a sum of floats that began as 0 becomes 0.0
    numbers = begins == {kind} or kind == "float"
    reading = f"{kind}({name})" if numbers and not is_taken(sink.source, kind) else ""
    ends_here = not script.analysis(Flow).is_exported(function_of(sink.statement))
    if reading and ends_here and not needs.moves and (single := _each_alone(uses, needs, loop)):
        return [*edits, *(Rewrite(use, reading) for use in single)]
    torch, imports = torch_in(sink.source)
    if reading:
        read = f"{name} = {reading}"
    else:  # what has no turn stays the number that it began as
        read = f"if {torch}.is_tensor({name}):\n    {name} = {name}.item()"
        edits += imports
    for gate, nodes in needs.gates.items():
        if any(within_any(u, gate.body) for u in uses) or needs.moves:
            edits.append(Before(first_in(gate, nodes), read))
    edits += [e for move in needs.moves.values() for e in move.edits]
    if needs.after:
        edits.append(After(around, read, rank=Rank.GRAD_MODE))
    return edits


def _kept(script: Script, read: Read, kind: str) -> str:
    """The tensor without its graph, as float64 where the sum is no count."""
    tensor = "{core}" if read.ready else without_graph(script, read.core)
    return tensor if kind == "int" else f"{tensor}.double()"


def _uses_of_result(script: Script, sinks: list[Sink]) -> list[ast.Name]:
    """Where the sum is used, but for the statements that make it."""
    flow, own = definitions_of(script, sinks[0].statement), {n for s in sinks for n in own_uses(s)}
    made = [target_of(s) for s in sinks]
    uses = [n for target in of_kind(made, ast.Name) for n in flow.uses_of(target)]
    return [n for n in dict.fromkeys(uses) if n not in own]


def _each_alone(uses: list[ast.Name], needs: Needs, loop: Loop) -> list[ast.Name]:
    """The uses, where each condition of the loop, and what comes after it, has one at most, that
    may read the sum itself.
    """
    gates = list(needs.gates)
    inside = [[use for use in uses if within_any(use, gate.body)] for gate in gates]
    after = [use for use in uses if not within(use, loop)]
    alone = all(len(found) <= 1 for found in (*inside, after)) and all(
        is_read(use)
        and is_same_function(use, loop)
        and loop_of(use) in (None, loop, *loops_around(loop))
        and not any_of(ancestors(use), *COMPREHENSIONS, ast.Lambda)
        for use in uses
    )
    return uses if alone else []
