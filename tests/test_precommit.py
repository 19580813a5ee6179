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
HOOKS = """\
repos:
- repo: {}
  rev: {}
  hooks:
  - id: autofast-check
  - id: autofast-rewrite
"""


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


@pytest.fixture
def work(tmp_path: Path, hook: Path) -> Path:
    """A project of its own in a repository: a script, a file that it imports, one that is left out,
    and one that trains nothing.
    """
    work = tmp_path / "work"
    work.mkdir()
    made = "    loader = DataLoader(data, batch_size=32, shuffle=True)\n"
    make = "def make(data, device):\n    return DataLoader(data, batch_size=32, shuffle=True)\n"
    script = SCRIPT.replace(made, "    loader = make(data, device)\n").replace(
        "import torch\n", "import torch\nfrom data import make\n", 1
    )
    tree = {
        "train.py": script,
        "data.py": f"from torch.utils.data import DataLoader\n\n\n{make}",
        "idle.py": IDLE,
        "left_out.py": SCRIPT,
        "pyproject.toml": "[tool.autofast]\nexclude = ['left_out.py']\n",
        ".pre-commit-config.yaml": HOOKS.format(
            hook, run("git", "rev-parse", "HEAD", cwd=hook).stdout
        ),
    }
    for name, text in tree.items():
        (work / name).write_text(text)
    git(work, "init", "-q")
    git(work, "add", "-A")
    return work


def test_hooks(tmp_path: Path, work: Path) -> None:
    def hooked(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pre_commit", "run", name]
        command += ["--color", "never", *arguments]
        return run(*command, cwd=work, PRE_COMMIT_HOME=str(tmp_path / "home"))

    before = {path.name: path.read_bytes() for path in work.glob("*.py")}
    done = hooked("autofast-check", "--all-files")
    if "Could not find a version" in done.stdout or "No matching distribution" in done.stdout:
        pytest.skip("no package index: pre-commit cannot install the hook")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "autofast check" in done.stdout and "Failed" in done.stdout
    assert "train.py:" in done.stdout and "Found " in done.stdout
    assert "left_out.py" not in done.stdout
    assert "Traceback" not in done.stdout
    assert {path.name: path.read_bytes() for path in work.glob("*.py")} == before
    assert not list((tmp_path / "home").glob("repo*/py_env*/lib/python*/site-packages/torch")), (
        "the hook needs no torch"
    )
    idle = hooked("autofast-check", "--files", "idle.py")
    assert idle.returncode == 0 and "Passed" in idle.stdout, idle.stdout

    # A file alone is read with the script that imports it, and only the file is spoken of.
    part = hooked("autofast-check", "--files", "data.py")
    assert part.returncode == 1 and "data.py: read as a part of train.py" in part.stdout
    assert "data.py:5:" in part.stdout and "train.py:1" not in part.stdout

    mended = hooked("autofast-rewrite", "--files", "data.py")
    assert mended.returncode == 1 and "files were modified by this hook" in mended.stdout
    assert (work / "data.py").read_bytes() != before["data.py"]
    assert (work / "train.py").read_bytes() == before["train.py"]
    everything = hooked("autofast-rewrite", "--all-files")
    assert everything.returncode == 1, everything.stdout
    assert (work / "train.py").read_bytes() != before["train.py"]
    assert (work / "left_out.py").read_bytes() == before["left_out.py"]
    git(work, "add", "-A")
    again = hooked("autofast-rewrite", "--all-files")
    assert again.returncode == 0 and "Passed" in again.stdout, again.stdout
