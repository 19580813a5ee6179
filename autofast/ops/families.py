"""Families of torch's layers and of tensors' methods that several questions are about; what each
asks is in its own words.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

RECURRENT = ("LSTM", "GRU", "RNN")  # layers that go through a sequence; cuDNN's own kernels
CELLS = frozenset({"LSTMCell", "GRUCell", "RNNCell"})  # one step of such a layer
PAIRED = (*RECURRENT, "MultiheadAttention")  # layers that give a result and something beside it
OF_SEQUENCES = (*PAIRED, "Transformer")

# The same elements in the same order, or seen along other dimensions.
REGROUPING = frozenset(
    "view reshape flatten unsqueeze squeeze permute transpose contiguous".split()
)
# Truths, place by place.
TRUTHS = frozenset("eq ne gt ge lt le logical_and logical_or logical_not".split())
# Python's operators, and the methods that do the same.
SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
COMBINES: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda one, among: one in among,
    ast.NotIn: lambda one, among: one not in among,
}
