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
from contextlib import suppress

from autofast.edit.edits import Before, Edit, Remove, Rewrite, literal
from autofast.flow.positions import block, index
from autofast.model.calls import root_of, short_name
from autofast.model.script import Script
from autofast.model.values import Inst, Seq, certainly
from autofast.rule import Refusal
from autofast.techniques.syncs.common_reads import Joined, is_always, joined_reads
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.steps import works_between
from autofast.techniques.syncs.swapping import swapped
from autofast.techniques.syncs.waiting import Waiting, may_run_at

MOST = 6  # statements that wait for the last of them


def grouped(
    script: Script, fixed: Sequence[tuple[ast.stmt, list[Read]]]
) -> Iterator[tuple[list[Read], list[Edit]]]:
    """The reads of sums of one block that can wait for the last of them, with the edits that read
    all their tensors at once.
    """
    rest = [mine[0] for _, mine in fixed if len(mine) == 1 and is_sum(script, mine[0])]
    while rest:
        group, joined = [rest.pop(0)], None
        for read in list(rest):
            if len(group) < MOST and (more := _joined(script, [*group, read])) is not None:
                group.append(read)
                rest.remove(read)
                joined = more
        if joined is not None and len({r.key for r in group}) > 1:
            yield group, _together(group, joined)


def is_sum(script: Script, read: Read) -> bool:
    """Whether its statement adds one tensor, each time it runs: to a variable, to one element of a
    dict (``sums["loss"] += loss.item()``), to a meter.
    """
    match read.statement:
        case ast.AugAssign(target=ast.Name()):
            pass
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(), slice=ast.Constant())):
            pass
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name() as holder))):
            if not certainly(script.values(holder), Inst, Seq):
                return False
        case _:
            return False
    plain = read.how in ("item", "float", "int") and is_always(read.node, read.statement)
    return plain and Waiting(script).add(read.statement)


def _joined(script: Script, group: list[Read]) -> Joined | None:
    """One read for all, where all can be done at the place of the last of them."""
    statements = [r.statement for r in group]
    last = statements[-1]
    mine = {id(s) for s in statements}
    if not all(
        index(block(last), s) >= 0
        and not works_between(script, s, last)
        and may_run_at(script, s, last, mine)
        for s in statements[:-1]
    ):
        return None
    with suppress(Refusal):
        return joined_reads(script, group, [_stem(r) for r in group])
    return None


def _together(group: list[Read], joined: Joined) -> list[Edit]:
    last = group[-1].statement
    edits: list[Edit] = [*joined.imports, Before(last, joined.code, holes=joined.holes)]
    for read in group:
        number = joined.numbers[id(read.node)]
        if read.statement is last:
            edits.append(Rewrite(read.node, number))
        else:
            moved = literal(swapped(read.statement, {id(read.node): number}))
            edits += [Remove(read.statement), Before(last, moved)]
    return edits


def _stem(read: Read) -> str:
    """What the number is called: after the tensor, else after the sum."""
    if isinstance(read.core, ast.Name):
        return read.core.id
    target = getattr(read.statement, "target", None)
    return short_name(root_of(target, ast.Subscript)) if target is not None else ""
