"""Functions that make a tensor for callers who move it, as ``causal(n).to(x.device)``: they get a
parameter that says where to make it, and whoever calls them without it gets what he got.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Keyword, Parameter, Rewrite
from autofast.flow.callgraph import CallGraph
from autofast.model.calls import has_unpacking, names_in, only_target
from autofast.model.events import Site
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.source import ByNode, nodes_in, parent_of
from autofast.rule import Effect
from autofast.techniques.transfers.composed import Parts, assignment_chain, composed_parts
from autofast.techniques.transfers.creations import creation_of, device_of
from autofast.techniques.transfers.factories import Creation, factory, runs_often
from autofast.techniques.transfers.host_random_draws import why_not_on_device

NAME = "device"


def given_a_device(script: Script, hot: frozenset[ast.AST]) -> Iterator[Creation]:
    """These functions, and their calls in loops over steps whose result is moved at once."""
    graph = script.analysis(CallGraph)
    plans: ByNode[Creation | None] = {}
    for transfer in script.transfers:
        call, where = getattr(transfer.node.func, "value", None), device_of(script, transfer)
        if where is None or not isinstance(call, ast.Call):
            continue
        callees = graph.callees(call)
        if len(callees) != 1 or graph.may_run_others(call) or has_unpacking(call):
            continue
        if not runs_often(transfer.site, hot):
            continue
        function = callees[0].function
        if function not in plans:
            plans[function] = _plan(script, function, transfer.site, hot)
            yield from filter(None, [plans[function]])
        if plan := plans[function]:
            idle = [Rewrite(transfer.node, "{made}", {"made": call})] * transfer.only_moves
            told = (Keyword(call, NAME, where), *idle)
            moves = (transfer.node,)
            yield Creation(call, transfer.site, told, plan.effect, moves=moves, needs=function)


def _plan(
    script: Script, function: ast.AST, site: Site, hot: frozenset[ast.AST]
) -> Creation | None:
    """What makes the parameter decide; None where more than made tensors is in the function."""
    match function:
        case ast.FunctionDef(
            args=ast.arguments(vararg=None),
            body=[*above, ast.Return(value=ast.expr() as result) as last],
            decorator_list=[] | [ast.Name(id="staticmethod")],
        ):
            above = above[ast.get_docstring(function, clean=False) is not None :]
            targets = [t for s in above if (t := only_target(s)) is not None]
            made = names_in(result) & {ast.unparse(t) for t in targets}
        case _:
            return None
    taken = names_in(function) | {a.arg for a in nodes_in(function, ast.arg)}
    if NAME in taken or len(targets) < len(above) or may_be_another(script, function):
        return None
    made = {n for n in made if not _is_shape(script, above, n)}
    name = next(iter(made), "")
    found = composed_parts(script, result, factory, name)
    if found is None or len(made) > 1:
        return None
    earlier = assignment_chain(script, last, name, set(), factory) if found.open else Parts()
    if found.cuts and earlier.rounds:
        return None
    written: list[Edit] = [Parameter(function, NAME, "None")]
    effect = Effect.ROUNDING if found.rounds or earlier.rounds else Effect.EXACT
    for call in (calls := (*found.calls, *earlier.calls)):
        creation = creation_of(script, call, NAME)
        if creation is None or not creation.edits or why_not_on_device(script, creation, hot):
            return None
        written += creation.edits
        effect = max(effect, creation.effect)
    whole = calls and bool(earlier.calls) >= found.open
    return Creation(calls[-1], site, tuple(written), effect, key=function) if whole else None


def _is_shape(script: Script, above: list[ast.stmt], name: str) -> bool:
    """``shape = (1, n, n)``: numbers, which stay."""
    values = [s.value for s in above if name in names_in(s)]  # type: ignore[attr-defined]
    return all(
        (p := composed_parts(script, v, factory)) is not None and not p.calls for v in values
    )


def may_be_another(script: Script, function: ast.FunctionDef) -> bool:
    """A method that a class of the project may override, or has from a base that calls it."""
    mine = parent_of(function)
    classes = {
        c.name: {last_part(ast.unparse(b)) for b in c.bases} for c in script.each(ast.ClassDef)
    }
    own = getattr(mine, "name", "")
    if own not in classes:
        return bool(own)
    return bool(classes[own] & classes.keys()) or any(own in bases for bases in classes.values())
