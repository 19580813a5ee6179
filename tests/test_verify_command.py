"""``autofast verify`` from the command line: what it compares, what it says, its exit codes and
files.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from autofast.cli import cli
from autofast.verify import command
from autofast.verify.evidence.record import Run
from tests.forked import ForkRunner

SCRIPT = """import sys

import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
features = torch.randn(64, 8)
loader = DataLoader(TensorDataset(features, features.sum(1, keepdim=True)), batch_size=8, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(int(sys.argv[1]) if len(sys.argv) > 1 else 4):
    total = 0.0
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / len(loader):.4f}")
torch.save(model.state_dict(), "last.pt")
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "project"
    top.mkdir()
    (top / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(top)
    monkeypatch.setattr(command, "Runner", ForkRunner)
    monkeypatch.setattr(
        command,
        "ask",
        lambda python: {
            "device": "cpu",
            "python": "3",
            "torch": "2",
            "gpu": "",
            "executable": python,
        },
    )
    return top


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["verify", *arguments])


def words(text: str) -> str:
    """Without the line ends that fit it to the width."""
    return " ".join(text.split())


def test_a_script_against_itself_is_identical_and_its_files_are_written(folder: Path):
    before = sorted(folder.iterdir())
    done = verify(
        "train.py",
        "train.py",
        "--json",
        "out.json",
        "--report",
        "out.html",
        "--steps",
        "0",
        "--time-budget",
        "5",
        "--",
        "3",
    )
    assert "losses and final weights equal bit for bit" in words(done.stdout), (
        done.stdout + done.stderr
    )
    read = json.loads((folder / "out.json").read_text())
    assert read["parity"]["verdict"] == "identical" and read["speed"]["verdict"] in (
        "same",
        "unclear",
    )
    assert done.exit_code == (0 if read["speed"]["verdict"] == "same" else 1)
    assert (
        len(read["runs"][0]["records"][0]["steps"]["end"]) == 24
        and read["original"]["command"] == "python train.py 3"
    )
    assert (folder / "out.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(set(folder.iterdir()) - set(before)) == [
        folder / "out.html",
        folder / "out.json",
    ]  # no checkpoint


def test_the_rewritten_script_is_made_where_none_is_given(folder: Path):
    done = verify(
        "train.py", "--select", "fused-optimizer", "--steps", "0", "--time-budget", "5", "--github"
    )
    assert "fused=" in done.stdout and "fused-optimizer" in done.stdout, done.stdout + done.stderr
    assert "different" not in done.stdout.lower().splitlines()[0]
    assert "no GPU was found" in words(done.stdout)
    assert (folder / "train.py").read_text() == SCRIPT


def test_autofasts_own_output_is_recognised_by_its_text(folder: Path):
    CliRunner().invoke(
        cli,
        ["rewrite", "train.py", "-o", "fast.py", "--target", "cpu", "--select", "fused-optimizer"],
    )
    done = verify(
        "train.py",
        "fast.py",
        "--select",
        "fused-optimizer",
        "--steps",
        "0",
        "--time-budget",
        "5",
        "--json",
        "-",
    )
    read = json.loads(done.stdout)
    assert read["rules"] == ["fused-optimizer"] and read["parity"]["effect"] == "rounding"


def test_what_each_rule_contributes_is_measured(folder: Path):
    done = verify(
        "train.py",
        "--select",
        "fused-optimizer,batched-dataset",
        "--by-rule",
        "--steps",
        "0",
        "--time-budget",
        "5",
        "--json",
        "-",
    )
    read = json.loads(done.stdout)
    assert (
        {one["rule"] for one in read["contributions"]}
        == set(read["rules"])
        == {"fused-optimizer", "batched-dataset"}
    )
    assert all(one["alone"]["pairs"] for one in read["contributions"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("    print(f", "    raise ValueError('no luck')\n    print(f"), "ValueError: no luck"),
        (("lr=0.01", "lr=0.05"), "learning rate"),
        (("        optimizer.zero_grad()\n", ""), "differ"),
        (("shuffle=True", "shuffle=False"), "differ"),
    ],
)
def test_a_wrong_script_is_flagged(folder: Path, change: tuple[str, str], said: str):
    (folder / "wrong.py").write_text(SCRIPT.replace(*change))
    done = verify(
        "train.py", "wrong.py", "--effect", "rounding", "--steps", "0", "--time-budget", "5"
    )
    assert done.exit_code == 1 and said in words(done.stdout), done.stdout + done.stderr


def test_an_original_that_does_not_run_is_one_line_with_its_own_error(folder: Path):
    (folder / "train.py").write_text(SCRIPT.replace("optimizer.step()", "optimizer.stop()"))
    done = verify("train.py", "train.py")
    assert done.exit_code == 2 and not done.stdout
    assert "Traceback" in done.stderr and "has no attribute 'stop'" in done.stderr
    assert done.stderr.splitlines()[-1].startswith(
        "autofast: train.py: the original script does not run: AttributeError"
    )
    (folder / "train.py").write_text("print('no training here')\n")
    done = verify("train.py", "train.py")
    assert done.exit_code == 2 and "without an optimizer step" in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import argparse\nreader = argparse.ArgumentParser()\nreader.add_argument('--data', required=True)\nreader.parse_args()\n",
            "required: --data; its arguments stand behind --",
        ),
        (
            f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SCRIPT!r}], check=True)\n",
            "name the script that trains",
        ),
        (SCRIPT + "1 / 0\n", " steps: ZeroDivisionError"),
    ],
    ids=["arguments", "another process", "late"],
)
def test_why_an_original_does_not_run_and_what_to_do(folder: Path, text: str, said: str):
    (folder / "train.py").write_text(text)
    done = verify("train.py", "train.py", "--steps", "0")
    assert done.exit_code == 2 and said in done.stderr.splitlines()[-1], done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.py"], "no such file"),
        (["."], "is a folder; give the training script in it"),
        (["train.py", "."], "is a folder; give the training script in it"),
        (["train.py", "nothing.py"], "autofast rewrite train.py -o nothing.py"),
        (["train.py", "--select", "grad-scaler"], "changes nothing"),
        (["train.py", "--json", "kept.json"], "--force"),
        (["train.py", "--report", "-"], "name a file"),
        (["train.py", "train.py", "--launch", "torchrun 'x"], "--launch: no closing quotation"),
        (
            ["train.py", "train.py", "--launch-rewritten", "torchrun 'x"],
            "--launch-rewritten: no closing quotation",
        ),
        (["train.py", "--by-rule", "--launch-rewritten", "torchrun"], "leave one of the two out"),
        (["train.py", "--json", ".", "--force"], "is a folder; name a file in it"),
        (["train.py", "--json", "train.py", "--force"], "is the script itself"),
        (["train.py", "--json", "same", "--report", "same"], "name two files"),
        (["train.py", "train.py", "--by-rule"], "leave the second script out"),
        (["train.py", "--report", "no/folder.html"], "folder does not exist"),
        (["train.py", "--json", "-", "--github"], "standard output"),
        (["train.py", "--cwd", "no/folder", "--select", "fused-optimizer"], "--cwd"),
        (["train.py", "--link", "nothing", "--select", "fused-optimizer"], "does not exist"),
        (["train.py", "--scratch", "nothing", "--select", "fused-optimizer"], "--scratch"),
        (["train.py", "--steps", "-1"], "--steps"),
        (["train.py", "--seeds", "3"], "--seeds"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(folder: Path, arguments: list[str], said: str):
    (folder / "kept.json").write_text("{}")
    done = verify(*arguments)
    assert done.exit_code == 2 and said in done.stderr and not done.stdout, done.stderr
    assert (folder / "train.py").read_text() == SCRIPT


def test_one_step_is_no_comparison_and_half_a_pass_is_said(folder: Path):
    read = json.loads(
        verify("train.py", "train.py", "--steps", "1", "--time-budget", "5", "--json", "-").stdout
    )
    assert (
        read["parity"]["verdict"] == "unclear"
        and "only the first step" in read["parity"]["summary"]
    )
    assert any("within the first pass over the training data" in line for line in read["warnings"])
    read = json.loads(
        verify("train.py", "train.py", "--steps", "9", "--time-budget", "5", "--json", "-").stdout
    )
    assert read["parity"]["verdict"] == "identical"
    assert not any("within the first pass" in line for line in read["warnings"])


def test_a_rewritten_script_that_hangs_is_ended_and_said_to_hang(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without a limit of the user's: one that follows from the original's run."""
    monkeypatch.setattr("autofast.verify.series.LEAST_LIMIT", 0.0)
    monkeypatch.setattr("autofast.verify.series.LIMIT_FACTOR", 8.0)
    monkeypatch.setattr("autofast.verify.series.Series._deadline", lambda series: math.inf)
    (folder / "wrong.py").write_text(
        SCRIPT.replace("torch.save", "import time; time.sleep(1000); torch.save")
    )
    done = verify("train.py", "wrong.py", "--steps", "0", "--time-budget", "1")
    assert done.exit_code == 1 and done.stdout.startswith("Broken: wrong.py did not end within"), (
        done.stdout
    )


def test_the_time_budget_ends_whatever_is_running(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("autofast.verify.series.GRACE", 0.0)
    (folder / "late.py").write_text("import time\ntime.sleep(1000)\n" + SCRIPT)
    (folder / "wrong.py").write_text(
        SCRIPT.replace("torch.save", "import time; time.sleep(1000); torch.save")
    )
    done = verify("late.py", "train.py", "--time-budget", "1")
    assert done.exit_code == 2, done.output
    assert "and the time budget of 1 s is used up; raise --time-budget" in words(done.stderr)
    # The pilot and the original's two runs are made, then the time is over.
    monkeypatch.setattr(
        "autofast.verify.series.Series._deadline",
        lambda series: math.inf if len(series.runs) < 3 else 0.0,
    )
    done = verify("train.py", "wrong.py", "--steps", "0", "--time-budget", "60")
    assert done.exit_code == 1 and "within a run of the rewritten script" in words(done.stdout)
    assert "would do for a first answer" in words(done.stdout)
    # Lines of progress, where there is no terminal.
    assert "pilot: the original alone" in done.stderr and "sameness: run 1" in done.stderr


def test_an_original_that_does_not_end_is_said_to_train(folder: Path):
    (folder / "train.py").write_text(
        SCRIPT.replace("torch.save", "import time; time.sleep(1000); torch.save")
    )
    done = verify("train.py", "train.py", "--limit", "3")
    assert (
        done.exit_code == 2
        and "after 32 optimizer steps; raise --limit, or lower --steps" in words(done.stderr)
    )


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("input('epochs? ')", "as arguments, behind --"),
        ("open(OUTSIDE, 'w')", "--cwd"),
        ("import os; os.environ['LOCAL_RANK']", "--launch"),
        ("torch.distributed.init_process_group('gloo')", "--launch"),
    ],
)
def test_what_a_run_may_not_do_is_said_with_a_way_out(folder: Path, change: str, hint: str):
    (folder.parent / "kept.txt").write_text("the user's")
    (folder / "train.py").write_text(
        f"import torch\nOUTSIDE = {str(folder.parent / 'kept.txt')!r}\n{change}\n"
    )
    done = verify("train.py", "train.py")
    assert done.exit_code == 2 and hint in done.stderr.splitlines()[-1], done.stderr
    assert (folder.parent / "kept.txt").read_text() == "the user's"


def test_a_signal_from_outside_ends_everything_in_order():
    before, closed = signal.getsignal(signal.SIGTERM), []
    with pytest.raises(SystemExit) as end, command.ended_in_order():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            select.select([], [], [], 30)  # the handler runs here at the latest
        finally:
            closed.append(True)
    assert end.value.code == 143 and closed and signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_judges_what_there_is(folder: Path, monkeypatch: pytest.MonkeyPatch):
    original, made = ForkRunner.run, []

    def run(self: ForkRunner, *args: Any, **kwargs: Any) -> Run:
        if len(made) == 7:  # the pilot, three for sameness, one round of three
            raise KeyboardInterrupt
        made.append(1)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(ForkRunner, "run", run)
    monkeypatch.setattr("autofast.verify.series.BUSY_REPEATS", 0)
    done = verify("train.py", "train.py", "--json", "-")
    read = json.loads(done.stdout)
    assert read["interrupted"] == "ended by Ctrl-C" and done.exit_code == 1
    assert read["parity"]["verdict"] == "identical" and read["speed"]["ratio"]["pairs"] == 1
