"""Families of torch's layers and of tensors' methods that several questions are about; what each
asks is in its own words.
"""

from __future__ import annotations

import ast

RECURRENT = ("LSTM", "GRU", "RNN")  # layers that go through a sequence; cuDNN's own kernels
CELLS = frozenset({"LSTMCell", "GRUCell", "RNNCell"})  # one step of such a layer
PAIRED = (*RECURRENT, "MultiheadAttention")  # layers that give a result and something beside it
OF_SEQUENCES = (*PAIRED, "Transformer")

# The same elements in the same order, or seen along other dimensions.
REGROUPING = frozenset(
    "view reshape flatten unsqueeze squeeze permute transpose contiguous".split()
)
# Python's operators, and the methods that do the same.
SIGNS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
