"""What an array in memory holds, where the code that makes it goes round in circles."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofast.facts import arrays
from autofast.read import read_script

STEPS = 14
TEXT = f"""
import numpy as np


class Rows:
    def __init__(self):
        self.labels = np.zeros(8)
{"".join(f"        self.labels = self.labels[{n}:]{chr(10)}" for n in range(STEPS))}

rows = Rows()
print(rows.labels, np.ones(3)[1:])
"""


def test_each_expression_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attribute that is made of itself at several places: each way through them would be
    another.
    """
    entry = tmp_path / "train.py"
    entry.write_text(TEXT)
    script = read_script(entry, tmp_path)
    asked: list[ast.expr] = []
    real = arrays._array_of

    def counted(script, expr):  # type: ignore[no-untyped-def]
        asked.append(expr)
        return real(script, expr)

    monkeypatch.setattr(arrays, "_array_of", counted)
    (shown,) = (n for n in script.entry.each(ast.Call) if ast.unparse(n.func) == "print")
    labels, ones = shown.args
    assert arrays.array_of(script, labels) is None, "what it has been is not known for certain"
    assert len(asked) == len({id(e) for e in asked}) >= STEPS
    array = arrays.array_of(script, ones)
    assert array is not None and array.rank == 1
