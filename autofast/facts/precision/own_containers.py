"""Whether what a model gives is its caller's alone, so that a copy of it in fp32 is as good: lists
and dicts, which anybody may change, and tensors that are changed in place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.hooks import Hooks
from autofast.facts.makers import Makers, Place
from autofast.facts.model_mode import outputs_in_mode
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.holders import Holders, How
from autofast.flow.memory import Memory, base_of, view_of
from autofast.flow.positions import nodes_of
from autofast.flow.program import Flow
from autofast.flow.scopes import owner, scope_of
from autofast.flow.slices import put_into
from autofast.model.calls import is_augmented
from autofast.model.contents import elements, without_wrappers
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import Nodes, parent_of
from autofast.model.syntax import SEQUENCES, is_attribute
from autofast.model.values import Const, Dict, Num, Seq, Tensor, Values

DEEP = 6  # calls and variables
MAKES = ("builtins.list", "builtins.dict", "builtins.tuple", "collections.OrderedDict")


def gives_its_own(script: Script, call: ast.Call) -> bool:
    """Whether nothing else holds a list or a dict that a call of a model gives."""
    if not _has_shared(outputs_in_mode(script, call)):
        return True
    model = script.called(call)
    code = [c for t in model for m in without_wrappers(t) for c in code_of(m)]
    results = [r for c in code for r in script.analysis(CallGraph).results(c.function)]

    def counts(expr: ast.expr) -> bool:
        return not (script.must_be(expr, Tensor, Const, Num) or script.called(expr) & model)

    def are_own(exprs: list[ast.expr], deeper: int) -> bool:
        """Whether they give containers that are made for them, of tensors or of such."""
        places: list[Place] = [(e, ()) for e in exprs if counts(e)]
        makers = script.analysis(Makers).sources([*places]) if deeper else []
        return not places or surely(is_own(m, deeper - 1) for m in makers)

    def is_own(made: ast.expr, deeper: int) -> bool:
        match made:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                pass
            case ast.ListComp(elt=part) | ast.DictComp(value=part):
                parts = [part]
            case ast.Call(args=parts) if script.library_function(made) in MAKES:
                pass
            case _:
                return False
        holders = script.analysis(Holders)
        uses = holders.mentions(made, counts)
        put = [p for u in uses for p in put_into(u) if not _adds_plain(script, u, p)]
        return not holders.beyond(made, counts) and are_own([*parts, *put], deeper)

    return are_own(results, DEEP)


def change_elsewhere(script: Script, call: ast.Call) -> ast.expr | None:
    """What changes in place a tensor that a call of a model gives, or that the model has kept of
    it; None where nobody else holds it, or nothing does.
    """
    calls, memory = script.analysis(CallGraph), script.analysis(Memory)
    code = [c for t in script.called(call) for m in without_wrappers(t) for c in code_of(m)]
    run = [f for c in code for f in calls.runs(c.function)]
    inner = nodes_of(run)
    kept = [k for f in run for r in calls.results(f) for k in _keepers(script, r, inner, DEEP)]
    hooked = any(h.is_forward for h in script.analysis(Hooks).found)
    if not kept and not hooked:
        return None
    names = {k.attr for k in of_kind(kept, ast.Attribute)}
    for node in script.nodes:
        for changed in memory.written(node) if node not in inner else ():
            sources = memory.sources(changed)
            if call in sources or any(is_attribute(s, *names) for s in sources if names):
                return changed
    return None


def _keepers(
    script: Script, expr: ast.expr, inner: Nodes, deeper: int
) -> Iterator[ast.expr]:
    """The attributes, and the lists and dicts of others, that hold what an expression in ``inner``
    gives.
    """
    flow, holders = script.analysis(Flow), script.analysis(Holders)
    for part in expr.elts if isinstance(expr, SEQUENCES) else [expr]:
        views = [part]
        while (view := view_of(views[-1])) is not None:
            views.append(view)
        base = views[-1]
        yield from (v for v in views if isinstance(v, ast.Attribute) or _is_of_others(v))
        for value in flow.values(base) if deeper else ():
            yield from _keepers(script, value, inner, deeper - 1)
        names = [d.node for d in flow.reaching(base) if isinstance(d.node, (ast.Name, ast.arg))]
        reads = [n for name in names for n in holders.reads(name)]
        for holder in (h for e in (part, *reads) for h in holders.ever(e)):
            node = holder.node
            is_other = holder.how is How.ATTRIBUTE or _is_of_others(node)
            if node in inner and is_other and isinstance(node, ast.expr):
                yield node


def _is_of_others(node: ast.AST) -> bool:
    """A variable that another function, or the module, has, and what it holds."""
    base = base_of(node) if isinstance(node, ast.expr) else node
    return isinstance(base, ast.Name) and owner(base) not in (None, scope_of(base))


def _has_shared(found: Values, deeper: int = 4) -> bool:
    """Whether there is a container that others could change, at any depth."""
    if any(isinstance(t, Dict) or (isinstance(t, Seq) and t.kind != "tuple") for t in found):
        return True
    inside = (t.any() for t in found if isinstance(t, Seq))
    return bool(deeper) and any(_has_shared(frozenset(i), deeper - 1) for i in inside)


def _adds_plain(script: Script, use: ast.expr, part: ast.expr) -> bool:
    """``out.update(more)``, ``out += more`` of tensors alone."""
    spread = is_attribute(parent_of(use), "update", "extend") or is_augmented(use)
    inside = frozenset(e for t in script.values(part) for e in elements(t))
    return spread and not _has_shared(inside)
