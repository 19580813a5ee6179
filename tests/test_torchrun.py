"""The runs with several ranks: what is recorded, and that a crash or a hang is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.harness import HARNESS, Job
from tests.torchrun import World, real, same_order, torchrun

pytest.importorskip("torch")

SCRIPT = """
import os
import sys
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

WORLD = int(os.environ.get("WORLD_SIZE", 1))
RANK = int(os.environ.get("RANK", 0))
torch.manual_seed(0)
if WORLD > 1:
    dist.init_process_group("gloo")
data = TensorDataset(torch.randn(22, 3), torch.randn(22, 1))
sampler = DistributedSampler(data) if WORLD > 1 else None
loader = DataLoader(data, batch_size=6 // WORLD, shuffle=sampler is None, sampler=sampler)
model = nn.Linear(3, 1)
ddp = DistributedDataParallel(model) if WORLD > 1 else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for x, y in loader:
        loss = ((ddp(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    {epoch}
if RANK == 0:
    print("done", loss.item())
    torch.save(model.state_dict(), "model.pt")
if WORLD > 1:
    dist.barrier()
    dist.destroy_process_group()
"""


def job(tmp_path: Path, epoch: str = "pass", limit: float = 60.0) -> Job:
    (tmp_path / "train.py").write_text(SCRIPT.replace("{epoch}", epoch))
    return Job(tmp_path, limit=limit)


def ran(tmp_path: Path, epoch: str = "pass", ranks: int = 2, limit: float = 60.0) -> World:
    return torchrun(job(tmp_path, epoch, limit), ranks)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_train_as_one_process_does(tmp_path: Path, ranks: int):
    world = ran(tmp_path, ranks=ranks)
    assert world.ok, world.errors
    assert world.equal
    assert len(world.ranks) == ranks and not any(world.left_open)
    one = HARNESS.run(replace(job(tmp_path), before=same_order(ranks) if ranks > 1 else ""))
    assert one.ok, one.traceback
    assert world.losses == pytest.approx(one.losses, abs=1e-6)
    assert world.files["model.pt"]["weight"] == pytest.approx(
        one.files["model.pt"]["weight"], abs=1e-6
    )
    assert [bool(rank.stdout) for rank in world.ranks] == [True] + [False] * (ranks - 1)
    assert world.written == [["model.pt"]] + [[]] * (ranks - 1)
    padding = -22 % ranks
    for number in range(2):
        taken = world.taken(number)
        assert sum(taken.values()) == 22 + padding and len(taken) == 22
    assert world.taken(0) != world.taken(1) or not padding


def test_ranks_that_train_apart_are_not_equal(tmp_path: Path):
    world = ran(tmp_path, epoch="model.weight.data += RANK")
    assert world.ok and not world.equal


def test_a_crash_ends_all(tmp_path: Path):
    world = ran(tmp_path, epoch="if RANK == 1: raise ValueError('no data')")
    assert not world.ok and not world.hung
    assert world.ranks[1].error == "ValueError: no data" and world.codes[1] == 1
    assert world.codes[0] != 0


def test_a_rank_that_waits_for_ever_is_over_its_limit(tmp_path: Path):
    world = ran(tmp_path, epoch="if RANK == 1: import signal as s; s.pause()", limit=3.0)
    assert world.hung and not world.ok
    assert "train.py" in world.ranks[1].stderr


def test_different_collectives_are_an_error(tmp_path: Path):
    world = ran(tmp_path, epoch="dist.all_reduce(torch.zeros(1, 2) if RANK else torch.zeros(2))")
    assert world.codes == [0, 0] and not world.ok
    assert "all_reduce[[1, 2]]" in world.errors


def test_torchrun_itself_agrees(tmp_path: Path):
    done = real(job(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ran(tmp_path).ranks[0].stdout
