"""What is made of samples in the data set of the one script and after loading in the other: the
training sees what the models are given, and what losses are given beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.verify.result import Sameness
from tests.faults import Case
from tests.test_verify_faults import Bench

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
own = torch.Generator().manual_seed(7)
X = torch.rand(400, 1, 8, 8, generator=own)
Y = torch.stack([X.mean((1, 2, 3)) * 10, X[:, 0, 2, 3]], 1)
MEAN, STD = X.mean(), X.std()


def changed(x):
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    return x * (0.8 + 0.4 * torch.rand(()))


class Pictures(Dataset):
    def __len__(self):
        return len(Y)

    def __getitem__(self, i):
        x = X[i]
        return (x - MEAN) / STD, Y[i]


loader = DataLoader(Pictures(), batch_size=20, shuffle=True)
net = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
for epoch in range(5):
    for x, y in loader:
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
AT_RANDOM = ("        x = X[i]\n", "        x = changed(X[i])\n")
BARE = ("(x - MEAN) / STD, Y[i]", "x, Y[i]")
IN_LOOP = "        loss = F"
NORMED = (IN_LOOP, "        x = (x - MEAN) / STD\n        loss = F")
OF_THE_BATCH = """        n = len(x)
        x = torch.where(torch.rand(n, 1, 1, 1) < 0.5, x.flip(-1), x)
        x = (x * (0.8 + 0.4 * torch.rand(n, 1, 1, 1)) - MEAN) / STD
        loss = F"""
WITH_TARGET = ("        x = X[i]\n        return (x - MEAN) / STD, Y[i]\n", """        x, y = X[i], Y[i]
        if torch.rand(()) < 0.5:
            x, y = x.flip(-1), y.flip(0)
        return (x - MEAN) / STD, y
""")  # fmt: skip
TURNED = """        turn = torch.rand(len(x), 1) < 0.5
        y = torch.where(turn, y.flip(1), y)
        x = (torch.where(turn[..., None, None], x.flip(-1), x) - MEAN) / STD
        loss = F"""
OTHER_TURN = TURNED.replace("(turn,", "(torch.rand(len(x), 1) < 0.5,")


@pytest.mark.parametrize(
    ("before", "edits", "sound"),
    [
        ([], [BARE, NORMED], True),
        ([BARE, NORMED], [], True),
        ([], [BARE, (IN_LOOP, NORMED[1].replace("STD", "STD.square()"))], False),
        ([AT_RANDOM], [BARE, (IN_LOOP, OF_THE_BATCH)], True),
        ([AT_RANDOM], [BARE, (IN_LOOP, OF_THE_BATCH.replace("0.8 + 0.4", "0.9 + 0.2"))], False),
        ([AT_RANDOM], [BARE, (IN_LOOP, OF_THE_BATCH.replace("rand(n, 1, 1, 1)) -", "rand(1)) -"))], False),
        ([AT_RANDOM], [BARE, NORMED], False),
        ([WITH_TARGET], [BARE, (IN_LOOP, TURNED)], True),
        ([WITH_TARGET], [BARE, (IN_LOOP, OTHER_TURN)], False),
    ],
    ids=["after loading", "before loading", "otherwise", "at random", "less so", "one for all", "never", "with its target", "without it"],
)  # fmt: skip
def test_what_is_made_of_samples_before_and_after_loading(
    tmp_path: Path, before: list[tuple[str, str]], edits: list[tuple[str, str]], sound: bool
) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    text = _edited(SCRIPT, before)
    (folder / "train.py").write_text(text)
    after = [(text, _edited(SCRIPT, edits))]
    bench = Bench(tmp_path, folder)
    found = bench.judge(Case("", "train", "unknown", tuple(after), folder=folder), seeds=4)
    bench.close()
    wrong = [check.name for check in found.checks if check.passed is False]
    assert bool(wrong) is not sound and (found.verdict is Sameness.DIFFERENT) is not sound, found


LOADER = "loader = DataLoader(Pictures(), batch_size=20, shuffle=True)\n"
THREAD = """import queue, threading


def ahead(loader):
    batches, end = queue.Queue(4), object()

    def work():
        for batch in loader:
            batches.put(batch)
        batches.put(end)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while (batch := batches.get()) is not end:
        yield batch
    thread.join()


"""
ONE_AHEAD = """def ahead(loader):
    rest = iter(loader)
    coming = next(rest, None)
    while coming is not None:
        batch, coming = coming, next(rest, None)
        yield batch


"""


@pytest.mark.parametrize(
    ("ahead", "verdict"),
    [
        (THREAD, Sameness.IDENTICAL),
        (ONE_AHEAD, Sameness.IDENTICAL),
        (ONE_AHEAD.replace("yield batch", "yield coming or batch"), Sameness.DIFFERENT),
    ],
    ids=["by a thread", "one", "and not given"],
)
def test_batches_are_taken_ahead(tmp_path: Path, ahead: str, verdict: Sameness) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    edits = (("in loader:", "in ahead(loader):"), (LOADER, ahead + LOADER))
    bench = Bench(tmp_path, folder)
    found = bench.judge(Case("", "train", "unknown", edits, folder=folder), seeds=4)
    bench.close()
    assert found.verdict is verdict, found


EVALUATED = """
    with torch.no_grad():
        off = sum(F.mse_loss(net((x - MEAN) / STD), y, reduction="sum").item() for x, y in held)
    print(f"epoch {epoch} off {off / 100:.3f}")
"""
HELD = "held = DataLoader(torch.utils.data.TensorDataset(X[:100], Y[:100]), batch_size=16)\n"


@pytest.mark.parametrize(("rows", "right"), [(100, True), (96, False)])
def test_an_evaluation_from_memory(tmp_path: Path, rows: int, right: bool) -> None:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(_edited(SCRIPT, [(LOADER, HELD + LOADER)]) + EVALUATED)
    edit = (HELD, f"held = [(X[:{rows}], Y[:{rows}])]\n")
    bench = Bench(tmp_path, folder)
    found = bench.judge(Case("", "train", "unknown", (edit,), folder=folder), seeds=4)
    bench.close()
    name = next(check for check in found.checks if check.name == "samples for each step")
    assert (found.verdict is Sameness.EQUIVALENT) is right and bool(name.passed) is right, found


def _edited(text: str, edits: list[tuple[str, str]]) -> str:
    for old, new in edits:
        text = text.replace(old, new)
    return text
