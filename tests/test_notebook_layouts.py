"""Notebooks come in any layout that JSON has: what is not changed stays as it is written."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from autofast.model.notebook import Notebook
from tests.test_cli import autofast, project  # noqa: F401

DATA = """import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 1).cuda()
rows = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))  # größer
loader = DataLoader(rows, batch_size=8)
"""
TRAIN = """optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = (model(x.cuda()) - y.cuda()).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()"""
SHOWN = "print('a/b \N{SNOWMAN}')\n%matplotlib inline"


def cells(as_text: bool = False) -> list[dict[str, object]]:
    made: list[dict[str, object]] = [
        {"cell_type": "markdown", "metadata": {"x": [1.50, "é"]}, "source": ["# Title\n", "text"]}
    ]
    for code in (SHOWN, DATA, TRAIN, ""):
        source = code if as_text else code.splitlines(keepends=True)
        made.append(
            {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [],
             "source": source}
        )  # fmt: skip
    return made


def notebook(as_text: bool = False, **style: object) -> str:
    made = {"cells": cells(as_text), "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(made, **style)  # type: ignore[arg-type]


PLAIN = notebook(indent=1, ensure_ascii=False)
LAYOUTS = {
    "jupyter": PLAIN + "\n",
    "four": notebook(indent=4, ensure_ascii=False),
    "tabs": notebook(indent="\t"),
    "one line": notebook(),
    "tight": notebook(separators=(",", ":"), ensure_ascii=False),
    "sorted": notebook(indent=2, sort_keys=True),
    "texts": notebook(as_text=True, indent=1),
    "crlf": PLAIN.replace("\n", "\r\n"),
    "lines of two": re.sub(r'(?<=\\n",)\n *', " ", PLAIN),
    "escapes": PLAIN.replace("a/b", "a\\/b")
    .replace("Title", "\\u0054itle")
    .replace("é", "\\u00E9"),
    "spaces": "\n\n" + PLAIN.replace("[", "[ ").replace('": ', '" :  ') + "\n\n",
    "mark": "\ufeff" + PLAIN,
    "windows lines in cells": PLAIN.replace('\\n"', '\\r\\n"'),
}


def codes(raw: bytes) -> list[str]:
    found = json.loads(raw.decode("utf-8-sig"))["cells"]
    return ["".join(c["source"]).replace("\r\n", "\n") for c in found]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_not_changed_stays(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("train.ipynb", LAYOUTS[layout]), ("plain.ipynb", PLAIN)):
        Path(name).write_bytes(text.encode("utf-8"))
    for name in ("train", "plain"):
        assert autofast("rewrite", f"{name}.ipynb", "-o", f"{name}_fast.ipynb").code == 0
    old, new = Path("train.ipynb").read_bytes(), Path("train_fast.ipynb").read_bytes()
    assert codes(new) == codes(Path("plain_fast.ipynb").read_bytes()) != codes(old)
    changed = {n for n, (a, b) in enumerate(zip(codes(old), codes(new), strict=True)) if a != b}
    one, other = (Notebook(Path("train.ipynb"), "train.ipynb", raw) for raw in (old, new))
    assert changed and not changed & {0, 1, 4}
    begin = 0, 0
    for n, (a, b) in enumerate(zip(one.cells, other.cells, strict=True), 1):
        assert one.json[begin[0] : a.source[0]] == other.json[begin[1] : b.source[0]]
        if n not in changed:
            assert one.json[slice(*a.source)] == other.json[slice(*b.source)]
        begin = a.source[1], b.source[1]
    assert one.json[begin[0] :] == other.json[begin[1] :]
    kept = {one.json[slice(*r)] for c in one.cells for r in c.rows}
    made = [other.json[slice(*r)] for c in other.cells for r in c.rows]
    assert all(row in kept for row in made if '"import torch' in row or "größer" in row)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_places(layout: str) -> None:
    raw = LAYOUTS[layout].encode("utf-8")
    read = Notebook(Path("train.ipynb"), "train.ipynb", raw)
    line = next(n for n, row in enumerate(read.lines, 1) if "loss.backward" in row)
    assert "loss.backward" in read.json.split("\n")[read.shown(line) - 1]
    assert read.place(line) == "train.ipynb:cell 3:5"


@pytest.mark.parametrize("found", [[], [{"cell_type": "markdown", "metadata": {}, "source": "x"}],
                                   [{"cell_type": "code", "source": []}]])  # fmt: skip
@pytest.mark.parametrize("indent", [None, 7])
def test_nothing_to_do(found: list[object], indent: int | None, tmp_path: Path) -> None:
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps({"nbformat": 4, "cells": found}, indent=indent))
    before = path.read_bytes()
    assert autofast("rewrite", os.fspath(path), "--in-place").code == 0
    assert autofast("check", os.fspath(path)).code == 0
    assert path.read_bytes() == before
