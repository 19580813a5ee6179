"""Lengths that go to the device with their batch, where all that is done with them is to fetch them
back: they stay on the host.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofast.edit.edits import Edit, Remove, Replace, Rewrite, Wrap, plain_code
from autofast.facts.aliases import written_after
from autofast.facts.copies import written_batch
from autofast.facts.cost import gains
from autofast.facts.read_back import ReadBack
from autofast.facts.switches import about_hardware, frequent_nodes
from autofast.flow.memory import Memory
from autofast.flow.positions import position
from autofast.model.calls import is_method, is_name, parts_of, receiver_of, variable_name
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import grouped, of_kind, surely
from autofast.model.source import Nodes, enclosing, is_elif, parent_of, source_of, statement_of
from autofast.model.values import Dict, is_on_device
from autofast.rule import Finding

WHOLE = ("cpu", "numpy", "tolist")
BACK = "fetches numbers back in every step that the host had before it sent them to the device"


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy in a loop; ``key``: under which it stands in a dict that is copied as a whole."""

    transfer: Transfer
    key: str
    flow: ReadBack


Group = list[Copy]


class FetchedBack:
    """``script.analysis(FetchedBack)``: ``waits`` is what waits for such copies, ``nodes`` that and
    all expressions that hold what stays on the host; ``needed`` is what fetches back what the
    device needs, too, and where.
    """

    def __init__(self, script: Script):
        self.findings: list[Finding] = []
        self.needed: dict[ast.AST, str] = {}
        self.waits: Nodes = set()
        self.nodes: Nodes = set()
        copies = [[c] for t in script.transfers for c in _copies(script, t) if not script.unread]
        every = _joined(copies, _waits)
        groups = [g for g in every if not any(_why_there(script, c) for c in g)]
        frequent: Nodes = {n for _, n in frequent_nodes(script, ast.expr)} if every else set()
        for group in every:
            whole = {w for c in group for w in _waits(c) if is_method(w, *WHOLE)}
            why = next((c.flow.elsewhere for c in group if c.flow.elsewhere), "")
            if why and whole & frequent and not any(_may_differ(script, c) for c in group):
                self.needed |= dict.fromkeys(sorted(whole & frequent, key=_place), why)
        for group in _joined(groups, lambda c: {statement_of(c.transfer.node)}):
            waits = {w for c in group for w in _waits(c)}
            often = sorted(waits & frequent, key=_place)
            if often:
                edits = tuple(_left_out(script, group))
                for nodes in grouped((statement_of(n), n) for n in often).values():
                    found = Finding(nodes[0], BACK, edits=edits, asks=gains.read_back)
                    self.findings.append(found)
                self.waits |= waits
                self.nodes |= waits.union(*(c.flow.holding for c in group))


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


def _place(node: ast.AST) -> tuple[str, tuple[int, int], int, int]:
    """Of two that begin together, the inner one comes first."""
    end = getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0)
    return source_of(node).rel, position(node), *end


def _waits(copy: Copy) -> Nodes:
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


def _joined(groups: list[Group], places: Callable[[Copy], Nodes]) -> list[Group]:
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


def _left_out(script: Script, group: Group) -> Iterator[Edit]:
    """The edits by which nothing of this goes to the device."""
    for call, keys in grouped((c.transfer.node, c.key) for c in group if c.key).items():
        yield _but(call, sorted(set(keys)))
    calls: dict[ast.AST, ast.expr | None] = {
        c.transfer.node: c.transfer.operand for c in group if not c.key
    }
    for statement in dict.fromkeys(map(statement_of, calls)):
        pairs = parts_of(statement)
        same = [v for t, v in pairs if is_name(calls.get(v), variable_name(t))]
        kept = [(t, v) for t, v in pairs if v not in same]
        if same and kept:
            source, holes = source_of(statement), {f"v{n}": v for n, (_, v) in enumerate(kept)}
            targets = ", ".join(source.segment(t) for t, _ in kept)
            code = f"{targets} = {', '.join(f'{{{name}}}' for name in holes)}"
            yield Replace(statement, code, holes)
        elif same:
            yield Remove(_alone_in(script, statement))
        for move, operand in calls.items():
            if move not in same and statement_of(move) is statement and operand is not None:
                yield Rewrite(move, "{x}", {"x": operand})  # type: ignore[arg-type]


def _but(call: ast.Call, keys: list[str]) -> Edit:
    """``{k: v if k == "lengths" else v.to(device) for k, v in batch.items()}``, or the other way
    round where there is a choice already.
    """
    choice, whole, value = parent_of(call), enclosing(call, ast.DictComp), receiver_of(call)
    assert whole is not None and isinstance(value, ast.Name)
    named = plain_code(", ".join(map(json.dumps, keys)))
    key, named = ast.unparse(whole.key), named if len(keys) == 1 else f"({named})"
    match choice:
        case ast.IfExp(test=test, orelse=ast.Name(id=other)) if other == value.id:
            return Wrap(test, f"{key} {'!=' if len(keys) == 1 else 'not in'} {named} and {{}}")
    return Wrap(call, f"{value.id} if {key} {'==' if len(keys) == 1 else 'in'} {named} else {{}}")


def _alone_in(script: Script, statement: ast.stmt) -> ast.stmt:
    """A statement, or ``if torch.cuda.is_available():`` that has nothing else."""
    match parent_of(statement):
        case ast.If(body=[_], orelse=[], test=test) as outer if not is_elif(outer):
            return outer if about_hardware(script, test) else statement
    return statement
