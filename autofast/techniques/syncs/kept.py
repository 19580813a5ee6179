"""How a tensor is kept to be read later: as it is where nothing changes it in place, else as a
copy.
"""

from __future__ import annotations

import ast

from autofast.facts.freshness import is_fresh
from autofast.flow.defuse import bound_to
from autofast.flow.program import Flow
from autofast.flow.scopes import Expressions
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import function_of, statement_of
from autofast.model.values import Const, Method, Tensor, const, surely_named
from autofast.read.recover.compiled import records_graphs
from autofast.techniques.syncs.scalar_tensors import kind_of


def kept_template(script: Script, core: ast.expr) -> str:
    """The template (hole ``{core}``) of what is kept of a tensor: without its graph, and safe from
    changes in place.
    """
    if _is_computed_count(script, core):
        return "{core}"
    own = is_fresh(script, core) and not _graphs(script) and not script.unread
    return without_graph(script, core) + ("" if own else ".clone()")


def without_graph(script: Script, core: ast.expr) -> str:
    """The template (hole ``{core}``) of a tensor without its graph: ``.detach()`` where it may have
    one.
    """
    bare = _is_computed_count(script, core)
    whole = kind_of(script, core) == "int"
    bare = bare or whole or _is_detached(script, core) or _has_no_graph(script, core)
    return "{core}" if bare else "{core}.detach()"


def _is_computed_count(script: Script, core: ast.expr) -> bool:
    values = script.values(core)
    return isinstance(core, ast.Call) and surely(
        isinstance(t, Tensor) and t.dtype == "int" and not t.grad for t in values
    )


def _is_detached(script: Script, core: ast.expr) -> bool:
    """Whether the script itself says ``.detach()`` of it."""
    return script.analysis(Flow).is_made_by(
        core, lambda made: surely_named(script.called(made), Method, "detach")
    )


def _has_no_graph(script: Script, core: ast.expr) -> bool:
    """Whether it is computed where gradients are certainly switched off, of nothing that has
    them.
    """
    made: Expressions = [core]
    if isinstance(core, ast.Name):
        origins = script.analysis(Flow).origins(core)
        made = [bound_to(d.node)[0] for d in origins if not d.is_augmented]
        if len(made) != len(origins) or not made:
            return False
    values = [t for t in script.values(core) if t != Const(None)]  # of which nothing is read
    return surely(isinstance(t, Tensor) and not t.grad and not t.passes for t in values) and all(
        isinstance(v, (ast.Call, ast.BinOp)) and _runs_without(script, v) for v in made
    )


def _runs_without(script: Script, made: ast.expr) -> bool:
    """Whether gradients are switched off on every way of the script to this statement."""
    stmt, function = statement_of(made), function_of(made)
    ways = [
        o.grad
        for site in script.log.within(stmt)
        if site.kind != "forward_again"  # its runs are noted apart
        and function_of(site.node) is function
        for o in site
    ]
    return not hasattr(stmt, "body") and surely(mode in ("off", "inference") for mode in ways)


def _graphs(script: Script) -> bool:
    """Whether outputs may be overwritten by the next run of a CUDA graph."""
    for site in script.calls("torch.compile"):
        for occurrence in site:
            if set(occurrence.args.named) & {"options"}:
                return True
            if "mode" in occurrence.args.named and const(
                occurrence.args.named["mode"].values
            ) not in (None, "default"):
                return True
    return records_graphs(script) is not None or bool(
        script.calls(
            "torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables"
        )
    )
