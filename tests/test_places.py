"""Places in what is said of a script: a line of the same file, of another one, of a notebook's
cell.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autofast.commands.checking import Request, check
from autofast.config import Config

DATA = """\
import torch
from torch.utils.data import Dataset


class Rows(Dataset):
    def __init__(self):
        self.x = torch.randn(30, 4)

    def __len__(self):
        return 30

    def __getitem__(self, i):
        print(i)
        return self.x[i]
"""
TRAIN = """\
from torch import nn
from torch.utils.data import DataLoader

loader = DataLoader(Rows(), batch_size=8)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""


def reasons(entry: Path) -> set[str]:
    answer = check(Request((entry,), entry.parent, Config(target="cpu")))
    return {r.reason for r in answer.records if "does more than to index" in r.reason}


def notebook(*cells: str) -> str:
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    made = [{**code, "source": cell.splitlines(True)} for cell in cells]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"train.py": DATA + TRAIN}, "line 13 does"),
        (
            {"data.py": DATA, "train.py": f"import torch\nfrom data import Rows\n{TRAIN}"},
            "line 13 of data.py does",
        ),
        ({"train.ipynb": notebook(DATA, TRAIN)}, "line 13 of cell 1 does"),
    ],
)
def test_where_a_place_is(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = reasons(tmp_path / list(files)[-1])
    assert found and all(said in reason for reason in found)
