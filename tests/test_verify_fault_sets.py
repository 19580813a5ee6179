"""The sets of benchmarks/verify_faults.py: every case can be made, a broken off run goes on."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autofast.verify.result import Parity, Sameness
from benchmarks import pages, verify_faults
from tests.faults import Case


@pytest.mark.parametrize("name", verify_faults.SETS)
def test_every_case_of_a_set_is_a_program(name: str) -> None:
    cases = verify_faults.SETS[name]
    assert len({(case.base, case.name) for case in cases}) == len(cases)
    for case in cases:
        ast.parse(case.text())
    assert f"<!-- faults-{name}: " in pages.PAGE.read_text()


class Judge:
    """Calls everything BROKEN, the fourth case of a run breaks it off."""

    asked: list[str] = []

    def __init__(self, folder: Path, here: Path):
        assert here.is_dir()

    def judge(self, case: Case) -> Parity:
        if len(self.asked) == 3:
            raise KeyboardInterrupt
        self.asked.append(case.name)
        return Parity(Sameness.BROKEN, "", (), "it does\nnot run")

    def close(self) -> None:
        pass


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(Judge, "asked", [])
    monkeypatch.setattr(verify_faults, "Bench", Judge)
    yield Judge.asked


def _main(monkeypatch: pytest.MonkeyPatch, *args: str) -> int:
    monkeypatch.setattr(sys, "argv", ["verify_faults", *args])
    return verify_faults.main()


def test_a_broken_off_run_goes_on_where_it_was(
    asked: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "verdicts"
    args = ("--set", "9", "--every", "2", "--resume", str(file))
    every_second = [case.name for case in verify_faults.SETS["9"]][1::2]
    with pytest.raises(KeyboardInterrupt):
        _main(monkeypatch, *args)
    assert asked == every_second[:3] and len(file.read_text().splitlines()) == 3
    asked.clear()
    assert _main(monkeypatch, *args) == 1  # sound ones are called BROKEN
    assert asked == every_second[3:]
    lines = file.read_text().splitlines()
    assert [line.split(" | ")[1].split(": ", 1)[1] for line in lines] == every_second
    assert capsys.readouterr().out.splitlines()[3:] == lines
    assert all(line.endswith(" | broken | it does not run") for line in lines)
