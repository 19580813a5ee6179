"""Runs: commands, environment, time limit, a clean end, and what they leave behind (nothing)."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from autofast.model.source import BadInput
from autofast.verify.evidence.record import Detail, Run
from autofast.verify.running import runs, scratch
from autofast.verify.running.runs import Program, Runner, Setup
from tests.forked import ForkRunner

SCRIPT = """
import os
import sys
import torch

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    loss = model(torch.ones(4, 2)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.6f}")
open("last.txt", "w").write("done")
EXTRA
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "around" / "project"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(SCRIPT.replace("EXTRA", ""))
    (folder.parent / "kept.txt").write_text("the user's")
    return folder


def run(
    project: Path,
    extra: str = "",
    arguments: tuple[str, ...] = ("5",),
    steps: int = 0,
    runner: type[Runner] = ForkRunner,
    **setup: object,
) -> Run:
    """What became of the script; in a fork, where it is not the start or the end of the process
    that matters.
    """
    made = scratch.make([project], parent=project.parent.parent)
    starts = runner(Setup(arguments=arguments, cwd=project, threads=1, cached=True, **setup), made)  # type: ignore[arg-type]
    script = project / "train.py"
    overlay = {script: SCRIPT.replace("EXTRA", extra).encode()} if extra else {}
    try:
        return starts.run(
            Program("original", script, overlay), seed=0, shift=0, detail=Detail(), steps=steps
        )
    finally:
        made.close()


def test_a_run_is_recorded_and_leaves_nothing(project: Path):
    before = sorted(project.rglob("*"))
    done = run(
        project,
        "print(os.environ['OMP_NUM_THREADS'], os.environ['PYTHONHASHSEED'], os.path.basename(os.getcwd()), sys.argv)",
        runner=Runner,
    )
    assert done.ok and done.exit_code == 0 and len(done.record.steps) == 5
    printed = [
        float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("loss")
    ]
    assert printed == pytest.approx(list(done.record.losses), abs=1e-6)
    assert done.stdout.splitlines()[-1] == "1 0 project ['train.py', '5']"
    assert sorted(project.rglob("*")) == before


def test_a_run_ends_after_the_steps_that_are_wanted(project: Path):
    done = run(project, arguments=("1000000",), steps=7)
    assert done.ok and len(done.record.steps) == 7 and done.record.ending == "steps"


def test_a_script_is_kept_from_the_users_files_outside_of_the_copy(project: Path):
    done = run(project, "open('../kept.txt', 'a').write('overwritten')")
    assert (
        not done.ok
        and "kept from writing over" in done.record.error
        and "kept.txt" in done.record.error
    )
    done = run(project, f"torch.save(model.state_dict(), {str(project / 'train.py')!r})")
    assert not done.ok and "train.py" in done.record.error
    assert (project.parent / "kept.txt").read_text() == "the user's"
    assert (project / "train.py").read_text() == SCRIPT.replace("EXTRA", "")


def ended(pid: int) -> bool:
    """A process that was killed is gone, or waits for its parent to ask, as soon as the system has
    come round to it.
    """
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        os.sched_yield()
    return False


def test_a_run_beyond_its_limit_is_ended_with_all_its_children(project: Path):
    (project / "train.py").write_text(
        "import os, signal, time\nchild = os.fork()\nif child:\n    print('child', child, flush=True)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "while True:\n    time.sleep(100)\n"
    )
    done = run(project, limit=2.0, runner=Runner)
    assert done.timed_out and not done.ok
    assert ended(int(done.stdout.split()[1]))


def test_what_leaves_the_group_of_a_run_is_ended_with_it(project: Path):
    """As torchrun's ranks do."""
    left = "import subprocess; print('child', subprocess.Popen(['sleep', '1000'], start_new_session=True).pid)"
    done = run(project, left, runner=Runner)
    assert done.ok and ended(int(done.stdout.split()[-1]))


def test_a_file_that_a_run_made_outside_may_be_written_again(project: Path):
    made = scratch.make([project], parent=project.parent.parent)
    runner = ForkRunner(Setup(arguments=("5",), cwd=project, threads=1), made)
    new = project.parent / "new.txt"
    script = SCRIPT.replace(
        "EXTRA",
        f"for _ in range(2):\n    open({str(new)!r}, 'w').write('x')\nos.remove({str(new)!r})\nopen({str(new)!r}, 'w')",
    )
    program = Program("original", project / "train.py", {project / "train.py": script.encode()})
    for _ in range(2):
        done = runner.run(program, seed=0, shift=0, detail=Detail(), steps=0)
        assert done.ok, done.stderr
        assert done.record.wrote_outside == (str(new),)
    made.close()


REMOVALS = """
import shutil
OUTSIDE = {outside!r}
for number, removal in enumerate((
    lambda: os.remove(OUTSIDE + "/kept.txt"),
    lambda: os.rename(OUTSIDE + "/kept.txt", "taken.txt"),
    lambda: shutil.rmtree("../runs/first"),
    lambda: os.truncate("../kept.txt", 0),
    lambda: os.unlink("kept.txt", dir_fd=os.open(OUTSIDE, os.O_RDONLY)),
    lambda: shutil.rmtree(OUTSIDE + "/runs", ignore_errors=True),
)):
    try:
        removal()
    except PermissionError as error:
        print("kept", number, error)
shutil.rmtree("old")
os.remove("../kept.txt")  # the link to it that stands beside the copy
"""


def test_a_script_is_kept_from_removing_the_users_files(project: Path):
    for folder in (project.parent / "runs" / "first", project / "old"):
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("the user's")
    before = {path: path.is_file() and path.read_text() for path in project.parent.rglob("*")}
    done = run(project, REMOVALS.format(outside=str(project.parent)))
    assert done.ok, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("kept")] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    assert {
        path: path.is_file() and path.read_text() for path in project.parent.rglob("*")
    } == before


def test_an_error_of_the_script_is_its_own(project: Path):
    done = run(project, "raise RuntimeError('out of luck')")
    assert not done.ok and done.exit_code == 1
    assert (
        done.record.error == "RuntimeError: out of luck"
        and "train.py" in done.record.traceback
        and "probe" not in done.record.traceback
    )
    assert len(done.record.steps) == 5


@pytest.mark.parametrize(
    ("launch", "start"),
    [
        ("", ["PY", "PROBE"]),
        (
            "torchrun --nproc-per-node=2",
            ["PY", "-m", "torch.distributed.run", "--nproc-per-node=2", "MAIN"],
        ),
        (
            "/opt/bin/torchrun --standalone",
            ["PY", "-m", "torch.distributed.run", "--standalone", "MAIN"],
        ),
        (
            "python3 -m torch.distributed.run --standalone",
            ["python3", "-m", "torch.distributed.run", "--standalone", "MAIN"],
        ),
        ("accelerate launch --cpu", ["PY", "-m", "accelerate.commands.launch", "--cpu", "MAIN"]),
        ("srun --gres=gpu:1", ["srun", "--gres=gpu:1", "PY", "MAIN"]),
        ("uv run python", ["uv", "run", "python", "MAIN"]),
        (
            "srun -n 1 torchrun --nproc-per-node=4",
            ["srun", "-n", "1", "torchrun", "--nproc-per-node=4", "MAIN"],
        ),
    ],
)
def test_launchers_get_what_they_start(project: Path, launch: str, start: list[str]):
    made = scratch.make([project], parent=project.parent.parent)
    runner = Runner(
        Setup(python="PY", arguments=("--lr", "1"), cwd=project, launch=tuple(launch.split())), made
    )
    command = runner.command(Program("original", project / "train.py"))
    names = {str(runs.PROBE): "PROBE", str(runs.PROBE / "__main__.py"): "MAIN"}
    assert [names.get(word, word) for word in command] == [*start, "train.py", "--lr", "1"]
    assert (
        runner.shown(Program("original", project / "train.py"))
        == f"{launch or 'python'} train.py --lr 1"
    )
    made.close()


def test_one_program_may_have_a_launcher_of_its_own(project: Path):
    made = scratch.make([project], parent=project.parent.parent)
    runner = Runner(Setup(python="PY", cwd=project, launch=("srun",)), made)
    alone = Program("rewritten", project / "train.py", launch=("torchrun", "--nproc-per-node=2"))
    assert runner.command(alone)[:4] == ["PY", "-m", "torch.distributed.run", "--nproc-per-node=2"]
    assert runner.shown(alone) == "torchrun --nproc-per-node=2 train.py"
    assert runner.command(Program("original", project / "train.py"))[0] == "srun"
    made.close()


def test_a_script_of_a_package_is_shown_as_its_module(project: Path):
    (project / "pkg").mkdir()
    (project / "pkg" / "train.py").write_text("from .data import load\n")
    runner = Runner(
        Setup(arguments=("1",), cwd=project), scratch.make([project], parent=project.parent.parent)
    )
    assert (
        runner.shown(Program("original", project / "pkg" / "train.py")) == "python -m pkg.train 1"
    )
    runner.scratch.close()


def test_an_interpreter_without_torch_is_one_line(tmp_path: Path):
    with pytest.raises(BadInput, match="--python"):
        runs.ask(str(tmp_path / "nothing"))
    empty = tmp_path / "python"
    empty.write_text(f'#!/bin/sh\nexec {sys.executable} -S -I "$@"\n')
    empty.chmod(0o755)
    with pytest.raises(BadInput, match="cannot import torch .*--python"):
        runs.ask(str(empty))


def test_a_notebook_runs_as_the_script_of_its_cells(tmp_path: Path) -> None:
    cells = [["%matplotlib inline\n", "x = 1"], ["x += 1\n", "x"]]
    book = tmp_path / "train.ipynb"
    code = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    text = {
        "cells": [{**code, "source": c} for c in cells],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    book.write_text(json.dumps(text, indent=1), encoding="utf-8")
    program = Program.of("original", book)
    assert program.path == tmp_path / "train.py"
    found: dict[str, object] = {}
    exec(program.overlay[program.path].decode(), found)
    assert found["x"] == 2
    (tmp_path / "train.py").touch()  # a script of the user's stays what it is
    rewritten = Program.of("rewritten", book, {book: book.read_bytes().replace(b"x = 1", b"x = 5")})
    assert rewritten.path == tmp_path / "train_notebook.py" and book not in rewritten.overlay
    assert b"x = 5" in rewritten.overlay[rewritten.path]
