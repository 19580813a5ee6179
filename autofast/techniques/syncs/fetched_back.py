"""Lengths that go to the device with their batch, where all that is done with them is to fetch them
back: they stay on the host.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

from autofast.edit.edits import Edit, Remove, Replace, Rewrite, Wrap, plain_code
from autofast.facts.cost import gains
from autofast.facts.host_copies import Group, HostCopies, joined, place_of, waits_of
from autofast.facts.switches import about_hardware
from autofast.model.calls import is_name, parts_of, receiver_of, variable_name
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import Nodes, enclosing, is_elif, parent_of, source_of, statement_of
from autofast.rule import Finding

BACK = "fetches numbers back in every step that the host had before it sent them to the device"


class FetchedBack:
    """``script.analysis(FetchedBack)``: ``waits`` is what waits for such copies, ``nodes`` that and
    all expressions that hold what stays on the host; ``copies`` are those to the device that go;
    ``needed`` is what fetches back what the device needs, too, and where.
    """

    def __init__(self, script: Script):
        self.findings: list[Finding] = []
        copies = script.analysis(HostCopies)
        self.needed = copies.needed
        self.waits: Nodes = set()
        self.nodes: Nodes = set()
        self.copies: Nodes = set()
        for group in joined(copies.groups, lambda c: {statement_of(c.transfer.node)}):
            waits = {w for c in group for w in waits_of(c)}
            often = sorted(waits & copies.often, key=place_of)
            if often:
                edits = tuple(_left_out(script, group))
                for nodes in grouped((statement_of(n), n) for n in often).values():
                    found = Finding(nodes[0], BACK, edits=edits, asks=gains.read_back)
                    self.findings.append(found)
                self.waits |= waits
                self.nodes |= waits.union(*(c.flow.holding for c in group))
                self.copies |= {c.transfer.node for c in group if not c.key}


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
