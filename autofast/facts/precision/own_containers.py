"""Whether what a model gives is its caller's alone, so that a copy of it in fp32 is as good: lists
and dicts, which anybody may change, and tensors that are changed in place.
"""

from __future__ import annotations

import ast

from autofast.facts.hooks import Hooks
from autofast.facts.makers import Makers
from autofast.facts.model_mode import outputs_in_mode
from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.holders import Holders
from autofast.flow.memory import Memory
from autofast.flow.positions import nodes_of
from autofast.flow.slices import put_into
from autofast.model.calls import is_augmented
from autofast.model.contents import elements, with_contents, without_wrappers
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import parent_of
from autofast.model.syntax import is_attribute
from autofast.model.values import Const, Dict, Num, Seq, Tensor, Values

MAKES = ("builtins.list", "builtins.dict", "builtins.tuple", "collections.OrderedDict")


def gives_its_own(script: Script, call: ast.Call) -> bool:
    """Whether nothing else holds a list or a dict that a call of a model gives."""
    if not _has_shared(outputs_in_mode(script, call)):
        return True
    output, holders = _Output(script, call), script.analysis(Holders)

    def counts(expr: ast.expr) -> bool:
        return output.is_inside(expr) and not script.must_be(expr, Tensor, Const, Num)

    def is_own(expr: ast.expr) -> bool:
        if (made := output.makers.all(expr)) != [expr]:
            return bool(made)
        is_made = expr in output.inner and output.parts(expr) is not None
        return is_made and not holders.beyond(expr, counts)

    found = with_contents(output.results, lambda e: output.below(e) if counts(e) else ())
    return surely(is_own(expr) or not counts(expr) for expr in found)


def change_elsewhere(script: Script, call: ast.Call) -> ast.AST | None:
    """What changes in place a tensor that a call of a model gives, or that the model has kept of
    it; None where nobody else holds it, or nothing does.
    """
    output, holders = _Output(script, call), script.analysis(Holders)
    hooked = any(h.is_forward for h in script.analysis(Hooks).found)
    for made in with_contents(output.results, output.below):
        if hooked or holders.beyond(made, output.is_inside):
            changes = holders.writes(holders.mentions(made))
            if (changed := next((n for n in changes if n not in output.inner), None)) is not None:
                return changed
    return None


class _Output:
    """What a call of a model gives: the ``results`` of its code, and what these are made of;
    ``inner`` is all code that it runs.
    """

    def __init__(self, script: Script, call: ast.Call):
        self.script, self.model = script, script.called(call)
        self.makers, calls = script.analysis(Makers), script.analysis(CallGraph)
        code = [c for t in self.model for m in without_wrappers(t) for c in code_of(m)]
        self.results = [r for c in code for r in calls.results(c.function)]
        self.inner = nodes_of(f for c in code for f in calls.runs(c.function))

    def is_inside(self, expr: ast.expr) -> bool:
        """Whether it is not handed to the caller yet."""
        return not self.script.called(expr) & self.model

    def below(self, expr: ast.expr) -> list[ast.expr]:
        """What makes it; of that, what is in it, or what it is a view of."""
        if (made := self.makers.all(expr)) != [expr]:
            return made
        viewed = self.script.analysis(Memory).viewed(expr)
        return [*viewed] if (parts := self.parts(expr)) is None else parts

    def parts(self, made: ast.expr) -> list[ast.expr] | None:
        """What a container that is made there gets, then and later; None for what is none."""
        match made:
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
                pass
            case ast.ListComp(elt=part) | ast.DictComp(value=part):
                parts = [part]
            case ast.Call(args=parts) if self.script.library_function(made) in MAKES:
                pass
            case _:
                return None
        uses = self.script.analysis(Holders).mentions(made, self.is_inside)
        put = [p for u in uses for p in put_into(u) if not _adds_plain(self.script, u, p)]
        return [*parts, *put]


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
