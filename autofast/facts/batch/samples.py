"""What values are of the samples of a batch: the arithmetic of it, and words for what is not known."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from autofast.facts.batch.losses_of_torch import LAYERS
from autofast.flow.graph import Function
from autofast.model.script import Script
from autofast.model.source import at, function_of, source_of
from autofast.model.values import Arg, Const, Dict, Ext, Num, Seq, Tensor, Thing
from autofast.rule import Refusal


class Kind(Enum):
    """What a value is of the samples of a batch."""

    ROWS = "a value, or several, for each sample"
    COLUMN = "rows with a new dimension, which arithmetic would spread over the batch"
    OPAQUE = "what a model returns whose code is not followed: rows where a loss takes it as such"
    MEAN = "the mean over the samples"
    SUM = "the sum over the samples"
    FREE = "the same for every batch"
    SIZE = "the number of samples"
    NONE = "nothing: None, or a sum that starts with 0"


Shape = Kind | tuple["Shape", ...]
ROWS = (Kind.ROWS, Kind.COLUMN, Kind.OPAQUE)


@dataclass(eq=False)
class Activation:
    """One run of a function while a batch is trained on.

    Attributes:
        given: what its parameters are.
        loop: the loop over batches, where it stands in this function; then only what is defined in the iteration of a batch counts.
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
        """It has nothing to do with the batch: numbers of the configuration, and what is made of parameters only."""
        found = self.script.values(expr)
        if found and all(isinstance(t, Num) for t in found):
            if isinstance(expr, ast.Name):
                return expr.id not in source_of(expr).rebound and not any(
                    t.synced for t in found if isinstance(t, Num)
                )
            return isinstance(expr, ast.Attribute) and not is_set_later(self.script, expr.attr)
        return bool(found) and all(
            isinstance(t, (Const, Arg))
            or (isinstance(t, Tensor) and bool(t.param) and not t.batch and not t.models)
            for t in found
        )

    def _all_free(self, given: list[ast.expr], run: Activation) -> bool:
        return all(self.shape(a, run) in (Kind.FREE, Kind.NONE) for a in given)

    def _container(self, expr: ast.expr) -> bool:
        """A tuple, list or dict and no tensor."""
        found = self.script.values(expr)
        return bool(found) and all(isinstance(t, (Seq, Dict)) for t in found)

    def _combined(self, op: ast.operator, left: Shape, right: Shape, where: ast.AST) -> Shape:
        if isinstance(left, tuple) or isinstance(right, tuple):
            raise unknown(where)
        both = {left, right}
        if isinstance(op, (ast.Add, ast.Sub)) and Kind.NONE in both:
            return right if left is Kind.NONE else left
        both = {Kind.FREE if k is Kind.NONE else k for k in both}
        left, right = (Kind.FREE if k is Kind.NONE else k for k in (left, right))
        if both == {Kind.FREE}:
            return Kind.FREE
        if both <= {Kind.ROWS, Kind.FREE} and not isinstance(op, ast.MatMult):
            return Kind.ROWS
        if (
            both == {Kind.OPAQUE, Kind.ROWS}
            or both == {Kind.OPAQUE, Kind.FREE}
            or both == {Kind.OPAQUE}
        ):
            if not isinstance(op, ast.MatMult):
                return Kind.OPAQUE
        if both == {Kind.COLUMN, Kind.FREE} and not isinstance(op, ast.MatMult):
            return Kind.COLUMN
        if isinstance(op, (ast.Add, ast.Sub)):
            if both in ({Kind.MEAN}, {Kind.MEAN, Kind.FREE}):
                return Kind.MEAN
            if both == {Kind.SUM}:
                return Kind.SUM
            if both & {Kind.SUM} and both & {Kind.MEAN, Kind.FREE}:
                raise Refusal(
                    f"the loss on {at(where)} adds a sum over the samples and something that is none"
                )
        if isinstance(op, ast.Mult):
            if both in ({Kind.MEAN, Kind.FREE}, {Kind.SUM, Kind.FREE}):
                return Kind.MEAN if Kind.MEAN in both else Kind.SUM
            if both == {Kind.MEAN, Kind.SIZE}:
                return Kind.SUM
        if isinstance(op, ast.Div):
            if (left, right) == (Kind.SUM, Kind.SIZE):
                return Kind.MEAN
            if (left, right) == (Kind.MEAN, Kind.FREE):
                return Kind.MEAN
            if (left, right) == (Kind.SUM, Kind.FREE):
                if self.whole:
                    return Kind.SUM
                raise Refusal(
                    f"the sum on {at(where)} is divided by a number: whether that is the size of the batch is not known"
                )
        raise unknown(where)


def unknown(node: ast.AST) -> Refusal:
    return Refusal(
        f"how `{words(node)}` on {at(node)} depends on the samples of a batch is not known"
    )


def weighted(name: str, node: ast.AST) -> str:
    if name == "ignore_index":
        return f"the loss on {at(node)} has `ignore_index`: its mean is over the targets that are left, of which batches have different numbers"
    if name == "weight":
        return f"the loss on {at(node)} has `weight`: its mean is over the weights of the targets, which differ from batch to batch"
    return f"what `{name}` of the loss on {at(node)} does to its mean is not known"


def words(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def joined(kinds: list[Shape], where: ast.AST) -> Shape:
    """The one thing that all of these are."""
    tuples = [k for k in kinds if isinstance(k, tuple)]
    if tuples:
        if len(tuples) != len(kinds) or len({len(t) for t in tuples}) != 1:
            raise unknown(where)
        return tuple(joined([t[n] for t in tuples], where) for n in range(len(tuples[0])))
    found = {k for k in kinds if k is not Kind.NONE}
    if not found:
        return Kind.NONE
    if found == {Kind.ROWS, Kind.OPAQUE}:
        return Kind.OPAQUE
    if found == {Kind.ROWS, Kind.COLUMN}:
        return Kind.COLUMN
    if len(found) != 1:
        raise unknown(where)
    return found.pop()


def is_set_later(script: Script, attribute: str) -> bool:
    """An attribute of this name is set somewhere but where objects are made."""
    for node in script.each(ast.Attribute):
        if node.attr == attribute and isinstance(node.ctx, ast.Store):
            if getattr(function_of(node), "name", "") != "__init__":
                return True
    return False


def skipped(script: Script) -> ast.AST | None:
    """A place that writes -100, which the losses of classes leave out."""
    for node in script.each(ast.UnaryOp):
        if (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and node.operand.value == 100
        ):
            return node
    return None


def is_layer(thing: Thing) -> bool:
    return (
        isinstance(thing, Ext)
        and thing.name.startswith("torch.nn.")
        and thing.name.rsplit(".", 1)[-1] in LAYERS
    )


def is_all(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Slice)
        and node.lower is None
        and node.upper is None
        and node.step is None
    ) or (isinstance(node, ast.Constant) and node.value is Ellipsis)
