"""Whether a loss is a mean or a sum over the samples of a batch, which decides what averaged
gradients mean.

DistributedDataParallel averages gradients over processes. For a mean over equal parts that is the
gradient of the mean over all; for a sum it is too small by the number of processes. A loss that is
neither - a quotient of sums, a root of a mean, a sum with a part that does not depend on the
samples, anything that compares the samples of a batch with each other - has no such factor, and is
refused.

The loss is followed backwards from ``backward()`` as :mod:`autofast.facts.batch` does; here, a
batch is whatever the reader knows to be one, and of models it is asked whether they treat the
samples one by one (:mod:`.samples`).
"""

from __future__ import annotations

import ast

from autofast.facts.batch.kinds import EACH, Kind, elementwise, unknown_value, words
from autofast.facts.batch.losses import Losses
from autofast.facts.batch.losses_of_torch import Loss as KnownLoss
from autofast.facts.batch.samples import Activation, Shape
from autofast.flow.callgraph import code_of
from autofast.flow.defuse import Definition
from autofast.flow.effects import is_number
from autofast.model.calls import unstarred
from autofast.model.kinds import is_loss, is_module
from autofast.model.names import last_part
from autofast.model.roles import Backward
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import ByNode, at, function_of, nodes_in, parent_of
from autofast.model.syntax import TAKERS
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Const,
    Dict,
    Ext,
    Inst,
    Num,
    Seq,
    Tensor,
    Thing,
    any_of,
    are_parameters,
    is_weight,
    of_kind,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.samples import REDUCTIONS, TURNS, check_forward, first_dim, is_apart

SHAPES = wordset(
    "view reshape flatten squeeze unsqueeze view_as contiguous detach clone to float double half long int bool cuda cpu type type_as "
    "expand expand_as unflatten narrow chunk split repeat_interleave requires_grad_ data"
)
JOINING = wordset("cat stack concat")
RANDOM = wordset("randn rand randint normal bernoulli randn_like rand_like randint_like poisson")
CONSTANT = wordset(
    "zeros ones full empty zeros_like ones_like full_like arange linspace tensor as_tensor eye"
)
REDUCTION = {Kind.MEAN: "mean", Kind.SUM: "sum"}


class Loss(Losses):
    """Follows the losses of a script."""

    def __init__(self, script: Script):
        super().__init__(script, whole=True)
        self._turned: dict[int, bool] = {}
        self._runs: ByNode[Activation] = {}
        self.weights: list[ast.expr] = []  # parameters that it is made of beside what models give

    def reduction(self, backward: Backward) -> str:
        """``mean`` or ``sum``; raises :class:`Refusal`."""
        kind = self.shape(backward.expr, self._run(backward.expr))
        if not isinstance(kind, Kind):
            raise unknown_value(backward.expr)
        if kind not in REDUCTION:
            raise Refusal(
                f"the loss on {at(backward)} is {kind.value}: whether its gradient is averaged or added up is not known"
            )
        return REDUCTION[kind]

    def _run(self, expr: ast.expr) -> Activation:
        function = function_of(expr)
        return self._runs.setdefault(function, Activation(function))

    # ---------------------------------------------------------------------------------- expressions
    def _shape(self, expr: ast.expr, run: Activation) -> Shape:
        if isinstance(expr, ast.Constant):
            return Kind.NUMBER
        if is_number(self.script.values(expr)):
            return self._number(expr, run)
        if isinstance(expr, ast.UnaryOp):
            return self.shape(expr.operand, run)
        if any(is_weight(t) or are_parameters(t) for t in self.script.values(expr)):
            self.weights.append(expr)
        found = super()._shape(expr, run)
        return Kind.ROWS if found is Kind.COLUMN else found  # what it meets is one, too, as a rule

    def _number(self, expr: ast.expr, run: Activation) -> Kind:
        """A Python number: of the batch's size, or the same everywhere."""
        for node in ast.walk(expr):
            if isinstance(node, (ast.Name, ast.Attribute, ast.Call)):
                for thing in self.script.values(node):
                    if isinstance(thing, Num) and thing.synced is not None:
                        raise unknown_value(
                            expr,
                            f"`{ast.unparse(expr)}` on {at(expr)} is read from a tensor: each process has another",
                        )
        return self._counted(expr, run)

    def _counted(self, expr: ast.expr, run: Activation) -> Kind:
        """``SIZE`` for a number that is the batch's size or a multiple of it, else ``NUMBER``;
        raises :class:`Refusal` where it is made of one otherwise.
        """
        match expr:
            case ast.Call() | ast.Attribute() | ast.Subscript():
                try:
                    found = super()._shape(expr, run)
                except Refusal:
                    parts = (n for n in nodes_in(expr, ast.expr) if n is not expr)
                    if any(self._is_size(n, run) for n in parts):
                        raise
                    return Kind.NUMBER
            case ast.Name() | ast.BinOp() | ast.IfExp() | ast.NamedExpr():
                found = super()._shape(expr, run)
            case _:
                return Kind.NUMBER
        return Kind.SIZE if found is Kind.SIZE else Kind.NUMBER

    def _from_outside(self, expr: ast.Name) -> Kind:
        return self._by_values(expr)

    def _defined(self, definition: Definition, expr: ast.Name, run: Activation) -> Shape:
        try:
            return super()._defined(definition, expr, run)
        except Refusal:
            if _is_target(definition.node):
                return self._by_values(expr)
            raise

    def _by_values(self, expr: ast.expr) -> Kind:
        """What the reader knows of a value that comes from elsewhere."""
        found = self.script.values(expr)
        if is_number(found):
            return Kind.NUMBER
        tensors = tensors_in(found)
        if not tensors or any(not isinstance(t, (Tensor, Seq, Dict, Const)) for t in found):
            raise unknown_value(expr)
        if all(t.param for t in tensors):
            return Kind.FREE
        if all(t.batch and not t.models and not t.loss for t in tensors):
            return Kind.ROWS
        raise unknown_value(expr)

    def _attribute(self, expr: ast.Attribute, run: Activation) -> Shape:
        if expr.attr in ("T", "mT"):
            inner = self.shape(expr.value, run)
            return Kind.TURNED if inner in EACH else inner
        try:
            return super()._attribute(expr, run)
        except Refusal:
            return self._by_values(expr)

    def _subscript(self, expr: ast.Subscript, run: Activation) -> Shape:
        try:
            return super()._subscript(expr, run)
        except Refusal:
            if self.shape(expr.value, run) not in EACH:
                raise
        raise unknown_value(
            expr,
            f"`{words(expr)}` on {at(expr)} picks some of the samples: how many may differ between processes",
        )

    # ---------------------------------------------------------------------------------------- calls
    def _loss(self, known: KnownLoss, made: Ext | None, expr: ast.Call, run: Activation) -> Shape:
        kind = super()._loss(known, made, expr, run)
        return Kind.TURNED if kind is Kind.ROWS else kind  # one number for each sample, or more

    def _module(self, callee: Thing, expr: ast.Call, run: Activation) -> Shape:
        if is_loss(callee) or (isinstance(callee, Inst) and _has_no_layers(callee)):
            forward = code_of(callee)
            if len(forward) != 1:
                return super()._module(callee, expr, run)
            return self._inline(forward[0], expr, run)
        kind = self._given(expr, run)
        return Kind.TURNED if self._output(callee, expr) is Kind.TURNED and kind in EACH else kind

    def _given(self, expr: ast.Call, run: Activation) -> Kind:
        """What the arguments of a model are, together."""
        given = [unstarred(a) for a in expr.args]
        kinds = [self.shape(g, run) for g in (*given, *(k.value for k in expr.keywords))]
        flat = [k for kind in kinds for k in (kind if isinstance(kind, tuple) else (kind,))]
        if any_of(flat, tuple):
            raise unknown_value(expr)
        kind = elementwise(of_kind(flat, Kind), expr)
        return kind if kind is Kind.TURNED else Kind.ROWS

    def _output(self, model: Thing, expr: ast.Call) -> Kind:
        if id(model) not in self._turned:
            self._turned[id(model)] = check_forward(self.script, model)
        return Kind.TURNED if self._turned[id(model)] else Kind.ROWS

    def _function(self, name: str, expr: ast.Call, run: Activation) -> Shape:
        short = last_part(name)
        if name == "builtins.sum" and len(expr.args) == 1:
            match expr.args[0]:
                case (
                    ast.GeneratorExp(elt=added, generators=[_])
                    | ast.ListComp(elt=added, generators=[_])
                ):
                    return self.shape(added, run)
        if name.startswith("torch.") and name.count(".") == 1:
            if short in RANDOM:
                return Kind.ROWS
            if short in CONSTANT:
                return Kind.NUMBER
        return super()._function(name, expr, run)

    def _on_rows(
        self, name: str, kind: Kind, args: list[ast.expr], expr: ast.Call, run: Activation
    ) -> Shape:
        try:
            return super()._on_rows(name, kind, args, expr, run)
        except Refusal as why:
            if (found := self._looser(name, kind, args, expr, run)) is None:
                raise why from None
            return found

    def _unlisted(
        self, name: str, kind: Shape, args: list[ast.expr], expr: ast.Call, run: Activation
    ) -> Shape:
        if (found := self._looser(name, kind, args, expr, run)) is None:
            raise unknown_value(expr)
        return found

    def _looser(
        self, name: str, kind: Shape, args: list[ast.expr], expr: ast.Call, run: Activation
    ) -> Kind | None:
        """An operation that keeps the samples apart, wherever it puts their dimension: as much is
        needed for a mean or a sum over all of it.
        """
        others = [self.shape(a, run) for a in args if tensors_in(self.script.values(a))]
        flat = [
            k
            for found in (kind, *others)
            for k in (found if isinstance(found, tuple) else (found,))
        ]
        kinds = of_kind(flat, Kind)
        if len(kinds) < len(flat):
            return None
        if name in SHAPES | TURNS | JOINING and kinds and kinds[0] in EACH:
            return Kind.TURNED
        if is_apart(name):
            return elementwise(kinds, expr)
        if name in REDUCTIONS and kind is Kind.ROWS and first_dim(self.script, expr, args) is False:
            return Kind.ROWS
        return None


def _is_target(node: ast.AST) -> bool:
    """The target of a loop, or a part of it."""
    while isinstance(outer := parent_of(node), (ast.Tuple, ast.List, ast.Starred)):
        node = outer
    return isinstance(outer, TAKERS)


def _has_no_layers(module: Inst) -> bool:
    """A module without parameters: a loss of the project's."""
    return not any(
        (is_module(t) and not is_loss(t)) or (isinstance(t, Tensor) and t.param)
        for found in module.attrs.values()
        for t in found
    )
