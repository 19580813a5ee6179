"""cache-constant: files that items read in every epoch are read once, where that is asked for."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

HEAD = """
import glob
import os
import tempfile
from pathlib import Path
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
np.random.seed(0)
rng = np.random.RandomState(0)
FOLDER = tempfile.mkdtemp()
for k in range(12):
    np.savez_compressed(os.path.join(FOLDER, "%02d.npz" % k), image=rng.rand(2, 4, 4), label=np.asfortranarray(rng.rand(2, 4)))
    np.savetxt(os.path.join(FOLDER, "%02d.txt" % k), rng.rand(2, 5))
    Image.fromarray(rng.randint(0, 255, (4, 4, 3)).astype(np.uint8)).save(os.path.join(FOLDER, "%02d.png" % k))
"""
TRAIN = """
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x.float()), y)
        loss.backward()
        optimizer.step()
        losses.append((loss.item(), str(x.dtype)))
"""
SLICES = """
class Slices(Dataset):
    def __init__(self, folder):
        self.files = sorted(glob.glob(os.path.join(folder, "*.npz")))
        self.index = [(k, z) for k in range(len(self.files)) for z in range(2)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        k, z = self.index[i]
        f = np.load(self.files[k])
        image = f["image"].astype(np.float32)[z]
        label = f["label"]
        label[z] *= 2
        return torch.from_numpy(image.mean(0) + label[z]), k % 3

data = Slices(FOLDER)
"""
TEXTS = """
class Points(Dataset):
    def __init__(self, folder):
        self.paths = [("one", os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith("txt")]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        kind, path = self.paths[index]
        points = np.loadtxt(path).astype(np.float32)
        row = points[np.random.randint(2)]
        return row[:4], int(row[4] * 3)

data = Points(FOLDER)
"""
PICTURES = """
class Pictures(Dataset):
    def __init__(self, folder):
        self.folder = Path(folder)
        self.names = [p.name for p in sorted(self.folder.glob("*.png"))]

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        image = Image.open(self.folder / self.names[index]).convert("L")
        image.putpixel((0, 0), 3 * index + image.getpixel((0, 0)) % 7)
        return np.asarray(image).mean(0) / 255, index % 3

data = Pictures(FOLDER)
"""
NAMED = """
class Rows(Dataset):
    def __init__(self, folder, ids):
        self.folder = folder
        self.ids = ids

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        name = "%02d.npz" % self.ids[i]
        image = np.load(os.path.join(self.folder, name))["image"]
        label = np.load(os.path.join(self.folder, name))["label"]
        return torch.from_numpy(image[0].mean(0) + label[1]), i % 3

data = Rows(FOLDER, list(range(12)))
"""
DRAWN = """
class Drawn(Dataset):
    def __init__(self, folder):
        self.files = sorted(glob.glob(os.path.join(folder, "*.txt")))

    def __len__(self):
        return 12

    def __getitem__(self, i):
        rows = np.loadtxt(self.files[np.random.randint(len(self.files))])
        return torch.from_numpy(rows[0, :4] + 1), i % 3

data = Drawn(FOLDER)
"""


def changed(text: str, train: str = TRAIN, asked: bool = True) -> Applied:
    return apply("cache-constant", HEAD + text + train, asked=asked)


def fitted(text: str, train: str = TRAIN) -> list[str]:
    """The new lines, where the losses stay the same."""
    found = changed(text, train)
    assert run(HEAD + text + train)["losses"] == run(found.text)["losses"]
    return found.lines


def test_arrays_that_are_unpacked() -> None:
    assert fitted(SLICES) == [
        "self.arrays = [dict(np.load(file)) for file in self.files]",
        "f = self.arrays[k]",
        'label = f["label"].copy("K")',
    ]


def test_numbers_in_texts() -> None:
    assert fitted(TEXTS) == [
        "self.points = [np.loadtxt(path).astype(np.float32) for kind, path in self.paths]",
        "points = self.points[index]",
    ]


def test_pictures_that_are_drawn_on() -> None:
    assert fitted(PICTURES) == [
        'self.images = [Image.open(self.folder / name).convert("L") for name in self.names]',
        "image = self.images[index].copy()",
    ]


def test_names_that_are_computed() -> None:
    path = 'os.path.join(self.folder, "%02d.npz" % one_id)'
    assert fitted(NAMED) == [
        f'self.images = [np.load({path})["image"] for one_id in self.ids]',
        f'self.labels = [np.load({path})["label"] for one_id in self.ids]',
        "image = self.images[i]",
        "label = self.labels[i]",
    ]


def test_files_that_are_drawn() -> None:
    assert fitted(DRAWN) == [
        "self.rows = [np.loadtxt(file) for file in self.files]",
        "rows = self.rows[np.random.randint(len(self.files))]",
    ]


@pytest.mark.parametrize("text", [SLICES, TEXTS, PICTURES])
def test_with_workers(text: str) -> None:
    train = TRAIN.replace("shuffle=True", "shuffle=True, num_workers=2")
    assert fitted(text, train)


@pytest.mark.parametrize("text", [SLICES, TEXTS, PICTURES, DRAWN])
def test_by_default_it_is_said_how_to_ask(text: str) -> None:
    found = changed(text, asked=False)
    assert not found.fixes and "--select cache-constant" in found.advice


OPENED = SLICES.replace(
    "f = np.load(self.files[k])", "f = np.load(self.files[k], allow_pickle=True)"
)
LATER = TRAIN.replace(
    "for epoch in range(3):\n",
    "for epoch in range(3):\n    np.savetxt(os.path.join(FOLDER, '00.txt'), rng.rand(2, 5))\n",
)


@pytest.mark.parametrize(
    ("text", "train"),
    [
        (TEXTS, LATER),
        (PICTURES, LATER.replace("np.savetxt(os.path.join(FOLDER, '00.txt'), rng.rand(2, 5))", "Image.new('RGB', (4, 4)).save(os.path.join(FOLDER, '00.png'))")),
        (TEXTS.replace("index):\n", "index):\n        self.paths[0] = self.paths[1]\n"), TRAIN),
        (TEXTS + "data.paths[0] = data.paths[1]\n", TRAIN),
        (TEXTS.replace("np.loadtxt(path)", "np.loadtxt(path, max_rows=1 + np.random.randint(2), ndmin=2)").replace("randint(2)]", "randint(1)]"), TRAIN),
        (PICTURES.replace('.convert("L")', "").replace("image.put", "image = image.convert('L')\n        image.put"), TRAIN),
        (SLICES.replace('f["image"].astype(np.float32)', "f[f.files[0]].astype(np.float32)"), TRAIN),
        (SLICES.replace('        f = np.load(self.files[k])\n        image = f["image"]', '        with np.load(self.files[k]) as f:\n            image, label = f["image"], f["label"]\n        image = image').replace('        label = f["label"]\n', ''), TRAIN),
        (OPENED, TRAIN),
        (TEXTS.replace("        points =", "        if index == 0:\n            return np.ones(4, dtype=np.float32), 0\n        points ="), TRAIN),
        (TEXTS, TRAIN.replace("for epoch in range(3):\n    for", "if True:\n    for")),
    ],
    ids=[
        "written later", "drawn later", "paths that an item changes", "paths that change", "a random part",
        "a picture that is not decoded", "an open file", "an open file of a block", "objects",
        "under a condition", "one epoch",
    ],
)  # fmt: skip
def test_left_alone(text: str, train: str) -> None:
    run(HEAD + text + train)
    assert not changed(text, train).fixes


def test_what_cannot_be_written_is_said() -> None:
    assert "in the constructor" in changed(TEXTS, LATER).advice
