"""``rewrite --commit``, with the real git."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.test_cli import SCRIPT, autofast, fault, files, project, split
from tests.test_precommit import run

__all__ = ["project", "split"]  # fixtures


@pytest.fixture
def repository(split: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script of two files in a real repository without changes."""
    (split / ".git").rmdir()
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "somebody")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "somebody@localhost")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    git(split, "init", "-q", "-b", "main")
    git(split, "add", "-A")
    git(split, "commit", "-q", "-m", "as it was")
    return split


def git(folder: Path, *arguments: str) -> str:
    names = ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL")
    env = {name: os.environ[name] for name in (*names, "GIT_CONFIG_GLOBAL") if name in os.environ}
    done = run("git", *arguments, cwd=folder, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def subjects(folder: Path) -> list[str]:
    return git(folder, "log", "--reverse", "--format=%s").splitlines()


def test_one_commit_for_each_rule(repository: Path) -> None:
    whole = autofast("rewrite", "train.py", "--output-dir", "../whole", "-q")
    assert whole.code == 0
    done = autofast("rewrite", "train.py", "--commit")
    assert done.code == 0 and done.text == "", done.err
    made = subjects(repository)[1:]
    rules = [subject.split(":")[0] for subject in made]
    assert len(rules) > 2 and set(rules) >= {"fused-optimizer", "no-grad-eval", "gpu-data"}
    assert all(f" {rule}\n" in done.err for rule in rules) and done.err.count("Commit ") == len(
        made
    )
    assert git(repository, "status", "--porcelain") == ""
    wanted = files(repository.parent / "whole")
    assert {name: (repository / name).read_bytes() for name in wanted} == wanted
    # Each of them is a script that compiles, and names the places.
    body = git(repository, "log", "-1", "--format=%b", "--grep=fused-optimizer")
    assert "train.py:22: runs the update of Adam as many small kernels (estimate:" in body
    assert "Effect: rounding" in body
    for commit in git(repository, "rev-list", "HEAD").split():
        for name in wanted:
            compile(git(repository, "show", f"{commit}:{name}"), name, "exec")
    hint = next(line for line in done.err.splitlines() if line.startswith("As it was: git "))
    start = hint.split("../before ")[1].split()[0]
    assert git(repository, "rev-parse", "HEAD" + "~" * len(made)).startswith(start)
    again = autofast("rewrite", "train.py", "--commit")
    assert again.code == 0 and "nothing to rewrite" in again.err
    assert subjects(repository)[1:] == made


def test_a_tree_with_changes(repository: Path) -> None:
    (repository / "data.py").write_text((repository / "data.py").read_text() + "\n# mine\n")
    before = files(repository)
    why = fault(autofast("rewrite", "train.py", "--commit"))
    assert why == "--commit: data.py has changes that are not committed; commit or stash them first"
    assert {k: v for k, v in files(repository).items() if not k.startswith(".git")} == {
        k: v for k, v in before.items() if not k.startswith(".git")
    }


def test_a_file_that_git_does_not_know(repository: Path) -> None:
    (repository / "other.py").write_text(SCRIPT)
    why = fault(autofast("rewrite", "other.py", "--commit"))
    assert why == "--commit: other.py is not in git; add and commit it first"
    assert (repository / "other.py").read_text() == SCRIPT


def test_a_hook_that_refuses(repository: Path) -> None:
    hook = repository / ".git" / "hooks" / "commit-msg"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(
        '#!/bin/sh\nif grep -q "^no-grad" "$1"; then echo "not this one" >&2; exit 1; fi\n'
    )
    hook.chmod(0o755)
    before = {name: (repository / name).read_bytes() for name in ("train.py", "data.py")}
    why = fault(autofast("rewrite", "train.py", "--commit"))
    assert why == "--commit: git commit failed (not this one); nothing was changed"
    assert {name: (repository / name).read_bytes() for name in before} == before
    assert subjects(repository) == ["as it was"] and git(repository, "status", "--porcelain") == ""


def test_no_repository(project: Path) -> None:
    why = fault(autofast("rewrite", "train.py", "--commit"))
    assert why.startswith("--commit: git status failed (fatal: ") and why.endswith(
        "nothing was changed"
    )
    why = autofast("rewrite", "train.py", "--commit", "--in-place")
    assert why.code == 2 and "--in-place and --commit exclude each other" in why.err
