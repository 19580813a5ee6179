"""cuda-prefetch: the same batches in the same order, each waited for before the step that reads
it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from autofast.techniques.transfers.prefetched import COPIED, HELPER, RECORDED
from tests.onerule import apply, run

RULE = "cuda-prefetch"
SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor([i / 10.0]), torch.tensor([i * i / 100.0])


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.2), nn.Linear(8, 1)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(Squares(), batch_size=4, shuffle=True, num_workers=1, pin_memory=torch.cuda.is_available())
losses = []
for epoch in range(2):
    for x, y in loader:
        x = x.to(device, non_blocking=True)
        y = y.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
COPIES = """        x = x.to(device, non_blocking=True)
        y = y.to(device, non_blocking=True)
"""


@pytest.mark.parametrize(
    ("old", "new", "loop"),
    [
        ("", "", "for x, y in prefetched(loader, device):"),
        ("x, y in loader", "i, (x, y) in enumerate(loader)",
         "for i, (x, y) in enumerate(prefetched(loader, device)):"),
        (COPIES, "        optimizer.zero_grad()\n        x, y = x.to(device), y.to(device)\n",
         "for x, y in prefetched(loader, device):"),
        ("y = y.to(device, non_blocking=True)\n", "y = y.to(device)\n        if len(losses) > 1:\n            break\n",
         "for x, y in prefetched(loader, device):"),
    ],
)  # fmt: skip
def test_the_loop(old: str, new: str, loop: str) -> None:
    text = SCRIPT.replace(old, new) if old else SCRIPT
    found = apply(RULE, text, asked=True)
    assert len(found.fixes) == 1 and loop in found.lines and "x.to(device, non" in found.text
    assert found.text.count(".to(device") == 2  # the model, and in the generator
    before, after = run(text)["losses"], run(found.text)["losses"]
    assert before and before == after


def test_a_batch_that_is_one_tensor() -> None:
    text = SCRIPT.replace("x, y in loader", "x in loader").replace(
        "return torch.tensor([i / 10.0]), torch.tensor([i * i / 100.0])", "return torch.tensor([i / 10.0])"
    )  # fmt: skip
    text = text.replace("        y = y.to(device, non_blocking=True)\n", "").replace(
        "(x), y)", "(x), x)"
    )
    found = apply(RULE, text, asked=True)
    assert "batch = batch.to(device, non_blocking=True)" in found.lines
    assert run(found.text)["losses"] == run(text)["losses"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("num_workers=1, ", "", "made in the main process"),
        ("pin_memory=torch.cuda.is_available()", "", "not pinned"),
        ("        y = y.to(device, non_blocking=True)\n", "        y = y.to(device).abs()\n", "`y` of the batch"),
        ("        x = x.to", "        x.add_(1)\n        x = x.to", "used before it is copied"),
        (".to(device, non_blocking=True)\n        y", ".to(device, torch.float32)\n        y", "does more than to copy"),
        ("= y.to(device", '= y.to("cuda"', "written differently"),
        ("shuffle=True", "sampler=Order()", "a sampler of its own"),
        ("        x = x.to(device", "        device = x.device\n        x = x.to(device", "before it is copied"),
        ("for x, y in loader:", "for (x, y), _ in zip(loader, DataLoader(Squares(), num_workers=1)):", "several loaders"),
        (COPIES, "        if torch.cuda.is_available():\n            x, y = x.cuda(), y.cuda()\n", "stays on the host"),
    ],
)  # fmt: skip
def test_left_alone(old: str, new: str, reason: str) -> None:
    assert old in SCRIPT
    own = "class Order(torch.utils.data.Sampler):\n    def __iter__(self):\n        return iter(range(10))\n\n    def __len__(self):\n        return 10\n\n\ndevice ="
    found = apply(RULE, SCRIPT.replace(old, new).replace("device =", own, 1), asked=True)
    assert not found.fixes and reason in found.refusals


def test_it_is_asked_for_or_not_there() -> None:
    assert not apply(RULE, SCRIPT.replace(COPIES, ""), asked=True).findings
    assert not apply(RULE, SCRIPT, asked=True, target="cpu").findings


class Cuda:
    """Stands in for torch with one GPU: notes what is put into which stream, in the order in which
    the host does it.
    """

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.current = self.main = SimpleNamespace(name="main", wait_stream=self._wait)
        self.cuda = self
        self.Stream = lambda device: SimpleNamespace(name="side")

    def _wait(self, other: Any) -> None:
        self.log.append(("main waits", other.name))

    def device(self, device: str) -> Any:
        return SimpleNamespace(type=device)

    def current_stream(self, device: str) -> Any:
        return self.current

    def stream(self, stream: Any) -> Any:
        outer = self

        class Context:
            def __enter__(self) -> None:
                outer.current = stream

            def __exit__(self, *_: Any) -> None:
                outer.current = outer.main

        return Context()


class Part:
    def __init__(self, cuda: Cuda, number: int) -> None:
        self.cuda, self.number = cuda, number

    def to(self, device: str, non_blocking: bool) -> Part:
        assert non_blocking
        self.cuda.log.append(("copy", self.number, self.cuda.current.name))
        return self

    def record_stream(self, stream: Any) -> None:
        self.cuda.log.append(("used by", self.number, stream.name))


@pytest.mark.parametrize("single", [False, True])
def test_streams(single: bool) -> None:
    cuda = Cuda()
    space: dict[str, Any] = {"torch": cuda}
    code = HELPER.format(
        name="prefetched",
        torch="torch",
        copied=COPIED[single],
        recorded=RECORDED[single].format(torch="torch"),
    )
    assert len(code.splitlines()) <= 16
    exec(code, space)  # our own text
    batches = [Part(cuda, n) if single else [Part(cuda, n)] for n in range(3)]
    for n, _ in enumerate(space["prefetched"](batches, "cuda")):
        assert cuda.current is cuda.main  # the step does not run on the other stream
        cuda.log.append(("step", n))
    assert cuda.log == [
        ("copy", 0, "side"), ("main waits", "side"), ("used by", 0, "main"),
        ("copy", 1, "side"), ("step", 0), ("main waits", "side"), ("used by", 1, "main"),
        ("copy", 2, "side"), ("step", 1), ("main waits", "side"), ("used by", 2, "main"),
        ("step", 2),
    ]  # fmt: skip
    assert list(space["prefetched"]([], "cuda")) == []
