"""Small training scripts for the tests of mixed precision, and how their rewritten forms are run on
a CPU.

``--target cpu --precision fp16`` writes the same scaler path as the form for CUDA, and the CPU can
execute it. The scaler starts at 256 here instead of 65536, so that no step is skipped and both runs
can be compared step by step.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

from autofast.rule import Effect
from tests.harness import HALF, HARNESS, Job, Tolerance, compare
from tests.onerule import Applied, apply, run

AMP = "autocast grad-scaler unscale-before-clip"

HEAD = """
import torch  # one line that is longer than 88 characters says that the author does not mind lines of up to 120
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X = torch.randn(6, 16, 8)
Y = torch.randint(0, 4, (6, 16))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 32)
        self.b = nn.Linear(32, 4)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


model = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
"""

LOOP = """
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def script(loop: str = LOOP, head: str = HEAD) -> str:
    return head + loop


def amp(
    text: str,
    *,
    rules: str = AMP,
    target: str = "cuda",
    precision: str = "",
    files: dict[str, str] | None = None,
    asked: bool = False,
) -> Applied:
    return apply(rules, text, target=target, precision=precision, files=files, asked=asked)


def trained(text: str) -> dict[str, Any]:
    """The variables of a script after it has run, with warnings as errors and a scaler that starts
    low.
    """
    made = torch.amp.GradScaler.__init__

    def low(this: Any, device: str = "cuda", init_scale: float = 256.0, **kwargs: Any) -> None:
        made(this, device, init_scale, **kwargs)

    torch.amp.GradScaler.__init__ = low  # type: ignore[method-assign]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return run(text)
    finally:
        torch.amp.GradScaler.__init__ = made  # type: ignore[method-assign]


def close(a: list[float], b: list[float], tolerance: float = 0.02) -> bool:
    return len(a) == len(b) and all(
        abs(x - y) <= tolerance * max(1.0, abs(x)) for x, y in zip(a, b, strict=True)
    )


def weights(scope: dict[str, Any], name: str = "model") -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in scope[name].parameters()])


def faked(done: Applied, tolerance: Tolerance = HALF) -> list[str]:
    """What differs where both texts run, the rewritten one as on a GPU without bf16: fp16, with a
    scaler that scales.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(done.before, "utf-8")
        files = {name: text.encode() for name, text in done.texts.items()}
        before, after = HARNESS.run_many(
            [Job(Path(folder)), Job(Path(folder), files=files, fake_cuda_amp=True)]
        )
    assert before.ok, before.error + before.stderr
    return compare(before, after, Effect.ROUNDING, tolerance)
