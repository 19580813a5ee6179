"""What a model returns as it was given, or as a factory made it: labels, lengths, indices, of which
nobody says that they are no integers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.callgraph import CallGraph, code_of
from autofast.model.contents import unwrapped
from autofast.model.script import Script
from autofast.model.syntax import has_star
from autofast.model.tensors import tensors_in


def may_be_integers(script: Script, call: ast.Call, part: int | None = None) -> bool:
    """Whether the output of a model, or its element ``part``, may be a tensor of a batch, or one
    made for it, that no layer has changed, of any type.

    Such a tensor must not be cast to fp32: a loss that takes class indices does not take floats.
    """
    return any(
        t.dtype == "?" and (t.batch or t.made is not None) and not t.models and not t.grad
        for expr in _returned(script, call, part)
        for t in tensors_in(script.values(expr))
    )


def _returned(script: Script, call: ast.Call, part: int | None) -> Iterator[ast.expr]:
    calls = script.analysis(CallGraph)
    for thing in script.values(call.func):
        for inner in unwrapped(thing):
            for code in code_of(inner):
                for result in calls.results(code.function):
                    parts = result.elts if isinstance(result, ast.Tuple) else []
                    if part is None or not parts or has_star(parts):
                        yield result
                    elif part < len(parts):
                        yield parts[part]
