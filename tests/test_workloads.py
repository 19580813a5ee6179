"""The ten workloads of benchmarks.speed: as written, rewritten and tuned by hand they run and
train; the rewritten ones as the original does.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import benchmarks.speed
from autofast.rule import Effect
from benchmarks.speed import NAMES, WORKLOADS, rewritten
from tests.zygote import PROGRAM, QUIET, ZYGOTE

pytest.importorskip("torch")
# Batch norms over a few samples blow up any rounding: without oneDNN, too, the second loss is
# another one in its second digit.
CHAOTIC = ("cifar", "resnet50")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
TIMES = re.compile(r"\d+\.\d+ ms")


# What docs/benchmarks.md counts on: data in memory are put on the device.
RESIDENT = ("mnist", "cifar", "unet", "dcgan", "rows", "vae")


def output(script: Path, folder: Path, *arguments: str) -> str:
    """What it prints."""
    code = ZYGOTE.run(
        PROGRAM,
        [str(script), *arguments],
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
    written = output(WORKLOADS / name / "train.py", tmp_path, "--tiny")
    expert = output(WORKLOADS / name / "expert.py", tmp_path, "--tiny")
    assert NUMBER.sub("", written) == NUMBER.sub("", expert)
    fast = tmp_path / "fast.py"
    ignored = ("channels-last",) if name in CHAOTIC else ()
    fast.write_text(rewritten(name, effect=Effect.ROUNDING, ignore=ignored))
    assert ("batch_size=None" in rewritten(name)) is (name in RESIDENT)
    ours = output(fast, tmp_path, "--tiny")
    assert NUMBER.sub("", written) == NUMBER.sub("", ours)
    assert numbers(ours) == pytest.approx(numbers(written), rel=0.02, abs=0.02)


COUNTED = """
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
assert device.type == "cuda"
weight = torch.zeros(3, device=device, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
data = torch.ones(4, 3)
for row in data.expand(2, 4, 3).flatten(0, 1):
    row = row + 1  # on the host
    x = row.to(device, non_blocking={non_blocking})
    assert x.device.type == "cuda" and row.device.type == "cpu"
    optimizer.zero_grad()
    loss = (weight * x.view(3)).sum()
    loss.backward()
    optimizer.step()
    {last}
"""


@pytest.mark.parametrize(
    ("non_blocking", "last", "waits"),
    [
        (False, "pass", 1),
        (True, "pass", 0),
        (True, "loss.item()", 1),
        (True, "loss.tolist(), x[x > 1], x.cpu()", 3),
    ],
)
def test_what_a_step_asks_of_a_gpu(
    non_blocking: bool, last: str, waits: int, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(COUNTED.format(non_blocking=non_blocking, last=last))
    counting = Path(benchmarks.speed.__file__).with_name("counting.py")
    found = json.loads(output(counting, tmp_path, "5", str(script)))
    assert (found["bytes"], found["waits"], found["once"]) == (12, waits, 0)
    # Product and sum, the gradient of the sum and of the product, the update; x > 1 and the index.
    assert found["operators"] == 5 + 2 * ("x[" in last)
