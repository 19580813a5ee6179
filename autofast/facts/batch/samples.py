"""What :class:`~autofast.facts.batch.losses.Losses` knows of a value without looking at how it is
computed, and of a run of a function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from autofast.facts.batch.kinds import FREE, Kind, combined, one_of, unknown_value
from autofast.facts.batch.losses_of_torch import LAYERS
from autofast.flow.graph import Function
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import surely
from autofast.model.source import at, function_of, source_of
from autofast.model.syntax import is_stored
from autofast.model.values import (
    Arg,
    Const,
    Dict,
    Ext,
    Num,
    Seq,
    Tensor,
    Thing,
    begins,
    certainly,
    of_kind,
)
from autofast.rule import Refusal

Shape = Kind | tuple["Shape", ...]


@dataclass(eq=False)
class Activation:
    """One run of a function while a batch is trained on.

    Attributes:
        given: what its parameters are.
        loop: the loop over batches, where it stands in this function; then only what is defined in
            the iteration of a batch counts.
        batch: the loop's variables that hold the batch.
        local: variables of the comprehensions around.
    """

    function: Function
    given: Mapping[str, Callable[[], Shape]] = field(default_factory=dict)
    loop: ast.For | None = None
    batch: frozenset[str] = frozenset()
    local: Mapping[str, Kind] = field(default_factory=dict)


class Shapes:
    """``whole``: batches may become smaller, so that nothing may depend on their size."""

    def __init__(self, script: Script, whole: bool):
        self.script, self.whole = script, whole

    def shape(self, expr: ast.expr, run: Activation) -> Shape:
        """What an expression is; raises :class:`Refusal` where that is not known."""
        raise NotImplementedError

    def _is_free(self, expr: ast.expr) -> bool:
        """It has nothing to do with the batch: numbers of the configuration, and what is made of
        parameters only.
        """
        found = self.script.values(expr)
        if certainly(found, Num):
            if isinstance(expr, ast.Name):
                return expr.id not in source_of(expr).rebound and not any(
                    t.synced for t in found if isinstance(t, Num)
                )
            return isinstance(expr, ast.Attribute) and not is_set_later(self.script, expr.attr)
        return surely(
            isinstance(t, (Const, Arg))
            or (isinstance(t, Tensor) and bool(t.param) and not t.batch and not t.models)
            for t in found
        )

    def _all_free(self, given: list[ast.expr], run: Activation) -> bool:
        return all(self.shape(a, run) in FREE for a in given)

    def _container(self, expr: ast.expr) -> bool:
        """A tuple, list or dict and no tensor."""
        return self.script.must_be(expr, Seq, Dict)

    def _combined(self, op: ast.operator, left: Shape, right: Shape, where: ast.AST) -> Shape:
        if isinstance(left, tuple) or isinstance(right, tuple):
            raise unknown_value(where)
        if isinstance(op, ast.Div) and left is Kind.SUM and right in FREE and not self.whole:
            raise Refusal(
                f"the sum on {at(where)} is divided by a number: whether that is the size of the batch is not known"
            )
        return combined(op, left, right, where)


def why_not_per_sample(name: str, node: ast.AST) -> str:
    """Why a loss with this option is neither a mean nor a sum over samples."""
    if name == "ignore_index":
        return f"the loss on {at(node)} has `ignore_index`: its mean is over the targets that are left, of which batches have different numbers"
    if name == "weight":
        return f"the loss on {at(node)} has `weight`: its mean is over the weights of the targets, which differ from batch to batch"
    return f"what `{name}` of the loss on {at(node)} does to its mean is not known"


def joined(kinds: list[Shape], where: ast.AST) -> Shape:
    """The one thing that all of these are."""
    tuples = of_kind(kinds, tuple)
    if tuples:
        if len(tuples) != len(kinds) or len({len(t) for t in tuples}) != 1:
            raise unknown_value(where)
        return tuple(joined([t[n] for t in tuples], where) for n in range(len(tuples[0])))
    return one_of((k for k in kinds if not isinstance(k, tuple)), where)


def is_set_later(script: Script, attribute: str) -> bool:
    """An attribute of this name is set somewhere but where objects are made."""
    for node in script.each(ast.Attribute):
        if node.attr == attribute and is_stored(node):
            if getattr(function_of(node), "name", "") != "__init__":
                return True
    return False


def ignored_label(script: Script) -> ast.AST | None:
    """A place that writes -100, which the losses of classes leave out."""
    for node in script.each(ast.UnaryOp):
        if (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and node.operand.value == 100
        ):
            return node
    return None


def is_layer(thing: Thing, among: Collection[str] = LAYERS) -> bool:
    return begins(thing, Ext, "torch.nn.") and last_part(thing.name) in among


def is_all(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Slice)
        and node.lower is None
        and node.upper is None
        and node.step is None
    ) or (isinstance(node, ast.Constant) and node.value is Ellipsis)
