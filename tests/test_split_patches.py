"""``autofast rewrite --split-patches``: with the real ``git apply``."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.test_check import CELLS, notebook
from tests.test_cli import IDLE, autofast, fault, files, project, split

__all__ = ["project", "split"]  # fixtures


def git(*arguments: str) -> None:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_each_applies_on_top_of_the_one_before(split: Path) -> None:
    (split / ".git").rmdir()
    git("init", "-q", ".")
    options = ("--exhaustive", "--precision", "fp16")
    assert autofast("rewrite", "train.py", "--output-dir", "whole", "-q", *options).code == 0
    done = autofast("rewrite", "train.py", "--split-patches", "patches", *options)
    assert done.code == 0 and done.out == b""
    patches = sorted((split / "patches").iterdir())
    assert len(patches) > 4 and all(f"{patch.relative_to(split)}" in done.err for patch in patches)
    assert "To apply them, in this order: git apply patches/01-" in done.err
    named: list[str] = []
    for patch in patches:
        git("apply", str(patch))
        for name in ("train.py", "data.py"):
            compile((split / name).read_text(), name, "exec")
        rules = patch.stem.partition("-")[2].split("+")
        named += rules
        heads = [row for row in patch.read_text().splitlines() if row.startswith("@@")]
        assert heads and all(row.endswith(f"@@  {', '.join(rules)}") for row in heads)
    assert len(named) == len(set(named))
    whole = files(split / "whole")
    assert {name: (split / name).read_bytes() for name in whole} == whole


def test_what_needs_another_rule_comes_with_it(project: Path) -> None:
    options = ("--exhaustive", "--precision", "fp16", "--select", "autocast,grad-scaler")
    assert autofast("rewrite", "train.py", "--split-patches", "patches", *options).code == 0
    assert [path.name for path in (project / "patches").iterdir()] == [
        "01-autocast+grad-scaler.patch"
    ]


def test_folders_that_are_refused(project: Path) -> None:
    before = files(project)
    said = fault(autofast("rewrite", "train.py", "--split-patches", "train.py"))
    assert said == "train.py: is not a folder; give another name"
    (project / "train.ipynb").write_text(notebook(*CELLS))
    said = fault(autofast("rewrite", "train.ipynb", "--split-patches", "p"))
    assert said.startswith("train.ipynb: a patch of a notebook")
    (project / "train.ipynb").unlink()
    assert files(project) == before
    assert autofast("rewrite", "train.py", "--split-patches", "p").code == 0
    said = fault(autofast("rewrite", "train.py", "--split-patches", "p"))
    assert said.startswith("p: has patches")
    assert autofast("rewrite", "train.py", "--split-patches", "p", "--force").code == 0


def test_nothing_to_split(project: Path) -> None:
    (project / "train.py").write_text(IDLE)
    done = autofast("rewrite", "train.py", "--split-patches", "p")
    assert done.code == 0 and not (project / "p").exists()


@pytest.mark.parametrize("arguments", [["-", "--split-patches", "p"], ["train.py", "--split-patches", "p", "--diff"]])  # fmt: skip
def test_options_that_exclude_each_other(project: Path, arguments: list[str]) -> None:
    done = autofast("rewrite", *arguments)
    assert done.code == 2 and done.err.startswith("autofast: ")
