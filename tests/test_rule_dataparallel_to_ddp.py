"""dataparallel-to-ddp: the same training in several processes, the keys of checkpoints stay, plain
python changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from autofast.rule import Effect
from tests.fixture import ALL, Fixture
from tests.harness import HARNESS, ROUNDING, compare
from tests.onerule import Applied, apply
from tests.test_fixtures import job, planned, script_of
from tests.torchrun import same_order, torchrun

torch = pytest.importorskip("torch")

RULE = "dataparallel-to-ddp"
MINE = [fixture for fixture in ALL if RULE in fixture.also]
HEAD = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 3), torch.randint(0, 2, (48,)))
loader = DataLoader(data, batch_size=12, shuffle=True)
model = nn.Linear(3, 2)
"""
LOOP = """
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
for epoch in range(2):
    for x, y in loader:
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""


def found(made: str, loop: str = LOOP, head: str = HEAD) -> Applied:
    return apply(RULE, head + made + loop)


# ------------------------------------------------------------------------------------- what it does
@pytest.mark.parametrize("fixture", MINE, ids=lambda fixture: fixture.name)
@pytest.mark.parametrize("ranks", [2, 3])
def test_several_processes_train_as_one(fixture: Fixture, ranks: int):
    """The whole batch is the same, so losses, weights and what is printed and saved agree with
    those of one process.
    """
    plan = planned(script_of(fixture), "cuda", Effect.RECIPE, [RULE])
    assert plan.fixes
    after = torchrun(replace(job(fixture, plan), then=None), ranks)
    assert after.ok, after.errors
    assert after.equal
    assert not any(after.left_open)
    assert [bool(run.stdout) for run in after.ranks] == [True] + [False] * (ranks - 1)
    assert all(not written for written in after.written[1:])
    before = HARNESS.run(replace(job(fixture), then=None, before=same_order(ranks)))
    assert before.ok, before.traceback
    assert after.losses == pytest.approx(before.losses, rel=1e-3, abs=1e-5)
    alike = replace(
        after.ranks[0],
        losses=before.losses,
        files=after.files,
        loads=before.loads,
        warnings=before.warnings,
    )
    assert compare(before, alike, Effect.ROUNDING, ROUNDING) == []


def test_checkpoints_are_loaded_by_both():
    """What several processes save, the original resumes from, with the keys of DataParallel."""
    fixture = next(f for f in MINE if f.name == "dataparallel_functions")
    plan = planned(script_of(fixture), "cuda", Effect.RECIPE, [RULE])
    world = torchrun(replace(job(fixture, plan), then=None), 2)
    assert world.ok, world.errors
    keys = [key for key in world.files["out/checkpoint.pth.tar"] if key.startswith("state_dict.")]
    assert keys and all(key.startswith("state_dict.module.") for key in keys)
    assert fixture.then
    resumed = HARNESS.run(job(fixture, plan))
    assert resumed.ok and resumed.then is not None


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (
            "net = nn.DataParallel(model)",
            "nn.DataParallel(model, device_ids=[LOCAL_RANK] if WORLD_SIZE > 1 else None)",
        ),
        (
            "net = nn.DataParallel(model, [0, 1])",
            "nn.DataParallel(model, [LOCAL_RANK] if WORLD_SIZE > 1 else [0, 1])",
        ),
        (
            "net = nn.DataParallel(model, device_ids=None)",
            "device_ids=[LOCAL_RANK] if WORLD_SIZE > 1 else None)",
        ),
        (
            "net = nn.DataParallel(model, device_ids=[0], output_device=0)",
            "device_ids=[LOCAL_RANK] if WORLD_SIZE > 1 else [0], output_device=LOCAL_RANK if WORLD_SIZE > 1 else 0",
        ),
        (
            "net = model\nif torch.cuda.device_count() > 1:\n    net = nn.DataParallel(net)",
            "net = nn.DataParallel(net, device_ids=[LOCAL_RANK] if WORLD_SIZE > 1 else None)",
        ),
        (
            "net = model\nnet = torch.nn.parallel.DataParallel(net).train()",
            "DataParallel(net, device_ids=[LOCAL_RANK] if WORLD_SIZE > 1",
        ),
    ],
)
def test_dataparallel_is_held_to_one_gpu(made: str, wanted: str):
    done = found(made)
    assert done.fixes, done.refusals
    assert wanted in " ".join(done.text.split()).replace("( ", "(").replace(", )", ")")
    assert "criterion(ddp_net(x), y)" in done.text


# ---------------------------------------------------------------------------------- what it refuses
@pytest.mark.parametrize(
    ("made", "loop", "reason"),
    [
        ("net = nn.DataParallel(model, dim=1)", LOOP, "another dimension"),
        ("given = {}\nnet = nn.DataParallel(model, **given)", LOOP, "not spelled out"),
        (
            "net = nn.DataParallel(model)",
            LOOP.replace("criterion(net(x), y)", "criterion(net.module.forward(x), y)"),
            "",
        ),
        (
            "net = nn.DataParallel(model)",
            LOOP.replace(
                "net(x), y)", "net(x), y, weight) if False else criterion(net(x), y).median()"
            ),
            "",
        ),
        (
            "net = nn.DataParallel(model)\nimport torch.distributed\ntorch.distributed.init_process_group('gloo')",
            LOOP,
            "distributed already",
        ),
        ("net = nn.DataParallel(model)\ninput('go?')", LOOP, "asks the user"),
    ],
)
def test_refusals(made: str, loop: str, reason: str):
    done = found(made, loop)
    assert not done.fixes, done.text
    assert done.refusals and reason in done.refusals
    assert done.text == done.before


def test_nothing_to_do_without_dataparallel():
    assert not found("net = model").findings


def test_ddp_leaves_it_to_this_rule():
    done = apply(f"ddp {RULE}", HEAD + "net = nn.DataParallel(model)" + LOOP)
    assert [f.rule for f in done.fixes] == [RULE]
