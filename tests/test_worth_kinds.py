"""Kinds of fixes that readers of whole rewrites took for pointless, each both ways: where it gains
nothing, and where it pays.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from autofast.config import Config
from autofast.facts.cost import gains
from autofast.facts.cost.machine import GPU
from autofast.facts.dimensions import dimension_count, least_dimensions
from autofast.facts.makers import Makers
from autofast.read import read_script
from autofast.rule import Finding, Options, Question
from tests.onerule import apply, run
from tests.test_worth import CELL_BY_CELL, estimate, model_of, rewritten, small

# ------------------------------------------------------------------------------------- optimizers
CHOSEN = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--optimizer", default={default!r})
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(20)]).to(device)
if args.optimizer.lower() == "sgd":
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, weight_decay=1e-4)
elif args.optimizer == "rmsprop":
    optimizer = torch.optim.RMSprop(model.parameters())
elif args.optimizer == "adam":
    optimizer = torch.optim.Adam(model.parameters())
else:
    optimizer = torch.optim.AdamW(model.parameters())
options = {{"momentum": 0.9}}
for step in range(100000):
    loss = model(torch.randn(64, 512, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("default", "fixed"),
    [
        ("sgd", []),
        ("SGD", []),
        ("adam", ["Adam(", "AdamW("]),
        ("lamb", ["Adam(", "AdamW("]),
        ("rmsprop", []),  # which has no fused kernels
    ],
)
def test_an_optimizer_that_options_choose(default: str, fixed: list[str]) -> None:
    """Beside an optimizer that gains nothing, one for which an option has to be given gains nothing
    either; beside one that gains, its sibling is written, too.
    """
    found = apply("fused-optimizer", CHOSEN.format(default=default), min_gain=0.01)
    changed = [line for line in found.text.splitlines() if "fused=" in line]
    assert [
        name for name in ("SGD(", "Adam(", "AdamW(") if any(name in c for c in changed)
    ] == fixed


# ------------------------------------------------------------------------------------------- TF32
SPIKES = """
import argparse
import torch
from torch import nn
from lib import width

parser = argparse.ArgumentParser()
parser.add_argument("--mlp", action="store_true")
args = parser.parse_args()
device = torch.device("cuda")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}

    def forward(self, x):
        return {result}


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Linear(4096, 4096)

    def forward(self, x):
        return self.layers(x)


net = Dense() if args.mlp else Net()
net = net.to(device)
optimizer = torch.optim.Adam(net.parameters())
for step in range(100000):
    loss = net(torch.randn(width(), 64, width(), device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
RNNS = "self.a, self.b = nn.RNN(width(), 512), nn.LSTM(512, 512)"


@pytest.mark.parametrize(
    ("layers", "result", "worth"),
    [
        (RNNS, "self.b(self.a(x)[0])[0]", False),
        (RNNS + "; self.c = nn.Linear(512, 90)", "self.c(self.b(self.a(x)[0])[0])", False),
        (RNNS + "; self.c = nn.Linear(512, 50000)", "self.c(self.b(self.a(x)[0])[0])", True),
        (RNNS, "torch.matmul(x, self.b(self.a(x)[0])[0])", False),
        ("self.a = nn.Linear(4096, 4096)", "self.a(x)", True),
    ],
)
def test_layers_of_cudnn_have_a_flag_of_their_own(layers: str, result: str, worth: bool) -> None:
    """And a network that options at their defaults do not make counts for nothing."""
    text = SPIKES.format(layers=layers, result=result)
    assert bool(apply("tf32", text, min_gain=0.01).fixes) is worth


MULTIPLIES = """
import torch
from torch import nn
from torch.nn import functional as F
from lib import batches, width, words


class Mixed(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.each, self.out = nn.Linear(size, 3 * size), nn.Linear(size, {labels})
        self.soft = nn.Softmax(dim=-1)

    def forward(self, x):
        q, k, v = self.each(x).chunk(3, -1)
        return self.out({mixed})


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(words, 256)
        self.net = {net}

    def forward(self, x):
        return self.net({given})


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
for x, y in batches:
    loss = F.mse_loss(net(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SCORES = "torch.matmul(q, k.transpose(-2, -1))"


@pytest.mark.parametrize(
    ("net", "mixed", "labels", "worth"),
    [
        ("Mixed(width())", f"torch.matmul(F.softmax({SCORES}, -1), v)", 10, True),
        ("Mixed(width())", "self.soft(q @ k.mT) @ v", 10, True),
        ("Mixed(width())", "F.scaled_dot_product_attention(q, k, v)", 10, True),
        ("Mixed(64)", f"torch.matmul(F.softmax({SCORES}, -1), v)", 10, False),
        ("Mixed(width())", f"q * F.softmax({SCORES}, -1).sum()", 10, False),
        ("Mixed(width())", "q", 10, False),
        ("nn.Linear(256, words)", "q", 10, True),
        ("nn.Linear(256, 90)", "q", 10, False),
        ("nn.Sequential(*[nn.Linear(256, 256) for _ in range(8)])", "q", 10, True),
        ("nn.Sequential(*[nn.Linear(100, 100) for _ in range(8)])", "q", 10, False),
    ],
)
def test_kinds_of_networks_that_multiply_matrices(
    net: str, mixed: str, labels: int, worth: bool
) -> None:
    """Attention, a number for each word, many wide layers: where no size of the batches is known.
    Nothing else is taken to multiply much.
    """
    given = "self.embed(x)"
    text = MULTIPLIES.format(net=net, mixed=mixed, labels=labels, given=given)
    assert bool(apply("tf32", text, min_gain=0.01).fixes) is worth


@pytest.mark.parametrize(
    ("default", "worth"), [("16", False), ("'bf16-mixed'", False), ("32", True)]
)
def test_what_a_trainer_computes_in_by_default(default: str, worth: bool) -> None:
    text = f"""
import argparse
import lightning as L
import torch
from torch import nn
from lib import loader

parser = argparse.ArgumentParser()
parser.add_argument("--precision", default={default})
args = parser.parse_args()


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.TransformerEncoderLayer(512, 8)

    def training_step(self, batch, n):
        return self.net(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


trainer = L.Trainer(precision=args.precision, accelerator="gpu")
trainer.fit(Net(), loader)
"""
    assert bool(apply("tf32", text, min_gain=0.01).fixes) is worth


LEARNERS = """
import learn2learn
import torch
from torch import nn
from torch.nn import functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.hidden, self.out = nn.Linear(800, {width}), nn.Linear({width}, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.second(F.max_pool2d(F.relu(self.first(x)), 2))), 2)
        return self.out(F.relu(self.hidden(x.view(-1, 800))))


device = torch.device("cuda")
tasks = learn2learn.data.TaskDataset("tasks", num_tasks=1000)
meta = learn2learn.algorithms.MAML(Net().to(device), lr=0.01)
optimizer = torch.optim.Adam(meta.parameters())
for step in range(1000):
    learner = meta.clone()
    x, y = tasks.sample()
    loss = F.cross_entropy(learner(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("width", "worth"), [(5000, False), (50000, True)])
def test_a_network_that_a_library_calls_is_the_one_on_the_device(width: int, worth: bool) -> None:
    assert bool(apply("tf32", LEARNERS.format(width=width), min_gain=0.01).fixes) is worth


# ---------------------------------------------------------------------------------- cells in a loop
DECODER = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = {convolution}
        self.encoder = nn.GRU(80, 256, batch_first=True)
        self.cell = nn.LSTMCell(256, 512)
        self.out = nn.Linear(512, {wide})

    def forward(self, x, target):
        seen, _ = self.encoder(self.convolution(x).flatten(2).transpose(1, 2))
        self.hidden = torch.zeros(len(x), 512, device=x.device)
        self.memory = torch.zeros(len(x), 512, device=x.device)
        made = []
        for t in range({turns}):
            self.hidden, self.memory = self.cell(seen[:, t], (self.hidden, self.memory))
            made.append(self.out(self.hidden))
        return torch.stack(made, 1)


model = Decoder().to(device)
optimizer = torch.optim.Adam(model.parameters())
for x, target in batches:
    optimizer.zero_grad()
    loss = model(x.to(device), target).square().mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("convolution", "wide", "turns", "worth"),
    [
        ("nn.Conv1d(80, 80, 5)", 160, "target.size(1)", False),
        ("nn.Conv1d(80, 80, 5)", 30000, "target.size(1)", True),  # words
        ("nn.Conv1d(80, 80, 5)", 30000, "400", False),  # 400 of them, in each step
        ("nn.Conv2d(3, 80, 5)", 160, "target.size(1)", True),
    ],
)
def test_frames_one_by_one_behind_an_encoder(
    convolution: str, wide: int, turns: str, worth: bool, tmp_path: Path
) -> None:
    text = DECODER.format(convolution=convolution, wide=wide, turns=turns)
    text = text.replace("for x, target", "from lib import batches\n\nfor x, target")
    text = text.replace("Decoder().to", "nn.DataParallel(Decoder()).to")  # recurrent layers alone
    assert ("autocast" in rewritten(tmp_path, text).plan.applied) is worth


# ------------------------------------------------------------------------------------------ workers
PHOTOS = """
import argparse
import os
import torch
import torchvision
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--data", default={default!r}, help={about!r})
args = parser.parse_args()
device = torch.device("cuda")
turned = transforms.Compose([transforms.RandomResizedCrop(224), transforms.ToTensor()])


def images(part):
    return {made}


train_loader = DataLoader(images("train"), batch_size=256, shuffle=True, num_workers=8)
val_loader = DataLoader(images("val"), batch_size=256, num_workers=8)
model = torchvision.models.resnet50().to(device)
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(90):
    for x, y in train_loader:
        loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for x, y in val_loader:
            print((model(x.to(device)).argmax(1) == y.to(device)).sum())
"""
FOLDER = "datasets.ImageFolder(os.path.join(args.data, part), turned)"


@pytest.mark.parametrize(
    ("made", "default", "about", "worth"),
    [
        ("datasets.ImageNet(args.data, part, transform=turned)", "/data", "", False),
        ("datasets.Places365(args.data, part, transform=turned)", "/data", "", False),
        (FOLDER, "/data/ImageNet", "a folder, of which nothing else is known", False),
        ("datasets.CIFAR10(args.data, part == 'train', turned)", "/data/imagenet", "", True),
    ],
)
def test_workers_stay_for_short_epochs(made: str, default: str, about: str, worth: bool) -> None:
    text = PHOTOS.format(made=made, default=default, about=about)
    found = apply("persistent-workers", text, min_gain=0.01)
    assert bool(found.fixes) is worth
    reasons = [f.gain.reason for f in found.findings if f.gain and f.gain.known]
    assert all("an epoch" in r for r in reasons) and bool(reasons) is not worth


@pytest.mark.parametrize("network", ["resnet50", "googlenet"])
def test_networks_of_torchvision_convolve(network: str) -> None:
    made = "datasets.CIFAR10(args.data, part == 'train', turned)"
    text = PHOTOS.format(made=made, default="/data", about="").replace("resnet50", network)
    assert apply("cudnn-benchmark", text, min_gain=0.01).fixes


FILES = """
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Mels(Dataset):
    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, n):
        return {item}


device = torch.device("cuda")
model = {model}.to(device)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Mels(list(open("names.txt"))), batch_size=32, num_workers=1, pin_memory=True)
for epoch in range(100):
    for x in loader:
        loss = model(x.to(device))[0].square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
LOADED = 'np.load(self.names[n] + ".npy")'
DECODED = 'np.asarray(Image.open(self.names[n] + ".png").convert("RGB"))'


@pytest.mark.parametrize(
    ("item", "model", "worth"),
    [
        (LOADED, "nn.GRU(80, 512, batch_first=True)", False),
        (LOADED, "nn.Linear(80, 512)", True),
        (DECODED, "nn.GRU(80, 512, batch_first=True)", True),
    ],
)
def test_one_worker_reads_files_as_fast_as_sequences_are_gone_along(
    item: str, model: str, worth: bool
) -> None:
    found = apply("num-workers", FILES.format(item=item, model=model), min_gain=0.01)
    assert bool(found.fixes) is worth


# ------------------------------------------------------------------------------- copies and waits
COPIES = """
import torch
from lib import Rows
from torch import nn
from torch.utils.data import DataLoader

device = torch.device("cuda")
loader = DataLoader(Rows("train"), batch_size=32, shuffle=True, num_workers=2, pin_memory=True)
test_loader = DataLoader(Rows("test"), batch_size=32, num_workers=2, pin_memory=True)
model = nn.Linear(64, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(9):
    for x, y in loader:
        x, y = x.to({training}), y.to({training})
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in test_loader:
            x, y = x.to(device), y.to(device)
            total = nn.functional.mse_loss(model(x), y)
"""


@pytest.mark.parametrize(("training", "copies"), [("device", 2), ("device, non_blocking=True", 0)])
def test_copies_of_an_evaluation_of_unknown_size_are_left_alone(training: str, copies: int) -> None:
    found = apply("non-blocking", COPIES.format(training=training), min_gain=0.01)
    assert len([line for line in found.lines if "non_blocking=True" in line]) == copies


HOOKS = """
import lightning as L
import torch
from lib import Rows
from torch import nn
from torch.utils.data import DataLoader


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 1)

    def training_step(self, batch, n):
        return self.net(batch[0]).square().mean()

    def validation_step(self, batch, n):
        self.log("loss", self.net(batch[0]).square().mean())

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)

    def {name}(self):
        return DataLoader(Rows("a"), batch_size=32, num_workers=2)

    def test_dataloader(self):
        return DataLoader(Rows("b"), batch_size=32, num_workers=2)


net = Net()
loader = DataLoader(Rows("c"), batch_size=32, num_workers=2)
trainer = L.Trainer(max_epochs=9, accelerator="gpu")
trainer.fit({given})
trainer.test(net)
"""


@pytest.mark.parametrize(
    ("name", "given", "pinned"),
    [
        ("train_dataloader", "net", "a"),
        ("train_dataloader", "net, val_dataloaders=loader", "ac"),
        ("val_dataloader", "net, loader", "ac"),
        ("val_dataloader", "net", ""),  # what it trains with is not to be seen
    ],
)
def test_what_lightning_goes_through_a_loader_for(name: str, given: str, pinned: str) -> None:
    """For its training, or beside that for a validation in every epoch; not once for a test."""
    text = HOOKS.format(name=name, given=given)
    found = [f for f in apply("pin-memory", text, min_gain=0.01).findings if f.status == "fix"]
    calls = " ".join(ast.unparse(f.node) for f in found)
    assert "".join(part for part in "abc" if f"Rows('{part}')" in calls) == pinned


WAITS = """
import torch
from torch import nn

device = torch.device("cuda")
model = nn.Linear(800, 100).to(device)
optimizer = torch.optim.Adam(model.parameters())
for step in range(1000):
    loss = model(torch.randn(16, 800, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    {before}
    optimizer.step()
    {behind}
    torch.cuda.synchronize()
"""
EACH = """if step > 5:
        value = loss.item()
    else:
        value = 2 * loss.item()
    if value > 100:
        break"""


@pytest.mark.parametrize(
    ("before", "behind", "worth"),
    [
        ("", EACH, False),
        (EACH, "", True),  # it waits for the update
        ("", EACH.replace("2 * loss.item()", "0"), True),
        ("", "", True),
    ],
)
def test_nothing_waits_behind_a_read_that_stays(before: str, behind: str, worth: bool) -> None:
    text = WAITS.format(before=before, behind=behind)
    assert bool(apply("empty-cache", text, min_gain=0.01).fixes) is worth


@pytest.mark.parametrize(
    ("below", "worth"),
    [
        ("torch.cuda.synchronize()\n    print(step)\n    print(loss.item())", False),
        (
            "torch.cuda.synchronize()\n    model(torch.ones(800, device=device))\n    loss.item()",
            True,
        ),
    ],
)
def test_nothing_waits_in_front_of_a_read_that_stays(below: str, worth: bool) -> None:
    text = WAITS.format(before="", behind="").replace("torch.cuda.synchronize()", below)
    assert bool(apply("empty-cache", text, min_gain=0.01).fixes) is worth


SCALED = """
import torch
from torch import nn

class Scaler:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer):
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()

    def state_dict(self):
        return self.scaler.state_dict()

    def name(self):
        return type(self.scaler).__name__

device = torch.device("cuda")
model = nn.Linear(800, 100).to(device)
optimizer = torch.optim.Adam(model.parameters())
scaler = Scaler()
for step in range(1000):
    loss = model(torch.randn(16, 800, device=device)).square().mean()
    optimizer.zero_grad()
    scaler(loss, optimizer)
    value = {value}
    torch.cuda.synchronize()
"""


@pytest.mark.parametrize(
    ("value", "worth"),
    [
        ("scaler.state_dict()['scale']", False),
        ("scaler.scaler.get_scale()", False),
        ("scaler.name()", True),
    ],
)
def test_nothing_waits_behind_the_scale_of_a_scaler(value: str, worth: bool) -> None:
    found = apply("empty-cache", SCALED.format(value=value), min_gain=0.01)
    assert bool(found.fixes) is worth


# ------------------------------------------------------------------------- constants of other types
FILLED = """
import torch

device = torch.device("cpu" if not torch.cuda.is_available() else "cuda")
weight = torch.zeros(3, requires_grad=True, device=device)
optimizer = torch.optim.SGD([weight], lr=0.1)
total = 0.0
for step in range(3):
    loss = (weight.double() - torch.ones(len(weight)).to(device).double()).square().sum()
    loss = loss + torch.zeros(3).to(device).{cast}.sum() + torch.rand(3).to(device).double().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += float(loss)
"""


def test_a_constant_is_made_with_its_type(tmp_path: Path) -> None:
    text = FILLED.format(cast="long()")
    found = apply("device-creation", text)
    made = "".join(found.lines)
    assert "(weight.double() - torch.ones(len(weight), device=device, dtype=torch.double))" in made
    assert "torch.zeros(3, device=device, dtype=torch.long).sum()" in made
    assert "torch.rand(3, device=device).double().sum()" in made
    seeded = "import torch\ntorch.manual_seed(0)"
    new, old = (run(t.replace("import torch", seeded, 1))["total"] for t in (found.text, text))
    assert new == old


# ------------------------------------------------------------------------------------------- graphs
GRAPHS = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data


class Graphs(torch.utils.data.Dataset):
    def __getitem__(self, n):
        return torch.load(f"{n}.pt")

    def __len__(self):
        return 1000


device = torch.device("cuda:0")
model = nn.Linear(300, 300).to(device)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(Graphs(), batch_size=32, num_workers=8, collate_fn=Batch.from_data_list)
for epoch in range(10):
    for batch in loader:
        batch = batch.to(device)
        loss = model(batch.x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("asked", "fixed"), [("==1.0.3", False), (">=2.0", True), ("", True)])
def test_batches_of_graphs_that_nobody_can_pin(tmp_path: Path, asked: str, fixed: bool) -> None:
    (tmp_path / "requirements.txt").write_text(f"torch>=2.4\ntorch-geometric{asked}\n")
    result = rewritten(tmp_path, GRAPHS, Config(exhaustive=True))
    assert ("pin-memory" in result.plan.applied) is fixed
    said = [r.reason for r in result.records if r.rule == "pin-memory" and r.status == "refused"]
    assert any("had no pin_memory() yet" in why for why in said) is not fixed


def test_a_loop_over_cells_counts_for_nothing_without_a_cell(tmp_path: Path) -> None:
    """What keeps its state in the object goes from turn to turn as what hands it on."""
    text = CELL_BY_CELL.replace(
        "out, state = model(text[:, t], state)", "out, _ = model(text[:, t], state)"
    ).replace("Net().to", "nn.DataParallel(Net()).to")  # recurrent layers alone get no 16 bits
    assert "autocast" in rewritten(tmp_path, text).plan.applied
    kept = text.replace(
        "made, state = self.rnn(self.embed(x).unsqueeze(0), state)",
        "made, self.state = self.rnn(self.embed(x).unsqueeze(0), self.state)",
    )
    assert "autocast" in small(rewritten(tmp_path, kept))


# ----------------------------------------------------------------------- cells that are written out
WRITTEN = """
import torch
from torch import nn
from lib import batches

device = torch.device("cuda")


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Linear(128, 64)

    def forward(self, x, state):
        for _ in range({operations}):
            x = torch.tanh(self.weights(torch.cat([x, state], 1)))
            state = x * state + (1.0 - x) * torch.sigmoid(state)
        return state


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Cell(), Cell()

    def forward(self, x):
        a = b = torch.zeros(20, 64, device=x.device)
        for t in range(x.size(0)):
            a = self.first(x[t], a)
            b = self.second(a, b)
        return b


model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for x, y in batches:
    optimizer.zero_grad()
    loss = (model(x.to(device)) - y).square().mean()
    loss.backward()
    optimizer.step()
"""


def test_layers_and_levels_one_after_the_other_are_no_sequence() -> None:
    """What a loop takes anew in each turn, and what layers give to the next ones, is no state."""
    text = WRITTEN.format(operations=5).replace(
        "for t in range(x.size(0)):", "for t, a in enumerate(x):"
    )
    text = text.replace("            b = self.second(a, b)\n", "        b = a\n")
    assert apply("fused-optimizer", text, min_gain=0.01).fixes
    text = WRITTEN.format(operations=5).replace(
        "a = self.first(x[t], a)", "a = layer(self.first(a, a))"
    )
    text = text.replace("for t in range(x.size(0)):", "for t, layer in enumerate(self.layers):")
    text = text.replace(
        "self.first, self",
        "self.layers = nn.ModuleList([nn.Linear(64, 64)] * 9)\n        self.first, self",
    )
    assert apply("fused-optimizer", text, min_gain=0.01).fixes


@pytest.mark.parametrize(("operations", "worth"), [(1, True), (5, False)])
def test_one_update_beside_cells_that_are_written_out(operations: int, worth: bool) -> None:
    """Their operations count, for the shortest of usual sequences where no length is known."""
    text = WRITTEN.format(operations=operations)
    assert bool(apply("fused-optimizer", text, min_gain=0.01).fixes) is worth


# ------------------------------------------------------------------------------- what a step costs
AUTOENCODER = """
import argparse
import torch
from torch import nn
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--width", default=16, type=int)
parser.add_argument("--contrast", action="store_true")
args = parser.parse_args()
device = torch.device("cuda")
train_set = datasets.MNIST("data", train=True, transform=transforms.ToTensor())
train_loader = torch.utils.data.DataLoader(train_set, batch_size=64, shuffle=True)
test_loader = torch.utils.data.DataLoader(train_set, batch_size=64)
model = nn.Sequential(
    nn.Conv2d(1, 2 * args.width, 4, stride=2, padding=1),
    nn.ReLU(),
    nn.ConvTranspose2d(2 * args.width, args.width, 3, 2, 1, output_padding=1, dilation=1),
    nn.ReLU(),
    nn.ConvTranspose2d(args.width, 1, 5, 1, 2),
).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(1400):
    for step, (x, y) in enumerate(train_loader):
        x = x.to(device)
        loss = nn.functional.mse_loss(model(x), x)
        if args.contrast:
            loss = loss + (x.flatten(1) @ x.flatten(1).T).mean()
            loss = loss + torch.matmul(x.flatten(1), x.flatten(1).T).mean()
        {within}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        for x, y in test_loader:
            print(torch.matmul(model(x.to(device)).flatten(1), y.to(device)))
"""


def test_what_convolutions_cost_both_ways(tmp_path: Path) -> None:
    """As torch counts it; sizes are computed of options, and what is beside the steps is left."""
    text = AUTOENCODER.replace("loss + (x.flatten(1) @ x.flatten(1).T).mean()", "2 * loss")
    found = estimate(tmp_path, text.format(within="pass"))
    assert not found.why
    model = nn.Sequential(
        nn.Conv2d(1, 32, 4, stride=2, padding=1),
        nn.ConvTranspose2d(32, 16, 3, 2, 1, output_padding=1, dilation=1),
        nn.ConvTranspose2d(16, 1, 5, 1, 2),
    )
    with FlopCounterMode(display=False) as counter:
        assert model(torch.zeros(64, 1, 28, 28)).shape == (64, 1, 28, 28)
    assert round(found.convolutions * GPU.convolutions) == 3 * counter.get_total_flops()
    assert "autocast" in small(rewritten(tmp_path, text.format(within="pass")))
    product = "loss = loss + torch.matmul(x.flatten(1), x.flatten(1).T).mean()"
    assert estimate(tmp_path, text.format(within=product)).why


# -------------------------------------------------------------------------- runs that do not train
MODES = """
import argparse
import torch
from lib import Rows
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--mode", default="train")
args = parser.parse_args()
device = torch.device("cuda")
loader = DataLoader(Rows("train"), batch_size=32, num_workers=2, pin_memory=True)
model = nn.Linear(64, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)


def train():
    for epoch in range(9):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def test():
    model.eval()
    for part in ("a", "b"):
        test_loader = DataLoader(Rows(part), batch_size=8, num_workers=2, pin_memory=True)
        with torch.no_grad():
            for x, y in test_loader:
                noise = torch.zeros(8, 64).to(device)
                print(nn.functional.mse_loss(model(x.to(device) + noise), y.to(device)).item())


{call}
"""
EITHER = """if args.mode == "train":
    train()
else:
    test()"""


@pytest.mark.parametrize(
    ("call", "apart"),
    [
        (EITHER, True),
        (EITHER.replace("else", 'elif args.mode == "test"'), True),
        ("train()\ntest()", False),
        ("if args.mode == 'train':\n    train()\ntest()", False),
        ("for n in range(2):\n    if n:\n        train()\n    else:\n        test()", False),
    ],
)
def test_what_no_run_that_trains_comes_to(call: str, apart: bool) -> None:
    for rule in ("non-blocking", "device-creation"):
        found = apply(rule, MODES.replace("{call}", call), min_gain=0.01)
        said = {f.gain.reason for f in found.findings if f.gain and not f.worth}
        assert ("no run that trains comes there" in said) is apart
        assert not apart or not any(
            "test_loader" in line or "noise" in line for line in found.lines
        )


PAIRS = "in [(torch.zeros(8, 64), torch.zeros(8, 1))] * 900:"


@pytest.mark.parametrize(
    ("ends", "worth"),
    [("i >= 3", False), ("i == 500", True), ("i > len(x)", True), ("x.any()", True)],
)
def test_a_look_at_the_first_batches(ends: str, worth: bool) -> None:
    """Tensors made for three batches of an epoch are next to nothing beside those of its steps."""
    text = (
        MODES.replace("{call}", "train()")
        .replace("in loader:", PAIRS)
        .replace(
            "            optimizer.step()\n",
            "            optimizer.step()\n"
            "        for i, x in enumerate([torch.zeros(8, 64)] * 900):\n"
            f"            if {ends}:\n                break\n"
            "            shown = torch.zeros(8, 64).to(device)\n"
            "            print(model(shown))\n",
        )
    )
    found = apply("device-creation", text, min_gain=0.01)
    assert ("shown = torch.zeros(8, 64, device=device)" in found.lines) is worth


@pytest.mark.parametrize("seeded", [True, False])
def test_a_row_of_numbers_is_drawn_where_the_seed_was_set(seeded: bool) -> None:
    """A copy is not worth other numbers."""
    text = MODES.replace("{call}", "train()").replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n"
        "            shift = torch.rand(len(x)).to(device)\n"
        "            noise = torch.randn(len(x), 64).to(device)\n"
        "            print(model(noise + shift[:, None]).shape)\n",
    )
    head = "import torch\ntorch.manual_seed(0)\n" if seeded else ""
    found = apply("device-creation", head + text, min_gain=0.01)
    assert ("shift = torch.rand(len(x), device=device)" in found.lines) is not seeded
    assert ("noise = torch.randn(len(x), 64, device=device)" in found.lines) is not seeded


@pytest.mark.parametrize(
    "drawn", ["torch.rand(x.shape).to(device)", "torch.randint(9, (len(x),)).to(device)"]
)
def test_a_copy_is_not_worth_other_numbers(drawn: str) -> None:
    text = MODES.replace("{call}", "train()").replace(
        "            optimizer.step()\n",
        f"            optimizer.step()\n            print(model({drawn}.float() @ x).shape)\n",
    )
    plain, seeded = (
        apply("device-creation", head + text, min_gain=0.01).lines
        for head in ("", "import torch\ntorch.manual_seed(0)\n")
    )
    assert any("device=device)" in line for line in plain)
    assert not any("device=device)" in line for line in seeded)


def test_an_order_is_not_worth_another_generator() -> None:
    """The device sorts keys for one, in several kernels; saved is one small copy."""
    text = MODES.replace("{call}", "train()").replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n            print(model(x[torch.randperm(8).to(device)]).shape)\n",
    )
    plain, exhaustive = (
        apply("device-creation", text, min_gain=0.01),
        apply("device-creation", text),
    )
    assert not plain.lines and any("device=device" in line for line in exhaustive.lines)


WORDS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

device = "cuda"
texts = [(torch.randint(99, (5,)), i % 2) for i in range(64)]
loader = DataLoader(texts, batch_size=8, num_workers=2)
model = nn.Sequential({table}, nn.Flatten(), nn.Linear(320, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("table", "worth"),
    [("nn.Embedding(99, 64)", False), ("nn.Identity(), nn.Linear(5, 320)", True)],
)
def test_copies_of_words_are_not_worth_pinning(table: str, worth: bool) -> None:
    text = WORDS.replace("{table}", table)
    found = apply("pin-memory non-blocking", text, min_gain=0.01)
    assert any("non_blocking" in line for line in found.lines) is worth
    assert apply("pin-memory non-blocking", text).lines


@pytest.mark.parametrize(("reads", "worth"), [(0, True), (6, False)])
def test_a_tensor_made_beside_many_waits_that_stay(reads: int, worth: bool) -> None:
    more = "            optimizer.step()\n            w = torch.ones(1).to(device) * loss\n"
    more += "            print(w)\n" + "            if w.item() > 0: print(w)\n" * reads
    text = MODES.replace("{call}", "train()").replace("            optimizer.step()\n", more)
    found = apply("device-creation", text, min_gain=0.01)
    assert ("w = torch.ones(1, device=device) * loss" in found.lines) is worth


LAYER = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Linear(64, 1)

    def forward(self, x):
        {first}
        shift = torch.ones(len(x)).to(x.device)
        return self.dense(x) + shift[:, None]


device"""


@pytest.mark.parametrize(
    ("waits", "worth"),
    [
        ("x = x * 2", True),
        ("for row in x.unbind(1): x = x + row.masked_select(row > 0).sum()", False),
        ("for n in range(9): x = x + torch.full((64,), n).to(x.device, non_blocking=True)", True),
        ("for n in range(9): x = x + torch.tensor([n, 1.0][:1]).to(x.device)", False),
        ("for n in range(2): x = x + torch.tensor([n, 1.0][:1]).to(x.device)", True),
    ],
)
def test_a_tensor_made_in_a_method_beside_a_loop_that_waits(waits: str, worth: bool) -> None:
    """The loop over batches is that of the caller; advice says what waits without a read."""
    text = MODES.replace("{call}", "train()").replace("device", LAYER, 1)
    text = text.replace("{first}", waits).replace("nn.Linear(64, 1).to", "Layer().to")
    found = apply("device-creation loss-item-sync", text, min_gain=0.01)
    assert ("shift = torch.ones(len(x), device=x.device)" in found.lines) is worth


ATTACK = """
def attack(x, y, opt=None):
    lost = torch.zeros(len(x)).to(device)
    for _ in range(9):
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
    return lost


def train():
    for epoch in range(9):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        nn.functional.mse_loss(model(x), y).backward()
        print(attack(x, y, optimizer).sum())
"""


def test_a_loop_around_the_one_that_updates_is_no_step() -> None:
    """A backward once an epoch makes no step of it, so what stands there runs once an epoch."""
    start, end = MODES.index("def train"), MODES.index("{call}")
    text = MODES[:start] + ATTACK + "\n\ntrain()\n" + MODES[end + 6 :]
    found = apply("device-creation", text, min_gain=0.01)
    assert not found.lines
    assert apply("device-creation", text).lines == ["lost = torch.zeros(len(x), device=device)"]


@pytest.mark.parametrize(
    ("head", "data", "epochs", "worth"),
    [
        ("", 'Rows("train")', 300, True),
        ("", 'Rows("train")', 100, False),
        ("torch.manual_seed(0)\n", 'Rows("train")', 300, False),
        ("from lib import set_seed\nset_seed(0)\n", 'Rows("train")', 300, False),
        (
            "torch.manual_seed(0)\n",
            'torchvision.datasets.CIFAR10(".", transform=lambda x: x)',
            100,
            True,
        ),
    ],
)
def test_workers_that_stay_where_the_seed_was_set(
    head: str, data: str, epochs: int, worth: bool
) -> None:
    """Half a second an epoch is worth other numbers where epochs are known to be short, and its
    line where there are so many that they will be short.
    """
    text = MODES.replace("{call}", "train()").replace("from lib import Rows", ROWS_OF)
    text = text.replace('Rows("train")', data).replace("range(9)", f"range({epochs})")
    found = apply("persistent-workers", "import torch, torchvision\n" + head + text, min_gain=0.01)
    assert any("persistent_workers=True" in line for line in found.lines) is worth


@pytest.mark.parametrize(
    ("rules", "given", "draws", "worth"),
    [
        ("num-workers persistent-workers", "", " + torch.rand(1)", True),
        ("num-workers persistent-workers", "", "", False),  # the same order as in one process
        ("persistent-workers", ", num_workers=2", " + torch.rand(1)", False),
    ],
)
def test_workers_that_are_new_stay(rules: str, given: str, draws: str, worth: bool) -> None:
    """Where items draw, they draw other numbers than one process in any case."""
    photo = f"torchvision.io.read_image(str(i)){draws}, torch.zeros(1)"
    rows = ROWS_OF.replace("torch.full((64,), float(i)), torch.zeros(1)", photo)
    text = MODES.replace("{call}", "train()").replace("from lib import Rows", rows)
    head = "import torch, torchvision\ntorch.manual_seed(0)\n"
    found = apply(rules, head + text.replace(", num_workers=2", given), min_gain=0.01)
    assert any("persistent_workers=" in line for line in found.lines) is worth


ROWS_OF = """

class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return torch.full((64,), float(i)), torch.zeros(1)

"""


@pytest.mark.parametrize("workers", ["num_workers", "0"])
def test_workers_that_no_caller_asks_for_do_not_stay(workers: str) -> None:
    text = MODES.replace("{call}", "train()").replace(
        'loader = DataLoader(Rows("train"), batch_size=32, num_workers=2, pin_memory=True)',
        "def load(num_workers=0):\n"
        f'    return DataLoader(Rows("train"), batch_size=32, num_workers={workers})\n'
        "loader = load()",
    )
    found = apply("persistent-workers", text, min_gain=0.01)
    assert not any("persistent" in line for line in found.lines)


# ------------------------------------------------------------- images whose size a layer tells
ATARI = """
import torch
from torch import nn
from lib import memory, actions

device = torch.device("cuda")
batch_size = 32


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
            nn.Conv2d(64, 64, 3), nn.ReLU(),
        )
        self.head = nn.Sequential(nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, actions))

    def forward(self, x):
        x = self.convolutions(x)
        {flat}
        return self.head(x)


model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for step in range(100000):
    x, y = memory.sample(batch_size)
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    "flat", ["x = x.flatten(1)", "x = x.view(-1, 3136)", "x = torch.flatten(x, 1)"]
)
def test_images_as_large_as_the_dense_layer_behind_takes(flat: str, tmp_path: Path) -> None:
    found = estimate(tmp_path, ATARI.replace("{flat}", flat))
    assert not found.why
    # sides of 20, 9 and 7 behind the convolutions, with images of up to 91 pixels
    macs = 20**2 * 32 * 256 + 9**2 * 64 * 512 + 7**2 * 64 * 576
    assert found.convolutions == pytest.approx(32 * 6 * macs / GPU.convolutions, rel=0.3)
    text = ATARI.replace("{flat}", flat)
    assert "autocast" in small(rewritten(tmp_path, text))


# ------------------------------------------------------------------- what no default comes to
OPTIONS = """
import argparse
import torch
from lib import Rows
from torch import nn
from torch.utils.data import DataLoader

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
parser.add_argument("--train", action="store_true")
parser.add_argument("--noise", default="none")
args = parser.parse_args()
loader = DataLoader(Rows("train"), batch_size=32, num_workers=2, pin_memory=True)
device = torch.device("cuda")
model = nn.Linear(64, 1)
if {moved}:
    model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(9):
    for x, y in loader:
        if {condition}:
            noise = torch.zeros(32, 64).to(device)
        loss = nn.functional.mse_loss(model(x.to(device) + noise), y.to(device))
        if {trained}:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("condition", "moved", "trained", "worth"),
    [
        ('args.noise == "white"', "True", "True", False),
        ('args.noise == "none"', "True", "True", True),
        ('args.noise != "white"', "True", "True", True),
        ("args.gpu", "True", "True", False),
        ("args.gpu", "args.gpu", "True", True),  # it is for whoever has one
        ("args.train", "True", "args.train", True),  # it is for whoever trains
    ],
)
def test_what_options_at_their_defaults_lead_past(
    condition: str, moved: str, trained: str, worth: bool
) -> None:
    text = OPTIONS.format(condition=condition, moved=moved, trained=trained)
    found = apply("device-creation", text, min_gain=0.01)
    assert bool(found.fixes) is worth
    reasons = [
        f.gain.reason for f in found.findings if f.gain and "their defaults" in f.gain.reason
    ]
    assert bool(reasons) is not worth


@pytest.mark.parametrize("usual", ["cnn", "mlp"])
def test_convolutions_that_no_default_makes(usual: str) -> None:
    text = f"""
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="{usual}")
args = parser.parse_args()
device = torch.device("cuda")
train_set = datasets.CIFAR10("data", train=True, transform=transforms.ToTensor())
loader = DataLoader(train_set, batch_size=256, shuffle=True, num_workers=4, drop_last=True)
if args.model == "cnn":
    model = nn.Sequential(nn.Conv2d(3, 512, 3), nn.Conv2d(512, 512, 3), nn.Flatten(), nn.Linear(401408, 10))
elif args.model == "mlp":
    model = nn.Sequential(nn.Flatten(), nn.Linear(3072, 10))
model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(9):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    found = apply("cudnn-benchmark", text, min_gain=0.01)
    assert ("torch.backends.cudnn.benchmark = True" in found.lines) is (usual == "cnn")


FEW = """
import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

device = torch.device("cuda")
train_set = datasets.MNIST("data", train=True, transform=transforms.ToTensor())
train_loader = DataLoader(train_set, batch_size=256, shuffle=True, num_workers=4)
test_loader = DataLoader(train_set, batch_size=256, num_workers=4)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(9):
    for x, y in train_loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    right = 0
    with torch.no_grad():
        for x, y in test_loader:
            right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
    print(right)
"""


def test_one_sum_of_an_evaluation_is_read_as_it_is() -> None:
    """Two of them are not, nor what is read in a step of training."""
    again = "right += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()"
    another = "total += model(x.to(device)).sum().item()"
    two = FEW.replace(again, f"{again}\n            {another}").replace(
        "right = 0", "right = total = 0"
    )
    two = two.replace("print(right)", "print(right, total)")
    trained = FEW.replace(
        "        optimizer.zero_grad()",
        "        seen += loss.item()\n        optimizer.zero_grad()",
    )
    trained = trained.replace("range(9):", "range(9):\n    seen = 0").replace(
        "print(right)", "print(seen)"
    )
    trained = trained.replace(again, "pass").replace(", num_workers=4", "")
    found = [apply("loss-item-sync", text, min_gain=0.01) for text in (FEW, two, trained)]
    assert [len(done.fixes) for done in found] == [0, 2, 1]


PICTURES = """
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 32, 3), nn.Conv2d(32, {wide}, 3)

    def forward(self, x):
        return F.max_pool2d(F.relu(self.second(F.relu(self.first(x)))), 2).flatten(1)


device = torch.device("cuda")
pictures = datasets.MNIST("data", train=True, transform=transforms.{transform})
loader = DataLoader(pictures, batch_size=256, shuffle=True, num_workers=4, pin_memory=True)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(900):
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("wide", "worth"), [(64, False), (512, True)])
def test_a_tiny_network_waits_for_its_images(wide: int, worth: bool) -> None:
    """Made one by one by PIL: workers are the gain. Images that a fix has made at once are not
    waited for.
    """
    text = PICTURES.format(wide=wide, transform="ToTensor()")
    found = apply("channels-last", text, min_gain=0.01)
    assert bool(found.fixes) is worth
    said = [f.gain.reason for f in found.findings if f.gain is not None]
    assert worth or any(reason.startswith("waits for data") for reason in said)
    together = apply("batched-dataset channels-last", text, min_gain=0.01)
    assert "memory_format" in "".join(together.lines)


SHOWN_AGAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.io import read_image

class Images(Dataset):
    def __init__(self, names):
        self.names = names
    def __len__(self):
        return len(self.names)
    def __getitem__(self, i):
        return read_image(self.names[i]).float()
    def shown(self, n):
        while True:
            for item in DataLoader(self, batch_size=n, drop_last=True):
                yield item

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Conv2d(3, 3, 3, padding=1).to(device)
optimizer = torch.optim.Adam(model.parameters())
data = Images([f"{n}.png" for n in range(1000)])
shown = data.shown(4)
def to_device(*args):
    return (a.to(device) for a in args)
loader = DataLoader(data, batch_size=8, num_workers=4, shuffle=True)
for epoch in range(10):
    for step, images in enumerate(loader):
        images, = to_device(images)
        loss = model(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 1000 == 0:
            images, = to_device(next(shown))
            print(model(images).shape)
"""


def test_one_copy_of_several_loaders_counts_on_the_one_that_is_worth_pinning(
    tmp_path: Path,
) -> None:
    """Else only a second rewrite would find that the first loader is pinned now."""
    (once,) = rewritten(tmp_path, SHOWN_AGAIN).texts.values()
    assert "a.to(device, non_blocking=True)" in once
    assert not rewritten(tmp_path, once).texts


POINTWISE = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from clouds import Clouds

def mlp(cin, channels):
    layers = []
    for c in channels:
        layers += [nn.Conv2d(cin, c, KERNEL), nn.BatchNorm2d(c), nn.ReLU()]
        cin = c
    return nn.Sequential(*layers)

device = torch.device("cuda")
model = nn.Sequential(mlp(3, [64, 64, 128]), mlp(128, [128, 256]), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(256, 40)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x, y in DataLoader(Clouds(), batch_size=32, num_workers=8):
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("kernel", "worth"), [("1", False), ("(1, 1)", False), ("3", True)])
def test_convolutions_of_one_position_have_no_use_for_another_layout(
    tmp_path: Path, kernel: str, worth: bool
) -> None:
    result = rewritten(tmp_path, POINTWISE.replace("KERNEL", kernel), Config())
    assert ("channels-last" in result.plan.applied) is worth


# --------------------------------------------------------------------- depthwise convolutions
DEPTHWISE = """
import torch
from torch import nn
from lib import loader

device = torch.device("cuda")


def block(n):
    return nn.Sequential(nn.Conv2d(n, n, 3, padding=1, groups={groups}), nn.Conv2d(n, n, 1), nn.ReLU())


model = nn.Sequential(nn.Conv2d(3, 256, 3, padding=1), block(256), block(256)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("groups", "left", "worth"),
    [("n", ("autocast",), False), ("1", ("autocast",), True), ("n", (), True)],
)
def test_depthwise_convolutions_in_fp32_stay_as_they_are(
    groups: str, left: tuple[str, ...], worth: bool, tmp_path: Path
) -> None:
    found = rewritten(
        tmp_path, DEPTHWISE.replace("{groups}", groups), Config(ignore=left, min_gain=0.01)
    )
    assert ("channels-last" in {r.rule for r in found.records if r.status == "fix"}) is worth


# ------------------------------------------------- convolutions that gain nothing of channels_last
BLOCKS = """
import torch
from torch import nn
from lib import loader

device = torch.device("cuda")


class Net(nn.Module):
    def __init__(self, wf, depth=3):
        super().__init__()
        self.blocks, width = nn.ModuleList(), 3
        for i in reversed(range(depth)):
            self.blocks.append(nn.Sequential(nn.Conv2d(width, 2 ** (wf + i), 3), NORM, nn.ReLU()))
            width = 2 ** (wf + i)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return torch.cdist(x.mean((2, 3)), x.mean((2, 3)))


model = Net({wf}).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("wf", "norm", "left", "worth"),
    [
        (4, "nn.BatchNorm2d(2 ** (wf + i))", ("autocast",), False),
        (5, "nn.BatchNorm2d(2 ** (wf + i))", ("autocast",), True),
        (4, "nn.BatchNorm2d(2 ** (wf + i))", (), True),
        (8, "nn.GroupNorm(8, 2 ** (wf + i))", (), False),
        (8, "nn.BatchNorm2d(2 ** (wf + i))", (), True),
    ],
)
def test_the_order_of_channels(
    wf: int, norm: str, left: tuple[str, ...], worth: bool, tmp_path: Path
) -> None:
    """Of few channels in fp32, and where each layer that normalises gives the usual order."""
    text = BLOCKS.replace("NORM", norm).replace("{wf}", str(wf))
    found = rewritten(tmp_path, text, Config(ignore=left, min_gain=0.01))
    assert ("channels-last" in {r.rule for r in found.records if r.status == "fix"}) is worth


LABELS = """
import torch
from torch import nn
from lib import data
from torch.utils.data import DataLoader

device = torch.device("cuda")
loader, test = DataLoader(data, batch_size=32), DataLoader(data, batch_size=32)
model = nn.Linear(80, 10).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(100):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for label in range(10):
        {once}
        for x, y in test:
            {each}
            print(nn.functional.mse_loss(model(x.to(device)), labels))
"""
MADE = "labels = torch.zeros(32, 10).to(device)"


@pytest.mark.parametrize(("once", "each", "worth"), [(MADE, "pass", False), ("pass", MADE, True)])
def test_what_is_made_for_a_pass_over_data_is_not_made_in_every_step(
    once: str, each: str, worth: bool
) -> None:
    text = LABELS.format(once=once, each=each)
    assert not apply("device-creation", text, min_gain=0.01).fixes  # beside the training
    acting = text.replace("in loader:", "in [(torch.zeros(32, 80), torch.zeros(32, 10))] * 9:")
    assert bool(apply("device-creation", acting, min_gain=0.01).fixes) is worth


@pytest.mark.parametrize(
    ("channels", "head", "pays"),
    [
        (10, "nn.Linear(10, 2)", ()),
        (128, "nn.Linear(128, 2)", (gains.layout, gains.algorithms)),
        (10, "nn.ReLU()", (gains.algorithms,)),  # no head, but few channels in fp32
    ],
)
def test_a_first_network_for_digits_stays_as_it_is(
    channels: int, head: str, pays: tuple[Question, ...], tmp_path: Path
) -> None:
    first = DEPTHWISE.index("def block")
    text = DEPTHWISE[:first] + DEPTHWISE[DEPTHWISE.index("model =") :]
    begin = text.index("model = ")
    layers = f"nn.Conv2d(3, {channels}, 3), nn.Conv2d({channels}, {channels}, 3), {head}"
    text = (
        text[:begin]
        + f"model = nn.Sequential({layers}).to(device)"
        + text[text.index("\n", begin) :]
    )
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    script = read_script(tmp_path / "train.py", tmp_path)
    finding = Finding(script.optimizers[0].node, "")
    for ask in (gains.layout, gains.algorithms):
        gain = ask(script, Options(), finding, ())
        assert gain is not None and (gain.known and not gain.share) is not (ask in pays), ask


def test_an_evaluation_that_may_come_one_by_one(tmp_path: Path) -> None:
    """cuDNN would measure again for each size of an image."""
    text = (
        MODES.replace("{call}", "train()\ntest()")
        .replace("nn.Linear(64, 1)", "nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten())")
        .replace(
            "loader = DataLoader(",
            'size = 8 if args.mode == "train" else 1\nloader = DataLoader(',
            1,
        )
        .replace(
            'DataLoader(Rows("train"), batch_size=32',
            'DataLoader(Rows("train"), shuffle=True, batch_size=32',
        )
    )
    mixed = text.replace(
        "DataLoader(Rows(part), batch_size=8", "DataLoader(Whole(part), batch_size=size"
    )
    assert mixed != text
    head = "import torch" + ROWS_OF + ROWS_OF.replace("class Rows", "class Whole")
    one, other = (
        apply("cudnn-benchmark", head + t.replace("from lib import Rows", ""))
        for t in (text, mixed)
    )
    assert any("benchmark = True" in line for line in one.lines)
    assert not any("benchmark = True" in line for line in other.lines)


@pytest.mark.parametrize(("rules", "worth"), [(("gpu-data",), True), ((), False)])
def test_a_read_beside_a_copy_that_is_none_any_more(
    rules: tuple[str, ...], worth: bool, tmp_path: Path
) -> None:
    """Batches that lie on the device are not copied, and nothing waits for them."""
    text = (
        MODES.replace("{call}", "train()")
        .replace("from lib import Rows", "rows = torch.randn(50_000, 64)")
        .replace('Rows("train")', "torch.utils.data.TensorDataset(rows, rows[:, :1])")
        .replace(
            "            optimizer.step()\n",
            "            optimizer.step()\n            total += loss.item()\n",
        )
        .replace(
            "        for x, y in loader:", "        total = 0.0\n        for x, y in loader:", 1
        )
        .replace("pin_memory=True)", "pin_memory=False)", 1)
    )
    text = text.replace("\n\ndef test()", "        print(total)\n\n\ndef test()", 1)
    found = rewritten(tmp_path, text, Config(select=("loss-item-sync", *rules)))
    (gain,) = [r.gain for r in found.records if r.rule == "loss-item-sync" and r.status == "fix"]
    assert gain is not None and (gain.share > 0) is worth


@pytest.mark.parametrize(
    ("made", "known"),
    [
        ("torch.zeros(x.shape)", None),
        ("torch.full(x.size(), 0.0)", None),
        ("torch.rand(size=x.shape)", None),
        ("torch.zeros(x.size(0))", 1),
        ("torch.zeros(len(x), 4)", 2),
        ("torch.full((len(x), 4, 1), 0.0)", 3),
        ("torch.randint(9, size=(len(x), 4))", 2),
        ("torch.randperm(len(x))", 1),
        ("x.new_zeros(len(x), 4)", 2),
        ("x.new_ones((4,))", 1),
        ("x.new_zeros(x.shape)", None),
    ],
)
def test_how_many_sizes_a_new_tensor_has(made: str, known: int | None, tmp_path: Path) -> None:
    """The shape of another tensor is no size."""
    script = model_of(tmp_path, f"import torch\nx = torch.randn(5, 2)\nmade = {made}\n")
    (call,) = [n.value for n in script.each(ast.Assign) if ast.unparse(n.targets[0]) == "made"]
    assert dimension_count(script, call) == known
    scope: dict[str, torch.Tensor] = {}
    exec(script.entry.text, scope)
    assert known is None or scope["made"].dim() == known


SAMPLERS = """
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Uniform:
    def draw(self, n, device):
        return torch.ones(n).to(device)


class Heavy:
    def draw(self, n, device):
        return torch.full((n,), 0.5).to(device)


def sampler(name):
    if name == "uniform":
        return Uniform()
    elif name == "heavy":
        return Heavy()


parser = argparse.ArgumentParser()
parser.add_argument("--sampler", default="uniform")
args = parser.parse_args()
device = torch.device("cuda")
loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
model = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draws = sampler(args.sampler)
for epoch in range(9):
    for (x,) in loader:
        weights = draws.draw(8, device)
        optimizer.zero_grad()
        (model(x.to(device))[:, 0] * weights).mean().backward()
        optimizer.step()
"""


def test_methods_of_objects_that_no_default_makes() -> None:
    done, whole = (apply("device-creation", SAMPLERS, min_gain=gain) for gain in (0.01, 0.0))
    heavy = "return torch.full((n,), 0.5, device=device)"
    assert "return torch.ones(n, device=device)" in done.lines
    assert heavy not in done.lines and heavy in whole.lines


NETWORKS = """
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--net", default="{default}")
args = parser.parse_args()
device = torch.device("cuda")


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x) + torch.ones(len(x), 8).to(x.device)


def network():
    if args.net == "shifted":
        return Shifted()
    return nn.Linear(8, 8)


model = network().to(device)
optimizer = torch.optim.Adam(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
for epoch in range(9):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x.to(device)).mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("default", ["shifted", "plain"])
def test_the_forward_of_a_network_that_no_default_makes(default: str) -> None:
    done = apply("device-creation", NETWORKS.format(default=default), min_gain=0.01)
    assert bool(done.fixes) is (default == "shifted")


@pytest.mark.parametrize(
    ("made", "least"),
    [("x", 3), ("x[:, t]", 2), ("h", 2), ("c", 2), ("y", 2), ("z", 3), ("torch.cat([y, h], 1)", 2)],
)
def test_how_many_dimensions_states_have(made: str, least: int, tmp_path: Path) -> None:
    """What steps go on with has as many as what they began with."""
    text = f"""
import torch
from torch import nn
x = torch.randn(4, 5, 3).view((4, 5, 3))
b, steps, _ = x.shape
cell, gru, out = nn.LSTMCell(3, 6), nn.GRU(3, 6, batch_first=True), nn.Linear(6, 6)
h, c = x.new_zeros(b, 6), x.new_zeros((b, 6))
for t in range(steps):
    h, c = cell(x[:, t], (h, c))
    y = torch.relu(out(h))
    z, _ = gru(x)
made = {made}
"""
    script = model_of(tmp_path, text)
    (value,) = [n.value for n in script.each(ast.Assign) if ast.unparse(n.targets[0]) == "made"]
    assert least_dimensions(script, value) == least
    scope: dict[str, torch.Tensor] = {}
    exec(text, scope)
    assert scope["made"].dim() == least


@pytest.mark.parametrize(
    ("made", "least"),
    [
        ("pool(x)", 4),
        ("conv(torch.randn(3, 5, 5))", 3),
        ("norm(pool(x))", 4),
        ("F.max_pool2d(x, 2)", 4),
        ("F.adaptive_avg_pool1d(x[0], 1)", 2),
        ("x.mean(1)", 3),
        ("x.mean(1, True)", 4),
        ("x.sum((2, 3))", 2),
        ("torch.sum(x, [1, 2, 3])", 1),
        ("torch.mean(x, 1, keepdim=True)", 4),
        ("x.mean(dim=-1, keepdims=True)", 4),
        ("x.amax((1, 2, 3), keepdim=False)", 0),
        ("x.mean(axes)", 0),
        ("x.sum()", 0),
        ("torch.pow(x, 2)", 4),
        ("torch.mul(x.mean(1), x[:, 0])", 3),
        ("torch.max(x.mean(1), torch.zeros(1))", 3),
        ("torch.max(x, 1)[0]", 0),
        ("x.sum() * torch.zeros(2, 2).cumsum(0)", 0),
        ("torch.ones(3).mean(0).clamp(min=0)", 0),
    ],
)
def test_how_many_dimensions_are_left(made: str, least: int, tmp_path: Path) -> None:
    text = f"""
import torch
from torch import nn
import torch.nn.functional as F
x = torch.randn(4, 3, 8, 8)
axes = [0, 1][: int(x.size(0) / 2)]
conv, pool, norm = nn.Conv2d(3, 3, 3), nn.AvgPool2d(2), nn.BatchNorm2d(3)
made = {made}
"""
    script = model_of(tmp_path, text)
    (value,) = [n.value for n in script.each(ast.Assign) if ast.unparse(n.targets[0]) == "made"]
    assert least_dimensions(script, value) == least
    count, scope = dimension_count(script, value), dict[str, torch.Tensor]()
    exec(text, scope)
    assert least <= scope["made"].dim() and count in (None, scope["made"].dim())


RECURSES = """
import json
import torch
def plain(found):
    if isinstance(found, dict):
        new = {}
        for key, inner in found.items():
            new[key] = plain(inner)
        return new
    elif isinstance(found, list):
        return [plain(inner) for inner in found]
    return found
options = json.loads(open("settings.txt").read())
options["first"]["scale"] = 1
options = plain(options)
table = torch.ones(3) * options["first"]["scale"]
"""


def test_parts_of_what_a_function_makes_that_calls_itself(tmp_path: Path) -> None:
    """Each turn asks for a part of a part of what was asked for before."""
    script = model_of(tmp_path, RECURSES)
    scale = script.entry.tree.body[-1].value.right  # type: ignore[attr-defined]
    assert script.analysis(Makers).all(scale) == []


TEMPERED = """
import math
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
alpha = {alpha}
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
other = torch.optim.Adam([alpha], lr=1e-3)
for step in range(100000):
    loss = (net(torch.randn(256, 64, device=device)) * alpha.exp().sum()).mean()
    optimizer.zero_grad()
    other.zero_grad()
    loss.backward()
    optimizer.step()
    other.step()
"""


@pytest.mark.parametrize(
    ("alpha", "worth"),
    [
        ("torch.zeros(1, requires_grad=True, device=device)", False),
        ("torch.tensor(math.log(0.2), device=device).requires_grad_()", False),
        ("nn.Parameter(torch.tensor([0.5, 0.1], device=device))", False),
        ("nn.Parameter(torch.zeros(3, 256, 256, device=device))", True),
    ],
)
def test_an_optimizer_of_a_few_numbers(alpha: str, worth: bool) -> None:
    found = apply("fused-optimizer", TEMPERED.format(alpha=alpha), min_gain=0.01)
    assert len(found.fixes) == 1 + worth
    assert any("[alpha]" in line for line in found.lines) is worth


PROBES = """
import sys
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
features, labels = torch.load(sys.argv[1])
features, labels = features.to(device), labels.to(device)


class Probe(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        {layers}

    def forward(self, x):
        return self.last(x)


for _ in range({runs}):
    probe = Probe(features.shape[1], int(labels.max()) + 1).to(device)
    optimizer = torch.optim.Adam(probe.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(probe(features), labels)
        loss.backward()
        optimizer.step()
"""
LAST = "self.last = nn.Linear(width, classes)"


@pytest.mark.parametrize(
    ("layers", "runs", "worth"),
    [
        (LAST, 50, False),
        (LAST, 50_000, True),
        ("self.last = nn.Sequential(nn.Linear(width, width), nn.Linear(width, classes))", 50, True),
    ],
)
def test_one_layer_that_is_updated_a_few_thousand_times(
    layers: str, runs: int, worth: bool
) -> None:
    """Whatever a step takes: its weights are few, and so are the kernels."""
    text = PROBES.format(layers=layers, runs=runs)
    assert bool(apply("fused-optimizer", text, min_gain=0.01).fixes) is worth
    assert apply("fused-optimizer", text).fixes
