"""How often a place runs: the loops around it, across calls, and what they are to the training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.explain.words import place
from autofast.flow.callgraph import CallGraph
from autofast.flow.frequency import Frequency, frequency
from autofast.flow.loops import Loop, loops_around as around
from autofast.flow.program import graph_of
from autofast.model.events import CallFrame, LoopFrame, Stack, loops
from autofast.model.script import Script
from autofast.model.several import any_of, of_kind
from autofast.model.source import ByNode, ancestors, function_of, statement_of
from autofast.model.syntax import FUNCTIONS, LOOPS

DEEP = 8  # calls that are followed back to where a function is run
ByWay = dict[tuple[ast.AST, ...], Stack]


def how_often(script: Script, stmt: ast.stmt) -> list[str]:
    """One line for each way in which the script comes to a statement; none where it never does."""
    here = [*around(stmt)][::-1]
    found = dict.fromkeys(tuple(dict.fromkeys([*outer, *here])) for outer in _ways(script, stmt, 0))
    if isinstance(
        stmt, LOOPS
    ):  # its head runs for every item; the loop as a whole as often as what is around it
        found = dict.fromkeys((*way, stmt) for way in found)
    condition = _condition(script, stmt)
    return list(dict.fromkeys(_said(script, way) + condition for way in found))


def _ways(script: Script, node: ast.AST, depth: int) -> Iterator[tuple[ast.AST, ...]]:
    """The loops around the function that ``node`` stands in, for each way to it, outermost
    first."""
    function = function_of(node)
    if isinstance(function, ast.Module):
        yield ()
        return
    stacks = _stacks(script, function)
    for stack in stacks:
        yield tuple(frame.node for frame in loops(stack))
    if not stacks and depth < DEEP and not isinstance(function, ast.Lambda):
        for call in script.analysis(CallGraph).sites(function):
            inner = [*around(call)][::-1]
            for outer in _ways(script, call, depth + 1):
                yield (*outer, *inner)


def _stacks(script: Script, function: ast.AST) -> list[Stack]:
    """The frames of all ways to a function, as far as anything that was noted happens in it."""
    known: ByNode[ByWay] = script.analysis(_entered)
    return list(known.get(function, {}).values())


def _entered(script: Script) -> ByNode[ByWay]:
    found: ByNode[ByWay] = {}
    for occurrence in script.everything:
        for n, frame in enumerate(occurrence.stack):
            if isinstance(frame, CallFrame):
                stack = occurrence.stack[:n]
                way = tuple(f.node for f in stack if isinstance(f, LoopFrame))
                found.setdefault(frame.func.node, {}).setdefault(way, stack)
    return found


def _said(script: Script, way: tuple[ast.AST, ...]) -> str:
    if not way:
        return "once"
    parts = [f"in every {_role(script, loop)} ({place(loop)})" for loop in reversed(way)]
    return ", ".join(parts)


def _role(script: Script, loop: ast.AST) -> str:
    """What one run of a loop's body is."""
    if any(step.loop is loop for step in script.steps):
        return "step of the training"
    if any(any(f.node is loop for f in loops(step.stack)) for step in script.steps):
        return "epoch"
    if any(e.kind == "loop" and e.node is loop for e in script.evaluations):
        return "batch of an evaluation"
    if any(use.node is loop for loader in script.loaders for use in loader.uses):
        return "batch of a loader"
    return "iteration of the loop"


def _condition(script: Script, stmt: ast.stmt) -> str:
    """What the control flow says of the innermost loop around a statement in its function."""
    inner: Loop | None = next(iter(around(stmt)), None)
    if inner is None:
        tests = of_kind(_ancestors(stmt), ast.If)
        real = [t for t in tests if "__name__" not in ast.unparse(t.test)]
        return f", if the condition at {place(real[0])} holds" if real else ""
    often = frequency(graph_of(script, stmt), stmt, inner)
    return {
        Frequency.SOME: "; not in all of them",
        Frequency.RARE: "; in few of them",
        Frequency.NEVER: "; no way leads there",
    }.get(often, "")


def _ancestors(node: ast.AST) -> Iterator[ast.AST]:
    """What stands around a node in its function."""
    for outer in ancestors(node):
        if isinstance(outer, FUNCTIONS):
            return
        yield outer


def is_reached(script: Script, stmt: ast.stmt) -> bool:
    """Whether the reader came to a statement: to an expression of it, or to what it stands in."""
    if script.reached(stmt):
        return True
    holder = function_of(stmt)
    if isinstance(holder, ast.Module):
        return True
    return not any_of(ast.walk(stmt), ast.expr) and script.reached(statement_of(holder))
