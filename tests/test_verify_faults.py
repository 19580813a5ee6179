"""Every seeded fault is flagged, no sound rewrite is (the table: docs/verify-evidence.md, made by
benchmarks/verify_faults.py): every third, all of them with AUTOFAST_TESTS=all.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autofast.verify.evidence.record import Run
from autofast.verify.judging import parity
from autofast.verify.result import Parity, Sameness
from autofast.verify.running import scratch
from autofast.verify.running.runs import Program, Setup
from tests.faults import CASES, HERE, Case
from tests.fixture import EVERYTHING
from tests.forked import ForkRunner

FINE = (Sameness.IDENTICAL, Sameness.EQUIVALENT)


class Bench:
    """Runs the cases; the runs of an original are made once for all its cases."""

    def __init__(self, folder: Path, here: Path = HERE):
        self.scratch = scratch.make([here], parent=folder)
        self.runner = ForkRunner(Setup(cwd=here, threads=1), self.scratch)
        self._known: dict[tuple[object, ...], Run] = {}

    def judge(self, case: Case, seeds: int = 12) -> Parity:
        runs: list[Run] = []
        while wishes := parity.wanted(case.effect, runs, rules=case.rules, seeds=seeds):
            for wish in wishes:
                original = wish.arm == "original"
                overlay = {} if original else {case.changed: case.text().encode()}
                again = sum(
                    1
                    for run in runs
                    if (run.arm, run.seed, run.detail) == (wish.arm, wish.seed, wish.detail)
                )
                key = (
                    (case.path, case.steps, wish.seed, wish.detail, again)
                    if original
                    else (case.base, case.name, wish.seed, wish.detail, again)
                )
                if key not in self._known:
                    program = Program(wish.arm, case.path, overlay)
                    self._known[key] = self.runner.run(
                        program,
                        seed=wish.seed,
                        shift=wish.seed,
                        detail=wish.detail,
                        steps=case.steps,
                    )
                runs.append(self._known[key])
        return parity.judge(case.effect, runs, rules=case.rules, seeds=seeds)

    def close(self) -> None:
        self.scratch.close()


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("faults"))
    yield made
    made.close()


@pytest.mark.parametrize(
    "case",
    [  # in one process, which runs the original once for all
        pytest.param(case, marks=pytest.mark.xdist_group(f"faults of {case.path.name}"))
        for case in CASES[:: 1 if EVERYTHING else 3]
    ],
    ids=lambda case: case.name,
)
def test_faults_are_flagged_and_sound_rewrites_are_not(bench: Bench, case: Case) -> None:
    found = bench.judge(case)
    failed = [f"{check.name}: {check.text}" for check in found.checks if check.passed is False]
    assert (found.verdict in FINE) == case.sound, (
        f"{found.verdict.value}: {found.summary}\n" + "\n".join(failed)
    )
    if not case.sound:
        assert failed and found.verdict is not Sameness.UNCLEAR
