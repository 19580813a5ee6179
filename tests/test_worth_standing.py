"""What waits for the device in each step, and stays: nothing put off beside it can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.commands.planning import plan
from autofast.config import Config
from autofast.facts.cost.gains.standing import waited
from autofast.facts.cost.inputs import batch_size
from autofast.facts.cost.recurrent_cells import Cells
from tests.onerule import apply, run
from tests.test_worth import model_of

LITTLE = 0.01
HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        torch.manual_seed(i)
        return torch.randn(12), torch.randn(1)
"""
TIMED = (
    f"import time\n{HEAD}"
    + """

def sync():
    if torch.cuda.is_available():
        {waits}


torch.manual_seed(0)
loader = DataLoader(Rows(), batch_size=16, num_workers={workers}, pin_memory={pinned})
model = nn.Sequential(nn.Linear(12, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    total = taken = 0.0
    for x, y in loader:
        begun = time.time()
        x, y = x.to(device), y.to(device)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        sync()
        taken += time.time() - begun
        total += loss.item()
    print(epoch, round(total, 4), taken < 600)
"""
)


@pytest.mark.parametrize(
    ("waits", "written"), [("torch.cuda.synchronize()", False), ("torch.cuda.is_available()", True)]
)
def test_a_read_beside_a_function_that_waits(waits: str, written: bool) -> None:
    text = TIMED.format(waits=waits, workers=0, pinned=False)
    found = apply("loss-item-sync", text, min_gain=LITTLE)
    assert bool(found.fixes) is written
    assert run(found.text)["total"] == pytest.approx(run(text)["total"])


def test_a_copy_behind_a_step_that_waits_at_its_end() -> None:
    text = TIMED.format(waits="torch.cuda.synchronize()", workers=2, pinned=True)
    assert not apply("non-blocking", text, min_gain=LITTLE).fixes
    # the read is put off, and the function waits for nothing
    text = text.replace("torch.cuda.synchronize()", "torch.cuda.is_available()")
    assert apply("non-blocking loss-item-sync", text, min_gain=LITTLE).fixes


GROUPS = (
    HEAD.replace("torch.randn(1)", "torch.tensor(i % 4)")
    + """

class Groups(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 512)

    def forward(self, x, group):
        hidden = self.layer(x)
        near = torch.{made}.to(x.device)
        found = []
        for g in range({groups}):
            mask = group == g
            found.append({picked})
        return torch.stack(found) + near.sum()


torch.manual_seed(0)
loader = DataLoader(Rows(), batch_size=16, num_workers=2)
model = Groups().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    total = 0.0
    for x, group in loader:
        x, group = x.to(device), group.to(device)
        loss = model(x, group).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    print(epoch, total)
"""
)
MASKED, MULTIPLIED = "hidden[mask].sum(0)", "(hidden * mask.unsqueeze(1)).sum(0)"


def groups(picked: str = MASKED, made: str = "zeros(x.shape[0], 512)", many: int = 8) -> str:
    return GROUPS.format(picked=picked, made=made, groups=many)


@pytest.mark.parametrize(("picked", "written"), [(MASKED, False), (MULTIPLIED, True)])
def test_copies_beside_a_loop_that_picks_by_masks(picked: str, written: bool) -> None:
    """How many elements a mask picks is asked of the device: once for each group."""
    text = groups(picked)
    found = apply("pin-memory non-blocking loss-item-sync", text, min_gain=LITTLE)
    assert bool(found.fixes) is written
    assert run(found.text)["total"] == run(text)["total"]


@pytest.mark.parametrize(
    ("made", "written"), [("zeros(x.shape[0], 512)", True), ("ones(1)", False)]
)
def test_what_is_made_on_the_device_beside_waits(made: str, written: bool) -> None:
    """Rows and columns take time to copy; one number is one wait of many."""
    text = groups(made=made)
    found = apply("device-creation loss-item-sync", text, min_gain=LITTLE)
    assert bool(found.fixes) is written
    assert run(found.text)["total"] == run(text)["total"]


def test_waits_count_by_statements_and_turns(tmp_path: Path) -> None:
    script = model_of(tmp_path, groups("(hidden[mask] * hidden[mask]).sum(0)"))
    assert waited(script, plan(script, Config()).findings) == 8
    # two groups are fewer than what makes a copy not worth its line
    assert apply("pin-memory non-blocking loss-item-sync", groups(many=2), min_gain=LITTLE).fixes


ELEMENTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Texts(Dataset):
    def __init__(self):
        self.texts = ["word" * (1 + n % 3) for n in range(64)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        torch.manual_seed(i)
        return torch.randn(12), len(self.texts[i])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(12, 12)

    def forward(self, x, n):
        b, t = x.shape
        pad = torch.zeros(b, t, dtype=torch.bool, device=x.device)
        for i in range(b):
            pad[i, n[i].item():] = True
        return self.layer(x) * pad


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
loader = DataLoader(Texts(), batch_size=16)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    total = 0.0
    for x, n in loader:
        x, n = x.to(device), n.to(device)
        loss = model(x, n).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, round(total, 4))
"""


def test_a_loop_that_another_rule_replaces_waits_no_more() -> None:
    both = apply("python-loop loss-item-sync", ELEMENTS, min_gain=LITTLE)
    assert ".item()" not in both.text
    assert run(both.text)["total"] == pytest.approx(run(ELEMENTS)["total"])


SETTINGS = """
from dataclasses import dataclass
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    batch_size: int = 256


cfg = Config()
for item in sys.argv[1:]:
    key, value = item.split("=")
    setattr(cfg, key, type(getattr(cfg, key))(value))
loader = DataLoader(TensorDataset(torch.randn(512, 4)), batch_size=cfg.batch_size)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""


def test_what_a_class_says_of_a_setting_counts(tmp_path: Path) -> None:
    script = model_of(tmp_path, SETTINGS)
    assert [batch_size(x) for x in script.loaders] == [256]


# ------------------------------------------------------------------- loops, sequences, evaluations
CRITICS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Critics(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        return torch.stack([layer(x) for layer in self.layers])


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(1024, 8)), batch_size=512)
model = Critics(nn.Linear(8, 1) for _ in range(int(input()))).to(device)
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.01)
for epoch in range(3):
    for (x,) in loader:
        loss = model(x.to(device)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            p.grad.clamp_(-1, 1)
        optimizer.step()
"""


def test_no_row_of_the_batch_for_each_layer_or_parameter(tmp_path: Path) -> None:
    """Networks have fewer of both than batches have rows."""
    script = model_of(tmp_path, CRITICS.format(optimizer="Adam"))
    assert 3 * 16 < script.analysis(Cells).kernels < 3 * 32
    assert apply("fused-optimizer", CRITICS.format(optimizer="Adam"), min_gain=LITTLE).fixes


SEQUENCES = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = {first}
        self.then = {then}

    def forward(self, x):
        return self.then(self.first(x).transpose(1, 2){rest}


data = TensorDataset(torch.randn(640, 16, 400), torch.randn(640, 400, 16))
loader = DataLoader(data, batch_size=64, drop_last=True)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(90):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
ONE = "nn.Conv1d(16, 512, 3, padding=1)"
THREE = (
    f"nn.Sequential({ONE}, nn.Conv1d(512, 512, 9, padding=4), nn.Conv1d(512, 512, 9, padding=4))"
)


@pytest.mark.parametrize(
    ("first", "then", "rest", "worth"),
    [
        (ONE, "nn.LSTM(512, 16)", ")[0]", False),
        (ONE, "nn.Linear(512, 16)", ")", False),
        (THREE, "nn.LSTM(512, 16)", ")[0]", True),
    ],
)
def test_few_convolutions_along_sequences(first: str, then: str, rest: str, worth: bool) -> None:
    text = SEQUENCES.format(first=first, then=then, rest=rest)
    assert bool(apply("cudnn-benchmark", text, min_gain=LITTLE).fixes) is worth


ONE_CALL = (
    HEAD
    + """

def loader_of(shuffle):
    return DataLoader(Rows(), batch_size=16, shuffle=shuffle, num_workers=2, pin_memory=True)


torch.manual_seed(0)
train, test = loader_of(True), loader_of(False)
model = nn.Sequential(nn.Linear(12, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for x, y in train:
        x, y = x.to(device{more}), y.to(device{more})
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        total = torch.zeros((), device=device)
        for x, y in test:
            x, y = x.to(device), y.to(device)
            total += nn.functional.mse_loss(model(x), y)
    print(epoch, total)
"""
)


@pytest.mark.parametrize(("more", "written"), [("", 2), (", non_blocking=True", 0)])
def test_the_copies_of_an_evaluation_alone(more: str, written: int) -> None:
    """Beside those of the training they are written, too; one call makes both loaders."""
    text = ONE_CALL.format(more=more)
    found = apply("non-blocking", text, min_gain=0.001)
    assert len({f.node.lineno for f in found.fixes}) == written


READ_IN_TURNS = """
from itertools import islice

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
x, y = torch.randn(640, 12).to(device), torch.randn(640, 1).to(device)
loader = DataLoader(TensorDataset(x, y), batch_size=16)
model = nn.Sequential(nn.Linear(12, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def update(batches):
    n = 0
    optimizer.zero_grad()
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        {waits}
    norm = nn.utils.clip_grad_norm_(model.parameters(), 9.0)
    optimizer.step()
    return norm.item()


it, step = iter(loader), 0
while step < 8:
    norm = update(islice(it, 4))
    step += 1
    if step % 4 == 0:
        print(step, round(norm, 4))
"""


@pytest.mark.parametrize(
    ("waits", "written"),
    [("n += float(model(x + n).sum())", 0), ("n += (y > 0).sum().item()", 2), ("pass", 1)],
)
def test_waits_of_the_batches_of_an_update(waits: str, written: int) -> None:
    """A loop over batches that trains is no evaluation in a step: what waits there and stays
    counts, and what need not wait goes.
    """
    text = READ_IN_TURNS.format(waits=waits)
    found = apply("loss-item-sync", text, min_gain=LITTLE)
    assert len(found.fixes) == written
    assert float(run(found.text)["norm"]) == pytest.approx(run(text)["norm"])


DECODED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 12), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=16)
model = nn.Linear(12, 48).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def decode(scores):
    out = []
    for n in range(scores.shape[0]):
        text, last = "", 0
        for t in range(12):
            k = scores[n, t].argmax().item()
            text += "abcd"[k] if k != last else ""
            last = k
        out.append(text)
    return out


def texts(y):
    out = []
    for n in range(16):
        out.append("abcd"[y[n].item()])
    return out


for epoch in range(3):
    right = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        scores = model(x).view(16, 12, 4)
        loss = nn.functional.cross_entropy(scores[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += sum(a == b for a, b in zip({decoded}, texts(y + 0)))
    print(epoch, right)
"""


@pytest.mark.parametrize(
    ("decoded", "written"), [("decode(scores + 0)", False), ('["a"] * 16', True)]
)
def test_few_elements_beside_many_others(decoded: str, written: bool) -> None:
    """Twelve letters of each row are read one by one, and stay so."""
    text = DECODED.format(decoded=decoded)
    found = apply("loss-item-sync", text, min_gain=LITTLE)
    assert any("y.cpu()" in line for line in found.lines) is written
    assert run(found.text)["right"] == run(text)["right"]


@pytest.mark.parametrize(
    ("first", "then", "written"),
    [
        ("out = model(x)", "kept = y.sum().item()", True),
        ("kept = y.sum().item()", "out = model(x)", False),
    ],
)
def test_a_wait_behind_what_an_arm_begins(first: str, then: str, written: bool) -> None:
    """The forward pass of the arm goes on while the copy does."""
    text = ONE_CALL.format(more="").replace("pin_memory=True", "pin_memory=False")
    arm = f"        if epoch < 2:\n            {first}\n            {then}\n"
    arm += "        else:\n" + f"            {first}\n            {then}\n"
    loss = "        loss = (out - kept).pow(2).mean()\n"
    old = "        loss = nn.functional.mse_loss(model(x), y)\n        optimizer"
    assert old in text
    text = text.replace(old, f"{arm}{loss}        optimizer")
    found = apply("pin-memory non-blocking", text, min_gain=LITTLE)
    assert any("non_blocking" in line for line in found.lines) is written


CLIPPED = (
    HEAD
    + """

def clip(parameters, limit):
    norms, total = [], 0
    for p in parameters:
        if p.grad is not None:
            norm = p.grad.data.norm(2)
            total += norm.item() ** 2
            factor = limit / (norm + 1e-6)
            {scaled}
    return total ** 0.5


torch.manual_seed(0)
loader = DataLoader(Rows(), batch_size=16, num_workers=2)
model = nn.Sequential(nn.Linear(12, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for i, (x, y) in enumerate(loader):
        loss = nn.functional.mse_loss(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        length = clip(model.parameters(), 0.1)
        optimizer.step()
        if i % 100 == 0:
            print(epoch, i, length)
"""
)


@pytest.mark.parametrize(
    ("scaled", "written"),
    [
        ("p.grad.data.mul_(factor.clamp(max=1))", True),
        ("if factor < 1:\n                p.grad.data.mul_(factor * 1)", False),
    ],
)
def test_one_copy_of_all_norms(scaled: str, written: bool) -> None:
    """Where each parameter is waited for in any case, one read of all norms gains nothing."""
    text = CLIPPED.format(scaled=scaled)
    found = apply("loss-item-sync", text, min_gain=LITTLE)
    assert any("torch.stack(values).tolist()" in line for line in found.lines) is written
    assert run(found.text)["length"] == run(text)["length"]


READER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Rows(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        torch.manual_seed(i)
        return torch.randn(3, 256, 256), torch.randint(0, 9, (12,))


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(*[nn.Conv2d(3 if n == 0 else 128, 128, 3, padding=1) for n in range(60)])
        self.cell, self.head = nn.GRUCell(128 + 9, 128), nn.Linear(128, 9)

    def one_hot(self, letters):
        letters = letters.unsqueeze(1)
        return torch.FloatTensor(letters.size(0), 9).zero_().to(device).scatter_(1, letters, 1)

    def forward(self, x, text):
        seen = self.body(x).mean((2, 3))
        hidden = torch.zeros(x.size(0), 128).to(device)
        out = []
        for i in range(text.size(1)):
            hidden = self.cell(torch.cat([seen, self.one_hot(text[:, i])], 1), hidden)
            out.append(self.head(hidden))
        return torch.stack(out, 1)


torch.manual_seed(0)
loader = DataLoader(Rows(), batch_size=16, num_workers=2, pin_memory=True)
model = Reader().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        loss = nn.functional.cross_entropy(model(x, y).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
"""


@pytest.mark.parametrize("copied", [True, False])
def test_small_ones_beside_one_that_counts(copied: bool) -> None:
    """A file has one form: what is made on the host once a step goes with what is made there for
    each letter.
    """
    each = "self.one_hot(text[:, i])"
    text = READER if copied else READER.replace(each, "seen[:, :9]")
    found = apply("device-creation", text, min_gain=LITTLE)
    assert ("hidden = torch.zeros(x.size(0), 128, device=device)" in found.text) is copied
    assert ("torch.zeros(letters.size(0), 9, device=device)" in found.text) is copied


SPELLED = (
    f"{HEAD}"
    + """

class Lines(Rows):
    def __getitem__(self, i):
        return torch.randn(40, 12), torch.tensor([1, 2, 3]), torch.tensor(3)


loader = DataLoader(Lines(), batch_size=16, num_workers=2, pin_memory=True)
model = nn.Sequential(nn.Linear(12, 512), nn.ReLU(), nn.Linear(512, 5)).to(device)
criterion = nn.CTCLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    total = 0.0
    for x, y, lengths in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        lengths = lengths{moved}
        given = torch.full((len(x),), 40)
        scores = model(x).log_softmax(2).transpose(0, 1)
        loss = criterion(scores, y, given, lengths)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total)
"""
)


@pytest.mark.parametrize(
    ("moved", "stays"), [(".to(device, non_blocking=True)", False), ("", True)]
)
def test_a_loss_that_fetches_lengths_waits(moved: str, stays: bool) -> None:
    """The lengths of a CTC loss are read on the host: with them on the device a step waits."""
    run(SPELLED.format(moved=moved))
    found = apply("loss-item-sync", SPELLED.format(moved=moved), min_gain=LITTLE)
    assert any("loss.detach()" in line for line in found.lines) is stays
