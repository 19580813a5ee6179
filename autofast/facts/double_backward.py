"""Where a script differentiates gradients: gradient penalties, meta-learning, Hessians."""

from __future__ import annotations

import ast

from autofast.model.roles import Step
from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.values import Const

FUNCTIONAL = ("torch.func.", "functorch.", "torch.autograd.functional.")


def gradients_of_gradients(script: Script) -> ast.AST | None:
    """The first call that keeps the graph of gradients (``create_graph=True``), if any."""
    for node in (n for step in script.steps for n in step.double_backward):
        return node
    for site in script.calls("torch.autograd.grad"):
        if any(o.args.get(4, "create_graph") - {Const(False)} for o in site):
            return site.node
    return None


def step_against_half(step: Step) -> str:
    """Why a step cannot be computed in 16 bits, whatever its networks are."""
    if step.double_backward:
        return f"{at(step.double_backward[0])} differentiates gradients (create_graph): a gradient penalty needs fp32"
    if any(u.closure for u in step.updates):
        where = at(step.updates[0])
        return f"the optimizer calls a closure several times for one step ({where})"
    return ""


def functional_derivative(script: Script) -> tuple[str, ast.AST] | None:
    """The first use of ``torch.func`` or ``torch.autograd.functional``, by name, and where."""
    return next(
        ((kind, site.node) for (kind, _), site in script.log.each() if kind.startswith(FUNCTIONAL)),
        None,
    )
