"""Functions that make a tensor on the host for callers who move it, as ``causal(n).to(x.device)``.

They get a parameter that says where to make it; whoever calls them without it gets what he got.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.edit.edits import Edit, Keyword, Parameter, Rewrite
from autofast.flow.callgraph import CallGraph
from autofast.model.calls import keyword_of, names_in, only_target, spreads
from autofast.model.events import Site
from autofast.model.script import Script
from autofast.model.source import function_of, holds, nodes_in, parent_of, source_of
from autofast.model.values import const
from autofast.rule import Effect
from autofast.techniques.transfers.composed import chain, parts
from autofast.techniques.transfers.creations import created, device_of, only_moves
from autofast.techniques.transfers.dealt_out import against
from autofast.techniques.transfers.factories import Creation, again_and_again, factory
from autofast.write.spelling import torch_in

NAME = "device"
STRAIGHT = (ast.Assign, ast.Return, ast.Expr)
# NumPy's arrays of one number, and what keeps a triangle of them, by the name of its second
# argument for torch.
FILLED = {"numpy.ones": "ones", "numpy.zeros": "zeros"}
TRIANGLES = {"numpy.triu": "triu", "numpy.tril": "tril"}
DTYPES = {"uint8": "uint8", "bool": "bool", "int64": "int64", "int": "int64"}
DTYPES |= {"float32": "float32", "float64": "float64", "float": "float64"}


def told_where(script: Script, hot: frozenset[int], known: set[int]) -> Iterator[Creation]:
    """The calls of such functions whose result is moved at once, in loops over steps; copies that
    are ``known`` have an answer.
    """
    graph = script.analysis(CallGraph)
    plans: dict[int, Creation | None] = {}
    for transfer in script.transfers:
        func, where = transfer.node.func, device_of(script, transfer)
        call = func.value if isinstance(func, ast.Attribute) else None
        if where is None or not isinstance(call, ast.Call) or spreads(call):
            continue
        callees = graph.callees(call)
        if len(callees) != 1 or graph.may_run_others(call):
            continue
        often = any(again_and_again(script, o.stack, hot) for o in transfer.site)
        if not often or id(transfer.node) in known:
            continue
        function = callees[0].function
        if id(function) not in plans:
            plans[id(function)] = _plan(script, function, transfer.site, hot)
            yield from filter(None, [plans[id(function)]])
        if (plan := plans[id(function)]) is not None:
            idle = [Rewrite(transfer.node, "{made}", {"made": call})] * only_moves(transfer)
            told = (Keyword(call, NAME, where), *idle)
            moves = (transfer.node,)
            yield Creation(call, transfer.site, told, plan.effect, moves=moves, needs=function)


def _plan(script: Script, function: ast.AST, site: Site, hot: frozenset[int]) -> Creation | None:
    """What makes the parameter decide; None where more than made tensors is in the function."""
    if not isinstance(function, ast.FunctionDef) or function.args.vararg or _is_taken(function):
        return None
    last = function.body[-1]
    if not isinstance(last, ast.Return) or last.value is None or _may_be_another(script, function):
        return None
    if not all(isinstance(s, STRAIGHT) for s in function.body) or holds(function, ast.Lambda):
        return None
    bound = {n.id for s in function.body for n in nodes_in(s, ast.Name)} & _stored(function)
    made = [n for n in names_in(last.value) & bound if not _is_shape(script, function, n)]
    if len(made) > 1:
        return None
    name = made[0] if made else ""
    found = parts(script, last.value, _factory, name)
    if found is None:
        return None
    calls = [*found.calls, *(chain(script, last, name, set(), _factory) if found.open else ())]
    if not calls or found.open and len(calls) == len(found.calls):
        return None
    torch, imports = torch_in(source_of(function))
    edits: list[Edit] = [Parameter(function, NAME, "None"), *imports]
    effect = Effect.EXACT
    for call in calls:
        if (array := _array(script, call)) is not None:
            edits.append(_written(array, call, torch))
            continue
        creation = created(script, call, NAME)
        if creation is None or not creation.edits or against(script, creation, hot):
            return None
        edits += creation.edits
        effect = max(effect, creation.effect)
    edits += (
        Rewrite(call, "{array}", {"array": call.args[0]})
        for call in nodes_in(function, ast.Call)
        if script.is_call(call, "torch.from_numpy")
    )
    return Creation(calls[-1], site, tuple(edits), effect, key=function)


def _stored(function: ast.FunctionDef) -> set[str]:
    targets = (only_target(s) for s in function.body if isinstance(s, ast.Assign))
    return {t.id for t in targets if isinstance(t, ast.Name)}


def _is_shape(script: Script, function: ast.FunctionDef, name: str) -> bool:
    """``shape = (1, n, n)``: numbers, which stay."""
    values = [s.value for s in function.body if isinstance(s, ast.Assign) and name in names_in(s)]
    return all((p := parts(script, v, _factory)) is not None and not p.calls for v in values)


def _is_taken(function: ast.FunctionDef) -> bool:
    """Something has the parameter's name already, or a decorator decides about parameters."""
    plain = all(isinstance(d, ast.Name) and d.id == "staticmethod" for d in function.decorator_list)
    taken = NAME in names_in(function) or any(a.arg == NAME for a in nodes_in(function, ast.arg))
    return not plain or taken


def _may_be_another(script: Script, function: ast.FunctionDef) -> bool:
    """A method that a class of the project may override, or has from a base that calls it."""
    mine = parent_of(function)
    if not isinstance(mine, ast.ClassDef):
        return not isinstance(function_of(function), ast.Module)
    others = [c for c in script.each(ast.ClassDef) if c is not mine]
    own = {ast.unparse(b).rsplit(".", 1)[-1] for b in mine.bases}
    return any(
        c.name in own or mine.name in {ast.unparse(b).rsplit(".", 1)[-1] for b in c.bases}
        for c in others
    )


# ------------------------------------------------------------------------------- arrays of NumPy
def _factory(script: Script, expr: ast.expr) -> ast.Call | None:
    if isinstance(expr, ast.Call) and _array(script, expr) is not None:
        return expr
    return factory(script, expr)


def _array(script: Script, call: ast.Call) -> tuple[str, ast.expr, str, ast.expr | None] | None:
    """``np.triu(np.ones(shape), k=1).astype("uint8")`` as the names of torch's dtype and function,
    the shape, the triangle and its diagonal; None for anything else.
    """
    dtype, triangle, diagonal = "float64", "", None
    func = call.func
    if isinstance(func, ast.Attribute) and func.attr == "astype" and len(call.args) == 1:
        given = call.args[0]
        said = const(script.values(given)) if isinstance(given, ast.Constant) else None
        name = said if isinstance(said, str) else ast.unparse(given).rsplit(".", 1)[-1]
        if call.keywords or name not in DTYPES or not isinstance(func.value, ast.Call):
            return None
        dtype, call = DTYPES[name], func.value
    if (kind := TRIANGLES.get(script.library_function(call))) and call.args:
        named = keyword_of(call, "k")
        rest = [*call.args[1:], *([named] if named is not None else [])]
        if len(rest) > 1 or len(call.keywords) != (named is not None):
            return None
        triangle, diagonal = kind, rest[0] if rest else None
        inner = call.args[0]
        if not isinstance(inner, ast.Call):
            return None
        call = inner
    made = FILLED.get(script.library_function(call))
    if made is None or len(call.args) != 1 or call.keywords:
        return None
    return f"{made} {dtype}", call.args[0], triangle, diagonal


def _written(
    array: tuple[str, ast.expr, str, ast.expr | None], call: ast.Call, torch: str
) -> Rewrite:
    kinds, shape, triangle, diagonal = array
    made, dtype = kinds.split()
    text = f"{torch}.{made}({{shape}}, dtype={torch}.{dtype}, {NAME}={NAME})"
    if not triangle:
        return Rewrite(call, text, {"shape": shape})
    if diagonal is None:
        return Rewrite(call, f"{torch}.{triangle}({text})", {"shape": shape})
    holes = {"shape": shape, "k": diagonal}
    return Rewrite(call, f"{torch}.{triangle}({text}, diagonal={{k}})", holes)
