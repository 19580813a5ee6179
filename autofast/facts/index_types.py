"""Which integers certainly have 64 bits: those of 8, and truths, are no places but a mask."""

from __future__ import annotations

import ast

from autofast.facts.batch.alignment import Alignment
from autofast.facts.makers import ANY, Makers, Place, each_place
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.model.calls import first_argument, is_method, keyword_of
from autofast.model.script import Script
from autofast.model.several import surely, wordset
from autofast.model.source import ByNode, function_of
from autofast.model.syntax import Def, is_attribute
from autofast.model.tensors import tensors_in

MADE = wordset("arange randint randperm LongTensor full zeros ones", "torch.")
JOINED = wordset("torch.cat torch.stack")
LONG = (".long", ".int64")
BYTES = wordset("uint8 ubyte byte ByteTensor")
SAME = wordset(
    "cpu cuda detach contiguous clone view reshape flatten squeeze unsqueeze permute transpose t"
)


def are_long(script: Script, labels: ast.expr) -> bool:
    """Whether a tensor has integers of 64 bits whichever way it comes here: by ``long()``, made so,
    places of the largest, or as a loss of classes takes them.
    """
    flow, graph, together, makers = (
        script.analysis(Flow), script.analysis(CallGraph), script.analysis(Alignment),
        script.analysis(Makers),
    )  # fmt: skip
    moved: ByNode[ast.expr | None] = {t.node: t.operand for t in script.transfers if t.only_moves}
    todo: list[Place] = [(labels, ())]
    for part, way in each_place(todo):
        inner = moved.get(part)
        if inner is None and (is_method(part, *SAME) or is_attribute(part, "data")):
            inner = part.func.value if isinstance(part, ast.Call) else part.value
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
    return (
        isinstance(call, ast.Call)
        and script.library_function(call) in MADE
        and ((dtype := keyword_of(call, "dtype")) is None or ast.unparse(dtype).endswith(LONG))
        and surely(t.dtype == "int" for t in tensors_in(script.values(call)))
    )
