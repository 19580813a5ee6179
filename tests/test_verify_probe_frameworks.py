"""Lightning, Hugging Face's Trainer and Accelerate under the probe, where they are installed (none
of them is needed by autofast).
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autofast.verify.evidence.record import FULL, Detail
from tests.probing import PROBE, SCRIPTS, Ran, fresh, run
from tests.test_verify_probe import check

pytest.importorskip("torch")


def both(folder: Path, kind: str) -> Ran:
    """A run in every detail, after one in none that gives the same losses."""
    light, full = (run(folder, "frameworks.py", kind, detail=detail) for detail in (Detail(), FULL))
    assert light.code == full.code == 0, full.stderr
    assert light.record.losses == full.record.losses
    record = check(full.record)
    assert record.ending == "end" and len(record.steps) == record.backwards == 8
    assert sum(step.samples for step in record.steps) == 128
    assert all(step.grad_norm and step.training == 1 for step in record.steps)
    assert all(
        min(step.phases[name] for name in ("data", "forward", "backward", "optimizer")) > 0
        for step in record.steps
    )
    cut = run(folder, "frameworks.py", kind, steps=3)
    assert (
        cut.code == 0 and cut.record.ending == "steps" and cut.record.losses == record.losses[:3]
    ), cut.stderr
    training = [one for one in record.passes if one.training]
    assert [(one.batches, one.samples, one.complete) for one in training] == [(4, 64, True)] * 2
    return full


def test_lightning(tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed", exc_type=ImportError)
    record = both(tmp_path, "lightning").record  # backward lies inside the optimizer's step
    assert [step.evaluation_samples for step in record.steps] == [24, 0, 0, 0, 24, 0, 0, 0]


def test_trainer(tmp_path: Path) -> None:
    pytest.importorskip(
        "transformers", reason="transformers is not installed", exc_type=ImportError
    )
    record = both(
        tmp_path, "trainer"
    ).record  # fetches one batch ahead, and evaluates in the middle of an epoch
    assert [step.evaluation_samples for step in record.steps] == [0, 0, 0, 24, 0, 0, 24, 0]
    assert [step.phases["evaluation"] > 0 for step in record.steps] == [False] * 3 + [
        True,
        False,
        False,
        True,
        False,
    ]


def test_accelerate(tmp_path: Path) -> None:
    pytest.importorskip("accelerate", reason="accelerate is not installed", exc_type=ImportError)
    both(tmp_path, "accelerate")
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"]
    ran = fresh(
        tmp_path,
        [*launch, str(PROBE / "__main__.py"), str(SCRIPTS / "frameworks.py"), "accelerate"],
        steps=3,
    )
    assert ran.code == 0 and len(ran.record.steps) == 3 and ran.record.ending == "steps", ran.stderr
