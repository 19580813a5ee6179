"""Which integers certainly have 64 bits: those of 8, and truths, are no places but a mask."""

from __future__ import annotations

import ast

from autofast.facts.batch.alignment import Alignment
from autofast.facts.makers import ANY, Makers, Place, each_place
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.model.calls import first_argument, is_method, items_of, keyword_of, variable_name
from autofast.model.script import Script
from autofast.model.several import one, surely, wordset
from autofast.model.source import ByNode, function_of
from autofast.model.syntax import Def, is_text
from autofast.model.tensors import tensors_in
from autofast.model.values import Tensor

MADE = wordset("arange randint randperm LongTensor full zeros ones", "torch.")
Moved = ByNode[ast.expr | None]  # copies, and what they are of
NEW = wordset("new_tensor new_zeros new_ones new_full")
TAKEN = wordset("torch.index_select torch.gather torch.flip torch.roll")
JOINED = wordset("torch.cat torch.stack")
LONG = (".long", ".int64")
BYTES = wordset("uint8 ubyte byte ByteTensor")
SAME = wordset(
    "cpu cuda detach contiguous clone view reshape flatten squeeze unsqueeze permute transpose t "
    "expand repeat index_select gather flip"
)


def are_long(script: Script, labels: ast.expr) -> bool:
    """Whether a tensor has integers of 64 bits whichever way it comes here: by ``long()``, made so,
    places of the largest, or as a loss of classes takes them.
    """
    flow, graph, together, makers = (
        script.analysis(Flow), script.analysis(CallGraph), script.analysis(Alignment),
        script.analysis(Makers),
    )  # fmt: skip
    moved: Moved = {t.node: t.operand for t in script.transfers if t.only_moves}
    todo: list[Place] = [(labels, ())]
    for part, way in each_place(todo):
        inner = moved.get(part) or _source(script, part, moved)
        if inner is not None:
            todo.append((inner, way))
        elif way or not (
            is_method(part, "long")
            or _is_made(script, part)
            or together.is_choice(part)
            or (together.is_compared(part) and not script.analysis(_names_bytes))
        ):
            functions = (function_of(d.node) for d in flow.reaching(part) if d.is_parameter)
            unknown = any(not _is_followed(graph, f) for f in functions)
            back = makers.back(part, way)
            if script.is_call(part, *JOINED):
                back = makers.back(first_argument(part) or part, (ANY,))
            if unknown or not back:
                return False
            todo += back
    return True


def _moved(script: Script, call: ast.Call, moved: Moved) -> ast.expr | None:
    """What a function of the project is given that gives it back, perhaps on another device."""
    graph, flow = script.analysis(CallGraph), script.analysis(Flow)
    callee = one(graph.callees(call))
    if callee is None or graph.may_run_others(call):
        return None
    results = [moved.get(r) or r for r in graph.results(callee.function)]
    name = one({variable_name(r) for r in results}, "")
    made = (d for r in results for d in flow.reaching(r))
    kept = all(
        d.is_parameter or (d.value in moved and variable_name(moved[d.value]) == name) for d in made
    )
    return graph.argument(call, callee, name) if name and kept else None


def _source(script: Script, part: ast.expr, moved: Moved) -> ast.expr | None:
    """What a tensor has its integers from, as they are."""
    match part:
        case ast.Attribute(value=inner, attr="data"):
            return inner
        case ast.Call(args=[inner, *_]) if script.is_call(part, *TAKEN):
            return inner
        case ast.Call() if is_method(part, *SAME):
            return part.func.value
        case ast.Call():
            return _moved(script, part, moved)
        case ast.Subscript(value=inner, slice=index) if script.must_be(inner, Tensor):
            return inner if not any(is_text(p) for p in items_of(index)) else None
    return None


def _is_followed(graph: CallGraph, function: Def | ast.Lambda | ast.Module) -> bool:
    """Whether all calls are known: of a ``forward``, those of its module."""
    if isinstance(function, ast.Module):
        return True
    sites = {*graph.sites(function)} if getattr(function, "name", "") == "forward" else set()
    return {*graph.entries(function)} == sites != set() or not graph.complete(function)


def _names_bytes(script: Script) -> bool:
    """Whether integers of 8 bits are named anywhere, which a loss takes for labels, too."""
    return any(n.attr in BYTES for n in script.each(ast.Attribute)) or any(
        n.value in BYTES for n in script.each(ast.Constant)
    )


def _is_made(script: Script, call: ast.expr) -> bool:
    if not isinstance(call, ast.Call):
        return False
    dtype, name = keyword_of(call, "dtype"), script.library_function(call)
    told = dtype is not None and ast.unparse(dtype).endswith(LONG)
    made = name in MADE and (told or dtype is None)
    new = told and (name == "torch.tensor" or (not name and is_method(call, *NEW)))
    return (made or new) and surely(t.dtype == "int" for t in tensors_in(script.values(call)))
