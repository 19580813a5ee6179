"""What is written works where it stands, and for all who use it: names have values, functions keep
their callers, cells and comments what they say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from autofast.commands.rewriting import Rewritten, rewrite
from autofast.config import Config
from autofast.read import read_script
from autofast.rule import Effect

Write = Callable[..., Rewritten]

DATA = """
import torch
from torch.utils.data import DataLoader, TensorDataset


def make():
    torch.manual_seed(1)
    return TensorDataset(torch.randn(16, 4), torch.randint(2, (16,)))
"""
LOOP = """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
ENGINE = """
import torch
from torch import nn


def train_one_epoch(model, loader, optimizer, device):
    losses = []
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
"""
MAKE = """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(make(), batch_size=4)
"""
IMPORTS = "import torch\nfrom torch import nn\nfrom data import DataLoader, make\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Rewrites ``train.py`` (or another entry) beside other files."""

    def written(files: Mapping[str, str], entry: str = "train.py", **config: Any) -> Rewritten:
        for name, text in {"data.py": DATA, **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(dedent(text), "utf-8")
        return rewrite(tmp_path / entry, tmp_path, Config(**config))

    return written


def texts(of: Rewritten) -> dict[str, str]:
    return {source.rel: text for source, text in of.texts.items()}


def reasons(of: Rewritten) -> str:
    return "; ".join(r.reason for r in of.records if r.status == "refused")


# ------------------------------------------------------------------------------- names with a value
UNBOUND = "`torch` may have no value yet on line"


@pytest.mark.parametrize(
    ("head", "written"),
    [
        ("loader = DataLoader(make())\nimport torch\nfrom torch import nn\n", False),
        ("def get():\n    return DataLoader(make())\nloader = get()\nimport torch\nfrom torch import nn\n", False),
        ("class C:\n    loader = DataLoader(make())\nimport torch\nfrom torch import nn\nloader = C.loader\n", False),
        ("def get():\n    return DataLoader(make())\nimport torch\nfrom torch import nn\nloader = get()\n", True),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\nfrom torch import nn\nloader = DataLoader(make())\n", True),
        ("if make:\n    import torch\n    from torch import nn\n    loader = DataLoader(make())\n", True),
    ],
    ids=["below", "called-before", "class", "called-after", "tried", "under-a-condition"],
)  # fmt: skip
def test_a_module_that_is_imported_later(write: Write, head: str, written: bool) -> None:
    done = write(
        {"train.py": "from data import DataLoader, make\n" + head + LOOP}, select=("pin-memory",)
    )
    assert ("pin_memory=torch.cuda" in texts(done).get("train.py", "")) is written
    assert (UNBOUND in reasons(done)) is not written


def test_an_import_is_added_where_the_package_is_loaded_already(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "from torch.utils.data import DataLoader\nfrom data import make\nloader = DataLoader(make(), batch_size=4)\nimport torch\nfrom torch import nn\n"
    text = texts(write({"train.py": head + LOOP}, select=("pin-memory",)))["train.py"]
    assert text.index("import torch\n") < text.index("pin_memory=torch.cuda.is_available()")
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("data", None)
    scope: dict[str, Any] = {}
    exec(compile(text, "train.py", "exec"), scope)
    assert scope["loss"].item() > 0


# ------------------------------------------------------------------------------------ other callers
def ran(source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The losses of an epoch of ``train_one_epoch``, called as it was before it got another
    parameter.
    """
    import torch

    scope: dict[str, Any] = {"__name__": "engine"}
    exec(compile(source, "engine.py", "exec"), scope)
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = [(torch.randn(4, 4), torch.randint(2, (4,))) for _ in range(3)]
    return scope["train_one_epoch"](model, batches, optimizer, torch.device("cpu"))  # type: ignore[no-any-return]


@pytest.mark.parametrize("called", ["engine.train_one_epoch", "train_one_epoch"])
def test_a_new_parameter_has_a_default(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: str
) -> None:
    how = "import engine\n" if "." in called else "from engine import train_one_epoch\n"
    main = f"def main():{MAKE}    {called}(model, loader, optimizer, device)\nmain()\n"
    done = write(
        {"train.py": IMPORTS + how + main, "engine.py": ENGINE, "setup.py": ""},
        select=("autocast", "grad-scaler"),
        precision="fp16",
    )
    new = texts(done)
    assert "device, scaler=torch.amp.GradScaler(enabled=False)" in new["engine.py"]
    assert "device, scaler=scaler)" in new["train.py"]
    assert ran(new["engine.py"], tmp_path, monkeypatch) == ran(ENGINE, tmp_path, monkeypatch)


def test_no_name_of_the_main_guard_in_a_function_that_others_import(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = (
        f'if __name__ == "__main__":{MAKE}    train_one_epoch(model, loader, optimizer, device)\n'
    )
    text = ENGINE + "from data import DataLoader, make\n" + guard
    files = {"train.py": text, "setup.py": ""}
    done = write(files, select=("autocast", "grad-scaler"), precision="fp16")
    new = texts(done)["train.py"]
    assert "scaler.scale(loss)" in new
    assert len(ran(new.split("from data")[0], tmp_path, monkeypatch)) == 3


LOSSES = "def iou(a, b):\n    v = (a.argmax(1) == b).float().mean()\n    return v.item()\n"
USING = """
import losses


def main():
    model = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        total = 0.0
        for x, y in DataLoader(make(), batch_size=4):
            x, y = x.cuda(), y.cuda()
            optimizer.zero_grad()
            out = model(x)
            loss = nn.functional.cross_entropy(out, y)
            loss.backward()
            optimizer.step()
            total += losses.iou(out, y)
        print(total)


main()
"""


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"tests/test_losses.py": "import losses\n\ndef test():\n    assert losses.iou(1, 2) == 0.5\n"}, "uses iou(), which would return a tensor"),
        ({"eval.py": "from losses import iou as score\n\nprint(score(1, 2))\n"}, "eval.py runs this, too"),
        ({"metrics/__init__.py": "from losses import iou\n", "eval.py": "from metrics import iou\n\nprint(iou(1, 2))\n"}, "eval.py runs this, too"),
        ({"eval.py": "def iou(a, b):\n    return 1.0\n\nprint(iou(1, 2))\n"}, ""),
        ({"sub/losses.py": "def iou(a, b):\n    return 1.0\n", "sub/eval.py": "import losses\nlosses.iou(1, 2)\n"}, ""),
        ({"broken.py": "from losses import iou\niou(\n"}, ""),
    ],
    ids=["module", "renamed", "handed-on", "another", "another-module", "broken"],
)  # fmt: skip
def test_a_function_that_others_use_returns_what_it_did(
    write: Write, other: dict[str, str], why: str
) -> None:
    done = write(
        {"train.py": IMPORTS + USING, "losses.py": LOSSES, **other}, select=("loss-item-sync",)
    )
    assert ("losses.py" in texts(done)) is not bool(why)
    assert why in reasons(done) and bool(reasons(done)) is bool(why)


# ------------------------------------------------------------------------------- cells and comments
def notebook(*cells: str) -> str:
    made = [
        {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": [], "source": c.splitlines(True)}
        for c in cells
    ]  # fmt: skip
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)


def test_a_cell_keeps_its_last_expression(write: Write) -> None:
    setup = dedent(MAKE)
    cells = (
        IMPORTS + setup + "model",
        "%%time\nfor x, y in loader:\n    optimizer.zero_grad()\n    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))\n    loss.backward()\n    optimizer.step()\nmodel",
        "test = DataLoader(make(), batch_size=4)\nlen(test)",
        "model.eval()\nmodel(next(iter(test))[0].to(device))",
    )
    done = write({"n.ipynb": notebook(*cells)}, "n.ipynb", exhaustive=True)
    (source,) = done.texts
    new = ["".join(c["source"]) for c in json.loads(done.bytes_of(source))["cells"]]
    lasts = [cell.splitlines()[-1] for cell in new]
    assert lasts[:3] == ["model", "model", "len(test)"] and lasts[3].startswith("model(")
    assert new[1].startswith("%%time\n") and "pin_memory" in new[2]
    assert "which would no longer end its cell" in reasons(done) and not done.warnings


TRAINING = f"""
def evaluate(model, loader, device):
    with torch.no_grad():
        return sum(model(x.to(device)).argmax(1).sum().item() for x, y in loader)


def main():{MAKE}    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    for epoch in range(3):
        for x, y in loader:  # autofast: ignore[RULE]
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        scheduler.step()
        print(evaluate(model, loader, device))


main()
"""


@pytest.mark.parametrize(
    ("rule", "config", "gone"),
    [
        ("autocast", {"select": ("autocast", "grad-scaler"), "precision": "fp16"}, "autocast GradScaler"),
        ("grad-scaler", {"select": ("autocast", "grad-scaler"), "precision": "either"}, "GradScaler"),
        (
            "accumulation",
            {"select": ("accumulation", "stepwise-scheduler"), "accumulate": 4, "effect": Effect.RECIPE},
            "ACCUMULATION_STEPS",
        ),
    ],
)  # fmt: skip
def test_a_comment_keeps_a_rule_away_and_what_it_alone_needs(
    write: Write, rule: str, config: dict[str, Any], gone: str
) -> None:
    def written(name: str) -> str:
        done = write({"train.py": IMPORTS + TRAINING.replace("RULE", name)}, **config)
        return texts(done).get("train.py", "")

    assert all(word in written("sdpa") for word in gone.split())
    assert not any(word in written(rule).replace(f"ignore[{rule}]", "") for word in gone.split())


# --------------------------------------------------------------------------------- to a fixed point
@pytest.mark.parametrize(
    ("config", "passes"),
    [
        ({"select": ("accumulation", "batched-dataset"), "accumulate": 4, "keep_batch": True}, 2),
        ({"select": ("all",), "accumulate": 4}, 1),
    ],
    ids=["keep-batch", "all"],
)
def test_a_second_rewrite_finds_nothing_more(
    write: Write, tmp_path: Path, config: dict[str, Any], passes: int
) -> None:
    config = {**config, "effect": Effect.RECIPE}
    text = IMPORTS + TRAINING.replace("  # autofast: ignore[RULE]", "").replace("=4)", "=8)")
    done = write({"train.py": text}, **config)
    assert len(done.plan.plans) == passes and not done.warnings
    assert {h.source.rel for h in done.plan.hunks()} == {"train.py"}
    new = texts(done)["train.py"]
    built, here = [], 0
    old_lines, new_lines = text.splitlines(True), new.splitlines(True)
    for hunk in done.plan.hunks():
        built += [*old_lines[here : hunk.old[0]], *new_lines[slice(*hunk.new)]]
        here = hunk.old[1]
    assert built + old_lines[here:] == new_lines
    (tmp_path / "train.py").write_text(new, "utf-8")
    assert not rewrite(tmp_path / "train.py", tmp_path, Config(**config)).texts


# ---------------------------------------------------------------------------------------- odd files
@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ("def f(:\n", "syntax error"),
        ("def f(x):\n    return x" + ".add(1)" * 1_500 + "\n", "nested too deeply"),
    ],
    ids=["syntax", "deep"],
)
def test_a_file_that_cannot_be_read_costs_what_depends_on_it(
    tmp_path: Path, odd: str, why: str
) -> None:
    main = IMPORTS + "import odd\nloader = DataLoader(make(), batch_size=4)\n" + LOOP
    for name, text in {"data": DATA, "odd": odd, "train": main + "    odd.f(loss)\n"}.items():
        (tmp_path / f"{name}.py").write_text(text)
    script = read_script(tmp_path / "train.py", tmp_path)
    assert len(script.steps) == len(script.loaders) == 1
    assert any(
        note.startswith("not read: ") and "odd.py:" in note and why in note for note in script.notes
    )


def test_long_chains_are_read_and_kept(write: Write) -> None:
    chain = "def f(x):\n    return x" + ".add(1)" * 210 + "\n"
    main = chain + IMPORTS + "loader = DataLoader(make(), batch_size=4)\n" + LOOP
    done = write({"train.py": main}, select=("pin-memory",))
    assert done.plan.applied == {"pin-memory"} and chain in texts(done)["train.py"]
