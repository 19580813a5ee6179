"""uint8-transfer: images cross to the device as bytes, and become the same floats there."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from autofast.verify.evidence.record import FULL
from tests.onerule import apply, run, same_runs
from tests.probing import run as probe

pytest.importorskip("PIL")
RULE = "uint8-transfer"
SCRIPT = """
import random

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, random_split

torch.manual_seed(0)
pictures = [Image.fromarray(p) for p in np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), np.uint8)]


class Photos(Dataset):
    def __init__(self, pictures):
        self.pictures = pictures
        self.bytes = np.zeros((len(pictures), 6, 5, 3), dtype=np.uint8)
        for i, picture in enumerate(pictures):
            self.bytes[i] = np.array(picture)

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        image = np.array(self.pictures[i].convert("RGB"))
        BODY
        return x, i % 3


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = Photos(pictures)
train, test = random_split(data, [8, 4], generator=torch.Generator().manual_seed(1))
loader = DataLoader(train, batch_size=4, shuffle=True)
tests = DataLoader(test, batch_size=4)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(48, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, seen = [], []
for epoch in range(2):
    model.train()
    for i, (x, y) in enumerate(loader):
        n = x.size(0)
        x, y = x.to(device, non_blocking=True), y.to(device)
        seen.append(x)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item() * n)
    model.eval()
    with torch.no_grad():
        for batch in tests:
            images, labels = batch
            losses.append(model(images.to(device)).sum().item() * len(images))
"""
PLAIN = "x = torch.from_numpy(image).permute(2, 0, 1).float() / 255"


def script(body: str = PLAIN) -> str:
    return SCRIPT.replace(
        "        BODY\n", textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8) + "\n"
    )


def test_what_is_written() -> None:
    done = apply(RULE, script())
    assert done.lines == [
        "x = torch.from_numpy(image).permute(2, 0, 1)",
        "x, y = x.to(device, non_blocking=True).float() / 255, y.to(device)",
        "losses.append(model(images.to(device).float() / 255).sum().item() * len(images))",
    ]
    same_runs(script(), done.text)


@pytest.mark.parametrize(
    ("body", "lines", "batch"),
    [
        ("x = torch.from_numpy(image).permute(2, 0, 1)\nx = x.float().div(255)\n",
         ["x = torch.from_numpy(image).permute(2, 0, 1)"], "{}.float() / 255"),
        ("x = torch.from_numpy(image).permute(2, 0, 1)\nx = (x.float() / 255 - 0.5) / 0.5\n",
         ["x = torch.from_numpy(image).permute(2, 0, 1)"], "({}.float() / 255 - 0.5) / 0.5"),
        ("image = image.astype(np.float32) / 255.0\nx = torch.from_numpy(image.transpose(2, 0, 1))",
         ["x = torch.from_numpy(image.transpose(2, 0, 1))"], "{}.float() / 255.0"),
        ("image = image[:, ::-1]\nx = torch.from_numpy(image.astype('float32').transpose(2, 0, 1)) / 255",
         ["x = torch.from_numpy(image.copy(order=\"K\").transpose(2, 0, 1))"], "{}.float() / 255"),
        ("image = image.transpose(2, 0, 1)\nx = torch.from_numpy(np.float32(image)) * 2 - 255",
         ["x = torch.from_numpy(image.copy(order=\"K\"))"], "{}.float() * 2 - 255"),
        ("x = torch.tensor(image, dtype=torch.float32).permute(2, 0, 1) / 255.",
         ["x = torch.tensor(image).permute(2, 0, 1)"], "{}.float() / 255.0"),
        ("picture = self.pictures[i].convert('RGB').resize((5, 6))\nimage = np.asarray(picture, dtype=np.float32) / 255\n"
         "x = torch.from_numpy(image.transpose(2, 0, 1))",
         ["image = np.array(picture)"], "{}.float() / 255"),
        ("x = torch.from_numpy(np.array(self.pictures[i].convert('L'), dtype='float32')).expand(3, 6, 5) / 255",
         [], ""),
        ("x = torch.from_numpy(image).permute(2, 0, 1) / 255", ["x = torch.from_numpy(image).permute(2, 0, 1)"], "{} / 255"),
        ("x = torch.from_numpy(image / 255.0).permute(2, 0, 1).float()",
         ["x = torch.from_numpy(image).permute(2, 0, 1)"], "{}.float() / 255.0"),
        ("x = torch.from_numpy(self.bytes[i]).permute(2, 0, 1).to(torch.float32).sub(127).mul(-2)",
         ["x = torch.from_numpy(self.bytes[i]).permute(2, 0, 1)"], "({}.float() - 127) * -2"),
        ("""
         if random.random() < 0.5:
             image = np.ascontiguousarray(image[:, ::-1])
         x = torch.from_numpy(image).permute(2, 0, 1).contiguous().float().unsqueeze(0).squeeze(0) / 255
         """, ["x = torch.from_numpy(image).permute(2, 0, 1).contiguous().unsqueeze(0).squeeze(0)"], "{}.float() / 255"),
    ],
)  # fmt: skip
def test_forms(body: str, lines: list[str], batch: str) -> None:
    text = script(body).replace("torch.manual_seed(0)", "torch.manual_seed(0)\nrandom.seed(0)")
    done = apply(RULE, text)
    if not batch:
        assert not done.fixes
        return
    copied = batch.format("x.to(device, non_blocking=True)")
    copy = "x, y = x.to(device, non_blocking=True), y.to(device)"
    apart = f"{copy}\n        x = {batch.format('x')}\n"
    assert f"x, y = {copied}, y.to(device)" in done.lines or apart in done.text
    ours = [f"x = {batch.format('x')}"]
    assert [line for line in done.lines if "device" not in line] in (lines, [], lines + ours, ours)
    assert all(line in done.text for line in lines)
    same_runs(text, done.text)  # on the CPU, with the same memory layout


def test_items_in_dicts_and_parts_of_batches_in_variables() -> None:
    text = script().replace("return x, i % 3", 'return {"image": x, "label": i % 3}')
    text = text.replace("for i, (x, y) in", "for i, batch in")
    text = text.replace(
        "        n = x.size",
        '        x, label = batch["image"], batch["label"]\n        n = x.size',
    )
    assert "uses `batch['image']` in host memory" in apply(RULE, text).refusals  # two at once
    text = text.replace('x, label = batch["image"], batch["label"]', 'x = batch["image"]')
    text = text.replace("y.to(device)", 'batch["label"].to(device)')
    text = text.replace("images, labels = batch", 'images = batch["image"]')
    done = apply(RULE, text)
    assert done.lines == [
        "x = torch.from_numpy(image).permute(2, 0, 1)",
        'x, y = x.to(device, non_blocking=True).float() / 255, batch["label"].to(device)',
        "losses.append(model(images.to(device).float() / 255).sum().item() * len(images))",
    ]
    same_runs(text, done.text)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        # who else sees the batches
        ("        n = x.size(0)\n", "        n = x.size(0)\n        first = x.mean()\n", "uses `x` in host memory"),
        ("        n = x.size(0)\n", "        n = x.size(0)\n        x = x + 1\n", "uses `x` in host memory"),
        ("        n = x.size(0)\n", "        n = x.size(0)\n        kept = x\n        print(kept)\n", "uses `kept` in host memory"),
        ("        n = x.size(0)\n", "        n = x.size(0)\n        if i > 3:\n            x = y\n", "`x` may be something else on line"),
        ("model(images.to(device))", "model(images)", "uses `images` in host memory"),
        ("x.to(device, non_blocking=True)", "x.to(device, torch.float64)", "given more than a device"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nshown = next(iter(loader))\n", "hands on `loader`"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nshown = [x for x, y in loader]\n", "takes something out of `loader`"),
        ("for batch in tests:", "for batch in zip(tests):", "hands on `tests`"),
        ("        n = x.size(0)\n", "        n = x.size(0)\n        show = lambda: x.mean()\n", "may be something else"),
        ("        n = x.size(0)\n", "        n = x.size(0)\n        exec('x.mean()')\n", "text or locals()"),
        # who else sees the items
        ("losses, seen = [], []\n", "losses, seen = [], []\nshown = data[0]\n", "takes something out of `data`"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nshown = train[0]\n", "takes something out of `train`"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nshown = [x for x, _ in data]\n", "takes something out of `data`"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nshown = loader.dataset[0]\n", "takes something out of `loader.dataset`"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nimport library\nlibrary.look(data)\n", "hands on `data`"),
        ("    def __len__", "    def first(self):\n        return self[0]\n\n    def __len__", "takes something out of `self`"),
        ("    def __len__", "    def first(self):\n        return self.__getitem__(0)\n\n    def __len__", "makes items as well"),
        ("tests = DataLoader(test, batch_size=4)", "tests = DataLoader(test, batch_size=4, collate_fn=lambda b: b[0])", "collate_fn"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nfirst = Photos.__getitem__(data, 0)\n", "makes items as well"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nsets = {'a': data}\nshown = sets['a'][0]\n", "takes something out of"),
        ("losses, seen = [], []\n", "losses, seen = [], []\nitems = list(map(data.__getitem__, range(2)))\n", "uses `data.__getitem__`"),
        # what is not certain to be bytes
        ('.convert("RGB")', "", "it is not certain that"),
        ('.convert("RGB")', '.convert("F")', "it is not certain that"),
        ("BODY", "image = image + np.random.rand(6, 5, 3)\n        BODY", "it is not certain that"),
    ],
)  # fmt: skip
def test_left_alone(old: str, new: str, why: str) -> None:
    text = SCRIPT.replace(old, new)
    assert text != SCRIPT
    done = apply(RULE, text.replace("BODY", PLAIN))
    assert not done.fixes and why in done.refusals


@pytest.mark.parametrize(
    ("body", "wraps"),
    [
        ("x = torch.from_numpy(image - 128).permute(2, 0, 1).float() / 128", True),
        ("x = torch.from_numpy(image.astype(np.float32) - 128).permute(2, 0, 1) / 128", False),
        ("x = torch.from_numpy(image - 127.5).permute(2, 0, 1).float() / 128", False),
        ("x = (torch.from_numpy(image) + 9).permute(2, 0, 1).float() / 255", True),
        ("x = (torch.from_numpy(image) / 255 + 9).permute(2, 0, 1).float()", False),
        ("image = image * 2\nx = torch.from_numpy(image).permute(2, 0, 1).float() / 255", True),
    ],
)
def test_arithmetic_in_bytes_wraps_around(body: str, wraps: bool) -> None:
    done = apply(RULE, script(body))
    assert bool(done.fixes) is not wraps, done.refusals
    assert ("computes in bytes" in done.refusals) is wraps
    if done.fixes:
        same_runs(script(body), done.text)


@pytest.mark.parametrize(
    "body",
    [
        "x = torch.from_numpy(image).permute(2, 0, 1).float() / 255\nx[0] = 0.5\n",
        "x = torch.from_numpy(image).permute(2, 0, 1).float() / 255\nself.last = x\n",
        "x = torch.from_numpy(image).permute(2, 0, 1).double() / 255\n",
        "x = torch.from_numpy(image / 255.0).permute(2, 0, 1)\n",
        "mean = float(image.mean())\nx = torch.from_numpy(image).permute(2, 0, 1).float() / mean\n",
    ],
)
def test_nothing_to_do(body: str) -> None:
    assert not apply(RULE, script(body)).fixes


def test_loaders_of_other_items_in_one_loop() -> None:
    text = script() + textwrap.dedent("""
        from torch.utils.data import TensorDataset

        def go(source):
            for x, y in source:
                seen.append(x.to(device))

        go(loader)
        go(DataLoader(TensorDataset(torch.randn(4, 3, 6, 5), torch.zeros(4)), batch_size=4))
    """)
    assert "goes through other loaders as well" in apply(RULE, text).refusals


def test_another_script_uses_the_dataset() -> None:
    text = script().replace("class Photos", "class Unused:\n    pass\n\n\nclass Photos")
    other = "from train import Photos\n\nprint(Photos([])[0])\n"
    assert "show.py:3 uses Photos, too" in apply(RULE, text, files={"show.py": other}).refusals


def test_nothing_on_a_cpu() -> None:
    assert not apply(RULE, script(), target="cpu").findings


def test_the_bytes_are_what_is_copied() -> None:
    """What the loader gives has a quarter of the bytes."""
    text = script() + "\nsizes = [next(iter(x))[0].nbytes for x in (loader, tests)]\n"
    done = apply(RULE, script()).text + text[text.index("\nsizes") :]
    before, after = run(text)["sizes"], run(done)["sizes"]
    assert [4 * n for n in after] == before


def test_verify_takes_the_floats_for_the_data(tmp_path: Path) -> None:
    """What loaders give differs; what the model is given of it does not."""
    done = apply(RULE, script())
    records = []
    for name, text in (("before", script()), ("after", done.text)):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "train.py"
        path.write_text(text)
        records.append(probe(tmp_path / name, str(path), detail=FULL).record)
    before, after = ([p for p in record.passes if p.training] for record in records)
    assert [p.bytes for p in before] == [False, False] and [p.bytes for p in after] == [True, True]
    for p, q in zip(before, after, strict=True):
        assert q.checksums == pytest.approx(p.checksums, rel=1e-12)
        assert (p.leaves, p.items, p.sketches) == (q.leaves, q.items, q.sketches)
    assert len(before[0].items) == 2 and records[0].losses == records[1].losses


CHANNELS = {
    "MEAN": "MEAN, STD = np.array([0.4, 0.5, 0.6], dtype=np.float32), np.array([0.2, 0.3, 0.25], dtype=np.float32)\n",
    "FIRST": "FIRST = torch.tensor([0.4, 0.5, 0.6]).view(3, 1, 1)\nWIDE = torch.tensor([0.2, 0.3, 0.25]).view(-1, 1, 1)\n",
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("image = (np.asarray(image, dtype=np.float32) / 255 - MEAN) / STD\nx = torch.from_numpy(image.transpose(2, 0, 1).copy())",
         ["mean = torch.tensor(MEAN, device=device).view(3, 1, 1)", "x = (x.float() / 255 - mean) / std"]),
        ("image = (image.astype(np.float32) / 255 - MEAN) / STD\nx = torch.from_numpy(np.transpose(image, (2, 0, 1)))",
         ["x = (x.float() / 255 - mean) / std"]),
        ("x = torch.from_numpy(image).permute(2, 0, 1).float() / 255\nx = (x - FIRST) / WIDE",
         ["mean = torch.tensor([0.4, 0.5, 0.6], device=device).view(3, 1, 1)"]),
        # channels that are not where the numbers are meant for when a batch is made of them
        ("x = torch.from_numpy((image.astype(np.float32) / 255 - MEAN) / STD)[:, :3].contiguous().permute(1, 2, 0)", []),
        ("image = (image.astype(np.float32) / 255 - MEAN) / STD\nx = torch.from_numpy(image.transpose(1, 0, 2).transpose(2, 1, 0).copy())", []),
        ("x = torch.from_numpy(image).permute(2, 0, 1).float() / 255\nx = ((x - FIRST) / WIDE).flip(0)", []),
        # one of the two alone
        ("x = torch.from_numpy(image).permute(2, 0, 1).float() / 255\nx = x - FIRST", []),
    ],
)  # fmt: skip
def test_numbers_of_channels(body: str, lines: list[str]) -> None:
    made = "".join(code for name, code in CHANNELS.items() if name in body)
    made = made.replace("MEAN, STD = ", "MEAN = ").replace(
        ", np.array([0.2", "\nSTD = np.array([0.2"
    )
    text = script(body).replace("\n\nclass Photos", f"\n{made}\n\nclass Photos", 1)
    done = apply(RULE, text)
    assert bool(done.fixes) is bool(lines)
    assert set(lines) <= set(done.lines)
    if lines:
        same_runs(text, done.text)
