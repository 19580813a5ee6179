"""Copies on the device that may as well stay on the host, as all that is done with them is to fetch
them back; together with those that are fetched back at the same places.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofast.facts.aliases import written_after
from autofast.facts.copies import written_batch
from autofast.facts.read_back import ReadBack
from autofast.facts.switches import frequent_nodes
from autofast.flow.memory import Memory
from autofast.flow.positions import position
from autofast.model.calls import is_method, is_name
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import Nodes, parent_of, source_of, within
from autofast.model.values import Dict, is_on_device

WHOLE = ("cpu", "numpy", "tolist")


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy in a loop; ``key``: under which it stands in a dict that is copied as a whole."""

    transfer: Transfer
    key: str
    flow: ReadBack


Group = list[Copy]


class HostCopies:
    """``script.analysis(HostCopies)``: ``groups`` are copies that may stay on the host together,
    ``often`` what is come to in every step; ``needed`` is what fetches back what the device needs,
    too, and where.
    """

    def __init__(self, script: Script):
        self.needed: dict[ast.AST, str] = {}
        copies = [[c] for t in script.transfers for c in _copies(script, t) if not script.unread]
        every = joined(copies, waits_of)
        self.groups = [g for g in every if not any(_why_there(script, c) for c in g)]
        self.often: Nodes = {n for _, n in frequent_nodes(script, ast.expr)} if every else set()
        for group in every:
            whole = {w for c in group for w in waits_of(c) if is_method(w, *WHOLE)}
            why = next((c.flow.elsewhere for c in group if c.flow.elsewhere), "")
            if why and whole & self.often and not any(_may_differ(script, c) for c in group):
                self.needed |= dict.fromkeys(sorted(whole & self.often, key=place_of), why)

    def stays(self, expr: ast.expr, loop: ast.AST) -> bool:
        """Whether it may stay on the host, and need not be fetched back at other places than in
        this loop then.
        """
        groups = (g for g in self.groups if any(expr in c.flow.holding for c in g))
        waits = (w for g in groups for c in g for w in waits_of(c))
        return any(w in self.often and not within(w, loop) for w in waits)


def _copies(script: Script, transfer: Transfer) -> Iterator[Copy]:
    """What a copy in a loop does, with what is looked at on the host alone."""
    operand, whole = transfer.operand, parent_of(transfer.node)
    if not (operand and transfer.to_device and transfer.only_moves and transfer.loops) or any(
        t.device == "dev" or t.models for t in transfer.tensors
    ):
        return
    if isinstance(whole, ast.IfExp) and whole.body is transfer.node:
        whole = parent_of(whole)
    starts: list[tuple[str, ast.expr]] = [("", transfer.node)]
    match whole:
        case ast.DictComp(
            key=ast.Name(id=key),
            generators=[
                ast.comprehension(
                    target=ast.Tuple(elts=[ast.Name(id=first), ast.Name(id=second)]),
                    iter=ast.Call(func=ast.Attribute(attr="items")),
                )
            ],
        ) if key == first and is_name(operand, second):
            dicts = of_kind(script.values(whole), Dict)
            there = {k for d in dicts for k in d.entries if any(map(is_on_device, d.get(k)))}
            starts = [(k, whole) for k in sorted(there, key=str) if isinstance(k, str)]
    for name, start in starts:
        flow = ReadBack(script)
        flow.follow(start, (name,) if start is whole else ())
        if flow.waits:
            yield Copy(transfer, name, flow)


def place_of(node: ast.AST) -> tuple[str, tuple[int, int], int, int]:
    """Of two that begin together, the inner one comes first."""
    end = getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
    return source_of(node).rel, position(node), *end


def waits_of(copy: Copy) -> Nodes:
    return copy.flow.waits


def _why_there(script: Script, copy: Copy) -> str:
    """Why it must be a copy, and on the device; empty where it need not."""
    transfer, operand = copy.transfer, copy.transfer.operand
    assert operand is not None
    if copy.flow.why or not surely(t.batch for t in transfer.tensors):
        return copy.flow.why or written_after(script, operand, list(transfer.site))
    return "it is written to" if written_batch(script, operand) is not None else ""


def _may_differ(script: Script, copy: Copy) -> bool:
    """Whether the host may not have what the copy holds: it is not known, or written to."""
    transfer, operand = copy.transfer, copy.transfer.operand
    assert operand is not None
    return (
        not surely(t.batch for t in transfer.tensors)
        or written_batch(script, operand) is not None
        or not copy.flow.holding.isdisjoint(script.analysis(_written))
    )


def _written(script: Script) -> Nodes:
    """All that is written to in place."""
    memory = script.analysis(Memory)
    return {target for node in script.nodes for target in memory.written(node)}


def joined(groups: list[Group], places: Callable[[Copy], Nodes]) -> list[Group]:
    """Those of which copies have places in common, together."""
    found: list[tuple[Nodes, Group]] = []
    for group in groups:
        mine = {n for copy in group for n in places(copy)}
        others = [f for f in found if f[0] & mine]
        found = [f for f in found if f not in others]
        found.append(
            (mine.union(*(f[0] for f in others)), [*(c for f in others for c in f[1]), *group])
        )
    return [group for _, group in found]
