"""What ``make demo`` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.demo import Run, speed

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.slow
def test_demo() -> None:
    pytest.importorskip("torch")
    command = [sys.executable, ROOT / "benchmarks" / "demo.py", "--steps", "5", "--rounds", "1"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "@@  " in done.stdout and "loss of step 5" in done.stdout
    assert "the same to the last bit" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("original", "rewritten", "says"),
    [
        ([40.0, 44.0], [20.0, 22.0], "1.82 to 2.20 times as fast"),
        ([40.0, 400.0], [58.0, 30.0], "10.00 times apart"),
    ],
)
def test_speed_is_claimed_where_all_runs_agree(
    original: list[float], rewritten: list[float], says: str
) -> None:
    before, after = ([Run([t] * 9, []) for t in arm] for arm in (original, rewritten))
    assert says in speed(before, after)
