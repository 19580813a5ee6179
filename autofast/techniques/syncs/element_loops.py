"""Loops of the host over the elements of tensors of the device: each element that they look at is a
read, and a wait.

``for i in range(n): right[y[i]] += c[i].item()`` copies each element by itself; after ``y, c =
y.cpu(), c.cpu()`` the same code computes the same on the host (``facts.element_reads``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Before, Edit, Rewrite
from autofast.facts.element_reads import SIZES, LookedAt, Over, runs_here
from autofast.facts.freshness import is_fresh
from autofast.facts.switches import frequent_nodes
from autofast.flow.callgraph import CallGraph
from autofast.flow.loops import loops_around
from autofast.flow.memory import Memory
from autofast.flow.positions import position
from autofast.flow.program import Flow, definitions_of
from autofast.model.calls import is_name
from autofast.model.script import Script
from autofast.model.several import any_of
from autofast.model.source import (
    Nodes,
    any_within,
    function_of,
    is_elif,
    live_nodes,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    within_any,
)
from autofast.model.syntax import COMPREHENSIONS
from autofast.techniques.syncs.steps import is_step


def by_elements(script: Script, kept: Nodes) -> Iterator[tuple[Over, str, list[Edit]]]:
    """Each loop in what runs in every step that looks at single elements: the tensors, and the
    edits that copy them before it; not ``kept`` ones, which are there.
    """
    taken: list[ast.AST] = []
    for loop in _loops(script):
        if not within_any(loop, taken):
            names, edits = _copied(script, LookedAt(script, loop), kept)
            if edits:
                taken.append(loop)
                yield loop, ", ".join(f"`{name}`" for name in names), edits


def _loops(script: Script) -> list[Over]:
    """The loops and comprehensions inside of steps, outer ones first."""
    found = {n: n for _, n in frequent_nodes(script, (ast.For, *COMPREHENSIONS))}
    # A lambda has no place for a statement.
    kept = [n for n in found.values() if not isinstance(function_of(n), ast.Lambda)]
    return [n for n in kept if isinstance(n, Over) and not is_step(script, n) and runs_here(n)]


def _copied(script: Script, found: LookedAt, kept: Nodes) -> tuple[list[str], list[Edit]]:
    """The tensors that are copied to the host before the loop, and the edits; none where there is
    no place for that.
    """
    loop, statement = found.loop, statement_of(found.loop)
    if isinstance(statement, (ast.While, ast.Match)) or is_elif(statement):
        return [], []
    edits: list[Edit] = []
    names = [min(uses, key=position) for n, uses in found.uses.items() if found.is_copied(n)]
    names.sort(key=position)
    names = [n for n in names if n not in kept]
    over = [e for name, e in found.over.items() if found.is_copied(name) and e not in kept]
    if any(
        script.analysis(CallGraph).entered(n) for n in live_nodes(loop)
    ):  # which might change them
        if not all(is_fresh(script, e) for e in (*names, *over)):
            return [], []
    for expr in over:
        if not any(is_name(expr, name.id) for name in names):
            whole = isinstance(expr, (ast.Name, ast.Attribute, ast.Call, ast.Subscript))
            code = "{core}.cpu()" if whole else "({core}).cpu()"
            edits.append(Rewrite(expr, code, {"core": expr}))
    statement = _above(script, statement, names)
    source, after = source_of(loop), definitions_of(script, loop).live_after(statement)
    targets = []
    for name in names:
        uses = [n for n in (*found.uses[name.id], *over) if is_name(n, name.id)]
        others = [n for n in nodes_in(statement, ast.Name) if n.id == name.id and n not in uses]
        if name.id in after or not all(_asks_for_size(n) for n in others):
            edits += [Rewrite(n, source.fresh(f"{name.id}_host")) for n in uses]
            targets.append(source.fresh(f"{name.id}_host"))
        else:
            targets.append(name.id)
    copies = [f"{name.id}.cpu()" for name in names]
    made = [Before(statement, f"{', '.join(targets)} = {', '.join(copies)}")] if names else []
    texts = [ast.unparse(e) for e in (*over, *names)]
    return list(dict.fromkeys(texts)), [*made, *edits]


def _above(script: Script, statement: ast.stmt, names: list[ast.Name]) -> ast.stmt:
    """The outermost loop around a statement, in a step, in each turn of which it would copy the
    same; else the statement.
    """
    memory, calls = script.analysis(Memory), script.analysis(CallGraph)
    made = {d.node for n in names for d in script.analysis(Flow).reaching(n)}
    held = {s for n in names for s in memory.sources(n)}
    for loop in loops_around(statement):
        if not isinstance(loop, ast.For) or is_step(script, loop) or statement not in loop.body:
            break
        written = memory.written_in(calls.code_in(loop))
        if any_of(written, ast.arg, ast.Attribute) or written & held or any_within(made, loop):
            break  # what it is given, and what objects hold, may be the same
        statement = loop
    return statement


def _asks_for_size(name: ast.Name) -> bool:
    """``len(y)``, ``y.size(0)``: the same of the copy."""
    match parent_of(name):
        case ast.Attribute(attr=attr):
            return attr in SIZES
        case ast.Call(func=ast.Name(id="len")):
            return True
    return False
