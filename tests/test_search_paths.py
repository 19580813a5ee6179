"""Folders that a script puts on ``sys.path``: modules there are read."""

from __future__ import annotations

import pytest

from tests.onerule import apply

LOADER = """
import torch
from torch.utils.data import DataLoader, TensorDataset
def loader(stage):
    rows = TensorDataset(torch.randn(12, 4), torch.randn(12, 1))
    if stage == "a":
        return DataLoader(rows, batch_size=4)
    elif stage == "b":
        return DataLoader(rows, batch_size=4, shuffle=True)
"""
TRAIN = """
import argparse, os, sys
import os.path as osp
from pathlib import Path
{path}
import rows_elsewhere as rows
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--stage", choices=["a", "b"], required=True)
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for blob in rows.loader(parser.parse_args().stage):
        x, y = [t.cuda() for t in blob]
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
"""
HELPER = "def add(path):\n    if path not in sys.path:\n        sys.path.insert(0, path)\n"
PATHS = {
    "relative": 'sys.path.append("core")',
    "beside": 'sys.path.insert(0, os.path.join(os.path.dirname(__file__), "core"))',
    "twice": 'sys.path.append(os.path.dirname(os.path.abspath(__file__)) + "/core")',
    "pathlib": 'sys.path.insert(1, str(Path(__file__).resolve().parent / "core"))',
    "named": 'HERE = osp.dirname(osp.abspath(__file__))\nCORE = osp.join(HERE, "lib", "..", "core")\nsys.path.append(CORE)',
    "a helper": HELPER + 'add(osp.join(osp.dirname(__file__), "core"))',
    "of the script": 'sys.path.insert(1, os.path.join(sys.path[0], "lib/../core"))',
    "working": 'sys.path.append(os.path.join(os.getcwd(), "core"))',
}


@pytest.mark.parametrize("how", PATHS)
def test_modules_of_the_folder_are_read(how: str) -> None:
    path = PATHS[how]
    found = apply(
        "pin-memory non-blocking",
        TRAIN.replace("{path}", path),
        files={"core/rows_elsewhere.py": LOADER, "lib/other.py": ""},
    )
    assert found.texts["core/rows_elsewhere.py"].count("pin_memory=True") == 2  # in each arm
    assert "t.cuda(non_blocking=True) for t in blob" in found.text


@pytest.mark.parametrize(
    "path",
    [
        "",
        'sys.path.append(os.environ["CORE"])',
        'sys.path.append("/core")',
        'sys.path.insert(0, "lib")\nsys.path.append(os.path.join(sys.path[0], "core"))',
    ],
)
def test_other_folders_are_not(path: str) -> None:
    found = apply(
        "pin-memory", TRAIN.replace("{path}", path), files={"core/rows_elsewhere.py": LOADER}
    )
    assert not found.findings
