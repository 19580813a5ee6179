"""batched-dataset on windows that are cut out of a long row one by one: the same numbers, types and
strides, and what is left alone.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.onerule import Applied, apply

torch = pytest.importorskip("torch")
RULE = "batched-dataset"
TEXT = """
import numpy as np
import torch
from torch import nn

text = "the quick brown fox jumps over the lazy dog " * 30
chars = sorted(set(text))
stoi = {c: i for i, c in enumerate(chars)}
encode = lambda s: [stoi[c] for c in s]
block_size, batch_size = 8, 4
{setup}
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(len(chars), 16), nn.Linear(16, len(chars)))
optimizer = torch.optim.AdamW(model.parameters())

def get_batch(split):
{batch}
    return x, y

seen = []
for step in range(20):
    xb, yb = get_batch("train" if step % 5 else "val")
    seen += [xb, yb, torch.get_rng_state()]
    loss = nn.functional.cross_entropy(model(xb).flatten(0, 1), yb.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
TUPLE = """
data = torch.tensor(encode(text), dtype=torch.long)
n = int(0.9 * len(data))
train_data, val_data = data[:n], data[n:]
"""
SPLIT = """
data = torch.tensor(encode(text), dtype=torch.long)
n = int(0.9 * len(data))
train_data = data[:n]
val_data = data[n:]
"""
FILE = """
import os, tempfile
path = os.path.join(tempfile.mkdtemp(), "train.bin")
np.array(encode(text), dtype=np.uint16).tofile(path)
"""
MEMMAP = """
    if split == "train":
        data = np.memmap(path, dtype=np.uint16, mode="r")
    else:
        data = np.memmap(path, dtype=np.uint16, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i:i+block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i+1:i+1+block_size]).astype(np.int64)) for i in ix])
"""
CHOICE = """
    data = train_data if split == "train" else val_data
    ix = torch.randint({high}, (batch_size,))
    x = torch.stack([data[i:i+block_size] for i in ix])
    y = torch.stack([data[i+1:i+block_size+1] for i in ix])
"""


def applied(setup: str, batch: str) -> Applied:
    return apply(RULE, TEXT.replace("{setup}", setup).replace("{batch}", batch.strip("\n")))


def run(text: str) -> list[Any]:
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "train.py", "exec"), scope)
    seen: list[Any] = scope["seen"]
    return seen


def check(found: Applied) -> None:
    """Both texts see the same batches, bit by bit and in the same layout, and draw the same random
    numbers.
    """
    before, after = run(found.before), run(found.text)
    assert len(before) == len(after) > 0
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b) and a.dtype == b.dtype and a.stride() == b.stride()


@pytest.mark.parametrize(
    "high", ["len(data) - block_size", "data.size(0) - block_size - 1", "0, len(data) - block_size"]
)
def test_windows_of_a_tensor(high: str) -> None:
    found = applied(SPLIT, CHOICE.replace("{high}", high))
    assert [f.effect for f in found.fixes] == [None] * 2 and not found.refusals
    assert (
        "x = data.unfold(0, block_size, 1)[ix]" in found.lines
        and "y = data.unfold(0, block_size, 1)[ix + 1]" in found.lines
    )
    check(found)


def test_windows_of_rows_that_are_set_together() -> None:
    found = applied(TUPLE, CHOICE.replace("{high}", "len(data) - block_size"))
    assert len(found.fixes) == 2 and not found.refusals
    check(found)


def test_windows_of_a_file() -> None:
    found = applied(FILE, MEMMAP)
    view = "np.lib.stride_tricks.sliding_window_view(data, block_size)"
    written = "".join(found.lines)
    assert f"x = torch.from_numpy({view}[ix.numpy()].astype(np.int64))" in written
    assert f"{view}[ix.numpy() + 1].astype(np.int64" in written
    check(found)


def test_windows_of_an_array_with_starts_of_numpy() -> None:
    batch = """
    ix = np.random.RandomState(0).randint(3) if False else np.random.randint(0, len(data) - block_size - 1, size=batch_size)
    x = torch.from_numpy(np.stack([data[i:i+block_size] for i in ix]))
    y = torch.from_numpy(np.stack([data[i+1:i+1+block_size] for i in ix]))
"""
    setup = "data = np.array(encode(text))\nnp.random.seed(0)"
    assert "is not known" in applied(setup, batch).refusals
    found = applied(setup, batch.replace("np.random.RandomState(0).randint(3) if False else ", ""))
    assert (
        "x = torch.from_numpy(np.lib.stride_tricks.sliding_window_view(data, block_size)[ix])"
        in found.lines
    )
    check(found)


def test_a_row_that_is_passed_to_the_function() -> None:
    text = TEXT.replace("{setup}", SPLIT).replace(
        "def get_batch(split):", "def get_batch(split, rows):"
    )
    text = text.replace('"val")\n', '"val", train_data if step % 5 else val_data)\n')
    batch = (
        CHOICE.replace('data = train_data if split == "train" else val_data\n    ', "")
        .replace("data", "rows")
        .replace("{high}", "len(rows) - block_size")
    )
    found = apply(RULE, text.replace("{batch}", batch.strip("\n")))
    assert "x = rows.unfold(0, block_size, 1)[ix]" in found.lines
    check(found)


def inside(setup: str, batch: str, parameter: str = "") -> str:
    """The script with its training in a function, so that the row is a variable of the function
    around ``get_batch``.
    """
    head, body = TEXT.replace("{batch}", batch.strip("\n")).split("{setup}")
    body = "".join(f"    {line}\n" for line in (setup + body).splitlines())
    return f"{head}\ndef main({parameter}):\n{body}    return seen\n\nseen = main({parameter and 'None'})\n"


def test_a_row_of_the_function_around() -> None:
    batch = CHOICE.replace("{high}", "len(data) - block_size")
    found = apply(RULE, inside(SPLIT, batch))
    assert "x = data.unfold(0, block_size, 1)[ix]" in found.lines and not found.refusals
    check(found)


@pytest.mark.parametrize(
    ("setup", "parameter"),
    [
        (SPLIT + "if n < 0:\n    val_data = torch.randn(400, 3)", ""),
        (
            SPLIT + "def other():\n    nonlocal val_data\n    val_data = torch.ones(9, 2)\nother()",
            "",
        ),
        (SPLIT.replace("val_data = data[n:]", "val_data = val_data or data"), "val_data"),
    ],
)
def test_a_row_of_the_function_around_that_is_not_certain(setup: str, parameter: str) -> None:
    found = apply(
        RULE, inside(setup, CHOICE.replace("{high}", "len(data) - block_size"), parameter)
    )
    assert not found.fixes and "one dimension" in found.refusals


@pytest.mark.parametrize(
    ("setup", "old", "new", "why"),
    [
        (
            SPLIT,
            "{high}",
            "len(data) - block_size + 1",
            "lie inside",
        ),  # the last window of y would be cut off
        (SPLIT, "{high}", "len(train_data) - block_size", "lie inside"),
        (SPLIT, "{high}", "-3, len(data) - block_size", "negative"),
        (SPLIT, "(batch_size,)", "(batch_size, 1)", "no plain row"),
        (SPLIT, "    x =", "    block_size = 4\n    x =", "lie inside"),
        (
            SPLIT.replace("torch.tensor(encode(text), dtype=torch.long)", "torch.randn(400, 3)"),
            "",
            "",
            "one dimension",
        ),
        (
            SPLIT.replace("torch.tensor(encode(text), dtype=torch.long)", "torch.load('x.pt')"),
            "",
            "",
            "one dimension",
        ),
        (SPLIT + "train_data.unsqueeze_(1)", "", "", "one dimension"),
        (SPLIT + "torch.set_default_device('cpu')", "", "", "another device"),
        (SPLIT, "    x =", "    ix.fill_(-4)\n    x =", "may be changed"),
        (SPLIT, "    x =", "    same = ix.view(-1)\n    same -= 4\n    x =", "may be changed"),
        (SPLIT, "    x =", "    ix[0] = len(data) - 2\n    x =", "may be changed"),
    ],
)
def test_what_is_not_certain_is_left_alone(setup: str, old: str, new: str, why: str) -> None:
    batch = (CHOICE.replace(old, new) if old else CHOICE).replace(
        "{high}", "len(data) - block_size"
    )
    found = applied(setup, batch)
    assert found.text == found.before or len(found.fixes) == 1  # x alone may be certain
    assert why in found.refusals


def test_windows_that_depend_on_more_than_their_start_are_no_windows() -> None:
    for cut in ("data[i:block_size]", "data[i:2 * i]", "data[i:i+block_size:2]", "data[0:i]"):
        batch = CHOICE.replace("data[i:i+block_size]", cut).replace(
            "y = torch.stack([data[i+1:i+block_size+1] for i in ix])", "y = x"
        )
        found = applied(SPLIT, batch.replace("{high}", "len(data) - block_size"))
        assert found.text == found.before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('dtype=np.uint16, mode="r"', 'dtype="2u2", mode="r"'),
        ('dtype=np.uint16, mode="r"', 'dtype=(np.uint16, (2,)), mode="r"'),
        ("astype(np.int64)", "astype(np.int64, order='F')"),
        ('np.memmap(path, dtype=np.uint16, mode="r")', "np.array(encode(text), ndmin=2)"),
    ],
)
def test_arrays_that_are_no_rows_or_come_in_another_order(old: str, new: str) -> None:
    found = applied(FILE, MEMMAP.replace(old, new))
    assert found.text == found.before


def test_starts_that_are_drawn_once_and_change_with_each_batch() -> None:
    batch = CHOICE.replace("{high}", "len(data) - block_size").replace(
        "    x =", "    for _ in range(3):\n      x ="
    )
    found = applied(SPLIT, batch.replace("    y =", "      y =") + "      ix.sub_(1)\n")
    assert found.text == found.before and "may be changed" in found.refusals


def test_windows_outside_loops_are_left_alone() -> None:
    text = "import torch\ndata = torch.arange(100)\nix = torch.randint(len(data) - 4, (3,))\nx = torch.stack([data[i:i+4] for i in ix])\n"
    text += "model = torch.nn.Linear(4, 1)\nmodel(x.float()).sum().backward()\n"
    assert not apply(RULE, text).findings
