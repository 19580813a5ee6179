"""cache-constant: what ``__getitem__`` makes of the same item again in every epoch is made once."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

HEAD = """
import datetime
import os
import re
import tempfile
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
rng = np.random.RandomState(0)
FOLDER = tempfile.mkdtemp()
np.savez(os.path.join(FOLDER, "all.npz"), images=rng.rand(16, 4).astype(np.float32), labels=np.arange(16) % 3)
np.save(os.path.join(FOLDER, "all.npy"), rng.rand(16, 4).astype(np.float32))
"""
TRAIN = """
loader = DataLoader(data, batch_size=4, shuffle=True)
model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append((loss.item(), str(x.dtype)))
"""
ARCHIVE = """
class Images(Dataset):
    def __init__(self, path):
        self.npz = np.load(path)
        self.labels = self.npz["labels"]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = self.npz["images"][index]
        return torch.from_numpy(image.copy()), int(self.labels[index])

data = Images(os.path.join(FOLDER, "all.npz"))
"""
FILE = """
class Rows(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 16

    def __getitem__(self, index):
        rows = np.load(self.path)
        return torch.from_numpy(rows[index] + np.float32(1)), index % 3

data = Rows(os.path.join(FOLDER, "all.npy"))
"""
LOGS = """
class Clicks(Dataset):
    def __init__(self, dense, labels):
        self.dense = dense
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        x = torch.tensor(np.log1p(self.dense[index]), dtype=torch.float32)
        return x, int(self.labels[index])

dense = rng.gamma(2.0, 1.0, (16, 4))
data = Clicks(dense, rng.randint(0, 3, 16))
"""


def changed(text: str) -> Applied:
    return apply("cache-constant", HEAD + text + TRAIN)


def fitted(text: str) -> list[str]:
    """The new lines, where the losses stay the same."""
    found = changed(text)
    assert run(HEAD + text + TRAIN)["losses"] == run(found.text)["losses"]
    return found.lines


def test_an_array_of_an_open_file_is_unpacked_once() -> None:
    assert fitted(ARCHIVE) == [
        "npz = np.load(path)",
        'self.labels = npz["labels"]',
        'self.images = npz["images"]',
        "image = self.images[index]",
    ]


def test_a_file_that_others_need_stays_open() -> None:
    text = ARCHIVE.replace("return len(self.labels)", "return len(self.npz['labels'])")
    assert fitted(text) == ['self.images = self.npz["images"]', "image = self.images[index]"]


def test_a_file_is_read_once() -> None:
    assert fitted(FILE) == ["self.rows = np.load(self.path)", "rows = self.rows"]


def test_a_member_of_a_file_is_read_once() -> None:
    text = FILE.replace("np.load(self.path)", 'np.load(self.path)["images"]').replace("npy", "npz")
    assert fitted(text) == ['self.rows = np.load(self.path)["images"]', "rows = self.rows"]


def test_a_function_of_each_number_is_computed_of_the_whole_array() -> None:
    assert fitted(LOGS) == [
        "self.dense = np.log1p(dense)",
        "x = torch.tensor(self.dense[index], dtype=torch.float32)",
    ]


@pytest.mark.parametrize("dtype", ["np.float32", "np.float64", "np.int64"])
def test_rows_under_a_name(dtype: str) -> None:
    text = LOGS.replace(
        "        x = torch.tensor(np.log1p(self.dense[index]), dtype=torch.float32)\n",
        "        row = self.dense[index]\n"
        "        row = np.where(row < 1, 0.0, np.log1p(np.maximum(row, 0)) ** 2).astype(np.float32)\n"
        "        x = torch.tensor(row)\n",
    ).replace("rng.gamma(2.0, 1.0, (16, 4))", f"rng.gamma(2.0, 1.0, (16, 4)).astype({dtype})")
    assert fitted(text) == [
        "self.dense = np.where(dense < 1, 0.0, np.log1p(np.maximum(dense, 0)) ** 2).astype(np.float32)",
    ]


IN_PLACE = ARCHIVE.replace("        return torch", "        image *= 2\n        return torch")
UNPACKED = FILE.replace("rows[index]", 'rows["images"][index]').replace("npy", "npz")


@pytest.mark.parametrize(
    "text",
    [
        IN_PLACE,
        ARCHIVE.replace("image.copy()", "image")
        + "first = data[0][0]\nfirst += 1\n",
        ARCHIVE.replace("np.load(path)", 'np.load(path, mmap_mode="r")'),
        ARCHIVE + "data.npz = np.load(os.path.join(FOLDER, 'all.npz'))\n",
        ARCHIVE.replace('        image = self.npz["images"][index]', '        image = np.zeros(4, dtype=np.float32)\n        if index:\n            image = self.npz["images"][index]'),
        FILE + "np.save(os.path.join(FOLDER, 'all.npy'), np.ones((16, 4), dtype=np.float32))\n",
        FILE.replace("        rows = np.load(self.path)", "        self.path = self.path + ''\n        rows = np.load(self.path)"),
        UNPACKED,
        LOGS.replace("self.dense = dense", "self.dense = self.raw = dense"),
        LOGS.replace("dense, labels):\n        self.dense", "dense, labels, np=None):\n        self.dense"),
        LOGS + "dense += 1\n",
        LOGS + "data.dense = data.dense * 2\n",
        LOGS + "means = data.dense.mean()\n",
        LOGS.replace("(16, 4))", "16)").replace("np.log1p(self.dense[index]), dtype=torch.float32", "[np.log1p(self.dense[index]) * 2] * 4).float("),
        LOGS.replace("rng.gamma(2.0, 1.0, (16, 4))", "list(rng.gamma(2.0, 1.0, (16, 4)))"),
        LOGS.replace("        x =", "        self.dense[index] += 1\n        x ="),
        LOGS.replace("        self.dense = dense\n", "        self.dense = dense\n        self.top = self.dense.max()\n"),
        LOGS + "\nclass Others(Clicks):\n    def __init__(self, dense, labels):\n        super().__init__(dense, labels)\n        self.dense = dense * 2\n\ndata = Others(dense, data.labels)\n",
    ],
    ids=[
        "written to in place", "an item written to", "mapped", "another file", "under a condition",
        "a file that is written later", "a path that changes", "an open file for all",
        "two attributes", "a name of the constructor's own", "an array written to", "an attribute set from outside", "read elsewhere", "numbers, untyped",
        "a list", "written to by the item", "read by the constructor", "a class of it",
    ],
)  # fmt: skip
def test_left_alone(text: str) -> None:
    run(HEAD + text + TRAIN)
    assert not changed(text).fixes


def test_left_alone_where_items_come_once() -> None:
    once = TRAIN.replace("for epoch in range(2):\n    for", "if True:\n    for")
    assert not apply("cache-constant", HEAD + LOGS + once).fixes
