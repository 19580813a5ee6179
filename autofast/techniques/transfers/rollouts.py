"""Rows of a tensor on the device that single steps set, each by a copy of what the host has: the
host keeps the rows, and one copy after the loop brings all of them.

``rewards[step] = torch.tensor(reward).to(device)``
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import After, Edits, Rewrite
from autofast.facts.read_only import ReadOnly
from autofast.flow.build import is_try
from autofast.flow.defuse import Definition
from autofast.flow.holders import Holders
from autofast.flow.loops import Loop, loops_around
from autofast.flow.memory import Memory
from autofast.flow.program import Flow
from autofast.model.calls import only_target
from autofast.model.roles import Transfer
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import (
    ancestors,
    any_within,
    function_of,
    source_of,
    statement_of,
)
from autofast.model.values import Arg, Const, Num, is_on_device
from autofast.techniques.transfers.factories import KEEPS, runs_often


def rows_of_steps(script: Script, hot: frozenset[ast.AST]) -> Iterator[tuple[ast.Call, Edits]]:
    """Each such copy, with what is written; the last of a tensor's brings all."""
    rows: dict[ast.Name, list[tuple[Transfer, ast.Name]]] = {}
    for transfer in script.transfers:
        if runs_often(transfer.site, hot) and (name := _set_with(script, transfer)) is not None:
            match script.analysis(Flow).definition(name):
                case Definition(node=ast.Name() as made):
                    rows.setdefault(made, []).append((transfer, name))
    for node, sets in rows.items():
        names = [name for _, name in sets]
        loop = next(loops_around(names[0]))
        if _is_alone(script, node, names, loop):
            host = source_of(node).fresh(f"host_{node.id}", f"{node.id}_on_host")
            edits = [Rewrite(name, host) for name in names]
            edits += [Rewrite(t.node, "{made}", {"made": t.operand}) for t, _ in sets if t.operand]
            begin = After(statement_of(node), f"{host} = {node.id}.cpu()")
            yield sets[0][0].node, (begin, After(loop, f"{node.id}.copy_({host})"), *edits)


def _set_with(script: Script, transfer: Transfer) -> ast.Name | None:
    """``rewards`` of ``rewards[step] = torch.tensor(reward).to(device).view(-1)``"""
    match statement_of(transfer.node):
        case ast.Assign(targets=[ast.Subscript(value=ast.Name() as name, slice=at)], value=value):
            while value is not transfer.node:
                match value:
                    case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if attr in KEEPS:
                        value = inner
                    case _:
                        return None
        case _:
            return None
    alone = (
        transfer.to_device
        and transfer.only_moves
        and transfer.operand is not None
        and surely(t.device == "cpu" and not t.grad for t in transfer.tensors)
        and not transfer.unknown
        and surely(map(is_on_device, script.values(name)))
        and script.must_be(at, Const, Num, Arg)
        and next(loops_around(name), None) is not None
    )
    return name if alone else None


def _is_alone(script: Script, made: ast.Name, sets: list[ast.Name], loop: Loop) -> bool:
    """Whether nothing else sets the tensor, or reads it while the loop runs."""
    value = getattr(statement_of(made), "value", None)
    if value is None or only_target(statement_of(made)) is not made:
        return False
    others = [n for n in script.analysis(Holders).mentions(value) if n not in (value, *sets)]
    return (
        script.analysis(Memory).is_fresh(value)
        and not any(map(is_try, ancestors(loop)))
        and not any_within((made, *others), loop)
        and all(next(loops_around(n)) is loop for n in sets)
        and all(function_of(n) is function_of(made) for n in (*others, *sets))
        and not any(ReadOnly(script).follow(n, None) for n in others)
    )
