"""What works on each row of a tensor for itself: on each place, or on the last dimension alone.

Of such a layer it is the same whether rows go through it one after the other or together.
"""

from __future__ import annotations

import ast
from functools import cached_property

from autofast.flow.callgraph import CallGraph, code_of
from autofast.flow.program import Flow
from autofast.flow.scopes import parameters
from autofast.model.calls import has_unpacking, only_target, variable_name
from autofast.model.names import ACTIVATIONS, FORWARD_HOOKS
from autofast.model.script import Script
from autofast.model.several import all_of, any_of, surely, wordset
from autofast.model.source import walk
from autofast.model.syntax import is_docstring
from autofast.model.values import (
    Arg,
    Const,
    Ext,
    Inst,
    Thing,
    Values,
    are_numbers,
    const,
)
from autofast.ops import draws, is_pointwise

# On the last dimension: always, or where they are told so; the others on each place.
ROWS = wordset("Linear LayerNorm RMSNorm", "torch.nn.")
ALONG = wordset("Softmax LogSoftmax Softmin GLU", "torch.nn.")  # by their argument
OTHERS = wordset("Softmax2d CosineSimilarity PairwiseDistance", "torch.nn.") | ALONG | ROWS
PLACES = ACTIVATIONS - OTHERS | {"torch.nn.Identity"}
ALONG_LAST = wordset("softmax log_softmax")
SAME = wordset(".float .double .contiguous")
DRAWN = wordset(
    "spectral_norm parametrizations.spectral_norm parametrize.register_parametrization",
    "torch.nn.utils.",
)
DEEPEST = 4
FALSE = frozenset({Const(False)})
Step = tuple[ast.expr, bool]  # what it works on; whether on the last dimension


class Rowwise:
    """``script.analysis(Rowwise)``"""

    def __init__(self, script: Script):
        self.script, self.flow = script, script.analysis(Flow)
        self._depth = 0

    def step(self, expr: ast.expr) -> Step | None:
        """The one tensor that an operation or a layer works on row by row, beside numbers; None of
        anything else.
        """
        match expr:
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.MatMult):
                if self.is_number(right):
                    return left, False
                return (right, False) if self.is_number(left) else None
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return operand, False
            case ast.Call() if not has_unpacking(expr):
                return self._called(expr)
        return None

    def is_number(self, expr: ast.expr) -> bool:
        """Whether it is a number of Python that nothing is called for."""
        found = self.script.values(expr)
        called = any_of(walk(expr), ast.Call) and const(found) is ...
        return not called and surely(isinstance(t, Arg) or are_numbers([t]) for t in found)

    def _called(self, call: ast.Call) -> Step | None:
        name, given = self.script.operation(call)
        things = self.script.called(call)
        if all_of(things, Ext, Inst) and things:
            last = [self._layer(t) for t in things]
            if len(call.args) != 1 or call.keywords or None in last:
                return None
            return call.args[0], any(last)
        named = {k.arg for k in call.keywords}
        if not name or not given or named & {"inplace", "out"} or draws(name):
            return None
        short, others = name.rpartition(".")[2], given[1:]
        if not all(map(self.is_number, others)):
            return None
        if is_pointwise(name) or name in SAME:
            return given[0], False
        if short in ALONG_LAST and [self.script.constant(e) for e in others] == [-1]:
            return given[0], True
        return None

    def _layer(self, layer: Thing) -> bool | None:
        """Whether a layer works on the last dimension; None where it does not work on each row for
        itself, or does more than to compute.
        """
        if self._is_watched:
            return None
        if isinstance(layer, Inst):
            return self._module(layer)
        assert isinstance(layer, Ext)
        name, args = layer.name, layer.args
        if name == "torch.nn.Sequential" and args.known:
            parts = [self._each(g.values) for g in args.positional]
            return None if args.named or None in parts or not parts else any(parts)
        truths = any(const(values) is True for values in args.each)  # the last may be `inplace`
        if not args.known or const(args.get(9, "inplace") or FALSE) is not False:
            return None
        if name in PLACES:
            return None if truths else False
        if name in ALONG:
            return True if const(args.get(0, "dim")) == -1 else None
        if name.endswith("Norm"):  # of several dimensions by a tuple
            sizes = args.get(0, "normalized_shape") or ()
            last = surely(isinstance(t, Arg) or are_numbers([t]) for t in sizes)
            return True if last and name in ROWS else None
        return True if name in ROWS else None

    def _each(self, values: Values) -> bool | None:
        found = [self._layer(t) if isinstance(t, (Ext, Inst)) else None for t in values]
        return None if None in found or not found else any(found)

    def _module(self, module: Inst) -> bool | None:
        """Of a module of the project whose ``forward`` returns what such layers make of its one
        argument.
        """
        codes, calls = code_of(module), self.script.analysis(CallGraph)
        if len(codes) != 1 or self._depth == DEEPEST:
            return None
        function = codes[0].function
        names, results = [p.arg for p in parameters(function)], calls.results(function)
        if len(names) != 2 or len(results) != 1:
            return None
        self._depth += 1
        last = self.chain(results[0], names[1])
        self._depth -= 1
        body = [] if isinstance(function, ast.Lambda) else function.body
        plain = (
            is_docstring(s) or isinstance(s, ast.Return) or variable_name(only_target(s))
            for s in body
        )
        return last if all(plain) else None

    def chain(self, expr: ast.expr, parameter: str) -> bool | None:
        """Whether one of the steps that lead from an expression to a parameter is on the last
        dimension; None where they lead nowhere.
        """
        last = False
        for _ in range(32):
            if self.flow.is_given(expr) and variable_name(expr) == parameter:
                return last
            value = self.flow.value(expr)
            step = (value, False) if value is not None else self.step(expr)
            if step is None:
                return None
            expr, last = step[0], last or step[1]
        return None

    @cached_property
    def _is_watched(self) -> bool:
        """Whether something counts the calls of layers: a hook, a norm that iterates in each."""
        return bool(self.script.methods(*FORWARD_HOOKS)) or bool(self.script.calls(*DRAWN))
