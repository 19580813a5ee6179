"""Names that are on their way to ``cfg``, ``scopes``, ``callgraph`` and ``model.source``."""

from __future__ import annotations

import ast

from autofast.flow.callgraph import CallGraph
from autofast.flow.cfg import FUNCTIONS, Loop, loop_of
from autofast.flow.positions import block, index
from autofast.model.script import Script
from autofast.model.source import ancestors, within

__all__ = ["FUNCTIONS", "Loop", "follows", "functions_in", "loop_of", "position", "within"]


def follows(node: ast.AST, statement: ast.stmt) -> bool:
    """Whether ``node`` stands in a later statement of the same block: it runs after ``statement``, and never without it."""
    here = block(statement)
    top = next((n for n in (node, *ancestors(node)) if any(n is s for s in here)), None)
    return top is not None and index(here, top) > index(here, statement)  # type: ignore[arg-type]


def position(node: ast.AST) -> tuple[int, int]:
    """The line and column where a node begins."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def functions_in(script: Script, loop: Loop) -> set[int]:
    """The project's functions that run in the loop, by the id of their nodes."""
    return {id(f) for f in script.analysis(CallGraph).run_in(loop)}
