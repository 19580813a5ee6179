"""What is not worth its lines since it runs once or seldom, or since what it copies is small or not
what was pinned.
"""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

from autofast.facts.cost.bounds import largest_value
from tests.onerule import apply
from tests.reading import read
from tests.test_worth import ROWS, rewritten

LITTLE = 0.005  # what inference_mode gains beside no_grad in an evaluation of each epoch

# ----------------------------------------------------------------- what runs alone, or now and then
ENDLESS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(256, 6400), torch.randn(256, 1)), batch_size=32)
model = nn.Sequential(nn.Linear(6400, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
{before}
batches = iter(loader)
kept = [torch.randn(32, 6400).to(device), torch.randn(32, 6400).to(device)]
for step in range(1000):
    try:
        x, y = next(batches)
    except StopIteration:
        batches = iter(loader)
        x, y = next(batches)
    {inside}
    loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % {every} == 0:
        with torch.no_grad():
            for images in {over}:
                print(model(images.to(device)).mean())
"""


def endless(before: str = "", inside: str = "", every: int = 100, over: str = "kept") -> str:
    return ENDLESS.format(before=before, inside=inside, every=every, over=over)


def test_what_stands_above_a_training_of_one_loop_runs_once() -> None:
    look = "with torch.no_grad():\n    print(model(torch.zeros(1, 6400, device=device)).mean())"
    found = apply("no-grad-eval", endless(before=look, over="enumerate(loader)"), min_gain=LITTLE)
    assert [f.gain.reason for f in found.findings if f.gain and not f.worth][:1] == [
        "runs once, beside all steps of the training"
    ]
    turns = look.replace("with", "for _ in range(50):\n  with").replace("    print", "      print")
    found = apply("no-grad-eval", endless(before=turns, over="enumerate(loader)"), min_gain=LITTLE)
    assert all(f.worth for f in found.findings)


def test_what_makes_an_item_runs_as_often_as_a_loader_asks() -> None:
    """A function that a library calls has no loop around it, and runs in each step."""
    items = """
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        return torch.ones(6400).to(device), torch.zeros(1)
"""
    text = endless(before=items).replace(
        "TensorDataset(torch.randn(256, 6400), torch.randn(256, 1))", "None"
    )
    text = text.replace(
        "batches = iter(loader)\nkept",
        "loader = DataLoader(Rows(), batch_size=32)\nbatches = iter(loader)\nkept",
    )
    found = apply("device-creation", text, min_gain=0.01)
    reasons = [f.gain.reason for f in found.findings if f.gain]
    assert "runs once, beside all steps of the training" not in reasons


@pytest.mark.parametrize(
    ("every", "over", "worth"),
    [
        (100, "kept", False),  # a few samples that are looked at now and then
        (100, "enumerate(loader)", True),  # an evaluation
        (100, "range(600)", True),
        (5, "kept", True),  # not so seldom
    ],
)
def test_samples_now_and_then_are_left(every: int, over: str, worth: bool) -> None:
    text = endless(every=every, over=over)
    if "range" in over:
        text = text.replace("model(images.to(device))", "model(kept[images % 2])")
    if "loader" in over:
        text = text.replace("for images in", "for _, (images, _) in")
    assert bool(apply("no-grad-eval", text, min_gain=LITTLE).fixes) is worth


@pytest.mark.parametrize(("every", "worth"), [(100, False), (5, True)])
def test_a_look_now_and_then_and_at_the_end(every: int, worth: bool) -> None:
    """One function for both: neither runs often."""
    look = "def look():\n    return model(kept[0]).mean().item()\n"
    text, _, _ = endless(before=look, every=every).partition("        with torch.no_grad():")
    text += "        print(look())\nprint(look())\n"
    assert bool(apply("no-grad-eval", text, min_gain=0.01).fixes) is worth


def test_inference_mode_for_no_grad_is_noise_of_a_training() -> None:
    """A tenth of what evaluations take, at most, by measurement: less than one in a hundred of an
    epoch.
    """
    look = "        with torch.no_grad():\n            error = (model(x) - y).abs().mean().item()\n"
    text = ROWS.replace("        loss.backward()\n", look + "        loss.backward()\n")
    assert apply("no-grad-eval", text, min_gain=LITTLE).fixes
    found = apply("no-grad-eval", text, min_gain=0.01)
    assert not found.fixes
    assert [f.gain.reason for f in found.findings if f.gain] == [
        "a tenth of what evaluations take, beside no_grad, at most"
    ]
    without = text.replace("with torch.no_grad():", "if True:")
    assert "inference_mode" in apply("no-grad-eval", without, min_gain=0.01).text


# ------------------------------------------------------------------------ what is copied of a batch
MASKED = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return self.get(index)

    def get(self, index):
        return np.load(f"{index}.npy"), np.load(f"{index}.mask.npy")


loader = DataLoader(Frames(), batch_size=32, num_workers=4)
model = nn.DataParallel(nn.Sequential(nn.Flatten(), nn.LazyLinear(10)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(3):
    for images, labels in loader:
        labels = labels.cuda()
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def test_batches_are_not_pinned_for_a_copy_of_something_else(tmp_path: Path) -> None:
    """What the network is given is made anew on the host, and not pinned: the copies wait."""
    text = MASKED
    own = "        images = torch.Tensor(images.numpy() * 2).cuda()\n"
    text = text.replace("        labels = ", own + "        labels = ")
    result = rewritten(tmp_path, text)
    assert not {"non-blocking", "pin-memory"} & result.plan.applied
    text = text.replace(own, "        images = images.cuda()\n")
    result = rewritten(tmp_path, text)
    assert {"non-blocking", "pin-memory"} <= result.plan.applied


def test_what_the_host_makes_of_a_batch_is_not_pinned() -> None:
    text = MASKED
    moved = "        images = (images / 255).cuda()\n        labels = labels.mul(2).cuda()\n"
    computed = text.replace("        labels = labels.cuda()\n", moved)
    found = apply("pin-memory", computed, min_gain=0.01)
    assert [f.gain.reason for f in found.findings if f.gain] == [
        "what is copied is computed from the batches on the host, and not pinned"
    ]
    as_they_are = computed.replace("(images / 255).cuda()", "images.cuda() / 255")
    assert apply("pin-memory", as_they_are, min_gain=0.01).fixes


@pytest.mark.parametrize(
    ("moved", "worth"),
    [
        ("images = images.cuda()\nlabels = labels.cuda()", True),
        ("images = images.double().cuda()\nlabels = labels.double().cuda()", False),
        ("images = images.double()\nlabels = labels.double()\nimages, labels = images.cuda(), labels.cuda()", False),
        ("images = images.float().cuda()\nlabels = labels.cuda()", False),  # of NumPy, in fp64
        ("images = images[:, 1:].cuda()\nlabels = labels[..., 0].cuda()", False),  # put together first
        ("images = images[:, ::2]\nlabels = labels[:, None, 0]\nimages, labels = images.cuda(), labels.cuda()", False),
        ("images = images[:8].cuda()\nlabels = labels[:8, ...].cuda()", True),
        ("images = images[0, 1:].cuda()\nlabels = labels[None, :8, :].cuda()", True),
        ("images = images.cuda()\nlabels = labels.cuda()\ntorch.cuda.synchronize()", True),  # which goes
        ("images = images.cuda()\nlabels = labels.cuda()\nhigh = images.max().item()\nimages = images / high", False),
        ("images = images.cuda()\nlabels = labels.cuda()\npred = model(images).argmax(1)\nprint(pred.sum().item())", True),
        ("images = images.cuda()\nlabels = labels.cuda()\nways = torch.from_numpy(np.bincount(np.arange(len(labels)))).cuda()", False),
        ("images = images.cuda()\nlabels = labels.cuda()\nways = torch.from_numpy(np.arange(len(labels))).cuda()", True),  # which is made there
        ("images = images.cuda()\nlabels = labels.cuda()\nways = torch.from_numpy(np.arange(4)).cuda()", True),  # which goes above the loop
    ],
)  # fmt: skip
def test_copies_of_which_one_waits_in_any_case(moved: str, worth: bool, tmp_path: Path) -> None:
    """Cast on the host, and so not pinned, with the host waiting straight behind, or beside a copy
    of something else.
    """
    text = MASKED
    text = text.replace("        labels = labels.cuda()\n", textwrap.indent(moved, " " * 8) + "\n")
    result = rewritten(tmp_path, text)
    rules = {"non-blocking", "pin-memory"}
    assert rules & result.plan.applied == (rules if worth else set())


def test_what_a_library_does_to_an_item_decides_nothing_about_tf32() -> None:
    text = CONVOLVES.format(call="self.augment(image=index)")
    assert not apply("tf32", text, min_gain=0.01).fixes


CONVOLVES = """
import lib
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.augment = lib.Augment()

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.as_tensor({call})


model = nn.Sequential(nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = DataLoader(Images(), batch_size=8, num_workers=4)
for epoch in range(3):
    for images in loader:
        images = images.cuda()
        loss = model(images).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


CHARACTERS = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.cell = nn.Embedding(60, 128), nn.GRU(128, 128)
        self.layers = nn.ModuleList(nn.Linear(128, 128) for _ in range(4))

    def forward(self, x, state):
        x = self.embed(x)[None]
        for n in range(4):
            x = self.layers[n](x)
        return self.cell(x, state)


net = Net().to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randint(0, 60, (LENGTH, 8), device=device)
    state = torch.zeros(1, 8, 128, device=device)
    loss = 0.0
    for t in range(LENGTH):
        out, state = net(x[t], state)
        loss = loss + out.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("length", "worth"), [(200, False), (2, True)])
def test_one_update_beside_hundreds_of_passes(length: int, worth: bool) -> None:
    found = apply("fused-optimizer", CHARACTERS.replace("LENGTH", str(length)), min_gain=0.01)
    assert bool(found.fixes) is worth
    if not worth:
        said = [f.gain.reason for f in found.findings if f.gain]
        assert len(said) == 1 and "in a step bound by launches" in said[0]


def test_samples_that_are_drawn_now_and_then_are_no_part_of_a_step() -> None:
    drawn = "    if step % 100 == 0:\n        for t in range(200):\n            out, state = net(x[0], state)\n"
    text = CHARACTERS.replace("LENGTH", "2") + drawn
    assert apply("fused-optimizer", text, min_gain=0.01).fixes


def test_one_update_beside_many_small_steps_in_functions() -> None:
    """Sixteen tasks, five inner steps each, of two small layers: thousands of kernels."""
    found = apply("fused-optimizer", TASKS, min_gain=0.01)
    assert not found.fixes
    assert apply("fused-optimizer", TASKS.replace("(TASKS)", "(1)"), min_gain=0.01).fixes


TASKS = """
import torch
from torch import nn
from torch.nn import functional as F

TASKS, STEPS = 64, 5
device = torch.device("cuda")
model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def forward(x, weights):
    x = F.relu(F.linear(x, weights[0], weights[1]))
    return F.linear(x, weights[2], weights[3])


def adapted(x, y):
    weights = list(model.parameters())
    for step in range(STEPS):
        loss = F.mse_loss(forward(x, weights), y)
        grads = torch.autograd.grad(loss, weights, create_graph=True)
        weights = [w - 0.01 * g for w, g in zip(weights, grads)]
    return weights


for iteration in range(60000):
    total = 0.0
    for task in range(TASKS):
        x = torch.rand(10, 1, device=device)
        y = torch.sin(x)
        total = total + F.mse_loss(forward(x, adapted(x, y)), y)
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
"""


def test_layers_one_after_the_other_are_no_recurrence() -> None:
    """Hundreds of layers, each with its own weights, are what an update in one kernel is for."""
    text = CHARACTERS.replace("LENGTH", "1").replace("range(4)", "range(400)")
    assert apply("fused-optimizer", text, min_gain=0.01).fixes


@pytest.mark.parametrize(
    ("made", "worth"), [("torch.Tensor(images.numpy()).float()", False), ("images.long()", True)]
)
def test_data_of_the_host_are_waited_for(made: str, worth: bool, tmp_path: Path) -> None:
    text = MASKED
    both = f"        images, labels = {made}.cuda(), labels.cuda()\n"
    text = text.replace("        labels = labels.cuda()\n", both)
    applied = {"non-blocking", "pin-memory"} & rewritten(tmp_path, text).plan.applied
    assert bool(applied) is worth


# -------------------------------------------------------------------------- sizes that are computed
FACTORS = """
import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--factors", type=int, default=WIDTH)
parser.add_argument("--layers", type=int, default=3)
args = parser.parse_args()


def block(wide):
    return [nn.Linear(wide, wide // 2), nn.ReLU()]


class Net(nn.Module):
    def __init__(self, factors, layers):
        super().__init__()
        self.users = nn.Embedding(100, factors * 2 ** (layers - 1))
        parts = []
        for n in range(layers):
            parts += block(factors * (2 ** (layers - n)))
        self.parts = nn.Sequential(*parts)
        self.score = nn.Linear(factors, 1)

    def forward(self, user):
        x = self.users(user)
        return self.score(self.parts(torch.cat([x, x], 1)))


net = Net(args.factors, args.layers).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for user in torch.randint(0, 100, (64, 256)).cuda():
    loss = net(user).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("width", "worth"), [(32, False), (1024, True)])
def test_sizes_that_options_give_tell_narrow_layers(width: int, worth: bool) -> None:
    found = apply("autocast", FACTORS.replace("WIDTH", str(width)), min_gain=0.01)
    assert bool(found.fixes) is worth
    if not worth:
        reasons = {f.gain.reason for f in found.findings if f.gain}
        assert reasons and all("bound by launches" in why for why in reasons), reasons


@pytest.mark.parametrize(
    ("layers", "worth"),
    [
        ("nn.Linear(known, 64), nn.ReLU(), nn.Linear(64, 4)", False),
        ("nn.Linear(known, 512), nn.ReLU(), nn.Linear(512, 512)", False),
        ("nn.Linear(known, 2048), nn.ReLU(), nn.Linear(2048, 2048)", True),
        ("nn.Linear(known, 512), *[nn.Linear(512, 512) for _ in range(12)]", True),
    ],
)
def test_narrow_layers_behind_what_is_not_known(layers: str, worth: bool) -> None:
    """How many rows there are, and what comes in, is not known; the sides of all products are."""
    text = f"""
import lib
import torch
from torch import nn

known = lib.env().size
net = nn.Sequential({layers}).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(100_000):
    loss = net(lib.states().cuda()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    assert bool(apply("autocast", text, min_gain=0.01).fixes) is worth


TABLES = """
import torch
import torch.nn.functional as F
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Embedding(1000, 256)
        self.outer = nn.Embedding(1000, 256)

    def forward(self, word, others):
        word, others = self.inner(word), self.outer(others)
        return F.logsigmoid(SCORES)


net = Words().cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for word in torch.randint(0, 100, (64, 256)).cuda():
    loss = -net(word, word.flip(0)[:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("scores", "worth"),
    [
        ("(others * word.unsqueeze(1)).sum(-1)", False),
        ("torch.bmm(others, word.unsqueeze(2))", False),
        ("torch.mm(word, others.squeeze(1).t())", True),
        ("word @ others.squeeze(1).t()", True),
        ("F.linear(word, self.outer.weight)", True),
    ],
)
def test_tables_of_words_alone_are_bound_by_memory(scores: str, worth: bool) -> None:
    found = apply("autocast", TABLES.replace("SCORES", scores), min_gain=0.01)
    assert bool(found.fixes) is worth


def test_how_large_a_number_is_at_the_most(tmp_path: Path) -> None:
    text = """
import argparse

class Shape:
    def __init__(self, n):
        self.n = n + 1

def twice(n):
    return show(n * 2)

def show(n):
    return n

parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=10)
args = parser.parse_args()
shape = Shape(args.size)
show(shape.n)
twice(args.size - 4)
for i in range(args.size):
    show(int(i) // 2)
"""
    script = read(tmp_path, text)
    given = next(n for n in script.each(ast.FunctionDef) if n.name == "show").body[0]
    assert isinstance(given, ast.Return)
    assert largest_value(script, given.value) == 20  # of 11, 20 and 5
    text = text.replace("show(shape.n)", "show(len(input()))")
    script = read(tmp_path, text)
    given = next(n for n in script.each(ast.FunctionDef) if n.name == "show").body[0]
    assert isinstance(given, ast.Return) and largest_value(script, given.value) is None


@pytest.mark.parametrize(
    ("steps", "after", "worth"),
    [(100, "", False), (4, "", True), (100, "for x in parts:\n    ", True)],
)
def test_one_pass_beside_many_steps(steps: int, after: str, worth: bool) -> None:
    """A forward pass behind a loop that counts its steps is a share of theirs; several are not."""
    looked = textwrap.indent(f"{after}print((log(x) > 0).sum())", "    ")
    text = REPEATED.format(steps=steps) + looked + "\n"
    found = apply("no-grad-eval", text, min_gain=0.01)
    assert bool(found.fixes) is worth
    if not worth:
        said = [f.gain.reason for f in found.findings if f.gain]
        assert said == [f"one forward pass beside {steps} steps of training"]


REPEATED = """
import torch
from torch import nn

x = torch.randn(8, 4)
parts = x.split(4)
for run in range(50):
    log = nn.Linear(4, 7)
    opt = torch.optim.Adam(log.parameters(), lr=0.01)
    for _ in range({steps}):
        opt.zero_grad()
        log(x).sum().backward()
        opt.step()
    log.eval()
"""


# ------------------------------------------------------------ conditions, while options are not set
GATED = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--every", type=int, default={every})
parser.add_argument("--optimizer", default="Adam")
parser.add_argument("--debug", action="store_true")
args = parser.parse_args()
x = torch.randn(4096, 512).cuda()
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1)).cuda()
optimizer = torch.optim.Adam(model.parameters())
{before}


def train():
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for epoch in range(1000):
    loss = train()
    if {gate}:
        print(f"{{epoch}} {{loss:.4f}}")
"""


@pytest.mark.parametrize(
    ("every", "gate", "worth"),
    [
        (1, "epoch % args.every == 0", False),
        (50, "epoch % args.every == 0", True),
        (1, "(epoch + 1) % args.every == 0 and not args.debug", False),
        (1, "(epoch + 1) % args.every == 0 and args.debug", True),
    ],
)
def test_a_number_that_is_shown_in_every_step_unless_an_option_is_given(
    every: int, gate: str, worth: bool
) -> None:
    text = GATED.format(every=every, gate=gate, before="")
    found = apply("loss-item-sync", text, min_gain=LITTLE)
    assert bool(found.fixes) is worth
    assert any(f.gain and not f.worth for f in found.findings) is not worth


@pytest.mark.parametrize(
    ("test", "worth"),
    [
        ("args.optimizer in ('adam', 'Adam')", True),
        ("args.optimizer.lower() not in ['adam', 'adamw']", False),
        ("args.debug or args.optimizer == 'adam'", False),
        ("args.debug or args.every == 50", True),
        ("args.debug and make()", False),
        ("(args.optimizer or 'sgd') == 'Adam'", True),
        ("(args.debug or 4) > 1", True),
        ("(make() or args.every) == 1", True),
        ("args.debug or make()", True),
    ],
)
def test_a_step_behind_several_options(test: str, worth: bool) -> None:
    """What stands where no option at its default leads is not worth its lines."""
    text = GATED.format(every=50, gate="epoch % args.every == 0", before="from lib import make")
    text = text.replace(
        "    loss = model(x)",
        f"    if {test}:\n        print(torch.zeros(9).cuda())\n    loss = model(x)",
    )
    found = apply("device-creation", text, min_gain=LITTLE)
    assert bool(found.fixes) is worth
    assert any(f.gain and not f.worth for f in found.findings) is not worth


ACTS = """
import torch
from torch import nn

model = nn.Linear(8, 1)
optimizer = torch.optim.Adam(model.parameters())
for update in range(10000):
    state = torch.zeros(4, 8)
    loss = model(state).square().sum()
    for step in range({steps}):
        loss = loss + model(state).square().sum()
        state = state + 1
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    aim = model(state)
    print(aim.argmax())
"""


@pytest.mark.parametrize(("steps", "worth"), [(20, False), (2, True)])
def test_one_pass_of_a_step_beside_many_others(steps: int, worth: bool) -> None:
    """It stands behind a loop that makes one in each of its turns."""
    found = apply("no-grad-eval", ACTS.format(steps=steps), min_gain=0.01)
    assert bool(found.fixes) is worth
    assert apply("no-grad-eval", ACTS.format(steps=steps)).fixes


MOMENTUM = """
import torch
from lib import Photos
from torch import nn

model = nn.Sequential(*[nn.Conv2d(64, 64, 3, padding=1) for _ in range(18)]).cuda()
optimizer = torch.optim.{optimizer}
for epoch in range(100):
    for x, y in torch.utils.data.DataLoader(Photos(), batch_size=64, num_workers=4):
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("optimizer", "worth"),
    [
        ("Adam(model.parameters())", True),
        ("SGD(model.parameters(), 0.1, momentum=0.9)", False),
    ],
)
def test_momentum_beside_steps_of_unknown_size(optimizer: str, worth: bool) -> None:
    """Adam has a dozen operations for all parameters, SGD with momentum two."""
    text = MOMENTUM.format(optimizer=optimizer)
    few = apply("fused-optimizer", text, min_gain=0.01, precision="bf16").fixes
    assert bool(few) is worth and apply("fused-optimizer", text, precision="bf16").fixes


ROWS_AT_ONCE = """
import torch
from lib import numbers
from torch import nn

batch_size = {size}
model = nn.Sequential(nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1024)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for x, y in numbers(batch_size):
    out = model(torch.tensor(x, device="cuda"))
    loss = nn.functional.mse_loss(out @ out.t(), torch.tensor(y, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("size", "worth"), [(4, False), (64, True)])
def test_few_rows_through_dense_layers(size: int, worth: bool) -> None:
    """They wait for their weights, each of which autocast casts in every step."""
    text = ROWS_AT_ONCE.format(size=size)
    for rule in ("autocast grad-scaler", "tf32"):
        assert bool(apply(rule, text, min_gain=0.01).fixes) is worth
        assert apply(rule, text).fixes


READ_TWICE = """
import torch
from lib import Rows
from torch import nn
from torch.utils.data import DataLoader

model = nn.Linear(900, 900).cuda()
optimizer = torch.optim.Adam(model.parameters())
loader, held = DataLoader(Rows("a"), num_workers=2), DataLoader(Rows("b"))
for epoch in range(9):
    for x, y in loader:
        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total, losses = 0.0, []
    with torch.no_grad():
        for x, y in held:
            out = model(x.cuda())
            loss = nn.functional.mse_loss(out, y.cuda())
            total += loss.item()
            losses.append({second}.item())
    print(total, sum(losses))
"""


@pytest.mark.parametrize(("second", "worth"), [("loss", False), ("out.sum()", True)])
def test_one_value_that_an_evaluation_reads_twice(second: str, worth: bool) -> None:
    """The second read finds the device at rest."""
    text = READ_TWICE.format(second=second)
    assert bool(apply("loss-item-sync", text, min_gain=0.01).fixes) is worth
    assert apply("loss-item-sync", text).fixes


TAGS = """
import torch
from torch import nn
from lib import batches

device = torch.device("cuda")


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9000, 256)
        self.lstm = nn.LSTM(256, 512, bidirectional=True, batch_first=True)
        self.emit = nn.Linear(1024, 20)
        self.transitions = nn.Parameter(torch.randn(20, 20))

    def forward(self, words, tags):
        feats = self.emit(self.lstm(self.embed(words))[0])
        alpha = feats[:, 0]
        for t in range(1, LENGTH):
            found = []
            for tag in range(20):
                scores = alpha + self.transitions[tag] + feats[:, t, tag, None]
                found.append(torch.logsumexp(scores, 1))
            alpha = torch.where(tags[:, t, None] >= 0, torch.stack(found, 1), alpha)
        return torch.logsumexp(alpha, 1).mean()


model = Tagger().to(device)
optimizer = torch.optim.Adam(model.parameters())
for words, tags in batches:
    optimizer.zero_grad()
    model(words.to(device), tags.to(device)).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("length", "worth"), [(40, False), (3, True)])
def test_tags_one_by_one_behind_a_network(length: int, worth: bool) -> None:
    """Thousands of small operations along each sentence, beside which 16 bits save nothing."""
    text = TAGS.replace("LENGTH", str(length))
    assert bool(apply("autocast grad-scaler", text, min_gain=0.01).fixes) is worth
