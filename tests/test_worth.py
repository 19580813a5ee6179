"""What is worth its lines: the cost model, what it decides, and how that is said."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import indent

import pytest

from autofast.commands.checking import Request, check
from autofast.commands.output import Delivery, Destination
from autofast.commands.rewriting import Rewritten, rewrite
from autofast.config import Config
from autofast.edit.edits import Remove
from autofast.edit.worth import judged
from autofast.facts.cost import gains
from autofast.facts.cost.inputs import batch_count
from autofast.facts.cost.step import Cost, Estimate
from autofast.model.script import Script
from autofast.read import read_script
from autofast.report import json as as_json, text as as_text
from autofast.report.style import Style
from autofast.report.summary import summary
from autofast.rule import Effect, Finding, Gain, Options, Question, Rule
from tests.onerule import apply

ROWS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(2):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(epoch, total)
"""
DIGITS = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import datasets, transforms


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        self.dropout = nn.Dropout(0.25)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.dropout(F.max_pool2d(x, 2))
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
transform = transforms.ToTensor()
train_set = datasets.MNIST("data", train=True, download=True, transform=transform)
train_loader = torch.utils.data.DataLoader(train_set, batch_size=64, shuffle=True)
model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(14):
    for images, labels in train_loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(images), labels)
        loss.backward()
        optimizer.step()
"""
FINAL = """
test_set = datasets.MNIST("data", train=False, transform=transform)
test_loader = torch.utils.data.DataLoader(test_set, batch_size=64)
with torch.no_grad():
    correct = 0
    for images, labels in test_loader:
        images, labels = images.to(device), labels.to(device)
        correct += (model(images).argmax(1) == labels).sum().item()
print(correct)
"""
LONG = DIGITS.replace("range(14)", "range(1400)")
ARITHMETIC = {"autocast", "channels-last", "cudnn-benchmark", "tf32"}


# With the data on the device, what is asked of loaders and copies here has nothing to do.
PLAIN = Config(ignore=("gpu-data",))


def rewritten(folder: Path, text: str, config: Config = PLAIN) -> Rewritten:
    """What becomes of a script, as the command line would do it."""
    (folder / "train.py").write_text(text.lstrip("\n"), encoding="utf-8")
    return rewrite(folder / "train.py", folder, config)


def said(result: Rewritten) -> str:
    return summary(result, Destination("diff", "-", False), Delivery(), Style())


def small(result: Rewritten) -> set[str]:
    """The rules that have findings which are not worth their lines, or would cost time."""
    return {
        r.rule
        for r in result.records
        if r.status == "small" or "it would be slower" in (r.reason or "")
    }


def model_of(folder: Path, text: str) -> Script:
    (folder / "train.py").write_text(text.lstrip("\n"), encoding="utf-8")
    return read_script(folder / "train.py", folder)


def estimate(folder: Path, text: str) -> Estimate:
    return Cost(model_of(folder, text)).estimate()


def wider(text: str, times: int) -> str:
    """The same network with so many times the channels."""
    text = text.replace("1, 32, 3, 1", f"1, {32 * times}, 3, 1")
    text = text.replace("32, 64, 3, 1", f"{32 * times}, {64 * times}, 3, 1")
    return text.replace("9216", str(9216 * times))


# ------------------------------------------------------------------------------- the cost of a step
def test_a_convolutional_network_on_digits(tmp_path: Path) -> None:
    found = estimate(tmp_path, DIGITS)
    assert not found.why
    weights = 9 * 32 + 32 + 9 * 32 * 64 + 64 + 9216 * 128 + 128 + 1280 + 10
    assert found.parameters == weights and found.tensors == 8
    # 26 and 24 are the sides of the images behind the convolutions; forwards, and twice that
    # backwards
    flop = 3 * 2 * 64 * (9 * 32 * 26**2 + 9 * 32 * 64 * 24**2)
    assert found.convolutions == pytest.approx(flop / 40e12)
    assert found.host > found.device and found.saved(0.4, 0.4, 0.5) == 0


def test_the_size_of_images_follows_from_the_first_dense_layer(tmp_path: Path) -> None:
    own = DIGITS.replace("from torchvision import datasets, transforms", "from mine import Digits")
    own = own.replace("transform = transforms.ToTensor()\n", "")
    first, rest = own.split("train_set = ")
    own = f"{first}train_set = Digits(){rest[rest.index(chr(10)) :]}"
    known, inferred = estimate(tmp_path, DIGITS), estimate(tmp_path, own)
    assert not known.why and not inferred.why
    # 29 x 29 fit as well, by the pooling: the larger is taken
    assert 1 < inferred.convolutions / known.convolutions < (27 / 25) ** 2


def test_what_a_larger_network_saves(tmp_path: Path) -> None:
    found = estimate(tmp_path, wider(DIGITS, 16))
    assert not found.why and found.host < found.device
    assert 0.3 < found.saved(0.4, 0.4, 0.5) < 0.7


CRITIC = """
critic = nn.Sequential(nn.Linear(10, 500), nn.ReLU(), nn.Linear(500, 500), nn.Linear(500, 2)).to(device)
encoder, other = model, Net().to(device)
for epoch in range(1400):
    for images, labels in train_loader:
        images, labels = images.to(device), labels.to(device)
        source = encoder(images)
        target = other(images)
        {both}
        optimizer.zero_grad()
        loss = F.cross_entropy(critic({given}), labels[:1].expand(len(both)))
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("both", "given", "rows"),
    [
        ("both = torch.cat((source, target), 0)", "both.detach()", 128),
        ("both = torch.cat([source, target])", "both", 128),
        ("both = source.detach()", "both", 64),
        ("both = target", "other(images)", 64),
        ("both = torch.cat((source, target), dim=1)", "both.view(-1, 10)", 128),
        ("both = source.repeat(30, 1)", "both", 1920),
        ("both = torch.cat((source, mix(target)), 0)", "both", 4096),
        ("both = source if epoch else target.repeat(30, 1)", "both", 4096),
    ],
)
def test_what_other_networks_give(tmp_path: Path, both: str, given: str, rows: int) -> None:
    """A network that is given what others make of a batch takes as many rows; where that is not
    followed, many more.
    """
    text = LONG[: LONG.index("for epoch")] + CRITIC.replace("{both}", both).replace(
        "{given}", given
    )
    found = estimate(tmp_path, text)
    assert not found.why
    networks = 3 * 2 * 64 * (9216 * 128 + 1280) * (2 if "other(images)" not in given else 3)
    critic = 3 * 2 * (5000 + 500 * 500 + 1000) * rows
    assert found.products == pytest.approx((networks + critic) / 12e12, rel=0.01)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("nn.Conv2d(1, 32, 3, 1)", "nn.Conv2d(1, width(), 3, 1)"),
        ("x = self.dropout(F.max_pool2d(x, 2))", "x = lib.unknown(x)"),
        ("x = F.relu(self.fc1(x))", "x = F.relu(self.fc1(x)) @ x.t()"),
        ("batch_size=64", "batch_size=size()"),
        ("x = F.relu(self.conv2(x))", "for _ in range(n()):\n            x = self.conv2(x)"),
    ],
)
def test_what_is_not_known_is_never_small(tmp_path: Path, old: str, new: str) -> None:
    text = DIGITS.replace(old, new)
    assert text != DIGITS and estimate(tmp_path, text).why
    # of TF32 nothing is left where autocast is written
    result = rewritten(tmp_path, text)
    assert not (small(result) - result.plan.applied) & ARITHMETIC - {"tf32"}


def test_a_gradient_of_something_else_does_not_bring_tf32_the_second_time(tmp_path: Path) -> None:
    text = """
import os

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
width = int(os.environ["WIDTH"])


def train_step(x, y):
    optimizer.zero_grad()
    loss = (net(x) - y).abs().mean()
    loss.backward()
    optimizer.step()


net = nn.Sequential(nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 1)).to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(32, 4).to(device), torch.randn(32, 1).to(device)
for i in range(20_000):
    train_step(x, y)
scale = torch.ones(1, requires_grad=True)
(3 * scale.to(device)).backward()
"""
    first = rewritten(tmp_path, text)
    assert "autocast" in first.plan.applied and "tf32" in small(first)
    (done,) = first.plan.texts().values()
    assert "tf32" not in rewritten(tmp_path, done).plan.applied


def test_tf32_is_for_products_that_are_left_in_fp32(tmp_path: Path) -> None:
    text = wider(DIGITS, 16)
    assert "tf32" in small(rewritten(tmp_path, text))
    without = Config(ignore=("autocast",))
    dense = text.replace("128)", "8192)").replace("(128,", "(8192,")
    assert "tf32" in rewritten(tmp_path, dense, without).plan.applied
    convolutions = (
        DIGITS.replace("batch_size=64", "batch_size=size()")
        .replace("self.fc1 = nn.Linear(9216, 128)", "self.fc1 = nn.Conv2d(9216, 128, 1)")
        .replace("self.fc2 = nn.Linear(128, 10)", "self.fc2 = nn.Conv2d(128, 10, 1)")
    )
    result = rewritten(tmp_path, convolutions, without)
    assert "tf32" in small(result)
    assert "use TF32 without it" in next(
        r.gain.reason for r in result.records if r.rule == "tf32" and r.gain
    )


SIX = ", ".join(["nn.Conv2d(width(), width(), 3), nn.ReLU()"] * 6)
LAYERS = "*[nn.TransformerEncoderLayer(512, 4) for _ in range(6)]"
POOLED = "nn.AdaptiveAvgPool2d(1), nn.Flatten()"


@pytest.mark.parametrize(
    ("model", "is_small"),
    [
        (f"nn.Sequential({SIX}, {POOLED}, nn.Linear(64, 10))", True),
        ("torchvision.models.resnet18(num_classes=10)", True),
        ("torchvision.models.vgg16()", True),
        ("torchvision.models.vit_b_16()", False),
        ("nn.Sequential(nn.Conv2d(1, width(), 3), nn.Flatten(), nn.Linear(64, 10))", True),
        ("nn.Sequential(nn.Conv2d(1, width(), 3), nn.Flatten(), nn.Linear(8192, 512))", True),
        (f"nn.Sequential({SIX}, {POOLED}, nn.Linear(25088, 4096))", False),
        (f"nn.Sequential({SIX}, {POOLED}, *[nn.Linear(64, 64) for _ in range(9)])", True),
        (f"nn.Sequential({SIX}, {POOLED}, nn.GRU(64, 64))", True),
        (f"nn.Sequential({SIX}, {POOLED}, nn.TransformerEncoderLayer(512, 4))", True),
        (f"nn.Sequential({SIX}, {POOLED}, {LAYERS})", False),
        (f"nn.Sequential({SIX}, {POOLED}, lib.Head())", True),
    ],
)
def test_tf32_is_not_for_the_head_of_a_convolutional_network(
    tmp_path: Path, model: str, is_small: bool
) -> None:
    """Also where no size is known: one layer, behind many convolutions."""
    text = DIGITS.replace("model = Net()", f"model = {model}")
    text = text.replace(
        "from torchvision import",
        "import lib\nimport torchvision\nfrom lib import width\nfrom torchvision import",
    )
    result = rewritten(tmp_path, text, Config(ignore=("autocast",)))
    assert ("tf32" in small(result)) is is_small


# ---------------------------------------------------------------------------------- what is written
def test_a_network_bound_by_launches_is_not_made_to_compute_faster(tmp_path: Path) -> None:
    result = rewritten(tmp_path, DIGITS)
    assert small(result) >= ARITHMETIC and not result.plan.applied & ARITHMETIC
    words = "channels-last, cudnn-benchmark, fused-optimizer, non-blocking, pin-memory, tf32"
    assert f"not worth their lines: {words} (--exhaustive" in said(result)
    assert "autocast: it would be slower: bound by launches" in said(result)
    assert "autocast" not in "".join(result.texts.values())


@pytest.mark.parametrize(
    ("layers", "worth"),
    [
        ("nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 1)", False),  # the casts take longer
        ("nn.Linear(64, 8192), nn.ReLU(), nn.Linear(8192, 1024), nn.Linear(1024, 1)", True),
    ],
)
def test_on_a_cpu_16_bits_have_to_outweigh_their_casts(
    tmp_path: Path, layers: str, worth: bool
) -> None:
    text = ROWS.replace("nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 1)", layers)
    result = rewritten(tmp_path, text, Config(target="cpu"))
    assert ("autocast" in "".join(result.texts.values())) is worth


@pytest.mark.parametrize(
    "config",
    [Config(exhaustive=True), Config(min_gain=0), Config(select=("autocast",))],
)
def test_who_asks_for_it_gets_it(tmp_path: Path, config: Config) -> None:
    result = rewritten(tmp_path, DIGITS, config)
    assert "autocast" in result.plan.applied and not small(result)


def test_a_network_bound_by_arithmetic_is(tmp_path: Path) -> None:
    result = rewritten(tmp_path, wider(DIGITS, 16))
    assert {"autocast", "channels-last"} <= result.plan.applied
    assert "bound by arithmetic" in said(result)


def test_min_gain_is_a_share_of_the_training(tmp_path: Path) -> None:
    text = wider(DIGITS, 16)
    everything = rewritten(tmp_path, text, Config(min_gain=99))
    assert {"autocast", "channels-last"} <= small(everything)
    assert "batched-dataset" in everything.plan.applied  # whose gain is not known


def test_a_second_rewrite_finds_nothing(tmp_path: Path) -> None:
    scaled = "Compose([transforms.ToTensor(), transforms.Normalize((0.1307,), (0.3081,))])"
    tested = DIGITS.replace(
        "model = Net()",
        """test_set = datasets.MNIST("data", train=False, transform=transform)
test_loader = torch.utils.data.DataLoader(test_set, batch_size=1000)
model = Net()""",
    )
    for text in (DIGITS, DIGITS.replace("ToTensor()", scaled), tested, DIGITS + FINAL, ROWS):
        first = rewritten(tmp_path, text)
        (new,) = first.texts.values()
        again = rewritten(tmp_path, new)
        assert not again.texts, "".join(again.texts.values())


ACTING = """
import random
import torch
from torch import nn
from replay import Buffer, World

device = torch.device("cuda")
net = nn.Conv2d(4, 64, 8, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 20 * 20, 4)
model = nn.Sequential(*net).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
world, memory, seen, batch_size = World(), Buffer(), torch.zeros(1, 4, 84, 84), 32
for count in range(1_000_000):
    if random.random() > 0.1:
        action = model(torch.Tensor(seen).to(device)).argmax(1).item()
    seen = world.step(action)
    if count % 64 == 0:
        x, wanted = memory.sample(batch_size)
        loss = nn.functional.mse_loss(model(x).max(1).values, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_a_step_in_few_iterations_is_what_trains_there(tmp_path: Path) -> None:
    first = rewritten(tmp_path, ACTING)
    assert {"autocast", "channels-last"} <= small(first)
    (new,) = first.texts.values()
    again = rewritten(tmp_path, new)
    assert "no_grad" in new or "inference_mode" in new
    assert not again.texts, "".join(again.texts.values())


@pytest.mark.parametrize("text", [DIGITS, DIGITS + FINAL, ROWS])
def test_the_simplest_scripts_get_few_lines(tmp_path: Path, text: str) -> None:
    (new,) = rewritten(tmp_path, text).texts.values()
    assert 0 < len(new.splitlines()) - len(text.strip().splitlines()) <= 12


def test_what_runs_once_is_left(tmp_path: Path) -> None:
    result = rewritten(tmp_path, DIGITS + FINAL)
    first = DIGITS.lstrip("\n").count("\n") + 1
    late = [r for r in result.records if r.line > first]
    assert late and all(r.status != "fix" for r in late)
    assert {"no-grad-eval", "loss-item-sync", "non-blocking"} <= {r.rule for r in late}
    once = DIGITS.replace("range(14)", "range(1)") + FINAL
    result = rewritten(tmp_path, once)
    assert any(r.line > first and r.status == "fix" for r in result.records)


FILES = """
import numpy as np


class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.from_numpy(np.fromfile(f"{index}.bin", np.float32)), torch.zeros(1)


data = Files()"""


def test_copies_of_next_to_nothing_are_left(tmp_path: Path) -> None:
    assert {"pin-memory", "non-blocking"} <= small(rewritten(tmp_path, ROWS))
    wide = ROWS.replace("256, 64)", "256, 6400)").replace("Linear(64,", "Linear(6400,")
    assert {"pin-memory", "non-blocking"} <= small(rewritten(tmp_path, wide))
    wide = wide.replace("batch_size=32", "batch_size=32, num_workers=2")
    assert not {"pin-memory", "non-blocking"} & small(rewritten(tmp_path, wide))


@pytest.mark.parametrize(
    ("option", "worth"),
    [
        ("loader = DataLoader(data, batch_size=32, num_workers=2)", True),
        ("loader = DataLoader(data, batch_size=32, num_workers=0)", False),
        ("loader = DataLoader(data, batch_size=32, num_workers=args.workers)", False),
        ("loader = DataLoader(data, batch_size=32, num_workers=args.several)", True),
    ],
)
def test_without_workers_nothing_is_pinned_ahead(option: str, worth: bool) -> None:
    """The process that trains would copy each batch into pinned memory, and have waited for the
    pageable one no longer.
    """
    text = ROWS.replace("256, 64)", "256, 6400)").replace("Linear(64,", "Linear(6400,")
    options = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--several", type=int, default=4)
args = parser.parse_args()
"""
    text = options + text.replace("loader = DataLoader(data, batch_size=32, shuffle=True)", option)
    assert bool(apply("pin-memory", text, min_gain=0.01).fixes) is worth


@pytest.mark.parametrize(
    ("made", "worth"),
    [
        ("torch.tensor(2.0)", False),
        ("torch.tensor([2.0])", False),
        ("torch.full((), 2.0)", True),
        ("torch.tensor([2.0] * 1)", True),
    ],
)
def test_numbers_that_are_copied_all_the_same_are_left(made: str, worth: bool) -> None:
    """``torch.tensor(2.0, device=...)`` makes them on the host, and waits for the copy."""
    text = ROWS.replace("model(x), y)", f"{made}.to(device) * model(x), y)")
    assert bool(apply("device-creation", text, min_gain=0.01).fixes) is worth


@pytest.mark.parametrize("begun", [False, True])
def test_copies_of_evaluations_join_those_of_the_training(begun: bool) -> None:
    """A few batches an epoch, which are worth no line of their own: whoever reads that the training
    does not wait would ask why the evaluation does.
    """
    test = """
    with torch.no_grad():
        for a, b in DataLoader(data, batch_size=32, num_workers=2, pin_memory=True):
            a, b = a.to(device), b.to(device)
            print(nn.functional.mse_loss(model(a), b))
"""
    text = ROWS.replace("shuffle=True", "num_workers=2, pin_memory=True") + test.rstrip() + "\n"
    text = text.replace("torch.randn(256, 64)", "torch.randn(256, 640)")
    text = text.replace("nn.Linear(64, 512)", "nn.Linear(640, 512)")
    if begun:
        text = text.replace("x.to(device)", "x.to(device, non_blocking=True)")
        text = text.replace("y.to(device)", "y.to(device, non_blocking=True)")
    done = apply("non-blocking", text, min_gain=0.01)
    assert any("x, y = x.to(device, non_blocking=True)" in line for line in done.lines) is not begun
    assert any("a.to(device, non_blocking=True)" in line for line in done.lines) is not begun


ATTENDS = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Conv2d(width(), width(), 3), nn.Conv2d(width(), width(), 3)
        self.shift = nn.Linear(width(), width())
        self.attends = nn.Conv2d(width(), width(), 1)

    def forward(self, x):
        x = self.two(self.one(x)) + self.shift(x.mean((2, 3)))[:, :, None, None]
        q = self.attends(x).flatten(2)
        return x + (torch.bmm(q, torch.bmm(q.transpose(1, 2), q).softmax(2))).view_as(x)


"""


@pytest.mark.parametrize(
    ("block", "worth"), [(ATTENDS, False), (ATTENDS.replace("nn.Conv2d", "nn.Linear"), True)]
)
def test_tf32_beside_convolutions_and_their_attention_is_left(block: str, worth: bool) -> None:
    start = "def width():\n    return int(__import__('os').environ['WIDTH'])\n\n\n" + block.lstrip()
    text = ROWS.replace("torch.manual_seed(0)", start + "torch.manual_seed(0)")
    layers = "nn.Sequential(*[Block() for _ in range(4)])"
    begin = text.index("model = ")
    text = text[:begin] + f"model = {layers}.to(device)" + text[text.index("\n", begin) :]
    assert bool(apply("tf32", text, min_gain=0.01).fixes) is worth


def test_workers_that_are_written_pin_ahead(tmp_path: Path) -> None:
    text = ROWS.replace("data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))", FILES)
    result = rewritten(tmp_path, text)
    assert {"num-workers", "pin-memory", "non-blocking"} <= result.plan.applied
    without = rewritten(tmp_path, text, replace(PLAIN, ignore=("gpu-data", "num-workers")))
    assert not {"pin-memory", "non-blocking"} & without.plan.applied


def test_pinned_memory_goes_with_its_copies_not_with_others(tmp_path: Path) -> None:
    """Another rule's change of the same copy needs no pinned memory."""
    text = ROWS.replace("data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))", FILES)
    text = text.replace("shuffle=True", "shuffle=True, num_workers=2")
    text = text.replace("x, y = x.to(device), y.to(device)", MOVED)
    text = text.replace("nn.Sequential(nn.Linear(64, 512)", "nn.Sequential(nn.Conv2d(3, 512, 3)")
    found = rewritten(tmp_path, text)
    assert {"pin-memory", "non-blocking"} <= small(found) and "channels-last" in found.plan.applied


MOVED = "x = x.to(device)\n        y = torch.from_numpy(y.numpy() * 2).to(device)"


def test_all_loaders_are_pinned_where_one_is(tmp_path: Path) -> None:
    parts = ROWS.replace("data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))", FILES)
    made = [
        f"{n} = DataLoader(data, batch_size=32, num_workers=16)" for n in ("loader", "val", "test")
    ]
    text = parts.replace("loader = DataLoader(data, batch_size=32, shuffle=True)", "\n".join(made))
    text = text.replace(
        "for epoch in range(2):", EVALUATES.strip() + "\n\n\nfor epoch in range(2):"
    )
    text += "    evaluate(val)\n    evaluate(test)\n"
    assert "".join(rewritten(tmp_path, text).texts.values()).count("pin_memory=") == 3


EVALUATES = """
@torch.no_grad()
def evaluate(loader):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        print(nn.functional.mse_loss(model(x), y))
"""


def test_a_read_beside_one_that_stays_is_left() -> None:
    done = apply("loss-item-sync", ROWS, min_gain=0.01)
    assert done.fixes
    text = ROWS.replace("total += loss.item()", "total += loss.item()\n        print(loss)")
    done = apply("loss-item-sync", text, min_gain=0.01)
    assert not done.fixes
    assert [f.gain.reason for f in done.findings if f.gain] == [
        "line 20 of train.py waits for the device in the same step, and stays"
    ]
    seldom = ROWS.replace(
        "total += loss.item()",
        "total += loss.item()\n        if epoch % 5 == 4:\n            print(loss)",
    )
    assert apply("loss-item-sync", seldom, min_gain=0.01).fixes


@pytest.mark.parametrize("default", ["yes", "no"])
def test_a_read_that_options_at_their_defaults_come_to_stays(default: str) -> None:
    option = f"parser.add_argument('--show', default='{default}', choices=['yes', 'no'])\nargs = parser.parse_args()"
    text = ROWS.replace(
        "torch.manual_seed(0)", f"import argparse\n\nparser = argparse.ArgumentParser()\n{option}"
    )
    shown = "total += loss.item()\n        if args.show == 'yes':\n            print(loss)"
    done = apply("loss-item-sync", text.replace("total += loss.item()", shown), min_gain=0.01)
    assert bool(done.fixes) is (default == "no")


@pytest.mark.parametrize("workers", ["", ", num_workers=2"])
@pytest.mark.parametrize("moved", ["", "x = x.to(device)"])
def test_a_read_beside_a_copy_that_waits_is_left_where_batches_are_ready(
    workers: str, moved: str
) -> None:
    text = ROWS.replace("shuffle=True", f"shuffle=True{workers}")
    text = text.replace(
        "x, y = x.to(device), y.to(device)", moved or "x = x.cuda(non_blocking=True)"
    )
    text = text.replace("mse_loss(model(x), y)", "mse_loss(model(x), torch.ones_like(x[:, :1]))")
    done = apply("loss-item-sync", text, min_gain=0.01)
    assert bool(done.fixes) is not bool(workers and moved)  # else batches are made meanwhile
    reasons = [f.gain.reason for f in done.findings if f.gain]
    assert done.fixes or "waits for the device in the same step" in reasons[0]


@pytest.mark.parametrize(
    ("other", "worth"), [("print(sum(parts.values()))", False), ("total += 1", True)]
)
def test_a_read_in_a_loop_over_losses_is_in_the_step_around_it(other: str, worth: bool) -> None:
    parts = """parts, read = {"one": loss, "two": loss * 2}, {}
        for name, part in parts.items():
            read[name] = part.item()
        """
    text = ROWS.replace("total += loss.item()", parts + other)
    text += '    print(read["one"], read["two"])\n'
    assert bool(apply("loss-item-sync", text, min_gain=0.01).fixes) is worth


@pytest.mark.parametrize("turn", ["", "    if epoch % 5:\n        return\n"])
def test_a_read_that_stays_may_be_in_a_function_that_every_turn_calls(turn: str) -> None:
    text = ROWS.replace("total += loss.item()", "total += loss.item()\n        report(epoch, loss)")
    calls = f"def report(epoch, loss):\n{turn}    print(loss)\n\n\n"
    first = text.index("model = ")
    done = apply("loss-item-sync", text[:first] + calls + text[first:], min_gain=0.01)
    said = [f.gain.reason for f in done.findings if f.gain]
    if turn:
        assert done.fixes, said
    else:
        assert not done.fixes
        assert said and "waits for the device in the same step, and stays" in said[0]


def test_a_second_read_of_the_same_is_left_unless_work_is_started_in_between() -> None:
    shown = "print(loss.item())\n        print(epoch, loss.item())"
    done = apply("loss-item-sync", ROWS.replace("total += loss.item()", shown), min_gain=0.01)
    assert not done.fixes
    assert {f.gain.reason for f in done.findings if f.gain} == {
        "one read stays, and the others find the device at rest"
    }
    twice = ROWS.replace(
        "        loss.backward()", "        print(loss.item())\n        loss.backward()"
    )
    twice = twice.replace("total += loss.item()", "print(loss.item())")
    assert apply("loss-item-sync", twice, min_gain=0.01).fixes


@pytest.mark.parametrize(
    ("code", "worth"),
    [
        ("    print(loss)\n    return loss * 2", False),
        ("    if loss < 0:\n        return loss\n    print(f'{loss:.3f}')\n    return loss", False),
        ("    loss = show(loss)\n    return loss * 2", False),
        ("    if more:\n        print(loss)\n    return loss", True),
        ("    if more:\n        return loss * 2\n    print(loss)\n    return loss * 3", True),
        ("    print(loss)\n    return loss + model(out.detach()).mean()", True),
        ("    return loss", True),
    ],
)
def test_a_read_right_behind_a_function_that_waits_at_its_end(code: str, worth: bool) -> None:
    """The host waits there for all that the device has to do."""
    text = ROWS.replace("total += loss.item()", "print(epoch, loss.item())")
    text = text.replace(
        "loss = nn.functional.mse_loss(model(x), y)", "loss = measured(model(x), y)"
    )
    text = text.replace("        loss.back", "        total += loss.item()\n        loss.back")
    show = "def show(loss):\n    print(loss)\n    return loss\n\n\n"
    measured = "def measured(out, y, more=len(DataLoader.__name__) > 99):\n"
    measured += f"    loss = nn.functional.mse_loss(out, y)\n{code}\n\n\n"
    first = text.index("for epoch in")
    done = apply("loss-item-sync", text[:first] + show + measured + text[first:], min_gain=0.01)
    assert bool(done.fixes) is worth, done.text


def test_what_stays_of_a_read_that_is_shared_keeps_the_others() -> None:
    """A count that could be put off, beside a loss that is read in every step anyway."""
    shown = "total += (model(x) > 0).sum().item()\n        print(loss.item())\n        print(epoch, loss.item())"
    text = ROWS.replace("total += loss.item()", shown)
    assert not apply("loss-item-sync", text, min_gain=0.01).fixes


SELDOM = """
    if epoch % 5 == 4:
        for x, y in test_loader:
            print(model(x.to(device)).argmax(1))
"""


def test_batches_of_an_evaluation_now_and_then_are_left(tmp_path: Path) -> None:
    wide = ROWS.replace("256, 64)", "256, 6400)").replace("Linear(64,", "Linear(6400,")
    made = "test_loader = DataLoader(TensorDataset(torch.randn(256, 6400), torch.zeros(256)), batch_size=32)\n"
    wide, made = (
        part.replace("batch_size=32", "batch_size=32, num_workers=2") for part in (wide, made)
    )
    first = wide.index("model = ")
    text = wide[:first] + made + wide[first:].rstrip("\n") + SELDOM
    found = apply("pin-memory", text, min_gain=0.01)
    assert [f.gain.reason for f in found.findings if not f.worth and f.gain] == [
        "runs now and then, beside many steps of training"
    ]
    often = text.replace("    if epoch % 5 == 4:\n", "    if True:\n")
    assert len(apply("pin-memory", often, min_gain=0.01).fixes) == 2


def test_tensors_made_once_an_epoch_are_left() -> None:
    text = ROWS.replace(
        "    total = 0.0\n", "    total = 0.0\n    weight = torch.ones(1).to(device)\n"
    )
    assert text != ROWS
    found = apply("device-creation", text, min_gain=0.01)
    assert not found.fixes
    inside = text.replace("    weight = torch.ones(1).to(device)\n", "").replace(
        "        loss.backward()",
        "        loss = loss * torch.ones(1).to(device)\n        loss.backward()",
    )
    assert apply("device-creation", inside, min_gain=0.01).fixes


# -------------------------------------------------------------------------- how long, and how often
def test_a_short_training_is_left_as_it_is(tmp_path: Path) -> None:
    """Flags that would save a part of each step save no second of a short training."""
    assert Cost(model_of(tmp_path, DIGITS)).updates == 14 * 938
    for sampler, times in (
        ("torch.utils.data.distributed.DistributedSampler(train_set)", 938),
        ("torch.utils.data.RandomSampler(train_set)", 938),
        ("torch.utils.data.RandomSampler(train_set, True, 10**9)", None),
    ):
        text = DIGITS.replace("shuffle=True)", f"sampler={sampler})")
        assert Cost(model_of(tmp_path, text)).updates == (times and 14 * times)
    for text, applied in ((DIGITS, False), (LONG, True)):
        result = rewritten(tmp_path, text)
        assert ("fused-optimizer" in result.plan.applied) is applied
        assert ("fused-optimizer" in small(result)) is not applied


@pytest.mark.parametrize(
    ("optimizer", "worth"),
    [("SGD({}, lr=0.1)", False), ("SGD({}, lr=0.1, momentum=0.9)", True), ("Adam({})", True)],
)
def test_what_takes_one_operation_is_not_fused(tmp_path: Path, optimizer: str, worth: bool) -> None:
    text = ROWS.replace("SGD(model.parameters(), lr=1e-3)", optimizer.format("model.parameters()"))
    result = rewritten(tmp_path, text, Config(precision="bf16"))
    assert ("fused-optimizer" in result.plan.applied) is worth


def test_no_workers_for_a_few_batches(tmp_path: Path) -> None:
    text = DIGITS.replace("train_set, batch_size", "Subset(train_set, range(200)), batch_size")
    text = text.replace("import torch\n", "import torch\nfrom torch.utils.data import Subset\n", 1)
    turned = "transforms.Compose([transforms.RandomRotation(9), transforms.ToTensor()])"
    text = text.replace("transforms.ToTensor()", turned)
    script = model_of(tmp_path, text)
    assert batch_count(script, script.loaders[0]) == 4
    assert not apply("num-workers", text, min_gain=0.01).fixes
    assert apply("num-workers", text.replace("200", "2000"), min_gain=0.01).fixes


# ----------------------------------------------------------------------------------- how it is said
def test_check_lists_what_is_worth_it(tmp_path: Path) -> None:
    rewritten(tmp_path, DIGITS)
    done = check(Request([tmp_path / "train.py"], tmp_path, PLAIN))
    text = as_text.concise(done.records, Style())
    assert "tf32 [" not in text and "batched-dataset [" in text
    assert "estimate: waits for data" in text
    (small,) = as_text.not_worth([r for r in done.records if r.status == "small"])
    assert small.endswith("tf32 (--exhaustive shows them).")
    found = json.loads(as_json.report(done.files, done.records))["findings"]
    tf32 = next(f for f in found if f["rule"] == "tf32")
    assert tf32["status"] == "fix" and tf32["worth"] is False
    assert tf32["gain"]["estimate"] is True and "bound by launches" in tf32["gain"]["reason"]
    assert all(f["worth"] is None for f in found if f["status"] != "fix")
    done = check(Request([tmp_path / "train.py"], tmp_path, replace(PLAIN, exhaustive=True)))
    assert "tf32 [" in as_text.concise(done.records, Style())


def test_rules_are_ranked_by_what_they_are_expected_to_gain(tmp_path: Path) -> None:
    lines = said(rewritten(tmp_path, LONG)).splitlines()
    ranked = [line.split()[0] for line in lines if line.startswith("  ") and "estimate" in line]
    assert ranked.index("batched-dataset") < ranked.index("fused-optimizer")


def test_what_goes_with_a_fix_goes_with_it(tmp_path: Path) -> None:
    clipped = DIGITS.replace(
        "    optimizer.step()",
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()",
    )
    clipped = clipped.replace("model = Net()", "model = nn.DataParallel(Net())")  # in fp16
    rewritten(tmp_path, clipped)
    done = check(Request([tmp_path / "train.py"], tmp_path, Config()))
    found = json.loads(as_json.report(done.files, done.records))["findings"]
    worth = {f["rule"]: f["worth"] for f in found if f["status"] == "fix"}
    assert "autocast" not in worth  # it would be slower
    assert [worth[rule] for rule in ("grad-scaler", "unscale-before-clip")] == [False] * 2


def test_data_that_fit_on_the_device_are_worth_a_class(tmp_path: Path) -> None:
    result = rewritten(tmp_path, DIGITS, Config())
    assert "gpu-data" in result.plan.applied and not {"pin-memory"} & result.plan.applied


LOOK = """
out = model(torch.zeros(1, 64, device=device))
print(out.shape)
"""


@pytest.mark.parametrize(
    ("more", "worth"),
    [
        (LOOK, False),
        ("model.eval()" + LOOK, True),  # a test of the model: may be all of the test data
        ("for _ in range(3):" + LOOK.replace("\n", "\n    "), True),
    ],
)
def test_one_pass_that_is_looked_at_is_not_worth_a_block(
    tmp_path: Path, more: str, worth: bool
) -> None:
    result = rewritten(tmp_path, ROWS + more)
    assert ("no-grad-eval" in result.plan.applied) == worth
    assert ("no-grad-eval" in small(result)) != worth


CELL_BY_CELL = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(100, 512)
        self.rnn = nn.GRU(512, 512)
        self.out = nn.Linear(512, 100)

    def forward(self, x, state):
        made, state = self.rnn(self.embed(x).unsqueeze(0), state)
        return self.out(made[0]), state


model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss()
for epoch in range(2000):
    text = torch.randint(100, (64, 201)).to(device)
    state = torch.zeros(1, 64, 512).to(device)
    optimizer.zero_grad()
    loss = 0
    for t in range(200):
        out, state = model(text[:, t], state)
        loss += criterion(out, text[:, t + 1])
    loss.backward()
    optimizer.step()
"""
AT_ONCE = CELL_BY_CELL.replace(
    "    for t in range(200):\n        out, state = model(text[:, t], state)\n        loss += criterion(out, text[:, t + 1])\n",
    "    out, state = model(text, state)\n    loss = criterion(out, text[0])\n",
)
CONVOLVES = CELL_BY_CELL.replace(
    "self.embed =", "self.conv = nn.Conv2d(3, 64, 3)\n        self.embed ="
)
CELL = """self.cell = nn.GRUCell(512, 512)
        self.out = nn.Linear(512, 100)

    def forward(self, x, state):
        state = self.cell(self.embed(x), state[0])
        return self.out(state), state[None]
"""
WITH_CELL = (
    CELL_BY_CELL[: CELL_BY_CELL.index("self.rnn")]
    + CELL
    + CELL_BY_CELL[CELL_BY_CELL.index("\n\nmodel =") :]
)


@pytest.mark.parametrize(
    ("text", "worth"),
    [(CELL_BY_CELL, False), (WITH_CELL, False), (AT_ONCE, True), (CONVOLVES, True)],
)
def test_cells_in_a_loop_of_python_get_no_16_bits(tmp_path: Path, text: str, worth: bool) -> None:
    text = text.replace("Net().to", "nn.DataParallel(Net()).to")  # alone, recurrent layers get none
    result = rewritten(tmp_path, text)
    assert ("autocast" in result.plan.applied) == worth
    assert ("autocast" in small(result)) != worth


@pytest.mark.parametrize(("steps", "worth"), [("400", False), ("4", True)])
def test_one_small_copy_beside_many_launches_is_left(steps: str, worth: bool) -> None:
    text = CELL_BY_CELL.replace("range(200)", f"range({steps})")
    found = apply("device-creation", text, min_gain=0.01)
    assert any("torch.zeros(1, 64, 512, device=device)" in line for line in found.lines) is worth


def test_images_of_one_channel_need_no_order(tmp_path: Path) -> None:
    (new,) = rewritten(tmp_path, wider(DIGITS, 16)).texts.values()
    assert "Net().to(device, memory_format=torch.channels_last)\n" in new
    assert "images.to(device, memory_format" not in new


def test_images_of_an_evaluation_are_left(tmp_path: Path) -> None:
    """Where it runs in every epoch: the first layer converts them."""
    colours = wider(DIGITS, 16).replace("MNIST", "CIFAR10").replace("Conv2d(1,", "Conv2d(3,")
    test = indent(FINAL.replace("MNIST", "CIFAR10").split("test_loader = ", 1)[1], "    ")
    head = FINAL.replace("MNIST", "CIFAR10").split("test_loader = ", 1)[0]
    parts = colours.replace("9216 * 16", "12544 * 16").replace("147456", "200704")
    text = parts.replace("for epoch", f"{head}for epoch") + f"    test_loader = {test.lstrip()}"
    (new,) = rewritten(tmp_path, text).texts.values()
    assert "Net().to(device, memory_format=torch.channels_last)\n" in new
    assert new.count("images.to(device, memory_format=torch.channels_last") == 1


@pytest.mark.parametrize(("times", "worth"), [(2, True), (3, False)])
def test_channels_last_is_not_worth_many_reshapes(times: int, worth: bool) -> None:
    flat = "x = torch.flatten(x, 1)"
    lines = [f"y{n} = (x * {n}).view(x.size(0), -1)" for n in range(times)]
    total = " + ".join(f"y{n}" for n in range(times))
    text = wider(DIGITS, 8).replace(flat, "\n        ".join([*lines, f"x = {total}"]))
    found = apply("channels-last", text, min_gain=0.01)
    assert (".reshape(x.size(0), -1)" in found.text) is worth


def test_a_decorator_runs_as_often_as_its_function(tmp_path: Path) -> None:
    made, test = FINAL.split("with torch.no_grad():\n")
    measure = (
        f"@torch.no_grad()\ndef measure():\n{test.replace('print(correct)', '    return correct')}"
    )
    text = DIGITS.replace("for epoch", f"{made.lstrip()}\n\n{measure}\n\nfor epoch")
    little = replace(PLAIN, min_gain=0.5)
    result = rewritten(tmp_path, text + "    print(measure())\n", little)
    assert "no-grad-eval" in result.plan.applied
    assert "no-grad-eval" in small(rewritten(tmp_path, text + "print(measure())\n", little))


COPIED = """
outputs = []
model.eval()
for epoch in range(3):
    cost = 0.0
    with torch.no_grad():
        for x, y in loader:
            out = model(x.to(device))
            outputs.append(out{copy})
            cost += nn.functional.mse_loss(out, y.to(device)).item()
    print(cost)
"""


@pytest.mark.parametrize(
    ("copy", "worth"), [('.to("cpu").numpy()', False), (".cpu()", False), (".argmax(1)", True)]
)
def test_a_sum_is_not_put_off_beside_a_copy_to_the_host(copy: str, worth: bool) -> None:
    """Each batch waits for the copy of its outputs: one wait less gains nothing."""
    text = ROWS.replace("total += loss.item()", "total += 1") + COPIED.format(copy=copy)
    done = apply("loss-item-sync", text, min_gain=0.01)
    assert ("cost += " in "".join(done.lines)) is worth


@pytest.mark.parametrize(
    "noise", ["torch.rand(x.size(0), 1)", "torch.FloatTensor(x.data.size()).fill_(scale)"]
)
def test_a_copy_that_goes_in_the_same_rewrite_is_none_that_stays(
    tmp_path: Path, noise: str
) -> None:
    text = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 600), torch.randn(64, 600))
loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Linear(600, 600), nn.ReLU(), nn.Linear(600, 600)).to(device)
optimizer = torch.optim.Adam(model.parameters())
rows, scale = iter(loader), 1
for i in range(20):
    try:
        x, y = next(rows)
    except StopIteration:
        rows = iter(loader)
        x, y = next(rows)
    x, y = x.to(device), y.to(device)
    noise = (NOISE).to(device)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x * noise), y)
    loss.backward()
    optimizer.step()
"""
    first = rewritten(tmp_path, text.replace("(NOISE)", noise))
    (done,) = first.plan.texts().values()
    assert "device=device)" in done and "non_blocking" in done and f"{noise}.to(" not in done
    assert not rewritten(tmp_path, done).plan.applied


def test_what_turns_out_not_to_be_worth_it_decides_about_the_others(tmp_path: Path) -> None:
    """In whichever order the rules come, and also where one hangs on another: else a second rewrite
    would find something.
    """

    def beside(name: str) -> Question:
        def ask(
            script: Script, options: Options, finding: Finding, others: Sequence[Finding]
        ) -> Gain:
            stays = any(f.rule == name and not f.edits for f in others)
            return Gain(0.0 if stays else 0.5, "beside one that stays")

        return ask

    asks = {"first": beside("second"), "second": beside("third"), "third": gains.nothing("")}

    def find(script: Script, options: Options) -> Iterator[Finding]:
        yield from ()

    rules = [Rule(n, "", Effect.EXACT, (), find, asks=ask) for n, ask in asks.items()]
    stmt = ast.parse("x = 1").body[0]
    found = [Finding(stmt, "", edits=(Remove(stmt),), rule=rule.name) for rule in rules]
    (tmp_path / "train.py").write_text("x = 1\n")
    script = read_script(tmp_path / "train.py", tmp_path)
    for order in (found, found[::-1]):
        done, failed = judged(script, order, rules, Options(min_gain=0.01))
        assert not failed and all(f.status == "small" for f in done)


ONE_TEST = """
test_set = datasets.MNIST("data", train=False, transform=transform)
test_loader = torch.utils.data.DataLoader(test_set, batch_size=64)
outputs = []
for images, labels in test_loader:
    outputs.append({kept})
print(len(outputs))
"""


@pytest.mark.parametrize(
    ("kept", "worth"),
    [("model(images.to(device))", True), ("model(images.to(device)).argmax(1).tolist()", False)],
)
def test_an_evaluation_that_runs_once(kept: str, worth: bool, tmp_path: Path) -> None:
    """Its graphs count where all are held at once."""
    result = rewritten(tmp_path, DIGITS + ONE_TEST.format(kept=kept))
    assert ("no-grad-eval" in result.plan.applied) is worth
    assert ("no-grad-eval" in small(result)) is not worth


@pytest.mark.parametrize(("given", "worth"), [("test_x", True), ("test_x[:10]", False)])
def test_one_pass_behind_the_training(given: str, worth: bool, tmp_path: Path) -> None:
    look = f"test_x = torch.randn(4096, 1, 28, 28, device=device)\nfound = model({given})\n"
    look += "shown = torch.max(found, 1)[1].data\nprint(shown, 'predicted')\n"
    assert ("no-grad-eval" in rewritten(tmp_path, DIGITS + look).plan.applied) is worth


RECURRENT = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self, width={width}):
        super().__init__()
        self.lstm = nn.LSTM(4, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
for step in range(20):
    x = torch.randn(32, 50, 4, device=device)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("width", "gains"), [(64, False), (1024, True)])
def test_a_narrow_recurrent_layer_gets_no_16_bits(tmp_path: Path, width: int, gains: bool) -> None:
    text = RECURRENT.format(width=width)
    assert "autocast" not in rewritten(tmp_path, text, Config()).plan.applied
    several = text.replace("Net().to", "nn.DataParallel(Net()).to")
    assert ("autocast" in rewritten(tmp_path, several, Config()).plan.applied) is gains


POLICY = """
import gymnasium as gym
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
env = gym.make("CartPole-v1")
size = env.observation_space.shape[0]
model = nn.Sequential(nn.Linear(size, {width}), nn.ReLU(), nn.Linear({width}, {width}), nn.ReLU(), nn.Linear({width}, 2)).to(device)
optimizer = torch.optim.Adam(model.parameters())
for step in range(20):
    x = torch.randn(128, size, device=device)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("width", "gains"), [(512, False), (4096, True)])
def test_a_small_policy_gets_no_16_bits(tmp_path: Path, width: int, gains: bool) -> None:
    result = rewritten(tmp_path, POLICY.format(width=width), Config())
    assert ("autocast" in result.plan.applied) is gains


HELPER = """
def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean().item()


"""


SEVERAL = """
def accuracy(outputs, targets):
    right = (outputs.argmax(1) == targets).float()
    return [right[:k].mean().item() for k in (4, 8)]


"""


@pytest.mark.parametrize("stays", [True, False])
def test_reads_of_a_list_in_a_helper_are_judged_in_the_loop_that_calls_it(stays: bool) -> None:
    shown = "print(loss)\n        " if stays else ""
    appended = "few, all = accuracy(model(x), y)\n        scores.append(few)"
    text = (
        ROWS.replace("total += loss.item()", shown + appended)
        .replace("total = 0.0", "scores = []")
        .replace("print(epoch, total)", "print(epoch, sum(scores))")
    )
    first = text.index("model = ")
    done = apply("loss-item-sync", text[:first] + SEVERAL + text[first:], min_gain=0.01)
    assert bool(done.fixes) is not stays
    said = [f.gain.reason for f in done.findings if f.gain]
    assert said and (("and stays" in said[0]) is stays), said


@pytest.mark.parametrize("stays", [True, False])
def test_a_read_in_a_helper_is_judged_in_the_loop_that_calls_it(stays: bool) -> None:
    shown = "print(loss)\n        " if stays else ""
    text = (
        ROWS.replace("total += loss.item()", f"{shown}scores.append(accuracy(model(x), y))")
        .replace("total = 0.0", "scores = []")
        .replace("print(epoch, total)", "print(epoch, sum(scores))")
    )
    first = text.index("model = ")
    done = apply("loss-item-sync", text[:first] + HELPER + text[first:], min_gain=0.01)
    assert bool(done.fixes) is not stays
    said = [f.gain.reason for f in done.findings if f.gain]
    assert said and (("and stays" in said[0]) is stays), said


EVALUATED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def turned(angle):
    rot = torch.zeros((angle.shape[0], 2, 2)).to(device=angle.device)
    rot[:, 0, 0] = torch.cos(angle)
    return rot


model = nn.Linear(4, 1).to(device)
loader = DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8)
found = []
with torch.no_grad():
    for (x,) in loader:
        found.append(turned(model(x.to(device))[:, 0]).cpu())
"""


def test_a_script_that_only_evaluates_has_no_step_to_compare_with() -> None:
    done = apply("device-creation", EVALUATED, min_gain=0.01)
    assert "rot = torch.zeros((angle.shape[0], 2, 2), device=angle.device)" in done.text


ALL_AT_ONCE = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X, y = torch.randn(3000, 2).to(device), torch.randint(0, 3, (3000,)).to(device)
model = nn.Sequential(nn.Linear(2, 100), nn.ReLU(), nn.Linear(100, 3))
model.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for t in range(STEPS):
    loss = nn.functional.cross_entropy(model(GIVEN), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("steps", "given", "worth"),
    [
        ("1000", "X", False),  # all data at once: a tenth of a second of the whole training
        ("1_000_000", "X", True),
        ("1000", "X[t % 8 :]", True),  # which may stand in for batches
        ("1000", "torch.randn(3000, 2, device=device)", True),
    ],
)
def test_few_steps_with_all_data_at_once(
    tmp_path: Path, steps: str, given: str, worth: bool
) -> None:
    text = ALL_AT_ONCE.replace("STEPS", steps).replace("GIVEN", given)
    assert ("fused-optimizer" in rewritten(tmp_path, text).plan.applied) is worth


def test_a_training_on_the_cpu_has_no_cores_for_workers(tmp_path: Path) -> None:
    text = ROWS.replace("data = TensorDataset(torch.randn(256, 64), torch.randn(256, 1))", FILES)
    assert "num-workers" in rewritten(tmp_path, text).plan.applied
    moved = text.replace('"cuda" if torch.cuda.is_available() else "cpu"', '"cpu"')
    assert moved != text and "num-workers" not in rewritten(tmp_path, moved).plan.applied


ARMS = """
import argparse
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor

parser = argparse.ArgumentParser()
parser.add_argument("--meta", action="store_true")
args = parser.parse_args()


class Rows(Dataset):
    def __len__(self):
        return 50_000

    def __getitem__(self, i):
        image = to_tensor(Image.open(f"{i}.png"))
        return ((image, torch.ones(1)) if args.meta else image), torch.ones(8, 222, 222)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(Rows(), batch_size=64, num_workers=4, pin_memory=True)
model = nn.Conv2d(3, 8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        if args.meta:
            x, m = x
            x, m = x.to(device), m.to(device)
            out = model(x) + m
        else:
            x = x.to(device)
            out = model(x)
        loss = nn.functional.mse_loss(out, y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_the_other_arm_of_a_condition_is_written_as_well(tmp_path: Path) -> None:
    (text,) = rewritten(tmp_path, ARMS).texts.values()
    meta, plain = text.split("if args.meta:")[1].split("else:")
    assert "m.to(device, non_blocking=True)" in meta
    assert "x = x.to(device" in plain and "non_blocking=True)" in plain.splitlines()[1]


DIGITS_ONCE = """
import torch
from nets import Net
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = datasets.MNIST(".", transform=transforms.ToTensor())
loader = DataLoader(data, batch_size=128, shuffle=True)
model = Net(torch.load("width")).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(EPOCHS):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, width, 3), nn.Flatten(), nn.LazyLinear(10))

    def forward(self, x):
        return self.layers(x)
"""


@pytest.mark.parametrize(("epochs", "worth"), [(1, False), (20, True)])
def test_a_few_hundred_steps_of_unknown_length(tmp_path: Path, epochs: int, worth: bool) -> None:
    (tmp_path / "nets.py").write_text(NETS)
    result = rewritten(tmp_path, DIGITS_ONCE.replace("EPOCHS", str(epochs)))
    assert ("fused-optimizer" in result.plan.applied) is worth
