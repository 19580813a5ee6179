"""One function that moves whatever it gets, a network or the dict of a batch: `isinstance` tells
what comes to which arm.
"""

from __future__ import annotations

import pytest

from tests.amp import close
from tests.onerule import apply, run

SCRIPT = """
import torch
import torch.nn as nn

torch.manual_seed(0)


class Base:
    def __init__(self):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    def move(self, x):
        if isinstance(x, dict):
            for key, item in x.items():
                if item is not None:
                    x[key] = item.to(self.device)
        elif isinstance(x, list):
            x = [item.to(self.device) for item in x]
        else:
            x = x.to(self.device)
        return x


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return {"image": torch.full((3, 8, 8), i / 8), "label": i % 4}


class Model(Base):
    def __init__(self):
        super().__init__()
        self.net = self.move(nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.Flatten(), nn.Linear(1024, 4)))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def step(self, batch):
        batch = self.move(batch)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.net(batch["image"]), batch["label"])
        loss.backward()
        self.optimizer.step()
        return loss.item()


loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=0, pin_memory=True)
model = Model()
losses = []
for epoch in range(2):
    for batch in loader:
        losses.append(model.step(batch))
"""


def test_a_network_does_not_come_to_the_arm_for_dicts():
    result = apply("non-blocking", SCRIPT)
    assert len(result.fixes) == 1
    assert "x[key] = item.to(self.device, non_blocking=True)" in result.lines
    result = apply("channels-last", SCRIPT)
    assert "x = x.to(self.device, memory_format=torch.channels_last)" in result.lines
    assert close(run(result.text)["losses"], run(SCRIPT)["losses"])


def test_what_the_script_puts_into_a_batch_is_not_what_the_loader_gave():
    """The batch was said to be on the device where it is made, since its dict holds moved tensors
    afterwards.
    """
    result = apply("num-workers", SCRIPT.replace("num_workers=0, ", ""))
    assert result.refusals and "on the device" not in result.refusals


def test_a_class_that_is_both_stays_in_both_arms():
    both = SCRIPT.replace(
        "class Model(Base)", "class Both(nn.Module, dict):\n    pass\n\n\nclass Model(Base)"
    )
    both = both.replace("model = Model()", "model = Model()\nmodel.move(Both())")
    assert "not known" in apply("non-blocking", both).refusals


MOVED = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def put(batch):
    if isinstance(batch, dict):
        for key, item in batch.items():
            if item is not None:
                batch[key] = item.to(device)
    elif isinstance(batch, (list, tuple)):
        batch = [item.to(device) for item in batch]
    else:
        batch = batch.to(device)
    return batch


data = TensorDataset(torch.randn(8, 4), torch.arange(8) % 4)
net = nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=4, pin_memory=True):
        batch = {{"image": x, "label": y}}
        {before}
        batch = put(batch)
        {after}
        optimizer.zero_grad()
        loss = net(batch["image"]).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("before", "after", "fixed"),
    [
        ("pass", "shown = batch['image'].detach().float().cpu(); shown.mul_(1)", True),
        ("pass", "batch['image'].mul_(1)", True),
        ("first = batch['image']", "first.mul_(1)", False),
        ("pass", "x.mul_(1)", False),
        ("old = dict(batch)", "old['image'].mul_(1)", False),
        # It may be a list: then the dict keeps what it holds.
        ("kept = batch\n        if epoch: batch = [x, y]", "kept['image'].mul_(1); batch = kept", False),
    ],
)
def test_what_comes_back_is_other_memory(before: str, after: str, fixed: bool) -> None:
    """A dict of which `isinstance` is certain holds what was moved into it, and nothing else."""
    text = MOVED.format(before=before, after=after)
    done = apply("non-blocking", text)
    moved = "batch[key] = item.to(device, non_blocking=True)" in done.text
    assert moved is fixed, done.refusals
    assert run(done.text)["losses"] == run(text)["losses"]
