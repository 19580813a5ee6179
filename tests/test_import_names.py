"""Imports that are there take new names, as the file writes them."""

from __future__ import annotations

import libcst as cst
import pytest

from autofast.edit.import_names import with_names
from tests.onerule import apply

NEW = ["BatchSampler", "RandomSampler as Draws"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("DataLoader, Dataset", "BatchSampler, DataLoader, Dataset, RandomSampler as Draws"),
        ("DataLoader,Dataset", "BatchSampler,DataLoader,Dataset,RandomSampler as Draws"),
        (
            "TensorDataset, DataLoader",
            "TensorDataset, DataLoader, BatchSampler, RandomSampler as Draws",
        ),
        (
            "DataLoader, random_split",
            "BatchSampler, DataLoader, RandomSampler as Draws, random_split",
        ),
        ("(DataLoader, Dataset)", "(BatchSampler, DataLoader, Dataset, RandomSampler as Draws)"),
        (
            "(\n    DataLoader,\n    Dataset,\n)",
            "(\n    BatchSampler,\n    DataLoader,\n    Dataset,\n    RandomSampler as Draws,\n)",
        ),
        (
            "(\n    DataLoader\n)",
            "(\n    BatchSampler,\n    DataLoader,\n    RandomSampler as Draws\n)",
        ),
    ],
)
def test_names_come_in_their_order(before: str, after: str) -> None:
    statement = cst.parse_statement(f"from torch.utils.data import {before}\n")
    assert isinstance(statement, cst.SimpleStatementLine)
    found = statement.body[0]
    assert isinstance(found, cst.ImportFrom)
    new = cst.Module([statement.with_changes(body=[with_names(found, NEW)])])
    assert new.code == f"from torch.utils.data import {after}\n"


SCRIPT = """
import torch
{imports}

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8, shuffle=True)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        opt.zero_grad()
        (net(x) - y).pow(2).mean().backward()
        opt.step()
"""


@pytest.mark.parametrize(
    ("imports", "lines"),
    [
        (
            "from torch.utils.data import DataLoader, TensorDataset",
            ["from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset"],
        ),
        (  # a remark belongs to the names that it stands beside
            "from torch.utils.data import DataLoader, TensorDataset  # batches",
            ["from torch.utils.data import BatchSampler, RandomSampler"],
        ),
        (
            "from torch.utils.data import (\n    DataLoader,  # batches\n    TensorDataset,  # rows\n)",
            ["from torch.utils.data import BatchSampler, RandomSampler"],
        ),
        (
            "from torch.utils.data import *",
            ["from torch.utils.data import BatchSampler, RandomSampler"],
        ),
    ],
)
def test_an_import_that_is_there_is_used(imports: str, lines: list[str]) -> None:
    done = apply("batched-dataset", SCRIPT.format(imports=imports))
    assert [line for line in done.lines if line.startswith("from")] == lines


def test_an_import_that_becomes_too_long_is_broken() -> None:
    imports = (
        "from torch.utils.data import DataLoader, Subset, TensorDataset, WeightedRandomSampler"
    )
    done = apply("batched-dataset", SCRIPT.format(imports=imports))
    assert "import (\n    BatchSampler,\n    DataLoader,\n    RandomSampler,\n" in done.text
