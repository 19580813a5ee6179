"""One lattice for what a value is of the samples of a batch, and how arithmetic and the ways
through a program bring values together.

A loss that is a mean over the samples has, in equal parts of a batch, the mean of the parts'
gradients; one that is a sum has their sum. Whatever is neither - a quotient of means, a root of a
sum - has no such factor, and is refused. Who walks through the program is another question: the
losses of one loop (:mod:`.losses`), or of all processes (``techniques/ddp/loss.py``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from enum import Enum

from autofast.model.source import at
from autofast.rule import Refusal


class Kind(Enum):
    """What a value is of the samples of a batch."""

    NONE = "nothing: None, or a sum that starts with 0"
    NUMBER = "a number that is the same for every batch"  # it has no gradient
    FREE = "a value that does not depend on the batch"  # but may on parameters
    SIZE = "the number of samples in a batch"  # or a multiple of it
    ROWS = "values of each sample, the first dimension being the batch"
    TURNED = "values of each sample, the place of the batch's dimension being unknown"
    COLUMN = "rows with a new dimension, which arithmetic would spread over the batch"
    OPAQUE = "what a model returns whose code is not followed: rows where a loss takes it as such"
    MEAN = "a mean over the batch"
    SUM = "a sum over the batch"


FREE = frozenset({Kind.NONE, Kind.NUMBER, Kind.FREE})
EACH = frozenset({Kind.ROWS, Kind.TURNED, Kind.COLUMN, Kind.OPAQUE})
REDUCED = frozenset({Kind.MEAN, Kind.SUM})


def unknown_value(node: ast.AST, why: str = "") -> Refusal:
    """A refusal, to be raised, for an expression of which nothing can be said; ``why`` where more
    is known.
    """
    return Refusal(
        why or f"how `{words(node)}` on {at(node)} depends on the samples of a batch is not known"
    )


def words(node: ast.AST) -> str:
    """A node as it is shown in a sentence."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else text[:57] + "..."


def elementwise(kinds: Iterable[Kind], where: ast.AST) -> Kind:
    """What comes out of an operation on each element. Raises :class:`Refusal` where elements of
    different samples may meet.
    """
    found = set(kinds)
    if found <= FREE:
        return next((k for k in (Kind.FREE, Kind.NUMBER) if k in found), Kind.NONE)
    found -= FREE
    if found <= EACH:
        for kind in (Kind.OPAQUE, Kind.TURNED, Kind.ROWS):
            if kind in found and Kind.COLUMN not in found:
                return kind
        if found == {Kind.COLUMN}:
            return Kind.COLUMN
    raise unknown_value(where)


def combined(op: ast.operator, left: Kind, right: Kind, where: ast.AST) -> Kind:
    """What ``left op right`` is, for the operators of Python. Raises :class:`Refusal` where it is
    neither of the kinds.
    """
    both = {left, right}
    if isinstance(op, ast.MatMult):
        if left in (Kind.ROWS, Kind.TURNED) and right in FREE:
            return left
        if right in (Kind.ROWS, Kind.TURNED) and left in FREE:
            return Kind.TURNED
        raise unknown_value(where)
    if isinstance(op, (ast.Add, ast.Sub)):
        if Kind.NONE in both:
            return right if left is Kind.NONE else left
        added = both - {Kind.NUMBER}
        if len(added) == 1 and not added & {Kind.SIZE, Kind.COLUMN}:
            return added.pop()
        if added == {Kind.MEAN, Kind.FREE}:
            return Kind.MEAN
        if added == {Kind.SUM, Kind.FREE}:
            what = "a part that does not depend on it"
            raise unknown_value(
                where, f"the loss on {at(where)} adds a sum over the batch and {what}"
            )
        if added == {Kind.SUM, Kind.MEAN}:
            raise unknown_value(
                where, f"the loss on {at(where)} adds a sum over the batch and a mean"
            )
    if isinstance(op, ast.Mult) and right in REDUCED | {Kind.SIZE} and left not in REDUCED:
        left, right = right, left
    if isinstance(op, (ast.Mult, ast.Div)) and left in REDUCED:
        if right in FREE:
            return left
        if right is Kind.SIZE and (left is Kind.SUM) == isinstance(op, ast.Div):
            return Kind.MEAN if left is Kind.SUM else Kind.SUM
    if isinstance(op, (ast.Mult, ast.Div)) and left is Kind.SIZE and right in FREE:
        return Kind.SIZE
    return elementwise(both, where)


def one_of(kinds: Iterable[Kind], where: ast.AST) -> Kind:
    """What a value is that is one of these, depending on the way that the program takes. Raises
    :class:`Refusal` where that is not one kind.
    """
    found = set(kinds)
    for without_gradient in (Kind.NONE, Kind.NUMBER):
        if len(found) > 1:
            found.discard(without_gradient)
    if found == {Kind.MEAN, Kind.FREE}:
        return Kind.MEAN
    if len(found) > 1 and found <= EACH:
        return elementwise(found, where) if Kind.COLUMN not in found else Kind.COLUMN
    if len(found) != 1:
        raise unknown_value(where)
    return found.pop()
