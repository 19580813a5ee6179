"""loss-item-sync where a framework has the loop, and tensors that functions of Python take
apart.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator

import pytest

from tests.harness import STANDINS
from tests.onerule import apply, run

RULE = "loss-item-sync"
LIGHTNING = """
import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.right = 0

    def training_step(self, batch, batch_idx):
        x, y = batch
        out = self.layer(x)
        loss = F.cross_entropy(out, y)
        {body}
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

torch.manual_seed(0)
net = Net()
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
pl.Trainer(max_epochs=2).fit(net, DataLoader(data, batch_size=8))
right, logged = net.right, net.logged
"""


@pytest.fixture
def standins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(STANDINS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] == "lightning":
            del sys.modules[name]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (
            "for p, t in zip(out.argmax(1), y):\n    if p == t:\n        self.right += 1",
            ["for p, t in zip(out.argmax(1).cpu(), y.cpu()):"],
        ),
    ],
)
def test_what_lightning_calls_for_each_batch(standins: None, body: str, lines: list[str]) -> None:
    found = apply(RULE, LIGHTNING.replace("{body}", body.replace("\n", "\n        ")))
    assert found.lines == lines
    before, after = run(found.before), run(found.text)
    assert before["right"] == after["right"] and before["logged"] == after["logged"]


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ("seen = out.detach().cpu().numpy()", "keep them on the device"),
        ("if torch.isnan(loss): raise ValueError", "decides something"),
        ("good = out[out.argmax(1) == y]", "multiply by the mask"),
    ],
)
def test_advice_where_lightning_has_the_loop(body: str, advice: str) -> None:
    found = apply(RULE, LIGHTNING.replace("{body}", body))
    assert not found.fixes
    assert any(advice in f.advice or advice in f.message for f in found.findings)


HOOKS = [
    (
        """
        from composer import Trainer
        from composer.models import ComposerModel
        class Net(ComposerModel):
            def forward(self, batch):
                x, y = batch
                return x[y == 1]
            def loss(self, outputs, batch):
                return outputs.mean()
        Trainer(model=Net(), train_dataloader=loader).fit()
        """,
        "return x[y == 1]",
    ),
    (
        """
        from transformers import Trainer
        class Mine(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                labels = inputs["labels"]
                return model(**inputs).logits[labels == 1].mean() + labels[labels == 1].sum()
        Mine(model=model, train_dataset=data).train()
        """,
        "labels[labels == 1].sum()",
    ),
]


@pytest.mark.parametrize(("text", "line"), HOOKS)
def test_what_other_frameworks_call_for_each_batch(text: str, line: str) -> None:
    head = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 3).to(device)
"""
    found = apply(RULE, head + textwrap.dedent(text))
    rows = [found.before.splitlines()[f.node.lineno - 1] for f in found.findings]
    assert any(line in row for row in rows), found.findings


# ----------------------------------------------------------------------------- functions of Python
SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)), torch.randint(1, 5, (24,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
for epoch in range(2):
    for x, y, lengths in loader:
        x, y, lengths = x.to(device), y.to(device), lengths.to(device)
        guess = model(x).argmax(1)
        {body}
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
final = [p.detach().clone() for p in model.parameters()], [int(k) for k in kept]
"""


@pytest.mark.parametrize("body", ["m = max(len(x), 3)", "m = max([len(x)])", "m = sum([1, 2])"])
def test_what_is_no_tensor_is_no_matter(body: str) -> None:
    assert not apply(RULE, SCRIPT.replace("{body}", body)).findings


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        (
            "n = lengths + 0 * y\nfor i in range(len(x)):\n    x[i, n[i] :] = x.mean()",
            "sizes, bounds or indices",
        ),
        ("n = (y == 1).sum()\nx = x + torch.zeros(n, device=device).sum()", "sizes, bounds"),
        ("n = (y == 1).sum()\nx = F.pad(x, (0, n))[:, :4]", "sizes, bounds"),
        ("n = min(lengths.max(), 4)", "Python's functions"),
    ],
)
def test_numbers_of_the_device_as_sizes(body: str, advice: str) -> None:
    found = apply(RULE, SCRIPT.replace("{body}", body.replace("\n", "\n        ")))
    assert any(advice in f.message for f in found.findings), found.findings


@pytest.mark.parametrize(
    "body",
    ["x = F.pad(x, (0, 1))[:, :4]", "x[:, : len(y)] = 0", "n = max(len(x), 4)", "x = x[:, y % 4]"],
)
def test_sizes_that_the_host_knows(body: str) -> None:
    assert not apply(RULE, SCRIPT.replace("{body}", body)).findings


# -------------------------------------------------------------------- what the reader knows of them
DATA = """
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

class Data(pl.LightningDataModule):
    def __init__(self):
        super().__init__()
        self.items = TensorDataset(torch.randn(400, 3, 64, 64))
        self.train_dataloader = self.batches

    def batches(self):
        return DataLoader(self.items, batch_size=8, num_workers=2)

    def test_dataloader(self):
        return DataLoader(self.items, batch_size=4, num_workers=2)

class Net(pl.LightningModule):
    pass

trainer = pl.Trainer(max_epochs=2)
trainer.fit(Net(), datamodule=Data())
"""


def test_loaders_under_another_name_and_for_a_test_that_is_never_run() -> None:
    assert [f.node.lineno for f in apply("pin-memory", DATA).fixes] == [12]
    tested = DATA + "trainer.test(datamodule=Data())\n"
    assert [f.node.lineno for f in apply("pin-memory", tested).fixes] == [12, 15]
