"""Shell completion, by calling what the shell calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "usage.md"


def completed(line: str, shell: str = "bash") -> list[str]:
    """What is offered at the end of a line."""
    words = line.split()
    env = {
        **os.environ,
        "_AUTOFAST_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - (not line.endswith(" "))),
    }
    done = subprocess.run(
        [sys.executable, "-m", "autofast"], capture_output=True, text=True, env=env, check=True
    )
    return done.stdout.splitlines()


def test_commands_options_rules_and_files() -> None:
    assert "plain,rewrite" in completed("autofast re")
    assert "plain,--output-format" in completed("autofast check --out")
    assert completed("autofast check --output-format sa") == ["plain,sarif"]
    rules = completed("autofast check --select fused-optimizer,pi")
    assert rules == ["plain,fused-optimizer,pin-memory"]
    assert "plain,loader" in completed("autofast rewrite --ignore lo")
    assert completed("autofast rule ddp") == ["plain,ddp"]
    assert completed("autofast rewrite tra") == ["file,tra"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_that_the_page_names(shell: str) -> None:
    line = f"_AUTOFAST_COMPLETE={shell}_source autofast"
    assert line in PAGE.read_text("utf-8")
    env = {**os.environ, "_AUTOFAST_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-m", "autofast"]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert "_AUTOFAST_COMPLETE" in done.stdout and "_autofast_completion" in done.stdout
    if interpreter := shutil.which(shell):
        told = subprocess.run(
            [interpreter, "-n"], input=done.stdout, capture_output=True, text=True
        )
        assert told.returncode == 0, told.stderr
