"""Objects of libraries that do a whole update where they are called: what is seen of a training."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch

from autofast.read.library.steppers import TOLD
from tests.onerule import Applied, apply, run
from tests.reading import read

TIMM = """
import torch
import torch.nn as nn
from timm.utils import NativeScaler

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X, Y = torch.randn(6, 16, 8), torch.randint(0, 4, (6, 16))
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loss_scaler = NativeScaler()
for epoch in range(2):
    total = 0.0
    for x, y in zip(X.to(device), Y.to(device)):
        with torch.autocast(device.type, torch.bfloat16):
            loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
        torch.cuda.synchronize()
        total += loss.item()
    print(total / len(X))
"""
RULES = (
    "accumulation autocast channels-last compile ddp empty-cache fused-optimizer grad-scaler "
    "loss-item-sync set-to-none unscale-before-clip"
)


def told(part: str) -> str:
    return TOLD[part][0]


class Scaler:
    """What timm's scaler does, on a CPU."""

    def __init__(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256)

    def __call__(self, loss, optimizer, clip_grad, parameters):  # type: ignore[no-untyped-def]
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
        self.scaler.step(optimizer)
        self.scaler.update()


def test_a_training_with_timm_s_scaler_is_found(tmp_path: Path) -> None:
    script = read(tmp_path, TIMM)
    (step,) = script.steps
    assert len(step.backwards) == len(step.updates) == len(step.unscales) == len(step.clips) == 1
    assert step.backwards[0].scaled and not step.backwards[0].double and step.scalers
    assert step.updates[0].scaled and step.updates[0].things == script.optimizers[0].things
    assert [source.rel for source in script.sources] == ["train.py"]


def test_its_training_becomes_faster_and_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = apply("empty-cache loss-item-sync", TIMM)
    assert {f.rule for f in found.fixes} == {"empty-cache", "loss-item-sync"}, found.refusals
    stand_in = types.ModuleType("timm.utils")
    stand_in.NativeScaler = Scaler  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "timm", types.ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.utils", stand_in)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    before, after = run(TIMM), run(found.text)
    assert float(after["total"]) == pytest.approx(before["total"], rel=1e-12)
    for one, other in zip(before["model"].parameters(), after["model"].parameters(), strict=True):
        assert torch.equal(one, other)


def said(found: Applied) -> set[tuple[str, str]]:
    return {(f.rule, f.status) for f in found.findings}


def test_it_is_read_as_if_its_code_stood_in_the_project() -> None:
    of_library = apply(RULES, TIMM, asked=True, accumulate=2)
    text = TIMM.replace("from timm.utils", "from scalers")
    own = apply(RULES, text, files={"scalers.py": told("timm.utils")}, asked=True, accumulate=2)
    assert said(of_library) == said(own)
    assert of_library.text == own.text.replace("from scalers", "from timm.utils")
    assert of_library.texts.keys() == {"train.py"}


EPOCHS = """
import segmentation_models_pytorch as smp
import segmentation_models_pytorch.utils
import torch
from torch.utils.data import DataLoader, Dataset

class Masks(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((3, 32, 32), float(i)), torch.zeros(1, 32, 32)

DEVICE = "cuda"
model = smp.Unet("resnet34")
loss = smp.utils.losses.DiceLoss()
metrics = [smp.utils.metrics.IoU(threshold=0.5)]
optimizer = torch.optim.Adam([dict(params=model.parameters(), lr=1e-4)])
train_loader = DataLoader(Masks(), batch_size=8, shuffle=True, num_workers=4)
valid_loader = DataLoader(Masks(), batch_size=1, num_workers=4)
train_epoch = smp.utils.train.TrainEpoch(
    model, loss=loss, metrics=metrics, optimizer=optimizer, device=DEVICE, verbose=True
)
valid_epoch = smp.utils.train.ValidEpoch(model, loss=loss, metrics=metrics, device=DEVICE)
for i in range(40):
    train_logs = train_epoch.run(train_loader)
    valid_logs = valid_epoch.run(valid_loader)
    print(train_logs, valid_logs)
"""


def test_an_epoch_that_a_library_runs(tmp_path: Path) -> None:
    script = read(tmp_path, EPOCHS)
    (step,) = script.steps
    assert step.loaders and step.zeros and step.updates[0].things == script.optimizers[0].things
    assert [m.name for m in script.models] == ["Unet"] and script.evaluations
    found = apply("persistent-workers pin-memory non-blocking autocast no-grad-eval", EPOCHS)
    assert {f.rule for f in found.fixes} == {"persistent-workers", "pin-memory"}
    assert found.texts.keys() == {"train.py"}


ENGINE = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchnet.engine import Engine

data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(8, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = [0.0]

def h(sample):
    out = model(sample[0].cuda())
    return F.cross_entropy(out, sample[1].cuda()), out

def on_forward(state):
    seen[0] += state["loss"].item()

def on_start_epoch(state):
    engine.test(h, loader)

engine = Engine()
engine.hooks["on_forward"] = on_forward
engine.hooks["on_start_epoch"] = on_start_epoch
engine.train(h, loader, 3, optimizer)
"""


def test_an_engine_that_calls_hooks(tmp_path: Path) -> None:
    script = read(tmp_path, ENGINE)
    (step,) = script.steps
    assert step.loaders == script.loaders[0].things and step.zeros and step.updates[0].closure
    assert step.updates[0].things == script.optimizers[0].things
    assert {s.how for s in script.syncs if s.training} == {"item"}


def test_nothing_in_a_library_is_changed() -> None:
    found = apply("non-blocking autocast", EPOCHS)
    assert not found.fixes and {f.rule for f in found.findings} == {"autocast", "non-blocking"}
    assert "segmentation_models_pytorch.utils.train would have to do something else" in (
        found.refusals
    )
    lines = EPOCHS.strip().splitlines()
    assert all("_epoch.run(" in lines[f.node.lineno - 1] for f in found.findings)  # type: ignore[attr-defined]
