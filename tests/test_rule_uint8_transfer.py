"""uint8-transfer: images cross to the device as bytes, and become the same floats there."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from autofast.rule import Effect
from autofast.verify.evidence.record import FULL
from tests.onerule import apply, run, same_runs
from tests.probing import run as probe
from tests.test_rule_gpu_data import torchvision

pytest.importorskip("PIL")
pytestmark = pytest.mark.usefixtures("torchvision")
__all__ = ["torchvision"]  # a fixture
PRETEND = Path(__file__).with_name("pretend") / "torchvision.py"
RULE = "uint8-transfer"
SCRIPT = """
import random

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset, random_split
from torchvision import transforms

torch.manual_seed(0)
pictures = [Image.fromarray(p) for p in np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), np.uint8)]


class Photos(Dataset):
    def __init__(self, pictures):
        self.pictures = pictures
        self.transform = transforms.ToTensor()

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        image = self.pictures[i].convert("RGB")
        x = self.transform(image)
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


def test_items_in_dicts_and_parts_of_batches_in_variables() -> None:
    text = SCRIPT.replace("return x, i % 3", 'return {"image": x, "label": i % 3}')
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
        "self.transform = transforms.PILToTensor()",
        "x = x.float() / 255",
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
    ],
)  # fmt: skip
def test_left_alone(old: str, new: str, why: str) -> None:
    text = SCRIPT.replace(old, new)
    assert text != SCRIPT
    done = apply(RULE, text)
    assert not done.fixes and why in done.refusals


def test_loaders_of_other_items_in_one_loop() -> None:
    text = SCRIPT + textwrap.dedent("""
        from torch.utils.data import TensorDataset

        def go(source):
            for x, y in source:
                seen.append(x.to(device))

        go(loader)
        go(DataLoader(TensorDataset(torch.randn(4, 3, 6, 5), torch.zeros(4)), batch_size=4))
    """)
    assert "goes through other loaders as well" in apply(RULE, text).refusals


def test_another_script_uses_the_dataset() -> None:
    text = SCRIPT.replace("class Photos", "class Unused:\n    pass\n\n\nclass Photos")
    other = "from train import Photos\n\nprint(Photos([])[0])\n"
    assert "show.py:3 uses Photos, too" in apply(RULE, text, files={"show.py": other}).refusals


def test_nothing_on_a_cpu() -> None:
    assert not apply(RULE, SCRIPT, target="cpu").findings


def test_verify_takes_the_floats_for_the_data(tmp_path: Path) -> None:
    """What loaders give differs; what the model is given of it does not."""
    done = apply(RULE, SCRIPT)
    records = []
    for name, text in (("before", SCRIPT), ("after", done.text)):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "train.py"
        path.write_text(f"exec(open({str(PRETEND)!r}).read())\n{text}")
        records.append(probe(tmp_path / name, str(path), detail=FULL).record)
    before, after = ([p for p in record.passes if p.training] for record in records)
    assert [p.made for p in before] == [False, False] and [p.made for p in after] == [True, True]
    for p, q in zip(before, after, strict=True):
        assert q.checksums == pytest.approx(p.checksums, rel=1e-12)
        assert (p.leaves, p.items, p.sketches) == (q.leaves, q.items, q.sketches)
    assert len(before[0].items) == 2 and records[0].losses == records[1].losses


TWO = """
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

torch.manual_seed(0)
pictures = [Image.fromarray(p) for p in np.random.default_rng(0).integers(0, 256, (12, 6, 5, 3), np.uint8)]


class Photos(Dataset):
    def __init__(self, pictures, transform):
        self.pictures, self.transform = pictures, transform

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, i):
        return self.transform(self.pictures[i].convert("RGB")), i % 3


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
normal = transforms.Compose([transforms.ToTensor(), transforms.Normalize((0.4, 0.5, 0.6), (0.1, 0.2, 0.3))])
loader = DataLoader(Photos(pictures[:8], normal), batch_size=4, shuffle=True)
tests = DataLoader(Photos(pictures[8:], normal), batch_size=4)
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(48, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []


def train():
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())


def test():
    with torch.no_grad():
        for x, y in tests:
            x = x.to(device)
            losses.append(model(x).sum().item())


for epoch in range(2):
    train()
    test()
"""
MADE = "device=device).view(3, 1, 1)"
DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'


@pytest.mark.parametrize(
    ("changes", "times"),
    [
        ([], 2),
        ([("def train():\n", "def train(device):\n"), ("    train()", "    train(device)")], 4),
        ([("losses = []", f"losses = []\n{DEVICE}")], 4),
        (
            [
                (
                    "def train():\n",
                    "def train():\n    global device\n    device = torch.device('cpu')\n",
                )
            ],
            4,
        ),
    ],
)
def test_constants_of_two_functions(changes: list[tuple[str, str]], times: int) -> None:
    """They are made once where the device is known by then, else in each function."""
    text = TWO
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    done = apply(RULE, text)
    assert done.text.count(MADE) == times
    assert (
        times == 4
        or f"{MADE}\nnormal = transforms.Compose([transforms.PILToTensor()])" in done.text
    )
    assert run(text)["losses"] == pytest.approx(run(done.text)["losses"], rel=1e-5)


REPLAY = """
import random
import numpy as np
import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
rng = np.random.default_rng(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
memory = [rng.integers(0, 256, (1, 6, 6)).astype({kind}) for _ in range(40)]
model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for step in range(5):
    states = random.sample(memory, 8)
    {made}
    loss = model(x.reshape(-1, 1, 6, 6)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


@pytest.mark.parametrize("kind", ["np.uint8", "np.int64", "np.float32", "np.float64"])
@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("x = torch.FloatTensor(np.array(states)).to(device) / 255.0", "torch.from_numpy(np.array(states)).to(device).float() / 255.0"),
        ("x = torch.tensor(np.stack(states), dtype=torch.float32).to(device).squeeze(1).div(255)", "torch.from_numpy(np.stack(states)).to(device).float().squeeze(1).div(255)"),
        ("x = torch.from_numpy(np.concatenate(states)).float().unsqueeze(1).to(device) / 255", "torch.from_numpy(np.concatenate(states)).unsqueeze(1).to(device).float() / 255"),
    ],
)  # fmt: skip
def test_arrays_that_are_divided_by_255(made: str, expected: str, kind: str) -> None:
    text = REPLAY.format(made=made, kind=kind)
    found = apply("uint8-transfer", text)
    assert found.lines == [f"x = {expected}"] and found.fixes[0].effect is Effect.EXACT
    assert run(text)["losses"] == run(found.text)["losses"]


@pytest.mark.parametrize(
    "made",
    [
        "x = torch.FloatTensor(np.array(states)).to(device)",
        "x = torch.FloatTensor(np.array(states)).to(device) / 2.0",
        "x = torch.FloatTensor(np.array(states, dtype=np.float16)).to(device) / 255",
        "x = torch.DoubleTensor(np.array(states)).to(device).float() / 255",
        "x = torch.tensor(np.array(states), dtype=torch.float64).to(device).float() / 255",
        "x = torch.FloatTensor(memory[0].copy()).to(device) / 255",
        "x = torch.FloatTensor(np.array(states)).to(device, torch.float64).float() / 255",
        "x = 255 / (1 + torch.FloatTensor(np.array(states)).to(device))",
    ],
)
def test_other_arrays_stay(made: str) -> None:
    text = REPLAY.format(made=made, kind="np.uint8")
    assert not apply("uint8-transfer", text).fixes
    run(text)
