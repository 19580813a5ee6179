"""What ``make demo`` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_demo() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, ROOT / "benchmarks" / "demo.py", "--steps", "5", "--rounds", "1"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "@@  " in done.stdout and "loss of step 5" in done.stdout
    assert "the same to the last bit" in " ".join(done.stdout.split())
