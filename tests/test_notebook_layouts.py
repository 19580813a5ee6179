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


MAGICS = ["!nvidia-smi", "model?", "!!ls", "%time print(1)", "?model", "used = !ls", "used = %timeit -o 1",
          "one, two = !ls"]  # fmt: skip


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.parametrize("only", [False, True])
def test_magics_stay_in_their_block(magic: str, only: bool, tmp_path: Path) -> None:
    """What goes around the statements beside a magic goes around it, too; a block may be nothing
    but magics.
    """
    line = f"if x.size(0) == 8:\n        {magic}" if only else magic
    train = TRAIN.replace(
        "    loss = (model(x.cuda()) - ",
        f"    out = model(x.cuda())\n    {line}\n    loss = (out - ",
    )
    made = json.loads(notebook())
    wide = "torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))"
    made["cells"][2]["source"] = DATA.replace("torch.nn.Linear(8, 1)", wide)
    made["cells"][3]["source"] = train
    path = tmp_path / "train.ipynb"
    path.write_text(json.dumps(made))
    ran = autofast("rewrite", os.fspath(path), "--in-place", "--select", "autocast", "--exhaustive")
    assert ran.code == 0, ran
    text = codes(path.read_bytes())[3]
    assert "torch.autocast" in text and text.count(magic) == 1
    compile(text.replace(magic, "pass"), "train.py", "exec")


@pytest.mark.parametrize(
    ("code", "hidden"),
    [
        ("print(\n    '%d'\n    % 3\n)", set()),
        ("x = '''\n!ls\n%d\n'''\n!ls", {4}),
        ("x = 'it\\'s ('\n%time 1", {1}),
        ("x = [  # it's (\n    1\n    % 2]\n%time 1", {3}),
        ("!pip install \\\n    torch \\\n    numpy\nx = 1", {0, 1, 2}),
        ("if x:\n    !pip install \\\n        torch", {1, 2}),
        ("x = 3 \\\n    % 2\n!ls", {2}),
        ("%%bash\nx = 1\n", {0, 1, 2}),
        ("%%time\nx = 1\n", {0}),
    ],
)
def test_what_is_a_magic(code: str, hidden: set[int]) -> None:
    made = {"nbformat": 4, "cells": [{"cell_type": "code", "source": code}]}
    read = Notebook(Path("train.ipynb"), "train.ipynb", json.dumps(made).encode())
    text = read.text
    assert {n for n, row in enumerate(text.split("\n")[1:]) if "#autofast-magic#" in row} == hidden
    assert code.startswith(("%%", "!pip")) or compile(text, "train.py", "exec")
    assert codes(read.encode(text.replace("x = 1", "x = 2")))[0] == code.replace("x = 1", "x = 2")


def test_a_first_cell_runs_without_a_gpu(project: Path) -> None:  # noqa: F811
    """Whatever later cells need: they are run one by one."""
    path = project / "train.ipynb"
    wide = "torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))"
    path.write_text(PLAIN.replace("torch.nn.Linear(8, 1)", wide))
    ran = autofast(
        "rewrite", "train.ipynb", "-o", "fast.ipynb", "--select", "autocast", "--exhaustive"
    )
    assert ran.code == 0, ran.err
    code = ["".join(c["source"]) for c in json.loads((project / "fast.ipynb").read_text())["cells"]]
    asked = [line for text in code for line in text.splitlines() if "has_bf16 = " in line]
    assert asked == [
        "has_bf16 = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 8"
    ]
