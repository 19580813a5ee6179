"""Where things stand in the turns of a loop: in each of them, in some, or outside; and which names and objects meet there."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from autofast.flow.positions import block, index
from autofast.flow.rare_branches import LOOPS, rare
from autofast.model.events import BranchFrame, CallFrame, Occurrence, loops
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Loop = ast.For | ast.AsyncFor | ast.While


def loop_of(node: ast.AST) -> Loop | None:
    """The innermost loop that ``node`` is repeated by, in its own function."""
    here = node
    for outer in ancestors(node):
        if isinstance(outer, (*FUNCTIONS, ast.ClassDef)):
            return None
        if isinstance(outer, LOOPS) and any(here is s for s in outer.body):
            return outer
        here = outer
    return None


def chain(node: ast.AST, loop: ast.AST | None) -> list[ast.AST]:
    """The nodes around ``node`` up to ``loop``, innermost first; empty where the loop does not hold it. Without a loop: in its function."""
    found: list[ast.AST] = []
    for outer in ancestors(node):
        if outer is loop or (loop is None and isinstance(outer, (*FUNCTIONS, ast.Module))):
            return found
        found.append(outer)
    return []


def in_body(node: ast.AST, loop: Loop) -> bool:
    """Whether the statement of ``node`` is repeated by ``loop`` (not its head, nor its ``else``)."""
    top = next((n for n in reversed([node, *chain(node, loop)]) if isinstance(n, ast.stmt)), None)
    return any(s is top for s in loop.body)


def within(node: ast.AST, outer: ast.AST) -> bool:
    """Whether ``outer`` is ``node`` or stands around it."""
    return node is outer or any(a is outer for a in ancestors(node))


def gate_of(node: ast.AST, loop: Loop | None) -> ast.If | None:
    """The outermost condition around ``node`` that holds in few turns of ``loop`` (in few calls), if ``node`` is in its first arm."""
    around = chain(node, loop)
    for k in range(len(around) - 1, -1, -1):
        outer = around[k]
        below = around[k - 1] if k else node
        if isinstance(outer, ast.If) and any(below is s for s in outer.body) and rare(outer):
            return outer
    return None


def first_in(gate: ast.If, nodes: list[ast.AST]) -> ast.stmt:
    """The first statement of ``gate`` that holds one of ``nodes``; its very first where one of them has yet to move there."""
    if not all(within(n, gate) for n in nodes):
        return gate.body[0]
    return next(s for s in gate.body if any(within(n, s) for n in nodes))


def follows(node: ast.AST, statement: ast.stmt) -> bool:
    """Whether ``node`` stands in a later statement of the same block: it runs after ``statement``, and never without it."""
    here = block(statement)
    top = next((n for n in (node, *ancestors(node)) if any(n is s for s in here)), None)
    return top is not None and index(here, top) > index(here, statement)  # type: ignore[arg-type]


def position(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


# ------------------------------------------------------------------------------------------------ names


# ------------------------------------------------------------------------------------------------ what runs in a loop
_STEPS: WeakKeyDictionary[Script, set[int]] = WeakKeyDictionary()


def is_step(script: Script, loop: ast.AST | None) -> bool:
    """Whether one turn of the loop is one batch: of training, or of an evaluation. A loop over epochs is none."""
    if loop is None:
        return False
    if script not in _STEPS:
        _STEPS[script] = _step_loops(script)
    return id(loop) in _STEPS[script]


def _step_loops(script: Script) -> set[int]:
    around: dict[int, set[int]] = {}
    for site in script.log.of("forward", "call_unknown"):
        for occurrence in site:
            if occurrence.data.get("outer", True):
                plain = [f for f in loops(occurrence.stack) if isinstance(f.node, LOOPS)]
                for k, frame in enumerate(plain[-1:] + [f for f in plain if f.loaders]):
                    outer = plain[:-1] if k == 0 else plain[: plain.index(frame)]
                    around.setdefault(id(frame.node), set()).update(id(f.node) for f in outer)
    outside = {n for outer in around.values() for n in outer}
    return {id(step.loop) for step in script.steps} | (set(around) - outside)


def runs_in_steps(script: Script, occurrences: Iterable[Occurrence], each: bool = False) -> bool:
    """Whether a place is come to from a loop over batches, across function calls; with ``each``, in all of its turns."""
    for occurrence in occurrences:
        plain = [f for f in loops(occurrence.stack) if isinstance(f.node, LOOPS)]
        if plain and is_step(script, plain[-1].node):
            rest = occurrence.stack[occurrence.stack.index(plain[-1]) :]
            if not each or not any(isinstance(f, BranchFrame) and not f.known and rare(f.node) for f in rest):
                return True
    return False


def works_between(script: Script, first: ast.stmt, last: ast.stmt) -> bool:
    """Whether a forward or backward pass, or an update, is started between two statements of one function."""
    scope = function_of(first)
    for site in script.log.of("forward", ".backward", ".step"):
        for occurrence in site:
            for node in (site.node, *(f.node for f in occurrence.stack if isinstance(f, CallFrame))):
                if (first.end_lineno or 0) < getattr(node, "lineno", 0) < last.lineno and function_of(node) is scope:
                    return True
    return False


def functions_in(script: Script, loop: ast.AST, each: bool = False) -> set[int]:
    """The project's functions that run in the loop, by the id of their nodes; with ``each`` those that may run in every turn."""
    found: set[int] = set()
    for _, site in script.log.each():
        for occurrence in site:
            stack = occurrence.stack
            start = next((i for i, f in enumerate(stack) if f.node is loop), None)
            if start is None:
                continue
            for frame in stack[start:]:
                if each and isinstance(frame, BranchFrame) and frame.arm and not frame.known and rare(frame.node):
                    break
                if isinstance(frame, CallFrame):
                    found.add(id(frame.func.node))
    return found


def leaves_early(loop: Loop) -> ast.stmt | None:
    """A ``return`` that ends the function from inside the loop."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Return) and not any(isinstance(a, FUNCTIONS) for a in chain(node, loop)):
            return node
    return None


def tries_around(node: ast.AST, stop: ast.AST | None = None) -> Iterator[ast.Try]:
    """The ``try`` statements with handlers that would catch what ``node`` raises, up to ``stop`` or the function's end."""
    here = node
    for outer in ancestors(node):
        if outer is stop or isinstance(outer, FUNCTIONS):
            return
        if isinstance(outer, ast.Try) and (outer.handlers or outer.finalbody) and any(here is s for s in outer.body):
            yield outer
        here = outer
