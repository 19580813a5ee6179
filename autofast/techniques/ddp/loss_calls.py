"""What a call gives, in terms of the samples of a batch: losses, models, operations of torch, functions of the project."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import reduce

from autofast.facts.batch.kinds import EACH, FREE, Kind, each, one_of, unknown
from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.scopes import own_nodes, parameters
from autofast.model.kinds import is_loss, is_module
from autofast.model.names import FUNCTIONAL_LOSSES
from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Arg,
    Bound,
    Const,
    Ext,
    Func,
    Given,
    Inst,
    Method,
    Num,
    Ref,
    Tensor,
    Thing,
    const,
)
from autofast.techniques.ddp.samples import ELEMENTWISE, REDUCTIONS, TURNS, check_forward, first_dim

FUNCTIONAL = "torch.nn.functional."
SHAPES = frozenset(
    "view reshape flatten squeeze unsqueeze view_as contiguous detach clone to float double half long int bool cuda cpu type type_as "
    "expand expand_as unflatten narrow chunk split repeat_interleave requires_grad_ data".split()
)
RANDOM = frozenset(
    "randn rand randint normal bernoulli randn_like rand_like randint_like poisson".split()
)
CONSTANT = frozenset(
    "zeros ones full empty zeros_like ones_like full_like arange linspace tensor as_tensor eye".split()
)
Env = Mapping[str, Kind]  # of the parameters of a function
# Their mean is one over the weights of the targets.
WEIGHTED = frozenset({"cross_entropy", "nll_loss"})
PLAIN_NUMBERS = frozenset(
    f"builtins.{n}" for n in ("float", "int", "abs", "max", "min", "round", "pow")
)


class LossCalls:
    """The calls of :class:`~autofast.techniques.ddp.loss.Loss`, which says what an expression is."""

    script: Script
    calls: CallGraph
    _checked: dict[int, bool]

    def kind(self, expr: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        raise NotImplementedError

    def _call(self, call: ast.Call, scope: ast.AST | None, env: Env) -> Kind:
        callees = self.script.values(call.func)
        if len(callees) != 1:
            kinds = [self._of(call, t, scope, env) for t in callees]
            if not kinds:
                raise unknown(call)
            return one_of(kinds, call)
        return self._of(call, next(iter(callees)), scope, env)

    def _of(self, call: ast.Call, callee: Thing, scope: ast.AST | None, env: Env) -> Kind:
        if is_loss(callee) and isinstance(callee, Ext):
            short = callee.name.rsplit(".", 1)[-1]
            return self._loss(
                call,
                _functional(short),
                dict(callee.args.named),
                bool(callee.args.positional),
                scope,
                env,
            )
        if is_module(callee):
            return self._module(call, callee, scope, env)
        if isinstance(callee, Ref):
            return self._library(call, callee.name, scope, env)
        if isinstance(callee, Method):
            return self._method(call, callee.name, scope, env)
        if isinstance(callee, (Func, Bound)):
            return self._function(call, code_of(callee)[0], scope, env)
        raise unknown(call)

    def _loss(
        self,
        call: ast.Call,
        name: str,
        named: Mapping[str, Given],
        positional: bool,
        scope: ast.AST | None,
        env: Env,
    ) -> Kind:
        """A loss function of torch."""
        tensors = [self.kind(a, scope, env) for a in call.args[:3]]
        if not any(k in EACH for k in tensors) or any(
            k not in (*EACH, Kind.NUMBER) for k in tensors
        ):
            raise unknown(call)
        reduction = named.get("reduction")
        how = "mean" if reduction is None else const(reduction.values)
        if (
            positional
            or {"reduce", "size_average"} & named.keys()
            or how not in ("mean", "sum", "none", "batchmean")
        ):
            raise unknown(call, f"how the loss on {at(call)} is reduced is not known")
        if how == "none":
            return Kind.TURNED
        if how == "sum":
            return Kind.SUM
        for weight in ("weight", "ignore_index"):
            if name in WEIGHTED and weight in named and const(named[weight].values) is not None:
                raise unknown(
                    call,
                    f"the loss on {at(call)} is a mean over the `{weight}` of the targets, of which each process has others: "
                    "the mean of the processes' means is another number",
                )
        return Kind.MEAN

    def _module(self, call: ast.Call, callee: Thing, scope: ast.AST | None, env: Env) -> Kind:
        given = [
            self.kind(a.value if isinstance(a, ast.Starred) else a, scope, env)
            for a in (*call.args, *(k.value for k in call.keywords))
        ]
        if is_loss(callee) or (isinstance(callee, Inst) and self._reduces(callee)):
            forward = code_of(callee)
            if len(forward) != 1:
                raise unknown(call)
            return self._function(call, forward[0], scope, env)
        kind = each(given, call)
        if id(callee) not in self._checked:
            self._checked[id(callee)] = check_forward(self.script, callee)
        turned = self._checked[id(callee)]
        return (
            Kind.TURNED
            if turned and kind in EACH
            else Kind.ROWS
            if kind is not Kind.TURNED
            else kind
        )

    def _reduces(self, callee: Inst) -> bool:
        """A module without parameters: a loss of the project's."""
        return not any(
            is_module(t) and not is_loss(t) or isinstance(t, Tensor) and t.param
            for v in callee.attrs.values()
            for t in v
        )

    def _library(self, call: ast.Call, name: str, scope: ast.AST | None, env: Env) -> Kind:
        short = name.rsplit(".", 1)[-1]
        if name.startswith(FUNCTIONAL) and short in FUNCTIONAL_LOSSES:
            named = {
                k.arg: Given(self.script.values(k.value), k.value)
                for k in call.keywords
                if k.arg is not None
            }
            if any(k.arg is None for k in call.keywords):
                raise unknown(call)
            return self._loss(
                call,
                short,
                named,
                len(call.args) > 2 and short != "triplet_margin_loss",
                scope,
                env,
            )
        if name == "builtins.sum" and len(call.args) == 1:
            return self._sum(call, call.args[0], scope, env)
        if name in PLAIN_NUMBERS or name == "builtins.len":
            return each([self.kind(a, scope, env) for a in call.args], call)
        if not name.startswith("torch."):
            raise unknown(call)
        if short in RANDOM and name.count(".") == 1:
            return Kind.ROWS
        if short in CONSTANT and name.count(".") == 1:
            return Kind.NUMBER
        kinds = [self.kind(a, scope, env) for a in call.args[:1]]
        rest = [
            self.kind(a, scope, env) for a in call.args[1:] if tensors_in(self.script.values(a))
        ]
        return self._operation(call, short, call.args[1:], [*kinds, *rest])

    def _method(self, call: ast.Call, name: str, scope: ast.AST | None, env: Env) -> Kind:
        assert isinstance(call.func, ast.Attribute)
        kinds = [self.kind(call.func.value, scope, env)]
        kinds += [self.kind(a, scope, env) for a in call.args if tensors_in(self.script.values(a))]
        return self._operation(call, name, call.args, kinds)

    def _operation(
        self, call: ast.Call, name: str, arguments: list[ast.expr], kinds: list[Kind]
    ) -> Kind:
        """An operation of torch on what is given first; ``arguments`` are the others."""
        first = kinds[0] if kinds else Kind.NUMBER
        if set(kinds) <= {*FREE}:
            return Kind.FREE if Kind.FREE in kinds else Kind.NUMBER
        if name in ("mean", "sum") and len(kinds) == 1:
            dims = first_dim(self.script, call, arguments)
            if first in (Kind.MEAN, Kind.SUM) and dims is None:
                return first
            if first in EACH and dims is None:
                return Kind.MEAN if name == "mean" else Kind.SUM
            if first is Kind.ROWS and dims is False:
                return Kind.ROWS
            raise unknown(call)
        if name in SHAPES and (
            first not in (Kind.MEAN, Kind.SUM)
            or name in ("squeeze", "view", "reshape", "to", "float", "contiguous", "clone")
        ):
            return first
        if name in TURNS and first in EACH:
            return Kind.TURNED
        if name in ("cat", "stack", "concat") and first in EACH:
            return Kind.TURNED
        if name in ELEMENTWISE:
            return each(kinds, call)
        if (
            name in REDUCTIONS
            and first is Kind.ROWS
            and first_dim(self.script, call, arguments) is False
        ):
            return Kind.ROWS
        raise unknown(call)

    def _sum(self, call: ast.Call, over: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        """``sum(losses)``"""
        if isinstance(over, (ast.GeneratorExp, ast.ListComp)) and len(over.generators) == 1:
            kind = self.kind(over.elt, scope, env)
        else:
            kind = self.kind(over, scope, env)
        if kind in (Kind.MEAN, Kind.SUM, Kind.FREE, Kind.NUMBER):
            return kind
        raise unknown(call)

    def _function(
        self,
        call: ast.Call,
        callee: Callee,
        scope: ast.AST | None,
        env: Env,
        part: int | None = None,
    ) -> Kind:
        """A function of the project: what it returns with these arguments, or one part of that."""
        node = callee.function
        inner: dict[str, Kind] = {}
        given: set[int] = set()
        for parameter in parameters(node):
            value = self.calls.argument(call, callee, parameter.arg)
            if value is None and not self.calls.leaves_default(call, callee, parameter.arg):
                raise unknown(call)
            given.add(id(value))
            inner[parameter.arg] = (
                self._argument(value, scope, env) if value is not None else Kind.NUMBER
            )
        if any(id(a) not in given for a in call.args):  # they go to `*args`
            raise unknown(call)
        reached = [r for r in self.calls.results(node) if self.script.reached(r)]
        if not reached or any(isinstance(n, (ast.Yield, ast.YieldFrom)) for n in own_nodes(node)):
            raise unknown(call)
        if part is not None and all(
            isinstance(r, ast.Tuple) and len(r.elts) > part for r in reached
        ):
            reached = [r.elts[part] for r in reached if isinstance(r, ast.Tuple)]
        return reduce(
            lambda a, b: one_of([a, b], call), (self.kind(r, node, inner) for r in reached)
        )

    def _argument(self, value: ast.expr, scope: ast.AST | None, env: Env) -> Kind:
        found = self.script.values(value)
        if found and not tensors_in(found) and not all(is_plain(t) for t in found):
            # A module, a function, options: what they do is seen where they are used.
            return Kind.NUMBER
        return self.kind(value, scope, env)


def _functional(cls: str) -> str:
    return {
        "CrossEntropyLoss": "cross_entropy",
        "NLLLoss": "nll_loss",
        "NLLLoss2d": "nll_loss",
    }.get(cls, cls)


def is_plain(thing: Thing) -> bool:
    """A constant, a number or an option: nothing that a gradient flows through."""
    return isinstance(thing, (Arg, Const, Num))
