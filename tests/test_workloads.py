"""The ten workloads of benchmarks.speed: as written, rewritten and tuned by hand they run and train; the rewritten ones as the original does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from autofast.rule import Effect
from benchmarks.speed import NAMES, WORKLOADS, rewritten
from tests.zygote import PROGRAM, QUIET, ZYGOTE

pytest.importorskip("torch")
# Batch norms over a few samples blow up any rounding: without oneDNN, too, the second loss is another one in its second digit.
CHAOTIC = ("cifar", "resnet50")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TIMES = re.compile(r"\d+\.\d+ ms")


def output(script: Path, folder: Path) -> str:
    """What it prints."""
    code = ZYGOTE.run(
        PROGRAM,
        [str(script), "--tiny"],
        limit=60,
        cwd=folder,
        environment=QUIET,
        stdout=folder / "out",
        stderr=folder / "err",
    )
    assert code == 0, (folder / "err").read_text()
    return (folder / "out").read_text()


def numbers(text: str) -> list[float]:
    return [float(n) for n in NUMBER.findall(TIMES.sub("", text))]


@pytest.mark.parametrize("name", NAMES)
def test_workload(name: str, tmp_path: Path) -> None:
    written = output(WORKLOADS / name / "train.py", tmp_path)
    expert = output(WORKLOADS / name / "expert.py", tmp_path)
    assert NUMBER.sub("", written) == NUMBER.sub("", expert)
    fast = tmp_path / "fast.py"
    ignored = ("channels-last",) if name in CHAOTIC else ()
    fast.write_text(rewritten(name, effect=Effect.ROUNDING, ignore=ignored))
    ours = output(fast, tmp_path)
    assert NUMBER.sub("", written) == NUMBER.sub("", ours)
    assert numbers(ours) == pytest.approx(numbers(written), rel=0.02, abs=0.02)
