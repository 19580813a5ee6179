"""``verify --resume-from``: how a script resumes is read from it, seen in the runs, and told; what
a late part alone shows is found.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from autofast.cli import cli
from autofast.commands.resuming import ways
from autofast.verify import command
from autofast.verify.series import Series
from tests.forked import ForkRunner

SCRIPT = """import argparse
import os

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("-r", "--resume", default="", help="checkpoint to go on from")
args = parser.parse_args()
torch.manual_seed(0)
features = torch.randn(64, 8)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
start = 0
if args.resume:
    if os.path.isfile(args.resume):
        held = torch.load(args.resume)
        start = held["epoch"]
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
for epoch in range(start, args.epochs):
    total = 0.0
    for x in features.split(8):
        optimizer.zero_grad()
        scale = 0.5 if epoch >= 4 else 1.0
        loss = scale * torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total:.4f}")
    torch.save({"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
"""
FIXED = SCRIPT.replace(
    'parser.add_argument("-r", "--resume", default="", help="checkpoint to go on from")',
    'parser.add_argument("--resume", action="store_true")',
).replace(
    """    if os.path.isfile(args.resume):
        held = torch.load(args.resume)
        start""",
    """    if os.path.isdir("kept"):
        held = torch.load("./kept/state.pt")
        start""",
)
LATE = ("scale = 0.5", "scale = 0.6")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    top = tmp_path / "project"
    top.mkdir()
    (top / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(top)
    monkeypatch.setattr(command, "Runner", ForkRunner)
    known = {"device": "cpu", "python": "3", "torch": "2", "gpu": "", "executable": "python"}
    monkeypatch.setattr(Series, "_speed", lambda series: None)  # not what is asked here
    monkeypatch.setattr(command, "ask", lambda python: {**known, "executable": python})
    return top


def checkpoint(path: Path, epoch: int = 4) -> Path:
    """As the script saves it after so many epochs."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
    path.parent.mkdir(exist_ok=True)
    held = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(held, path)
    return path


def verify(*arguments: str) -> Result:
    return CliRunner().invoke(
        cli, ["verify", "train.py", "fast.py", "--time-budget", "1", *arguments]
    )


def words(text: str) -> str:
    return " ".join(text.split())


def test_a_late_fault_is_found_from_a_checkpoint_and_not_from_the_beginning(folder: Path):
    (folder / "fast.py").write_text(SCRIPT.replace(*LATE))
    checkpoint(folder / "last.pt")
    done = verify("--steps", "8", "--resume-from", "last.pt")
    assert done.exit_code == 1, done.output
    assert "different" in words(done.output)
    first = verify("--steps", "8")
    assert "trains differently" not in words(first.output)


def test_the_report_says_from_where_the_runs_went_on(folder: Path):
    (folder / "fast.py").write_text(SCRIPT)
    checkpoint(folder / "last.pt")
    done = verify("--steps", "8", "--resume-from", "last.pt", "--json", "out.json")
    assert "8 steps from last.pt (epoch 4, 3 optimizer steps) on" in words(done.output)
    found = (folder / "out.json").read_text()
    assert "model and optimizer restored in both" in found
    assert "train.py --resume last.pt" in found


def test_a_checkpoint_from_elsewhere_is_put_where_the_script_reads_it(folder: Path, tmp_path: Path):
    for name in ("train.py", "fast.py"):
        (folder / name).write_text(FIXED)
    far = checkpoint(tmp_path / "far" / "old.pt")
    done = verify("--steps", "8", "--resume-from", str(far))
    assert "8 steps from state.pt (epoch 4, 3 optimizer steps) on" in words(done.output)
    assert not (folder / "kept").exists()


def test_a_rewrite_that_does_not_restore_the_optimizer_is_told(folder: Path):
    lost = SCRIPT.replace('        optimizer.load_state_dict(held["optimizer"])\n', "")
    (folder / "fast.py").write_text(lost)
    checkpoint(folder / "last.pt")
    done = verify("--steps", "8", "--resume-from", "last.pt")
    assert "no optimizer gets a state from last.pt" in words(done.output)


def test_a_rewrite_that_starts_anew_is_broken(folder: Path):
    (folder / "fast.py").write_text(SCRIPT.replace("if args.resume:", "if False:"))
    checkpoint(folder / "last.pt")
    done = verify("--steps", "8", "--resume-from", "last.pt")
    assert "last.pt is not read before the first step" in words(done.output)


def test_arguments_of_the_user_are_taken_as_they_are(folder: Path):
    (folder / "fast.py").write_text(SCRIPT)
    checkpoint(folder / "last.pt")
    done = verify("--steps", "8", "--resume-from", "last.pt", "--", "--resume=last.pt")
    assert "from last.pt (epoch 4" in words(done.output)


@pytest.mark.parametrize(
    ("change", "given", "said"),
    [
        (
            ("if args.resume:", "if args.epochs < 0:"),
            [],
            "the original script did not read last.pt before its first step; give it the arguments",
        ),
        (
            ("        held = torch.load(args.resume)\n", "        held = {}\n"),
            [],
            "no way to resume was found",
        ),
        (("", ""), ["--", "--epochs", "3"], "its training ends there; raise its number of epochs"),
    ],
    ids=["not read", "no way", "at its end"],
)
def test_refusals_are_one_line(folder: Path, change: tuple[str, str], given: list[str], said: str):
    text = SCRIPT.replace(*change) if change[0] else SCRIPT
    for name in ("train.py", "fast.py"):
        (folder / name).write_text(text)
    checkpoint(folder / "last.pt")
    done = verify("--steps", "8", "--resume-from", "last.pt", *given)
    last = done.output.strip().splitlines()[-1]
    assert done.exit_code == 2
    assert said in last


def test_a_checkpoint_that_is_not_there(folder: Path):
    (folder / "fast.py").write_text(SCRIPT)
    done = verify("--resume-from", "lost.pt")
    assert done.exit_code == 2
    assert "lost.pt: no such file" in done.output


def test_ways_to_resume_are_read_from_the_script(folder: Path):
    one = ways(folder / "train.py", folder)[0]
    assert (one.option, one.path, one.flags) == ("--resume", "", ())
    (folder / "train.py").write_text(FIXED)
    one = ways(folder / "train.py", folder)[0]
    assert (one.option, one.path, one.flags) == ("", "./kept/state.pt", ("--resume",))
