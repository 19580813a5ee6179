"""Whether a backward may want what a model computes: followed from the call on, until nothing with
a gradient is left of it, or nobody knows.
"""

from __future__ import annotations

import ast

from autofast.flow.callgraph import Function, code_of
from autofast.flow.filled_lists import is_empty
from autofast.flow.program import Flow
from autofast.flow.scopes import is_local, own_nodes
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, ValueFlow, Verdict
from autofast.model import names
from autofast.model.calls import is_method, receiver_of
from autofast.model.kinds import is_loss, is_module
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import at, first_line, function_of, is_at_top, source_of
from autofast.model.syntax import FUNCTIONS, is_docstring
from autofast.model.tensors import things_in
from autofast.model.values import (
    Bound,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Ref,
    Tensor,
    Thing,
    is_named,
)
from autofast.read.recover.leaks import FACTS, NUMBERS, READS, forward_hooks, plain_argument, writes

KNOWN = ("torch.", "builtins.", "math.", "torchvision.utils.")  # what they compute is followed
NOT_KNOWN = (  # they train, keep, or call what they are given
    "torch.autograd.", "torch.func.", "torch.utils.", "torch.jit.", "torch.distributed.", "torch._",
    "builtins.setattr", "builtins.map", "builtins.filter", "builtins.exec", "builtins.eval",
)  # fmt: skip
ENDS = frozenset({Act.TARGET, Act.FILLED, Act.INDEXES, Act.COMPARED, Act.TESTED, Act.SHOWN,
                  Act.DROPPED})  # fmt: skip

Way = tuple[ast.Call, ...]  # the calls by which a value came to a place
DEEP = 8  # calls


def is_wanted(script: Script, call: ast.AST) -> bool:
    """Whether a backward may reach the result of a call, or what hooks get of it."""
    assert isinstance(call, ast.expr)
    return bool(forward_hooks(script) or Wanted(script).follow(call, ()))


def only_computes(script: Script, call: ast.Call) -> bool:
    """Whether the functions of the project that a call runs only give values to variables and
    attributes, and return: no method of another object is given what they make.
    """
    todo, seen = [call], set[ast.AST]()
    for node in todo:
        for thing in script.called(node):
            if isinstance(thing, Method):
                if not isinstance(thing.this, (Tensor, Ext)):
                    return False
            elif not isinstance(thing, (Ref, Ext)):
                code = code_of(thing)
                if not code:
                    return False
                for c in code:
                    if c.function not in seen:
                        seen.add(c.function)
                        if not _is_plain(c.function):
                            return False
                        todo += of_kind(own_nodes(c.function), ast.Call)
    return bool(seen)


def _is_plain(function: Function) -> bool:
    """Whether a function calls nothing for what it does beside, and defines nothing."""
    kinds = (ast.Expr, ast.Global, ast.Nonlocal, ast.Yield, ast.YieldFrom, *FUNCTIONS)
    return not any(isinstance(n, kinds) and not is_docstring(n) for n in own_nodes(function))


def gathering(script: Script, call: ast.AST) -> ast.Name | None:
    """``found`` in ``found = []``, where that alone makes the list that ``found.append(x)`` fills:
    whoever reads it stands where the variable does.
    """
    held = receiver_of(call) if is_method(call, "append", "extend") else None
    if not isinstance(held, ast.Name) or not is_local(held):
        return None
    if is_at_top(held) and source_of(held) is not script.entry:
        return None  # others may import it
    made = script.analysis(Flow).definition(held)
    if made is None or len(getattr(made.statement, "targets", (1,))) > 1:
        return None
    return made.node if isinstance(made.node, ast.Name) and is_empty(made.node) else None


class Wanted(ValueFlow[Way]):
    """Follows gradients; whatever keeps them elsewhere than in a variable is bad."""

    def met(self, expr: ast.expr, context: Way) -> Answer:
        found = list(things_in(self.script.values(expr)))
        free = all(
            isinstance(t, (Const, Num)) or (isinstance(t, Tensor) and not t.grad) for t in found
        )
        return Verdict.STOPS if found and free else Verdict.GOES_ON

    def judge(self, use: Usage, context: Way) -> Answer:
        asked = getattr(use.node, "attr", "") if use.act is Act.ASKED else ""
        if use.act in (Act.YIELDED, Act.OTHER, Act.CALLED) or asked == "backward":
            return self.lost(use)
        ends = use.act in ENDS and not use.is_added_to
        ends = ends or asked in NUMBERS or asked in FACTS
        return Verdict.STOPS if ends else Verdict.GOES_ON

    def given(self, use: Usage, callee: Thing, context: Way) -> Answer:
        expr, call = use.expr, use.node
        assert isinstance(call, ast.Call)
        if isinstance(callee, Ref):
            if callee.name in READS:
                return Verdict.STOPS
            known = callee.name.startswith(KNOWN) and not callee.name.startswith(NOT_KNOWN)
            return self.lost(use) if not known or writes(callee.name, call) else Verdict.GOES_ON
        if isinstance(callee, Method):
            if (made := gathering(self.script, call)) is not None:
                return self.bind(made, context) or Verdict.STOPS
            inner = isinstance(callee.this, Tensor) and not callee.name.endswith("_")
            return Verdict.GOES_ON if inner else self.lost(use)
        if code := code_of(callee) if isinstance(callee, (Func, Bound, Inst)) else []:
            plain = len(context) < DEEP and all(
                plain_argument(self.calls, c, expr, call) for c in code
            )
            return Verdict.ENTERS if plain else self.lost(use)
        computes = is_loss(callee) or is_module(callee)
        computes = computes or is_named(callee, Ext, names.ACTIVATIONS)
        return Verdict.GOES_ON if computes else self.lost(use)

    def lost(self, use: Usage) -> str:
        return f"what becomes of `{first_line(use.expr)}` on {at(use.expr)} is not known"

    def put(self, target: ast.expr, context: Way) -> str:
        return f"{at(target)} keeps it"

    kept = put

    def inside(self, call: ast.Call, context: Way) -> Way:
        known = context.index(call) if call in context else None  # it calls itself
        return (*context[:known], call)

    def returned(self, use: Usage, context: Way) -> str:
        if isinstance(function_of(use.node), ast.AsyncFunctionDef):
            return self.lost(use)
        if context:
            return self.follow(context[-1], context[:-1])
        function = function_of(use.node)
        if isinstance(function, Function) and self.calls.complete(function):
            return self.lost(use)
        return super().returned(use, context)
