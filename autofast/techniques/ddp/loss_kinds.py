"""What a value is in terms of the samples of a batch, and how arithmetic joins that."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from enum import Enum

from autofast.model.source import at
from autofast.model.values import Arg, Const, Num, Thing
from autofast.rule import Refusal


class Kind(Enum):
    """What a value is in terms of the samples of a batch."""

    NUMBER = "a number that is the same in every process"
    COUNT = "the number of samples in a batch"
    SAME = "a value that only depends on parameters"
    SAMPLES = "values of each sample, the first dimension being the batch"
    TURNED = "values of each sample, the place of the batch's dimension being unknown"
    MEAN = "a mean over the batch"
    SUM = "a sum over the batch"


EACH = (Kind.SAMPLES, Kind.TURNED)
FLAT = (Kind.NUMBER, Kind.SAME)
Env = Mapping[str, Kind]


def unknown(expr: ast.AST, why: str = "") -> Refusal:
    text = ast.unparse(expr)
    text = text if len(text) <= 40 else text[:37] + "..."
    return Refusal(
        why
        or f"whether `{text}` on {at(expr)} is a mean over the samples of the batch is not known"
    )


def each(expr: ast.AST, kinds: Iterable[Kind]) -> Kind:
    """An operation on each element."""
    found = set(kinds)
    if found & {Kind.COUNT, Kind.MEAN, Kind.SUM}:
        raise unknown(expr)
    for kind in (Kind.TURNED, Kind.SAMPLES, Kind.SAME):
        if kind in found:
            return kind
    return Kind.NUMBER


def join(expr: ast.AST, kinds: list[Kind]) -> Kind:
    """One of several."""
    found = set(kinds)
    if len(found) > 1:
        found.discard(Kind.NUMBER)
    if found == {Kind.MEAN, Kind.SAME}:
        return Kind.MEAN
    if len(found) > 1 and found <= {*EACH, Kind.SAME}:
        return Kind.TURNED if Kind.TURNED in found else Kind.SAMPLES
    if len(found) != 1:
        raise unknown(expr)
    return found.pop()


def arithmetic(expr: ast.AST, op: ast.operator, a: Kind, b: Kind) -> Kind:
    if isinstance(op, ast.MatMult):
        if {a, b} & set(EACH) and {a, b} & set(FLAT):
            return a if a in EACH else b
        raise unknown(expr)
    if isinstance(op, (ast.Add, ast.Sub)):
        total = {a, b} - {Kind.NUMBER}
        if len(total) == 1 and (kind := next(iter(total))) is not Kind.COUNT:
            return kind
        if total == {Kind.MEAN, Kind.SAME}:
            return Kind.MEAN
        if total == {Kind.SUM, Kind.SAME}:
            raise unknown(
                expr,
                f"the loss on {at(expr)} adds a sum over the batch and a part that does not depend on it",
            )
        if total == {Kind.SUM, Kind.MEAN}:
            raise unknown(expr, f"the loss on {at(expr)} adds a sum over the batch and a mean")
    if isinstance(op, (ast.Mult, ast.Div)):
        left, right = a, b
        if isinstance(op, ast.Mult) and right in (Kind.MEAN, Kind.SUM):
            left, right = right, left
        if left in (Kind.MEAN, Kind.SUM):
            if right is Kind.NUMBER:
                return left
            if right is Kind.COUNT and (left is Kind.SUM) == isinstance(op, ast.Div):
                return Kind.MEAN if left is Kind.SUM else Kind.SUM
            raise unknown(expr)
    return each(expr, [a, b])


def is_plain(thing: Thing) -> bool:
    return isinstance(thing, (Const, Num, Arg))
