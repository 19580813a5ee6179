"""non-blocking: which copies it takes, in which form, and which it leaves alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.onerule import Applied, apply, run

RULE = "non-blocking"
HEAD = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = {device}
dataset = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))
loader = DataLoader(dataset, batch_size=8{loader})
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
{more}
for epoch in range(2):
    for x, y in loader:
        {move}
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
AUTO = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
ACCEL = 'torch.accelerator.current_accelerator() if torch.accelerator.is_available() else torch.device("cpu")'
BOTH = "x, y = x.to(device), y.to(device)"


def script(move: str = BOTH, device: str = AUTO, loader: str = "", more: str = "") -> str:
    return HEAD.format(
        move=move.replace("\n", "\n        "), device=device, loader=loader, more=more
    )


def made(**parts: str) -> Applied:
    return apply(RULE, script(**parts))


def test_both_copies_of_a_line_are_one_finding() -> None:
    done = made()
    assert done.lines == ["x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)"]
    assert len(done.fixes) == 1
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_a_line_that_becomes_too_long_becomes_two_statements() -> None:
    text = script().replace("x, y", "images, labels").replace("x.to", "images.to")
    text = text.replace("y.to", "labels.to").replace("model(x), y", "model(images), labels")
    done = apply(RULE, text)
    assert done.lines == [f"{v} = {v}.to(device, non_blocking=True)" for v in ("images", "labels")]
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_only_for_cuda_where_the_device_may_be_mps() -> None:
    """A copy to MPS that does not wait may read memory that is released already
    (pytorch#189690).
    """
    done = made(device=ACCEL, move="x = x.to(device)\ny = y.to(device)")
    assert done.lines == [f'{v} = {v}.to(device, non_blocking=device.type == "cuda")' for v in "xy"]
    assert run(done.text)["losses"] == run(done.before)["losses"]


OPTION = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="cpu")
args = parser.parse_args([])
"""


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("args.device", "non_blocking=True"),
        ("torch.device(args.device)", "non_blocking=True"),
        # who speaks of MPS runs there: `torch.backends.mps` is asked somewhere
        (
            'args.device if not torch.backends.mps.is_available() else "mps"',
            "non_blocking=torch.cuda.is_available()",
        ),
    ],
)
def test_an_option_is_no_mps_where_the_script_does_not_speak_of_it(
    device: str, expected: str
) -> None:
    text = OPTION + script(move="x = x.to(device)\ny = y.to(device)", device=device)
    done = apply(RULE, text)
    assert done.lines == [f"{v} = {v}.to(device, {expected})" for v in "xy"]
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_the_device_of_another_tensor_is_none_that_the_script_names() -> None:
    """``z.to(x.device)`` asks for no accelerator."""
    move = "x = x.to(args.device)\ny = y.to(args.device)\nz = torch.zeros(1).to(x.device)"
    done = apply(RULE, OPTION + script(move=move, device="args.device"))
    assert done.lines == [f"{v} = {v}.to(args.device, non_blocking=True)" for v in "xy"]
    assert run(done.text)["losses"] == run(done.before)["losses"]


FILES = """
class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, n):
        generator = torch.Generator().manual_seed(n)
        return torch.randn(4, generator=generator), torch.randn(1, generator=generator)

"""


def of_files(**parts: str) -> str:
    """The script with batches of which nobody knows how large they are."""
    text = script(**parts).replace("\ntorch.manual_seed", f"\n{FILES}\ntorch.manual_seed")
    text = text.replace("        losses.append(loss.item())\n", "")
    text = text.replace(
        "        loss.backward()", "        losses.append(loss.item())\n        loss.backward()"
    )
    return text.replace("TensorDataset(torch.randn(24, 4), torch.randn(24, 1))", "Files()")


def test_what_nobody_pins_is_copied_as_it_was() -> None:
    """Pageable memory is copied by the driver before the call returns: ``non_blocking`` gains
    nothing.
    """
    several = of_files(loader=", num_workers=2")
    both = apply("non-blocking pin-memory", several, min_gain=0.01)
    assert "pin_memory=" in both.text and "non_blocking=True" in both.text
    pinned = apply(RULE, of_files(loader=", pin_memory=True"), min_gain=0.01)
    assert "non_blocking=True" in pinned.text
    assert not apply(RULE, of_files(), min_gain=0.01).fixes
    assert apply(RULE, of_files()).fixes  # where everything is asked for


def test_a_copy_behind_a_read_at_the_end_of_each_step_finds_the_device_at_rest() -> None:
    """Unless the batch is known to be large, or is a picture of workers."""
    early = of_files(loader=", num_workers=2")
    read = "        losses.append(loss.item())\n"
    late = early.replace(read, "").replace("optimizer.step()\n", "optimizer.step()\n" + read)
    rarely = "        if len(losses) % 100 == 0:\n            model(x)\n"
    for text, fixed in ((early, True), (late, False), (late + rarely, False)):
        done = apply("non-blocking pin-memory", text, min_gain=0.01)
        assert ("non_blocking=True" in done.text) is fixed, done.text


@pytest.mark.parametrize(("asked", "takes"), [("1.0.3", False), ("2.4.0", True)])
def test_batches_of_an_old_torch_geometric_take_no_keyword(asked: str, takes: bool) -> None:
    done = apply(RULE, script(), files={"requirements.txt": f"torch-geometric=={asked}\n"})
    assert bool(done.fixes) is takes
    assert takes or f"requirements.txt:1 asks for torch-geometric =={asked}" in done.refusals


@pytest.mark.parametrize(
    "computed",
    ["x.mul(2)", "x / 255", "torch.cat([x, x])[:8]", "torch.from_numpy(x.numpy()).view(-1, 4)"],
)
def test_what_the_host_computed_is_not_pinned(computed: str) -> None:
    text = of_files(
        move=f"x = ({computed}).to(device)\ny = y.to(device)", loader=", pin_memory=True"
    )
    done = apply(RULE, text, min_gain=0.01)
    assert not done.fixes  # the host waits for the other copy of the step anyway
    done = apply(RULE, text.replace(f"({computed})", "x"), min_gain=0.01)
    assert len(done.lines) == 2 and run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (
            "x, y = x.cuda(), y.cuda()",
            ["x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)"],
        ),
        (
            "x, y = x.cuda(0), y.cuda(0)",
            ["x, y = x.cuda(0, non_blocking=True), y.cuda(0, non_blocking=True)"],
        ),
        (
            "x, y = [t.to(device) for t in (x, y)]",
            ["x, y = [t.to(device, non_blocking=True) for t in (x, y)]"],
        ),
        (
            "x, y = map(lambda t: t.to(device), (x, y))",
            ["x, y = map(lambda t: t.to(device, non_blocking=True), (x, y))"],
        ),
        (
            "if device.type == 'cuda':\n    x, y = x.cuda(), y.cuda()",
            ["x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)"],
        ),
        (
            "x = x.to(device=device, dtype=torch.float32)\ny = y.to(device)",
            [
                "x = x.to(device=device, dtype=torch.float32, non_blocking=True)",
                "y = y.to(device, non_blocking=True)",
            ],
        ),
        (
            "x = torch.autograd.Variable(x.type(torch.cuda.FloatTensor))\ny = y.cuda()",
            [
                "x = torch.autograd.Variable(x.type(torch.cuda.FloatTensor, non_blocking=True))",
                "y = y.cuda(non_blocking=True)",
            ],
        ),
    ],
)
def test_spellings(move: str, expected: list[str]) -> None:
    assert made(move=move).lines == expected


def test_dict_batches_and_helpers() -> None:
    helper = "def put(batch):\n    return {k: v.to(device) for k, v in batch.items()}\n"
    done = made(more=helper, move='batch = put({"x": x, "y": y})\nx, y = batch["x"], batch["y"]')
    assert done.lines == ["return {k: v.to(device, non_blocking=True) for k, v in batch.items()}"]


def test_inside_calls() -> None:
    text = (
        script().replace(BOTH, "pass").replace("model(x), y", "model(x.to(device)), y.to(device)")
    )
    call = "nn.functional.mse_loss(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))"
    assert f"loss={call}".replace(" ", "") == "".join(apply(RULE, text).lines).replace(" ", "")


def test_copy_into_a_buffer_on_the_device() -> None:
    done = made(
        more="held = torch.empty(8, 4).cuda()", move="held.copy_(x)\nx = held\ny = y.cuda()"
    )
    assert done.lines == ["held.copy_(x, non_blocking=True)", "y = y.cuda(non_blocking=True)"]


@pytest.mark.parametrize(
    "move",
    [
        "x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)",
        "x, y = x.to(device, non_blocking=False), y.to(device, torch.float32, True)",
        "x, y = x.cuda(0, True), y.cuda(0, False)",
        "x, y = x.double(), y.to(torch.float64)",
        "x, y = x.cpu(), y.to('cpu')",
        "x, y = x.to(model.weight), y.type_as(model.weight)",
    ],
)
def test_nothing_to_do(move: str) -> None:
    assert made(move=move).findings == ()


def test_copies_outside_of_loops_are_left_alone() -> None:
    assert (
        made(move="pass", more="first, _ = next(iter(loader))\nfirst = first.to(device)").findings
        == ()
    )


def test_nothing_on_a_cpu() -> None:
    assert apply(RULE, script(), target="cpu").findings == ()


def test_pageable_memory() -> None:
    assert "pin_memory=False" in made(loader=", pin_memory=False").refusals
    text = script(move="x, y = torch.zeros(8, 4).to(device), torch.zeros(8, 1).to(device)")
    assert apply(RULE, text).findings == ()


def test_objects_with_a_to_of_their_own() -> None:
    nested = """
class Nested:
    def __init__(self, tensor):
        self.tensor = tensor
    def to(self, device):
        return Nested(self.tensor.to(device))

def collate(rows):
    return Nested(torch.stack([x for x, _ in rows])), torch.stack([y for _, y in rows])
"""
    text = script(
        move="x, y = x.to(device), y.to(device)\nx = x.tensor", loader=", collate_fn=collate"
    )
    done = apply(RULE, text.replace("torch.manual_seed", nested + "\ntorch.manual_seed", 1))
    assert "x.to(device), y.to(device, non_blocking=True)" in done.text


def test_unknown_batches() -> None:
    done = made(more="from elsewhere import build\nloader = build()")
    assert not done.fixes


def test_a_helper_that_also_copies_back() -> None:
    helper = "def put(t, where):\n    return t.to(where)\n"
    done = made(
        more=helper, move='x, y = put(x, device), put(y, device)\nback = put(model(x), "cpu")'
    )
    assert not done.fixes and "may be on a GPU" in done.refusals


def test_batches_that_are_changed_afterwards() -> None:
    for change in ("x.mul_(2)", "x += 1", "x[0] = 0", "x[:, 0].clamp_(0, 1)"):
        done = made(move=f"a, b = x.to(device), y.to(device)\n{change}\nx, y = a, b")
        assert "in place afterwards" in done.refusals, change
    assert made(move="x.mul_(2)\n" + BOTH).fixes  # before the copy
    assert made(move=BOTH + "\nx.mul_(2)").fixes  # the copy itself
    assert made(
        move="a, b = x.to(device), y.to(device)\nseen = (x + 1) / 2\nseen.clamp_(0, 1)\nx, y = a, b"
    ).fixes  # something else


SHIFT = "def shift(t):\n    t *= 2\n    return t\n\n"


@pytest.mark.parametrize(
    ("more", "move", "applied"),
    [
        # another batch, before the loop
        (f"{SHIFT}first, _ = next(iter(loader))\nfirst = shift(first)", BOTH, True),
        (SHIFT, "a, b = x.to(device), y.to(device)\nx = shift(x)\nx, y = a, b", False),
        (SHIFT, f"x = shift(x)\n{BOTH}", True),
        # memory of its own, on the device: sizes, not data
        ("", BOTH + "\nextra = y.data.new(1).zero_()", True),
        ("", BOTH + "\nextra = x.data.new(x.shape)\nextra[:, 0] = 0", True),
        ("", "a, b = x.to(device), y.to(device)\nz = x.new(x)\nz.zero_()\nx, y = a, b", False),
    ],
)
def test_what_is_changed_is_another_or_comes_first(more: str, move: str, applied: bool) -> None:
    done = made(more=more, move=move)
    assert bool(done.fixes) is applied, done.refusals


@pytest.mark.parametrize(
    ("change", "applied"),
    [
        ("rows = x.numpy()\nrows *= 2", False),
        ("x.numpy()[0] = 1", False),
        ("rows = x.numpy()[1:]\nrows[0] = 1", False),
        ("rows = memoryview(x.numpy())\nrows[0, 0] = 1", False),
        ("rows = list(x.numpy())\nrows[0][:] = 0", False),
        ("np.ndarray((8, 4), np.float32, x.numpy())[0] = 1", False),
        ("z = torch.Tensor(x)\nz.zero_()", False),
        ("z = torch.empty(0)\nz.data = x\nz += 1", False),
        ("z = torch.empty(0)\nz.set_(x)\nz += 1", False),
        ("z = nn.Parameter(x, requires_grad=False)\nz.data.mul_(2)", False),
        ("z = nn.Parameter(x.clone(), requires_grad=False)\nz.data.mul_(2)", True),
        ("rows = x.numpy() * 2\nrows[0] = 1", True),
        ("rows = x.numpy().copy()\nrows *= 2", True),
        ("seen = x.numpy().sum()\nseen *= 2", True),
    ],
)
def test_batches_that_are_changed_through_an_array(change: str, applied: bool) -> None:
    done = made(move=f"a, b = x.to(device), y.to(device)\n{change}\nx, y = a, b")
    assert bool(done.fixes) is applied
    assert applied or "in place afterwards" in done.refusals


def test_batches_that_a_framework_moves() -> None:
    done = made(more="from accelerate import Accelerator\nloader = Accelerator().prepare(loader)")
    assert not done.fixes and "framework" in done.refusals


# ------------------------------------------------------------------------ what Accelerate has moved
ACCELERATOR = """
class Accelerator:
    def __init__(self, device_placement=True):
        self.device = torch.device("cpu")

    def prepare(self, *given):
        return given if len(given) > 1 else given[0]
"""
PREPARED = "from accelerate import Accelerator\naccelerator = Accelerator()\nloader = accelerator.prepare(loader)"


def placed(move: str, more: str = PREPARED) -> Applied:
    """The rewrite; both texts compute the same with a class that stands in for Accelerate's."""
    done = made(move=move, more=more)
    texts = [
        t.replace("from accelerate import Accelerator\n", ACCELERATOR)
        for t in (done.before, done.text)
    ]
    assert run(texts[0])["losses"] == run(texts[1])["losses"]
    return done


@pytest.mark.parametrize(
    ("move", "line"),
    [
        ("x, y = x.to(accelerator.device), y.to(accelerator.device)", ""),
        ("x = x.to(accelerator.device)", ""),
        ("x = x.to(accelerator.device) * 2", "x = x * 2"),
        ("x, y = (t.to(accelerator.device) for t in (x, y))", "x, y = (t for t in (x, y))"),
    ],
)
def test_copies_to_where_the_batch_is_go(move: str, line: str) -> None:
    done = placed(move)
    assert "accelerator.device" not in done.text
    assert done.lines == ([line] if line else [])


def test_a_dict_of_what_is_there_already() -> None:
    text = script(
        move="batch = {k: v.to(accelerator.device) for k, v in batch.items()}\nx, y = batch['x'], batch['y']",
        more=PREPARED,
    )
    text = text.replace(
        "dataset = TensorDataset(torch.randn(24, 4), torch.randn(24, 1))", "dataset = Rows()"
    ).replace("for x, y in loader", "for batch in loader")
    text = text.replace(
        "torch.manual_seed(0)",
        "class Rows(torch.utils.data.Dataset):\n    def __len__(self):\n        return 24\n    def __getitem__(self, i):\n        return {'x': torch.ones(4) * i, 'y': torch.ones(1)}\n\ntorch.manual_seed(0)",
        1,
    )
    done = apply(RULE, text)
    assert ".items()" not in done.text and done.fixes
    texts = [
        t.replace("from accelerate import Accelerator\n", ACCELERATOR)
        for t in (done.before, done.text)
    ]
    assert run(texts[0])["losses"] == run(texts[1])["losses"]


@pytest.mark.parametrize(
    ("move", "more"),
    [
        ("x, y = x.to(device), y.to(device)", PREPARED),  # another device, perhaps
        ("x = x.to(accelerator.device, torch.float64)\nx = x.float()", PREPARED),
        (
            "x = x.to(accelerator.device)",
            PREPARED.replace("Accelerator()", "Accelerator(device_placement=False)"),
        ),
        (
            "x = x.to(accelerator.device)",
            PREPARED.replace("loader = acc", "prepared = acc"),
        ),  # the loop goes over the other one
        ("x = x.to(accelerator.device)", PREPARED + "\nloader = DataLoader(dataset, batch_size=4)"),
        (
            "x = x.to(accelerator.device)",
            PREPARED.replace("loader = acc", "if len(dataset) > 3:\n    loader = acc"),
        ),
        ("x = x.to(other.device)", PREPARED + "\nother = Accelerator()"),
    ],
)
def test_copies_that_may_do_something_stay(move: str, more: str) -> None:
    done = placed(move, more)
    assert ".to(" in done.text and "already" not in " ".join(f.message for f in done.fixes)


def test_a_key_that_is_one_of_several() -> None:
    """Where only one of two datasets has the key, the other one would be an error."""
    data = """
class Pairs(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        return {"A": torch.ones(4) * i, "B": torch.ones(1)} if i < 99 else {"C": torch.ones(1)}

import sys
dataset = Pairs()
flip = len(sys.argv) > 99
loader = DataLoader(dataset, batch_size=8)
"""
    done = apply(
        RULE,
        script(
            move="x, y = batch['B' if flip else 'A'].to(device), batch['A' if flip else 'B'].to(device)",
            more=data,
        ).replace("for x, y in", "for batch in"),
    )
    assert done.text.count("non_blocking=True") == 2
    assert run(done.text)["losses"] == run(done.before)["losses"]


# -------------------------------------------------------------------------- what a batch is made of
DETECTION = """
import random

import torch
from torch import nn
from torch.utils.data import DataLoader

from datasets.boxes import Boxes
# more

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Images:
    def __init__(self, tensors):
        self.tensors = tensors

    def to(self, device):
        return Images(self.tensors.to(device))


def collate(batch):
    batch = list(zip(*batch))
    batch[0] = Images(torch.stack(batch[0]))
    return tuple(batch)


loader = DataLoader(Boxes(), batch_size=4, collate_fn=collate)
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for images, targets in loader:
    images = images.to(device)
    targets = [{k: v.to(device) for k, v in t.items()} for t in targets]
    loss = (model(images.tensors) - torch.stack([t["size"] for t in targets])).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
BOXES = """
import torch

import datasets.crops as C


class Boxes(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        target = {"size": torch.ones(1) * i, "labels": torch.arange(3)}
        return C.crop(torch.ones(4) * i, target)
"""
CROPS = """
def crop(image, target):
    target = target.copy()
    fields = ["labels"]
    if len(target) > 1:
        fields.append("size")
    for field in fields:
        target[field] = target[field] * 2
    return image, target
"""


def test_targets_of_a_batch_that_is_turned_around_by_zip(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A package of the project called as a library is (datasets), keys that are one of several, one
    element replaced.
    """
    text = DETECTION
    files = {"datasets/__init__.py": "", "datasets/boxes.py": BOXES, "datasets/crops.py": CROPS}
    done = apply(RULE, text, files=files)
    assert done.lines == [
        "targets = [{k: v.to(device, non_blocking=True) for k, v in t.items()} for t in targets]"
    ]
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("datasets", "datasets.boxes", "datasets.crops"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    "change",
    [
        "batch[1] = [Held(t) for t in batch[1]]",
        "batch[int(len(batch) > 1)] = [Held(t) for t in batch[1]]",
    ],
)
def test_targets_that_are_replaced_are_no_tensors(change: str) -> None:
    held = "class Held(dict):\n    def items(self):\n        return [(k, Box()) for k in self]\n\nclass Box:\n    def to(self, device):\n        return self\n"
    text = DETECTION.replace("# more", held).replace(
        "    return tuple(batch)", f"    {change}\n    return tuple(batch)"
    )
    done = apply(
        RULE,
        text,
        files={"datasets/__init__.py": "", "datasets/boxes.py": BOXES, "datasets/crops.py": CROPS},
    )
    assert not done.fixes


def test_a_loader_that_goes_on_for_ever() -> None:
    more = """
class Endless(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.iterator = super().__iter__()

    def __iter__(self):
        for _ in range(len(self)):
            try:
                yield next(self.iterator)
            except StopIteration:
                self.iterator = super().__iter__()
                yield next(self.iterator)

loader = Endless(dataset, batch_size=8)
"""
    done = made(more=more)
    assert done.text.count("non_blocking=True") == 2
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_a_sum_over_the_batch_on_the_host_changes_no_batch() -> None:
    """`total += x.sum()` makes a tensor of its own, as the sum begins with zero."""
    move = (
        "moved = x.to(device)\ntotal += x.sum()\nlosses.append(total)\nx, y = moved, y.to(device)"
    )
    done = made(move=move, more="total = 0")
    assert "moved = x.to(device, non_blocking=True)" in done.lines, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]
    other = made(move="total = x\n" + move, more="total = 0")
    assert "changed in place afterwards" in other.refusals


METER = """
class Meter:
    def __init__(self):
        self.correct = 0

    def __call__(self, rows):
        self.correct += rows.sum()

meter = Meter()
"""


def test_a_sum_in_an_attribute_changes_no_batch() -> None:
    """`self.correct += x.sum()` makes a tensor of its own, as all that is put there otherwise is a
    number.
    """
    move = "moved = x.to(device)\nmeter(x)\nlosses.append(float(meter.correct))\nx, y = moved, y.to(device)"
    done = made(move=move, more=METER)
    assert "moved = x.to(device, non_blocking=True)" in done.lines, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    "other",
    [
        "meter.correct = x",
        "meter.correct, other = x, 1",
        "setattr(meter, 'correct', x)",
        "class Other:\n    correct = x\nmeter = Other()",
    ],
)
def test_a_batch_in_that_attribute_is_changed(other: str) -> None:
    move = f"moved = x.to(device)\n{other}\nmeter.correct += 1\nx, y = moved, y.to(device)"
    done = made(move=move, more=METER)
    assert "moved = x.to(device, non_blocking=True)" not in done.lines


FETCH = """
def batches():
    for _ in range(5):
        try:
            x, y = next(rows)
        except{error}:
            rows = iter(loader)
            x, y = next(rows)
        yield x, y
"""


@pytest.mark.parametrize("error", ["", " Exception", " (NameError, StopIteration)"])
def test_an_iterator_that_is_made_where_it_has_no_value_yet(error: str) -> None:
    text = script(more=FETCH.format(error=error)).replace("in loader:", "in batches():")
    done = apply(RULE, text)
    assert done.text.count("non_blocking=") == 2, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]


def test_an_error_that_is_not_caught_is_no_way() -> None:
    text = script(more=FETCH.format(error=" StopIteration")).replace("in loader:", "in batches():")
    assert "is not defined here" in apply(RULE, text).refusals


def test_another_shape_of_the_same_memory_is_no_change() -> None:
    move = "moved = y.to(device)\ny.unsqueeze_(0).squeeze_(0)\nx, y = x.to(device), moved"
    done = made(move=move)
    assert "moved = y.to(device, non_blocking=True)" in done.lines, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]
    other = made(move=move.replace("squeeze_(0)", "zero_()"))
    assert "changed in place afterwards" in other.refusals


WRITES = [
    "torch.relu_(x)", "nn.functional.relu(x, inplace=True)", "nn.ReLU(inplace=True)(x)",
    "nn.init.zeros_(x)", "operator.imul(x, 0)", "operator.methodcaller('zero_')(x)",
    "exec('x.zero_()')", "list(map(torch.Tensor.zero_, [x]))", "x.type_as(y).zero_()", "(+x).zero_()",
    "a = np.asarray(x)\na[:] = 0", "rows.append(x)\nrows.pop().zero_()",
    "match x:\n    case t:\n        t.zero_()",
]  # fmt: skip


@pytest.mark.parametrize("write", WRITES)
def test_all_ways_of_writing_to_a_batch(write: str) -> None:
    move = f"moved = x.to(device)\n{write}\nx, y = moved, y.to(device)"
    more = "import operator\nimport collections\nimport numpy as np\nrows = collections.deque()"
    found = made(move=move, more=more)
    assert "moved = x.to(device, non_blocking=True)" not in found.lines
    assert "changed in place afterwards" in found.refusals


@pytest.mark.parametrize(
    "copies",
    [
        "def there(t):\n    return [u.to(device) for u in t]",
        "def there(t):\n    return tuple(u.to(device) for u in t)",
        "def there(t):\n    d = {n: u.to(device) for n, u in enumerate(t)}\n    return d[0], d[1]",
    ],
)
def test_what_a_comprehension_has_copied_is_changed_behind_it(copies: str) -> None:
    """The loop that a change of the batch counts for is the one over batches."""
    found = made(move="a, b = there((x, y))\nx.zero_()\nx, y = a, b", more=copies)
    assert not found.fixes and "changed in place afterwards" in found.refusals
    other = made(move="x.mul_(2)\nx, y = there((x, y))", more=copies)
    assert "u.to(device, non_blocking=True)" in other.text, other.refusals


def test_batches_that_a_comprehension_has_copied_are_changed_later() -> None:
    more = "pairs = [(x.to(device), x) for x, y in loader]\nfor moved, x in pairs:\n    x.zero_()"
    assert "for x, y in loader]" in made(more=more).text
    assert "(x.to(device), x) for" in made(more=more).text


def test_a_star_import_that_binds_no_builtin() -> None:
    text = """
    import torch
    from sklearn.metrics import *
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
    loader = DataLoader(data, batch_size=8, pin_memory=True)
    for i, (x, y) in enumerate(loader):
        loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()
    """
    assert apply("non-blocking", text).fixes
    assert not apply("non-blocking", text.replace("sklearn.metrics", "unknown_library")).fixes


REPLAY = """
import random
import numpy as np
import torch
from torch import nn

device = {device}
memory = [(np.ones(4), 1.0) for _ in range(40)]
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam(model.parameters())


def sample(size):
    states, rewards = map(np.stack, zip(*random.sample(memory, size)))
    return states, rewards


for update in range(10):
    states, rewards = sample(8)
    x = {x}
    y = torch.FloatTensor(rewards).to(device).unsqueeze(1)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""


def advised(found: Applied) -> int:
    return sum(bool(f.advice) for f in found.findings)


@pytest.mark.parametrize(
    "x",
    [
        "torch.FloatTensor(states).to(device)",
        "torch.from_numpy(states).float().to(device)",
        "torch.tensor(states, dtype=torch.float32).to(device)",
        "torch.as_tensor(states).to(device).float()",
        "torch.stack([torch.from_numpy(s) for s in states]).float().to(device)",
        "torch.stack([torch.from_numpy(states[k]) for k in range(8)]).to(device).float()",
    ],
)
def test_arrays_that_no_loader_makes_get_advice(x: str) -> None:
    found = apply(RULE, REPLAY.format(device=AUTO, x=x))
    assert not found.fixes and advised(found) == 2
    assert "keep the data in a tensor on the device" in found.advice


@pytest.mark.parametrize(
    "x",
    [
        "torch.FloatTensor(states).pin_memory().to(device, non_blocking=True)",
        "torch.tensor([[1.0, 2.0, 3.0, 4.0]] * 8).to(device)",  # never changes: device-creation
        "torch.zeros(8, 4).to(device)",
        "torch.FloatTensor(8, 4).zero_().to(device)",
        "torch.tensor(states, dtype=torch.float32, device=device)",
    ],
)
def test_no_such_advice(x: str) -> None:
    assert advised(apply(RULE, REPLAY.format(device=AUTO, x=x))) == 1


def test_no_such_advice_on_the_cpu_or_outside_the_steps() -> None:
    x = "torch.FloatTensor(states).to(device)"
    assert not apply(RULE, REPLAY.format(device='"cpu"', x=x)).advice
    once = REPLAY.format(device=AUTO, x=x).split("for update")[0]
    text = once + "states, rewards = sample(8)\nx = torch.FloatTensor(states).to(device)\n"
    assert not apply(RULE, text + "model(x).sum().backward()\noptimizer.step()\n").advice


def test_tensors_of_arrays_are_in_memory_that_nothing_pins() -> None:
    arrays = "collate_fn=gather, pin_memory=True"
    gather = (
        "def gather(items):\n    return [torch.stack(part).numpy() for part in zip(*items)]\n\n\n"
    )
    text = script(
        "x, y = torch.from_numpy(x).to(device), torch.from_numpy(y).float().to(device)",
        loader=", " + arrays,
    )
    found = apply(RULE, text.replace("dataset = ", gather + "dataset = "))
    assert not found.fixes and "memory that no loader pins" in found.refusals


def test_beside_what_the_host_computed_a_copy_waits_all_the_same() -> None:
    loader = ", num_workers=2, pin_memory=True"
    text = script(move="x, more, y = x.to(device), (x + 1).to(device), y.to(device)", loader=loader)
    done = apply(RULE, text, min_gain=0.01)
    assert not done.fixes and len(done.findings) == 2
    reasons = " ".join(f.gain.reason for f in done.findings if f.gain is not None)
    assert "copies to the device in the same step, and waits" in reasons
    assert "computed on the host, not pinned" in reasons


@pytest.mark.parametrize("between", ["", "Image.fromarray(y.byte().numpy()).resize((4, 4))"])
def test_layers_that_write_in_place_and_what_pil_resizes(between: str) -> None:
    """By default batches stay on the host and go through the same layers."""
    text = f"""
import argparse
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--gpu", action="store_true")
args = parser.parse_args()
layers = []
for width in (8, 8):
    layers += [nn.Linear(width, 8), nn.ReLU(inplace=True)]
model = nn.Sequential(*layers)
if args.gpu:
    model = model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(16, 8))
for (x,) in DataLoader(data, batch_size=4, num_workers=2, pin_memory=True):
    if args.gpu:
        x = x.cuda()
    y = model(x)
    y.sum().backward()
    optimizer.step()
    {between or "pass"}
"""
    assert any("x.cuda(non_blocking=True)" in line for line in apply("non-blocking", text).lines)


@pytest.mark.parametrize(
    "written", ["halve(y)\n    halve(x)", "for t in (x, y):\n        t.mul_(0.5)"]
)
def test_what_was_copied_is_written_to_and_so_is_the_batch(written: str) -> None:
    """The copy stands under no condition: the batch is written to while it may be on its way."""
    text = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def halve(t):
    t.mul_(0.5)

model = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(16, 8))
for (x,) in DataLoader(data, batch_size=4, num_workers=2, pin_memory=True):
    y = x.cuda()
    {written}
    model(y).sum().backward()
    optimizer.step()
"""
    assert not apply("non-blocking", text).lines


@pytest.mark.parametrize(
    ("use", "fixed"),
    [
        ("state['mean'].mul_(0.9)", True),
        ("print(len(x), x.shape); state['mean'].mul_(0.9)", True),
        ("y.cpu().clamp_(0, 1)", True),  # which has memory of its own, where y is on a GPU
        ("x.cpu().clamp_(0, 1)", False),
        ("lib.keep(x); state['mean'].mul_(0.9)", False),
        ("lib.keep([x]); state['mean'].mul_(0.9)", False),
        ("lib.last = x; state['mean'].mul_(0.9)", False),
        ("state['last'] = x; state['mean'].mul_(0.9)", False),
        ("state.update(last=x); state['mean'].mul_(0.9)", False),
        ("keep = state.keep\n    keep(x.view(-1)); state['mean'].mul_(0.9)", False),
        ("rows = x.numpy(); state['mean'].mul_(0.9)", False),
        ("state['rows'] += [x]; state['mean'].mul_(0.9)", False),
        ("list(map(state.keep, [x])); state['mean'].mul_(0.9)", False),
        ("exec(text); state['mean'].mul_(0.9)", False),
        ("h = model.register_forward_hook(lib.keep); state['mean'].mul_(0.9)", True),
        (
            "nn.Identity().register_forward_hook(lib.keep)\n    nn.Identity()(x); state['mean'].mul_(0.9)",
            False,
        ),
        ("globals().get('x').zero_()", False),
        # memory of its own, whatever nobody follows has given
        ("keep = state.keep\n    keep(x); lib.rows().flip(0).mul_(0.9)", True),
        ("keep = state.keep\n    keep(x); lib.rows().view(-1).mul_(0.9)", False),
        ("keep = state.keep\n    keep(x); lib.rows().mul_(0.9)", False),
        ("torch.vmap(lambda t: t.zero_())(x)", False),
        ("state['mean'].mul_(len(vars(lib)))", True),
    ],
)
def test_what_nobody_follows_is_the_batch_only_where_it_may_have_come_there(
    use: str, fixed: bool
) -> None:
    text = f"""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
import lib

model = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
state, text = lib.state(), lib.text()
data = TensorDataset(torch.randn(16, 8))
for (x,) in DataLoader(data, batch_size=4, num_workers=2, pin_memory=True):
    y = x.cuda()
    {use}
    model(y).sum().backward()
    optimizer.step()
"""
    assert bool(apply(RULE, text).lines) is fixed


SHIFTED = """
def shifted(t):
    out = {made}
    out[1:] = t[:-1]
    return out
"""


@pytest.mark.parametrize(
    ("write", "more"),
    [
        ("z = torch.where(x > 0, x, 0 * x)\nz.mul_(2)", ""),
        ("z = shifted(x)\nz.mul_(2)", SHIFTED.format(made="torch.zeros_like(t)")),
        ("z = shifted(x)\nz.mul_(2)", SHIFTED.format(made="t.clone()")),
        ("z = x.mean(0)\nz -= 1", ""),
        ("z = x.clone().mul_(2)\nz.add_(1)", ""),
        (
            "z = x.mean(0)",
            """
def init(fill, shape):
    return lambda rows: [fill(r) for r in rows]

def never(m):
    return init(lambda w: nn.init.normal_(w, 0, 1), 3)
""",
        ),
        (
            "z = x.mean(0)\nif torch.distributed.is_initialized():\n    shared(z)",
            """
def shared(z):
    total = z.clone()
    torch.distributed.all_reduce(total, op=torch.distributed.ReduceOp.SUM)
""",
        ),
        ("z = x.mean(0)\nview = z[1:].view(-1)\nview -= 1", ""),
        ("z = None\nif epoch == 0:\n    z = x.exp()\n    z[0] = 1", ""),
        ("total += x.sum()", "total = torch.zeros(1)"),
        ("sums['x'] += x.sum()", "sums = {'x': 0.0}"),
        ("kept.append(x.sum())\nkept[-1] += 1", "kept = []"),
        ("total = nn.functional.mse_loss(x, 2 * x)\ntotal += x.mean()", ""),
        (
            "box.put(y)\ntorch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: math.cos(0.5 * n))",
            "import math, queue\nbox = queue.Queue()",
        ),
    ],
)
def test_writes_to_memory_of_its_own(write: str, more: str) -> None:
    """What is computed of a batch on the host may be written to while the batch is copied."""
    done = made(move=f"a, b = x.to(device), y.to(device)\n{write}\nx, y = a, b", more=more)
    assert done.text.count("non_blocking=True") == 2, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    ("write", "more"),
    [
        ("z = x.view(-1)\nz.mul_(2)", ""),
        ("z = x.float()\nz.mul_(2)", ""),
        ("z = x.mul_(1)\nz.add_(1)", ""),
        ("z = x.view(-1).mul_(1)[1:]\nz.add_(1)", ""),
        ("list(map(lambda w: nn.init.ones_(w), [x]))", ""),
        ("list(map(later(), [x]))", "def later():\n    return lambda w: nn.init.ones_(w)"),
        (
            "if torch.distributed.is_initialized():\n    torch.distributed.all_reduce(x, op=torch.distributed.ReduceOp.SUM)",
            "",
        ),
        ("z = shifted(x)\nz.mul_(2)", SHIFTED.format(made="t")),
        ("z = shifted(x)\nz.mul_(2)", SHIFTED.format(made="t.contiguous()")),
        ("z = torch.zeros(8, 4) if epoch else x\nz += 1", ""),
        ("z = None\nif epoch == 0:\n    z = x\n    z[0] = 1", ""),
        ("kept.append(x)\nkept[-1] += 1", "kept = []"),
        ("total = x[0, 0]\ntotal += x.sum()", ""),
        ("for row in x:\n    row += 1", ""),
    ],
)
def test_writes_to_the_memory_of_the_batch(write: str, more: str) -> None:
    done = made(move=f"a, b = x.to(device), y.to(device)\n{write}\nx, y = a, b", more=more)
    assert "changed in place afterwards" in done.refusals, done.text


NAMED = """
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = eval("[{'x': torch.full((4,), i / 24), 'y': torch.ones(1)} for i in range(24)]")
loader = DataLoader(rows, batch_size=8)
model = nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for batch in loader:
        {move}
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(batch["x"]), batch["y"])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""


@pytest.mark.parametrize(
    "move",
    [
        "for key in batch:\n    batch[key] = batch[key].to(device)",
        "for key, item in batch.items():\n    batch[key] = item.to(device)",
        "for key, item in batch.items():\n    if item is not None:\n        batch[key] = item.to(device)",
        "for key in batch.keys():\n    batch[key] = batch[key].to(device)",
        'batch["x"] = batch["x"].to(device)\nbatch["y"] = batch["y"].to(device)',
    ],
)
def test_a_dict_of_a_data_set_that_is_not_read(move: str) -> None:
    """To put a copy under its key writes to no tensor."""
    done = apply(RULE, NAMED.replace("{move}", move.replace("\n", "\n        ")))
    assert "non_blocking=True" in done.text, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    ("move", "x", "y"),
    [
        ('x = batch["x"].to(device)\nbatch["x"][0] = 1', "x", 'batch["y"]'),
        ("x = batch.to(device)\nbatch[0] = 1", "x", "x"),
        ('x = batch["x"].to(device)\nbatch["x"] -= 0.5', "x", 'batch["y"]'),
        (
            'for key, v in batch.items():\n    moved = v.to(device)\n    batch[key] *= 0',
            "moved",
            'batch["y"]',
        ),
        ("for row in batch:\n    x = batch[row].to(device)\nbatch[row] = batch[row] + 1", "x", "x"),
        ('w = batch["w"] if isinstance(batch, dict) else 0\nx = batch.to(device)\nbatch[0] = w', "x", "x"),
        ('if len(losses):\n    w = batch["w"]\nx = batch.to(device)\nbatch[0] = 1', "x", "x"),
        ('try:\n    w = batch["w"]\nexcept KeyError:\n    w = 0\nx = batch.to(device)\nbatch[0] = w', "x", "x"),
    ],
)  # fmt: skip
def test_what_is_written_into_tensors_of_such_a_data_set(move: str, x: str, y: str) -> None:
    text = NAMED.replace("{move}", move.replace("\n", "\n        "))
    done = apply(RULE, text.replace('model(batch["x"]), batch["y"]', f"model({x}), {y}"))
    assert "changed in place afterwards" in done.refusals, done.text


OUTPUTS = """
import torch
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Points(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        row = {}
        row["x"] = torch.full((4,), i / 16)
        row["y"] = torch.ones(1)
        return row


def criterion(outputs):
    WRITTEN
    outputs["loss"] = ((outputs["out"] - outputs["y"]) ** 2).mean()
    return outputs["loss"], outputs


loader = DataLoader(Points(), batch_size=8, pin_memory=True)
net = torch.nn.Linear(4, 1).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
losses = []
for batch in loader:
    x = batch["x"].to(device)
    outputs = {"out": net(x)}
    for key in batch:
        outputs[key] = batch[key]
    loss, outputs = criterion(outputs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


@pytest.mark.parametrize(
    "written", ["pass", 'outputs["x"] = outputs["x"] + 1', 'outputs.update(n=len(outputs["x"]))']
)
def test_entries_of_a_dict_are_no_writes_to_the_batch(written: str) -> None:
    done = apply(RULE, OUTPUTS.replace("WRITTEN", written))
    assert "non_blocking=True" in done.text, done.refusals
    assert run(done.text)["losses"] == run(done.before)["losses"]


@pytest.mark.parametrize(
    "written",
    [
        'outputs["x"] += 1',
        'outputs["x"][0] = 1',
        "for key, value in outputs.items():\n        value.mul_(2)",
        'x = outputs["x"]\n    x.mul_(2)',
    ],
)
def test_what_is_written_into_what_such_a_dict_holds(written: str) -> None:
    done = apply(RULE, OUTPUTS.replace("WRITTEN", written))
    assert "changed in place afterwards" in done.refusals, done.text
