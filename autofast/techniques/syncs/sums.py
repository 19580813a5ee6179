"""Sums that are looked at in every step, and so cannot wait: their tensors are read together, by
one copy instead of one each.

``train_loss += loss.item()`` and, below it, ``correct += (predicted == y).sum().item()`` make the
host wait twice, and the device stands still between the two. The first sum waits for the second:

    loss_value, count = torch.hstack((loss, (predicted == y).sum().double())).tolist()
    train_loss += loss_value
    correct += int(count)

A float of 32 bits stays what it is as one of 64, and so does a count (below 2**53, which no batch
has).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autofast.edit.edits import Before, Edit, Remove, Rewrite, plain_code
from autofast.flow.loops import Loop, loop_of
from autofast.flow.positions import index_in_block, is_always, statements_beside
from autofast.model.script import Script
from autofast.model.several import not_none
from autofast.model.source import ByNode, source_of
from autofast.model.values import Dict, Tensor, certainly
from autofast.rule import Refusal
from autofast.techniques.syncs.common_reads import (
    free_names,
    is_number,
    may_move,
    one_number,
    several_gpus,
)
from autofast.techniques.syncs.reads import Read, gives_the_same
from autofast.techniques.syncs.scalar_tensors import kind_of
from autofast.techniques.syncs.sinks import Sink, sink_of
from autofast.techniques.syncs.steps import catching_statements, works_between
from autofast.techniques.syncs.substitution import swapped_text
from autofast.write.spelling import has_float64, torch_in

MOST = 6  # statements that wait for the last of them


def waiting_sums(
    script: Script, loop: Loop, fixed: Sequence[tuple[ast.stmt, list[Read]]]
) -> Iterator[tuple[list[Sink], list[Edit]]]:
    """Sums of one block that can wait for the last of them, with the edits that read all their
    tensors at once.
    """
    rest = not_none((_sum(script, statement, mine, loop) for statement, mine in fixed))
    while rest:
        first = rest.pop(0)
        group = [first]
        for sink in list(rest):
            if len(group) < MOST and _may_join(script, [*group, sink]):
                group.append(sink)
                rest.remove(sink)
        if len({r.key for s in group for r in s.reads}) > 1:
            yield group, _together(script, group)


def _sum(script: Script, statement: ast.stmt, mine: list[Read], loop: Loop) -> Sink | None:
    """The statement as a sum of numbers that reads one tensor, each time it runs."""
    if (
        len(mine) != 1
        or mine[0].how not in ("item", "float", "int")
        or not is_always(mine[0].node, statement)
    ):
        return None
    try:
        sink = sink_of(script, statement, mine, loop)
    except Refusal:
        return None
    fine = isinstance(sink.holder, ast.Name) and isinstance(statement, (ast.AugAssign, ast.Expr))
    if not fine or (isinstance(statement, ast.AugAssign) and not _is_plain(script, sink)):
        return None
    return sink if is_number(script, mine[0].core) and kind_of(script, mine[0].core) else None


def _is_plain(script: Script, sink: Sink) -> bool:
    """A variable that is a number, or one element of a dict: ``sums["loss"] += loss.item()``."""
    target = sink.statement.target if isinstance(sink.statement, ast.AugAssign) else None
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return certainly(script.values(sink.holder), Dict)
    return sink.kind == "number"


def _may_join(script: Script, group: list[Sink]) -> bool:
    """Whether all can be done where the last of them stands, with one read."""
    here = statements_beside(group[0].statement)
    last = group[-1].statement
    if any(index_in_block(here, s.statement) < 0 for s in group) or several_gpus(script):
        return False
    cores = [r.core for s in group for r in s.reads]
    if (
        len({frozenset(t.device for t in script.values(c) if isinstance(t, Tensor)) for c in cores})
        != 1
    ):
        return False
    if {kind_of(script, c) for c in cores} == {"float", "int"} and not has_float64(script):
        return False  # not every device computes in float64
    if next(catching_statements(script, last, loop_of(last)), None) is not None:
        return False  # what is added before an error would be missing
    if len({ast.dump(c) for c in cores}) < len(cores) and not all(
        gives_the_same(script, c) for c in cores
    ):
        return False
    mine = {s.statement for s in group}
    for sink in group[:-1]:
        if works_between(script, sink.statement, last) or not may_move(script, sink, last, mine):
            return False
    return not any(
        isinstance(n, (ast.Lambda, ast.Await)) for s in group for n in ast.walk(s.statement)
    )


def _together(script: Script, group: list[Sink]) -> list[Edit]:
    last = group[-1].statement
    source = source_of(last)
    torch, imports = torch_in(source)
    reads: dict[str, Read] = {}
    for sink in group:
        for read in sink.reads:
            reads.setdefault(read.key, read)
    kinds = {key: kind_of(script, read.core) for key, read in reads.items()}
    mixed = len(set(kinds.values())) > 1
    names = dict(zip(reads, free_names(source, [_stem(s) for s in _of(group, reads)]), strict=True))
    holes = {f"c{n}": read.core for n, read in enumerate(reads.values())}
    parts = [
        one_number(script, read.core, hole) + (".double()" if mixed and kinds[key] == "int" else "")
        for hole, (key, read) in zip(holes, reads.items(), strict=True)
    ]
    code = f"{', '.join(names.values())} = {torch}.hstack(({', '.join(parts)})).tolist()"
    edits: list[Edit] = [*imports, Before(last, code, holes=holes)]
    for sink in group:
        swaps: ByNode[str] = {
            r.node: _number(r, names[r.key], mixed and kinds[r.key] == "int", kinds[r.key])
            for r in sink.reads
        }
        if sink.statement is last:
            edits += [Rewrite(r.node, swaps[r.node]) for r in sink.reads]
        else:
            moved = plain_code(swapped_text(sink.statement, swaps))
            edits += [Remove(sink.statement), Before(last, moved)]
    return edits


def _of(group: list[Sink], reads: dict[str, Read]) -> list[Sink]:
    """The first sum of each tensor."""
    return [next(s for s in group if any(r.key == key for r in s.reads)) for key in reads]


def _stem(sink: Sink) -> str:
    """What the number is called: after the tensor, else after the sum."""
    core = sink.reads[0].core
    if isinstance(core, ast.Name):
        return core.id
    return sink.holder.id if isinstance(sink.holder, ast.Name) else "tensor"


def _number(read: Read, name: str, widened: bool, kind: str) -> str:
    """The number that the script gets, with its Python type."""
    wanted = {"float": "float", "int": "int", "item": kind}[read.how]
    got = "float" if widened or kind == "float" else "int"
    return name if wanted == got else f"{wanted}({name})"
