"""Which integers certainly have 64 bits: those of 8, and truths, are no places but a mask."""

from __future__ import annotations

import ast

from autofast.facts.batch.alignment import Alignment
from autofast.flow.callgraph import CallGraph
from autofast.flow.program import Flow
from autofast.model.calls import is_method, keyword_of
from autofast.model.contents import each_once
from autofast.model.script import Script
from autofast.model.several import not_none, surely, wordset
from autofast.model.source import ByNode, function_of
from autofast.model.syntax import is_attribute
from autofast.model.tensors import tensors_in

MADE = wordset("arange randint randperm LongTensor", "torch.")
BYTES = wordset("uint8 ubyte byte ByteTensor")
SAME = wordset(
    "cpu cuda detach contiguous clone view reshape flatten squeeze unsqueeze permute transpose t"
)


def are_long(script: Script, labels: ast.expr) -> bool:
    """Whether a tensor has integers of 64 bits whichever way it comes here: by ``long()``, made so,
    places of the largest, or as a loss of classes takes them.
    """
    flow, graph, together = (
        script.analysis(Flow), script.analysis(CallGraph), script.analysis(Alignment),
    )  # fmt: skip
    moved: ByNode[ast.expr | None] = {t.node: t.operand for t in script.transfers if t.only_moves}
    todo = [labels]
    for part in each_once(todo):
        inner = moved.get(part)
        if inner is None and (is_method(part, *SAME) or is_attribute(part, "data")):
            inner = part.func.value if isinstance(part, ast.Call) else part.value
        if inner is not None:
            todo.append(inner)
        elif not (
            is_method(part, "long")
            or _is_made(script, part)
            or together.is_choice(part)
            or (together.is_compared(part) and not script.analysis(_names_bytes))
        ):
            made = flow.reaching(part)
            given = [e for d in made for e in graph.gives(d)]
            unknown = any(d.is_parameter and graph.complete(function_of(d.node)) for d in made)  # type: ignore[arg-type]
            if unknown or not given or None in given:
                return False
            todo += not_none(given)
    return True


def _names_bytes(script: Script) -> bool:
    """Whether integers of 8 bits are named anywhere, which a loss takes for labels, too."""
    return any(n.attr in BYTES for n in script.each(ast.Attribute)) or any(
        n.value in BYTES for n in script.each(ast.Constant)
    )


def _is_made(script: Script, call: ast.expr) -> bool:
    return (
        isinstance(call, ast.Call)
        and script.library_function(call) in MADE
        and keyword_of(call, "dtype") is None
        and surely(t.dtype == "int" for t in tensors_in(script.values(call)))
    )
