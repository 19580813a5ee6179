"""Many scripts are read in several processes, and nobody can tell by the answer."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from autofast.commands import parallel
from autofast.commands.checking import Request, check
from autofast.config import Config
from autofast.model.source import BadInput
from tests.test_cli import SCRIPT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="one process elsewhere")


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def test_the_same_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(parallel.FEW - 1):
        (tmp_path / f"train_{n}.py").write_text("\n" * n + SCRIPT)
    (tmp_path / "train_broken.py").write_text(SCRIPT + "def (:\n")
    request = Request([tmp_path], tmp_path, Config(), cache=False)
    told: list[tuple[int, int, str]] = []
    several = check(request, lambda *now: told.append(now))
    monkeypatch.setattr(parallel, "FEW", 1_000)
    alone = check(request)
    assert several.records == alone.records and several.records
    assert several.errors == alone.errors and "train_broken.py" in several.errors[0]
    assert several.files == alone.files
    assert [done for done, _, _ in told] == list(range(8))


def test_others_do_the_work() -> None:
    made = parallel.in_processes(lambda _: os.getpid(), range(parallel.FEW), lambda _: None)
    assert os.getpid() not in made


def test_one_that_is_killed_is_not_waited_for() -> None:
    def work(thing: int) -> int:
        if thing == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return thing

    with pytest.raises(BadInput, match="ended from outside"):
        list(parallel.in_processes(work, range(parallel.FEW), lambda _: None))
