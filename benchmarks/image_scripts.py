"""Image tutorials of many makes, run before and after rewrites by several sets of rules.

    python -m benchmarks.image_scripts [--only MNIST,norm] [--python PYTHON]

Fixtures have no torchvision, and so none of its data sets; here they are put together from parts
(set, transforms, split, network), with generated images. ``PYTHON`` needs torch and torchvision.
Up to ``exact`` a rewritten script must print what the original prints, up to ``rounding`` the same
but for the last digits; no GPU is needed, and nothing is seen that only one would show. About half
an hour on two cores.
"""

from __future__ import annotations

import argparse
import os
import pickle
import struct
import subprocess
import sys
import tempfile
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from rich.progress import track

SETS = {"MNIST": (28, 1), "FashionMNIST": (28, 1), "CIFAR10": (32, 3)}
NORMALIZE = {1: "(0.1307,), (0.3081,)", 3: "(0.5, 0.4, 0.3), (0.2, 0.3, 0.4)"}
TRANSFORMS = {
    "plain": "transforms.ToTensor()",
    "norm": "transforms.Compose([transforms.ToTensor(), transforms.Normalize({norm})])",
    "augmented": "transforms.Compose([transforms.RandomCrop({side}, padding=4), "
    "transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize({norm})])",
    "bytes": "transforms.PILToTensor()",
}
SPLITS = {
    "whole": "",
    "split": "train_set, _ = random_split(train_set, [len(train_set) - 40, 40])\n",
    "subset": "train_set = Subset(train_set, range(0, 100))\n",
}
NETWORKS = {
    "flat": "nn.Sequential(nn.Flatten(), nn.Linear({flat}, 64), nn.ReLU(), nn.Linear(64, 10))",
    "conv": "nn.Sequential(nn.Conv2d({channels}, 8, 3), nn.ReLU(), nn.MaxPool2d(2), "
    "nn.Flatten(), nn.Linear({pooled}, 10))",
}
SCRIPT = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Subset, random_split
from torchvision import datasets, transforms

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
transform = {transform}
test_transform = {test_transform}
train_set = datasets.{name}("data", train=True, transform=transform)
test_set = datasets.{name}("data", train=False, transform=test_transform)
{split}train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
test_loader = DataLoader(test_set, batch_size=48)
model = {network}.to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(3):
    model.train()
    total = 0.0
    for x, y in train_loader:
        x, y = x.to(device){scaled}, y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item()
    model.eval()
    correct = 0
    evaluated = 0.0
    with torch.no_grad():
        for x, y in test_loader:
            x, y = x.to(device){scaled}, y.to(device)
            out = model(x)
            evaluated += F.cross_entropy(out, y, reduction="sum").item()
            correct += (out.argmax(1) == y).sum().item()
    print(f"{{epoch}} {{total:.6f}} {{evaluated / len(test_loader.dataset):.6f}} {{correct}}")
"""
WITHOUT_GPU_DATA = ["--ignore", "gpu-data,gpu-augmentation"]
REWRITES = {
    "exact": ["--effect", "exact"],
    "rounding": ["--effect", "rounding"],
    "no gpu-data": ["--effect", "rounding", *WITHOUT_GPU_DATA],
    "everything": ["--effect", "rounding", "--exhaustive", *WITHOUT_GPU_DATA],
    "items": ["--effect", "rounding", "--ignore", "gpu-data,gpu-augmentation,batched-dataset"],
    "transfers": ["--effect", "rounding", "--select", "uint8-transfer,pin-memory,non-blocking"],
}
# The generated files of CIFAR have other digests.
HEAD = "import torchvision.datasets.cifar as _c; _c.check_integrity = lambda *a, **k: True\n"


def make_data(folder: Path) -> None:
    """Random images in the files of the three sets."""
    draw = np.random.RandomState(0).randint
    for name in ("MNIST", "FashionMNIST"):
        raw = folder / name / "raw"
        raw.mkdir(parents=True)
        for part, n in (("train", 192), ("t10k", 96)):
            images = (
                struct.pack(">BBBBIII", 0, 0, 8, 3, n, 28, 28)
                + draw(0, 256, n * 784).astype(np.uint8).tobytes()
            )
            labels = (
                struct.pack(">BBBBI", 0, 0, 8, 1, n) + draw(0, 10, n).astype(np.uint8).tobytes()
            )
            (raw / f"{part}-images-idx3-ubyte").write_bytes(images)
            (raw / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    batches = folder / "cifar-10-batches-py"
    batches.mkdir()
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        rows = draw(0, 256, (40, 3072)).astype(np.uint8)
        made = {"data": rows, "labels": draw(0, 10, 40).tolist()}
        (batches / name).write_bytes(pickle.dumps(made))
    (batches / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))


def script(name: str, transform: str, split: str, network: str) -> str:
    side, channels = SETS[name]
    sizes = {
        "flat": side * side * channels,
        "channels": channels,
        "pooled": 8 * ((side - 2) // 2) ** 2,
    }
    plain = transform if transform in ("plain", "bytes") else "norm"
    made = {"norm": NORMALIZE[channels], "side": side}
    return SCRIPT.format(
        name=name,
        transform=TRANSFORMS[transform].format(**made),
        test_transform=TRANSFORMS[plain].format(**made),
        split=SPLITS[split],
        network=NETWORKS[network].format(**sizes),
        scaled=".float() / 255" if transform == "bytes" else "",
    )


def rewritten(folder: Path, text: str, options: list[str]) -> str:
    (folder / "train.py").write_text(text)
    (folder / "fast.py").unlink(missing_ok=True)
    command = [sys.executable, "-m", "autofast", "rewrite", "train.py", "-o", "fast.py", "-q"]
    done = subprocess.run([*command, *options], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    made = folder / "fast.py"
    return made.read_text() if made.exists() else text


def far(one: str, other: str) -> float:
    """The largest distance of two numbers at one place, as a share; infinite for other texts."""
    a, b = one.split(), other.split()
    if len(a) != len(b) or not a:
        return float("inf")
    pairs = [(float(x), float(y)) for x, y in zip(a, b, strict=True)]
    return max(abs(x - y) / max(1e-9, abs(x)) for x, y in pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="words that the name of a script must have")
    parser.add_argument("--python", default=sys.executable)
    args = parser.parse_args()
    words = set(filter(None, args.only.split(",")))
    every = [c for c in product(SETS, TRANSFORMS, SPLITS, NETWORKS) if words <= set(c)]
    rewrites, wrong = 0, list[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder / "data")

        @cache
        def run(text: str) -> str:
            (folder / "run.py").write_text(HEAD + text)
            done = subprocess.run(
                [args.python, "run.py"],
                cwd=folder,
                capture_output=True,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            return done.stdout if done.returncode == 0 else done.stderr.strip()[-300:]

        for case in track(every, "scripts"):
            text = script(*case)
            for label, options in REWRITES.items():
                new = rewritten(folder, text, options)
                if new == text:
                    continue
                before, after = run(text), run(new)
                try:
                    distance = 0.0 if before == after else far(before, after)
                except ValueError:  # an error
                    distance = float("inf")
                rewrites += 1
                if distance > (0.0 if label == "exact" else 1e-5):
                    wrong.append(f"{' '.join(case)}, {label}:\n{before}\n{after}")
    print(f"{len(every)} scripts, {rewrites} rewrites, {len(wrong)} of them train otherwise")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
