"""Which parameters are trained, where a script says so itself."""

from __future__ import annotations

import ast

from autofast.facts.gradient_accesses import named_in_text
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import parent_of
from autofast.model.values import Const, Tensor, Values


def may_freeze(script: Script) -> bool:
    """Whether the script says somewhere which parameters are trained: it may do so here."""
    for node in script.each(ast.Attribute):
        if node.attr in ("requires_grad", "requires_grad_"):
            if not is_data(script.values(node.value)):
                return True
    return named_in_text(script, "requires_grad") is not None or any(
        keyword.arg == "requires_grad"
        and script.values(keyword.value) != {Const(True)}
        and not _makes_tensor(script, keyword)
        for keyword in script.each(ast.keyword)
    )


def _makes_tensor(script: Script, keyword: ast.keyword) -> bool:
    """``Variable(zeros, requires_grad=False)``, ``torch.ones(3, requires_grad=False)``: no
    parameter of a model.
    """
    return is_data(script.values(parent_of(keyword)))  # type: ignore[arg-type]


def is_data(values: Values) -> bool:
    return surely(isinstance(t, Tensor) and not t.param for t in values)
