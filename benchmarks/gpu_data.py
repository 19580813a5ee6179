"""What `gpu-data` and `gpu-augmentation` save: passes over the data alone, before and after, with
the CPU as the device, in turns.

Needs torchvision. The images are noise in the shape of the real sets; nothing is downloaded. CPU
seconds of this process.

python benchmarks/gpu_data.py [PAIRS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy
import torch

import tests.torchvision_shim  # noqa: F401
from autofast.commands import planning
from autofast.config import Config

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision import datasets, transforms
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
{data}
loader = DataLoader(data, batch_size=128, shuffle=True)
model = nn.Linear(2, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(5):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
IMAGES = "data = datasets.{name}('d', transform=transforms.Compose([{drawn}transforms.ToTensor(), transforms.Normalize({mean}, {std})]))"
DRAWN = "transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), "
CASES = {
    "60,000 rows of 20 numbers": "data = TensorDataset(torch.randn(60000, 20), torch.zeros(60000).long())",
    "MNIST": IMAGES.format(name="MNIST", drawn="", mean=(0.13,), std=(0.31,)),
    "CIFAR-10, cropped and flipped": IMAGES.format(
        name="CIFAR10", drawn=DRAWN, mean=(0.49, 0.48, 0.45), std=(0.25, 0.24, 0.26)
    ),
}


def made(cls: Any, root: str, train: bool = True, transform: Any = None) -> Any:
    """An image set of torchvision's class with noise in it."""
    data = cls.__new__(cls)
    grey = cls.__name__ == "MNIST"
    shape = (60000, 28, 28) if grey else (50000, 32, 32, 3)
    noise = numpy.random.RandomState(0).randint(0, 256, shape, dtype=numpy.uint8)
    data.data = torch.from_numpy(noise) if grey else noise
    data.targets = torch.zeros(60000).long() if grey else [0] * 50000
    data.transform, data.target_transform, data.train, data.root = transform, None, train, root
    return data


def loader_of(text: str) -> Any:
    """The loader that a script makes, with data sets of noise; it is not trained."""
    head = text.split("model = ")[0].replace("datasets.", "noise.")
    from torchvision import datasets

    class noise:
        MNIST = staticmethod(lambda *a, **k: made(datasets.MNIST, *a, **k))
        CIFAR10 = staticmethod(lambda *a, **k: made(datasets.CIFAR10, *a, **k))

    scope: dict[str, Any] = {"noise": noise, "__name__": "script"}
    exec(compile(head, "script", "exec"), scope)
    return scope["loader"]


def rewritten(text: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "train.py")
        path.write_text(text, "utf-8")
        config = Config(select=("gpu-data", "gpu-augmentation"))
        script = planning.read(path, Path(folder), None, config)
        plan = planning.plan(script, config)
        return plan.texts()[script.entry]


def seconds(loader: Any) -> float:
    begin = time.process_time()
    for _ in loader:
        pass
    return time.process_time() - begin


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one CPU thread, batches of 128, medians of {pairs} passes")
    for name, data in CASES.items():
        text = SCRIPT.format(data=data)
        plain = loader_of(text)
        changed = rewritten(text)
        begin = time.process_time()
        kept = loader_of(changed)
        start = time.process_time() - begin
        times = sorted((seconds(plain), seconds(kept)) for _ in range(pairs))
        before, after = times[pairs // 2]
        print(
            f"{name}: {before:.2f} s, then {after:.3f} s ({before / after:.0f} times as fast); once {start:.1f} s"
        )


if __name__ == "__main__":
    main()
