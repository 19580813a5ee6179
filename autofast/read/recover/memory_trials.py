"""Forward passes that only ask whether a batch fits into memory, with all that a backward would
need.
"""

from __future__ import annotations

import ast

from autofast.flow.program import definitions_of
from autofast.model.calls import items_of, targets_of
from autofast.model.events import Occurrence, TryFrame
from autofast.model.names import last_part
from autofast.model.roles import Evaluation
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import Nodes, at, parent_of
from autofast.model.values import Num, Ref, Tensor
from autofast.read.recover.region import Region

OUT_OF_MEMORY = wordset("RuntimeError OutOfMemoryError MemoryError Exception BaseException")
MEASURES = tuple(
    f"torch.cuda.{n}"
    for n in (
        "max_memory_allocated max_memory_reserved max_memory_cached memory_allocated memory_reserved "
        "memory_stats mem_get_info reset_peak_memory_stats reset_max_memory_allocated"
    ).split()
)


def memory_trial(script: Script, evaluation: Evaluation, region: Region) -> str:
    """Where a forward whose result nobody needs is tried, or its memory measured; empty where none
    is.
    """
    measured = any(True for _ in region.sites(script, *MEASURES))
    for site in evaluation.forwards:
        tried = measured or any(_may_fail(o) for o in site)
        if tried and isinstance(site.node, ast.expr) and _is_dropped(script, site.node, set()):
            return f"the forward of {at(site)} may ask whether a batch fits into memory, with what a backward needs"
    return ""


def _may_fail(occurrence: Occurrence) -> bool:
    """Whether something around it goes on where the memory does not suffice."""
    return any(
        frame.part == "body" and _catches(frame.node)
        for frame in of_kind(occurrence.stack, TryFrame)
    )


def _catches(node: ast.AST) -> bool:
    for handler in getattr(node, "handlers", ()):
        caught = handler.type
        parts = items_of(caught)
        if any(p is None or last_part(ast.unparse(p)) in OUT_OF_MEMORY for p in parts):
            return True
    return False


def _is_dropped(script: Script, expr: ast.expr, seen: Nodes) -> bool:
    """Whether nothing comes of the value of ``expr``: it is thrown away, or what is computed of it
    is.
    """
    parent = parent_of(expr)
    if isinstance(parent, ast.Expr | ast.Delete):
        return True
    if isinstance(parent, ast.Assign | ast.AnnAssign):
        targets = targets_of(parent)
        return all(isinstance(t, ast.Name) and _is_unused(script, t, seen) for t in targets)
    computes = isinstance(parent, ast.Attribute | ast.Subscript | ast.BinOp | ast.Tuple)
    return (
        isinstance(parent, ast.expr)
        and (computes or (isinstance(parent, ast.Call) and _only_computes(script, parent)))
        and _is_dropped(script, parent, seen)
    )


def _is_unused(script: Script, target: ast.Name, seen: Nodes) -> bool:
    if target in seen:
        return True
    seen.add(target)
    uses = definitions_of(script, target).uses_of(target)
    return all(isinstance(use.ctx, ast.Del) or _is_dropped(script, use, seen) for use in uses)


def _only_computes(script: Script, call: ast.Call) -> bool:
    outside = any(not t.name.startswith("torch.") for t in of_kind(script.called(call), Ref))
    return not outside and script.must_be(call, Tensor, Num)
