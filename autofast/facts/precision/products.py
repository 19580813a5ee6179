"""Products of matrices under autocast that no network makes: 16-bit numbers, whatever they are
computed from. Torch goes on with them; NumPy and the code of others may not take them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.precision.code import Code
from autofast.facts.precision.half_values import IN_TORCH, Half
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, Verdict
from autofast.model.kinds import is_loss
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.source import nodes_in, walk
from autofast.model.syntax import is_operation
from autofast.model.tensors import tensors_in
from autofast.model.values import Ref, Thing
from autofast.ops import autocast

COMBINED = (Act.COMPUTED, Act.ADDED, Act.HELD, Act.CHOSEN)
HERE = ("builtins.", "math.")  # what shows or measures a tensor takes any


class Products(Half):
    """Follows what products give, up to what raises for 16 bits."""

    def judge(self, use: Usage, context: bool) -> Answer:
        answer = super().judge(use, context)
        if not isinstance(answer, str):
            return answer
        if self.inside(use.node, context) and _is_product(self.script, use.result):
            return Verdict.STOPS  # asked about on its own
        if use.act in COMBINED:
            return Verdict.GOES_ON
        asked = use.node.attr if isinstance(use.node, ast.Attribute) else ""
        if use.act is not Act.ASKED or asked in ("numpy", "__array__"):
            return answer
        goes_on = use.result is not None and any(tensors_in(self.script.values(use.result)))
        return Verdict.GOES_ON if goes_on else Verdict.STOPS

    def given(self, use: Usage, callee: Thing, context: bool) -> Answer:
        answer = super().given(use, callee, context)
        if not isinstance(answer, str) or is_loss(callee):
            return Verdict.STOPS if isinstance(answer, str) else answer
        if not isinstance(callee, Ref) or not callee.name.startswith((*HERE, *IN_TORCH)):
            return answer
        if not _is_product(self.script, use.result):
            return Verdict.GOES_ON
        return Verdict.STOPS if self.inside(use.node, context) else answer


def products(code: Code) -> Iterator[ast.expr]:
    """The products in a piece of code, but for those of its networks."""
    networks = {n for m in code.models for c in m.classes for n in walk(c)}
    for part in code.parts:
        if part in networks:
            continue
        yield from (n for n in nodes_in(part, ast.expr) if _is_product(code.script, n))


def _is_product(script: Script, expr: ast.expr | None) -> bool:
    """Whether autocast computes it in 16 bits."""
    if isinstance(expr, ast.Call):
        return autocast(last_part(script.operation(expr)[0])) == "lower"
    return is_operation(expr, ast.MatMult)
