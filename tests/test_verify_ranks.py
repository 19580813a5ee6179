"""A training in several processes is compared with the same in one."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autofast.verify.evidence.ranks import compared, joined
from autofast.verify.evidence.record import FULL, Checkpoint, Lines, Pass, Record, Run
from autofast.verify.judging import parity
from tests import probing
from tests.probing import PROBE, SCRIPTS
from tests.verify_runs import record, run, step

SCRIPT = str(SCRIPTS / "several.py")
MAIN = str(PROBE / "__main__.py")
RANKS = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    MAIN,
    SCRIPT,
]


def several(folder: Path, fault: str) -> Run:
    """By torchrun itself, or with a fault in forks, which take a tenth of that."""
    folder.mkdir()
    if fault:
        ran = probing.ranks(folder, SCRIPT, fault, detail=FULL)
    else:
        ran = probing.fresh(folder, RANKS, detail=FULL)
    assert ran.code == 0, ran.stderr
    return run(ran.records, "rewritten", stdout=ran.stdout)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Run:
    pytest.importorskip("torch")
    ran = probing.run(tmp_path_factory.mktemp("one"), SCRIPT, detail=FULL)
    assert ran.code == 0, ran.stderr
    return run(ran.records, "original", stdout=ran.stdout)


@pytest.mark.parametrize(
    ("fault", "failed"),
    [
        ("", set()),
        ("gradients apart", {"the same model in every process"}),
        ("all data in each", {"samples for each step"}),
        ("divided again", {"first step"}),
    ],
)
def test_two_processes_beside_one(
    tmp_path: Path, original: Run, fault: str, failed: set[str]
) -> None:
    both = several(tmp_path / "two", fault)
    assert len(both.records) == 2
    found = parity.judge("rounding", [original, original, both])
    assert failed <= {check.name for check in found.checks if not check.passed}
    if not fault:
        assert not [check.text for check in found.checks if check.passed is False]
        right = {check.name for check in found.checks if check.passed}
        assert {
            "first step",
            "the same batches in the same order",
            "the same model in every process",
            "training mode",
        } <= right
        assert {"samples for each step", "checkpoints", "printed lines"} <= right


def pair(*passes: tuple[Pass, Pass], **more: object) -> Run:
    rank = record(
        [
            step(i, 0.1 * (i + 1), samples=4, evaluation_samples=3, losses=(1.0 + i,))
            for i in range(2)
        ],
        **more,
    )
    other = replace(
        rank,
        rank=1,
        steps=tuple(
            replace(s, wall=2 * s.wall, losses=(3.0 + i,)) for i, s in enumerate(rank.steps)
        ),
        losses=(3.0, 4.0),
        passes=tuple(b for _, b in passes),
    )
    return run([replace(rank, passes=tuple(a for a, _ in passes)), other])


def test_losses_are_means_and_samples_are_sums() -> None:
    one = joined(
        pair(
            (
                Pass(0, True, 2, 8, True, checksums=(1.0, 2.0), leaves=((1.0, 0.0),)),
                Pass(0, True, 2, 7, True, checksums=(3.0, 4.0), leaves=((2.0, 5.0),)),
            )
        )
    )
    assert len(one.records) == 1 and one.record.losses == (2.0, 3.0)
    assert [(s.losses, s.samples, s.wall) for s in one.record.steps] == [
        ((2.0,), 8, 0.2),
        ((3.0,), 8, 0.4),
    ]
    assert one.record.passes == (
        Pass(0, True, 2, 15, True, checksums=(4.0, 6.0), leaves=((3.0, 5.0),)),
    )


def test_what_any_rank_ran_has_run() -> None:
    def rank(*ran: int, dropouts: tuple[str, ...] = ()) -> Record:
        return replace(pair().record, lines={"a.py": Lines((1, 2, 3), ran)}, dropouts=dropouts)

    one = joined(run([rank(1, 2, dropouts=("0/a",)), rank(1, 3, dropouts=("0/a", "0/b"))])).record
    assert one.lines == {"a.py": Lines((1, 2, 3), (1, 2, 3))} and one.dropouts == ("0/a", "0/b")
    unknown = joined(run([rank(1, 2), replace(rank(), lines={})])).record
    assert unknown.lines == {}, "a rank that compiled code says nothing of its lines"


def test_an_evaluation_is_shared_or_made_by_each() -> None:
    whole = Pass(0, False, 2, 3, True, checksums=(1.0, 2.0))
    each = joined(pair((whole, whole)))
    assert each.record.passes == (whole,) and each.record.steps[0].evaluation_samples == 3
    shared = joined(pair((whole, replace(whole, checksums=(5.0, 6.0)))))
    assert shared.record.passes[0].samples == 6 and shared.record.steps[0].evaluation_samples == 6


def test_files_of_all_ranks_count_once() -> None:
    both = pair(checkpoints=(Checkpoint("model.pt", {"weight": "float32 [2]"}, True),))
    alone = Checkpoint("rank1.pt", {}, True)
    both = replace(
        both,
        records=(
            both.records[0],
            replace(both.records[1], checkpoints=(*both.records[1].checkpoints, alone)),
        ),
    )
    assert sorted(c.path for c in joined(both).record.checkpoints) == ["model.pt", "rank1.pt"]


def test_what_is_alike_or_failed_stays_as_it_is() -> None:
    both = pair()
    assert compared([both, both]) == [both, both]
    failed = replace(
        both, records=(both.records[0], replace(both.records[1], ending="error", exit_code=1))
    )
    assert joined(failed) is failed
    single = run(record([step(0, 0.1, losses=(1.0,))]))
    assert [len(r.records) for r in compared([single, both, failed])] == [1, 1, 2]
