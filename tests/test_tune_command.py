"""``autofast tune`` from the command line, with real runs of tiny scripts in forks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from autofast.cli import cli
from autofast.tune import command
from autofast.tune.measuring import Measuring
from autofast.tune.result import Fate
from autofast.tune.search import Search
from autofast.verify.evidence.record import Run
from autofast.verify.result import Ratio, SpeedVerdict
from tests.forked import ForkRunner

SLOW = """import sys, time

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
features = torch.randn(512, 8)
labels = features.sum(1, keepdim=True)
loader = DataLoader(TensorDataset(features, labels), batch_size=32, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(4):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
"""
NOTHING = SLOW.replace(", shuffle=True", "").replace("loader = DataLoader(", "loader = list(DataLoader(").replace(
    "batch_size=32)", "batch_size=32))"
).replace("        optimizer.step()\n", "        optimizer.step()\n        time.sleep(0.004)\n")  # fmt: skip
ONE_RULE = ("--select", "batched-dataset", "--steps", "0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "project"
    top.mkdir()
    (top / "train.py").write_text(SLOW)
    monkeypatch.chdir(top)
    monkeypatch.setattr(command, "Runner", ForkRunner)
    machine = {"device": "cpu", "python": "3", "torch": "2", "gpu": ""}
    monkeypatch.setattr(command, "ask", lambda python: {**machine, "executable": python})
    return top


def tune(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["tune", *arguments])


def words(text: str) -> str:
    """Without the line ends that fit it to the width."""
    return " ".join(text.split())


def test_what_pays_is_kept_confirmed_and_written(folder: Path) -> None:
    done = tune(
        *("train.py", *ONE_RULE, "-o", "tuned.py", "--time-budget", "60"),
        *("--json", "out.json", "--report", "out.html"),
    )
    assert done.exit_code == 0 and not done.stdout, done.output
    read = json.loads((folder / "out.json").read_text())
    (row,) = read["rules"]
    assert row["rule"] == "batched-dataset" and row["alone"]["pairs"]  # few on a busy machine
    written = (folder / "tuned.py").read_text()
    assert (folder / "train.py").read_text() == SLOW
    if not read["kept"]["rules"]:  # a busy machine: then nothing is claimed
        assert written == SLOW and read["claim"] is None
        return
    assert read["claim"]["low"] > 1.01 and read["claim"] == read["confirmation"]["speed"]["ratio"]
    assert read["confirmation"]["passed"] and "BatchSampler" in written
    said = words(done.stderr)
    assert "faster" in said and "measured alone" in said and "wrote tuned.py" in said
    page = (folder / "out.html").read_text()
    assert page.startswith("<!DOCTYPE html>") and "batched-dataset" in page and "<svg" in page


def test_where_nothing_pays_the_original_comes_back(folder: Path) -> None:
    (folder / "train.py").write_text(NOTHING)
    done = tune(
        *("train.py", "--select", "fused-optimizer", "--steps", "0"),
        *("-o", "tuned.py", "--time-budget", "300", "--json", "out.json"),
    )
    read = json.loads((folder / "out.json").read_text())
    assert done.exit_code == 0 and "stays as it is" in words(done.stderr), done.output
    assert (folder / "tuned.py").read_text() == NOTHING
    assert read["claim"] is None and not read["kept"]["rules"] and not read["diff"]
    assert read["rules"][0]["outcome"] in ("no-gain", "slower", "unconfirmed")


def test_ctrl_c_writes_the_best_so_far(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Search._decide

    def pressed(self: Search, unit: Any, fate: Fate, *rest: Any, **more: Any) -> None:
        decide(self, unit, fate, *rest, **more)
        if fate is Fate.KEPT:
            raise KeyboardInterrupt

    gain = Ratio(1.3, 1.2, 1.4, 6, (1.3,) * 6)  # whatever this machine is busy with
    monkeypatch.setattr(Search, "_decide", pressed)
    monkeypatch.setattr(Measuring, "ratio", lambda self, base, other: gain)
    monkeypatch.setattr(
        "autofast.verify.speed.verdict_of", lambda noise, found: SpeedVerdict.FASTER
    )
    done = tune("train.py", *ONE_RULE, "-o", "tuned.py", "--time-budget", "60")
    assert done.exit_code == 130, done.output
    assert "Best so far, not confirmed" in words(done.stderr)
    assert "BatchSampler" in (folder / "tuned.py").read_text()


def test_ctrl_c_before_anything_is_known_leaves_the_original(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, made = ForkRunner.run, []

    def run(self: ForkRunner, *args: Any, **kwargs: Any) -> Run:
        made.append(1)
        if len(made) > 2:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ForkRunner, "run", run)
    done = tune("train.py", *ONE_RULE, "--diff", "--json", "-")
    read = json.loads(done.stdout)
    assert done.exit_code == 130 and read["interrupted"] == "ended by Ctrl-C"
    assert not read["kept"]["rules"] and "stays as it is" in words(done.stderr)


def test_a_script_that_does_not_run_is_one_line_with_its_own_error(folder: Path) -> None:
    (folder / "train.py").write_text(SLOW.replace("optimizer.step()", "optimizer.stop()"))
    done = tune("train.py", *ONE_RULE, "-o", "tuned.py")
    assert done.exit_code == 2 and "has no attribute 'stop'" in done.stderr.splitlines()[-1]
    assert not (folder / "tuned.py").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.py"], "no such file"),
        (["."], "is a folder"),
        (["-"], "standard input"),
        (["empty.py"], "no training loop found"),
        (["notes.ipynb"], "is a notebook"),
        (["train.py", "-o", "kept.py"], "--force"),
        (["train.py", "-o", "train.py", "--force"], "is the script itself"),
        (["train.py", "-o", "."], "is a directory"),
        (["train.py", "-o", "no/folder.py"], "there is no folder"),
        (["train.py", "-o", "new.py", "--in-place"], "exclude each other"),
        (["train.py", "--output-dir", "full"], "holds files"),
        (["train.py", "--json", "-", "-o", "-"], "standard output"),
        (["train.py", "--report", "-"], "name a file"),
        (["train.py", "--select", "no-rule"], "no rule called"),
        (["train.py", "--seeds", "3"], "--seeds"),
        (["train.py", "--scratch", "nothing"], "--scratch"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(
    folder: Path, arguments: list[str], said: str
) -> None:
    (folder / "kept.py").write_text("kept\n")
    (folder / "empty.py").write_text("print('nothing')\n")
    (folder / "notes.ipynb").write_text("{}")
    (folder / "full").mkdir()
    (folder / "full" / "file").write_text("kept\n")
    done = tune(*arguments)
    assert done.exit_code == 2 and said in done.stderr and not done.stdout, done.output
    assert done.stderr.splitlines()[-1].startswith(("autofast: ", "Error: "))
    assert (folder / "kept.py").read_text() == "kept\n"
    assert (folder / "train.py").read_text() == SLOW


def test_nothing_to_tune_is_said_without_a_run(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForkRunner, "run", lambda *_, **__: pytest.fail("a run was made"))
    done = tune("train.py", "--select", "sdpa", "-o", "tuned.py")
    assert done.exit_code == 0 and "Nothing to tune" in words(done.stderr), done.output
    assert (folder / "tuned.py").read_text() == SLOW


def test_other_files_of_the_project_change_as_rewrite_writes_them(folder: Path) -> None:
    """With -o the script alone may change; with --output-dir what is there runs together."""
    head, _, body = SLOW.partition("torch.manual_seed(0)\n")
    data, rest = body[: body.index("model =")], body[body.index("model =") :]
    helper = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n\n"
    (folder / "data.py").write_text(helper + data)
    (folder / "train.py").write_text(f"{head}torch.manual_seed(0)\nfrom data import loader\n{rest}")
    done = tune("train.py", *ONE_RULE, "-o", "tuned.py")
    assert done.exit_code == 0 and "Nothing to tune" in words(done.stderr), done.output
    done = tune("train.py", *ONE_RULE, "--output-dir", "out", "--time-budget", "60", "-q")
    assert done.exit_code == 0, done.output
    assert (folder / "out" / "data.py").exists() and (folder / "out" / "train.py").exists()
