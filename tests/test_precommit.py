"""The hook, with the real pre-commit in a real repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_cli import IDLE, SCRIPT

ROOT = Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.slow


def run(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | environment
    return subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, env=env
    )


def git(folder: Path, *arguments: object) -> None:
    identity = [
        "-c",
        "user.name=autofast",
        "-c",
        "user.email=autofast@localhost",
        "-c",
        "core.hooksPath=/dev/null",
    ]
    done = run("git", *identity, *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    """This work tree as a repository of its own, as pre-commit would clone it."""
    clone = tmp_path / "autofast"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    if listed.returncode:
        pytest.skip("not in a git work tree: what the hook would be made of is not known")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("fixtures/", "tests/")):
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, clone / name)
    git(clone, "init", "-q")
    git(clone, "add", "-A")
    git(clone, "commit", "-q", "-m", "autofast")
    return clone


def test_hook(tmp_path: Path, hook: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    (work / "idle.py").write_text(IDLE)
    git(work, "init", "-q")
    git(work, "add", "-A")

    def hooked(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            "-m",
            "pre_commit",
            "try-repo",
            hook,
            "autofast-check",
            "--color",
            "never",
            *arguments,
        ]
        return run(*command, cwd=work, PRE_COMMIT_HOME=str(tmp_path / "home"))

    done = hooked("--all-files")
    if "Could not find a version" in done.stdout or "No matching distribution" in done.stdout:
        pytest.skip("no package index: pre-commit cannot install the hook")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "autofast check" in done.stdout and "Failed" in done.stdout
    assert "train.py:" in done.stdout and "Found " in done.stdout
    assert "Traceback" not in done.stdout
    assert (work / "train.py").read_text() == SCRIPT
    assert not list((tmp_path / "home").glob("repo*/py_env*/lib/python*/site-packages/torch")), (
        "the hook needs no torch"
    )

    idle = hooked("--files", "idle.py")
    assert idle.returncode == 0 and "Passed" in idle.stdout, idle.stdout
