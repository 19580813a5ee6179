"""The lattice of means, sums and rows: what arithmetic makes of them, and what a value is that is
one of several.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofast.facts.batch.kinds import Kind, combined, elementwise, one_of
from autofast.model.source import Source
from autofast.rule import Refusal

OPERATORS = {"+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "/": ast.Div(), "@": ast.MatMult()}


@pytest.fixture
def where(tmp_path: Path) -> ast.AST:
    statement = Source(tmp_path / "train.py", "train.py", b"loss\n").tree.body[0]
    assert isinstance(statement, ast.Expr)
    return statement.value


@pytest.mark.parametrize(
    ("left", "operator", "right", "result"),
    [
        ("MEAN", "+", "MEAN", "MEAN"),
        ("MEAN", "+", "FREE", "MEAN"),  # a penalty on the weights
        ("SUM", "+", "NUMBER", "SUM"),
        ("SUM", "+", "FREE", ""),  # it would count as often as there are parts
        ("SUM", "+", "MEAN", ""),
        ("NONE", "+", "SUM", "SUM"),
        ("SUM", "/", "SIZE", "MEAN"),
        ("MEAN", "*", "SIZE", "SUM"),
        ("SIZE", "*", "MEAN", "SUM"),
        ("MEAN", "/", "SIZE", ""),
        ("SUM", "*", "SIZE", ""),
        ("NUMBER", "*", "SIZE", "SIZE"),
        ("SIZE", "+", "NUMBER", ""),
        ("NUMBER", "/", "MEAN", ""),
        ("MEAN", "/", "MEAN", ""),
        ("MEAN", "*", "MEAN", ""),
        ("ROWS", "-", "ROWS", "ROWS"),
        ("ROWS", "*", "OPAQUE", "OPAQUE"),
        ("ROWS", "*", "MEAN", ""),
        ("ROWS", "-", "COLUMN", ""),  # each row would meet each other one
        ("ROWS", "@", "FREE", "ROWS"),
        ("FREE", "@", "ROWS", "TURNED"),
        ("ROWS", "@", "ROWS", ""),
    ],
)
def test_arithmetic(where: ast.AST, left: str, operator: str, right: str, result: str) -> None:
    try:
        found = combined(OPERATORS[operator], Kind[left], Kind[right], where).name
    except Refusal:
        found = ""
    assert found == result


@pytest.mark.parametrize(
    ("kinds", "result"),
    [
        ("MEAN NUMBER", "MEAN"),
        ("NONE SUM", "SUM"),
        ("MEAN SUM", ""),
        ("MEAN FREE", "MEAN"),
        ("ROWS FREE", ""),  # its sum would be one over samples on one way only
        ("ROWS OPAQUE", "OPAQUE"),
        ("ROWS COLUMN", "COLUMN"),
        ("NONE NUMBER", "NUMBER"),
    ],
)
def test_one_of_several(where: ast.AST, kinds: str, result: str) -> None:
    try:
        found = one_of([Kind[k] for k in kinds.split()], where).name
    except Refusal:
        found = ""
    assert found == result


def test_an_operation_on_nothing(where: ast.AST) -> None:
    assert elementwise([], where) is Kind.NONE
