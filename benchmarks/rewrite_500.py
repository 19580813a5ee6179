"""CPU time of ``autofast rewrite`` on a script of 500 lines, start-up included. Best of N, as the
rest is other people's load.

    python benchmarks/rewrite_500.py [N] [SCRIPT]

Without SCRIPT: the script of ``make demo``, filled up with the functions and classes that real
scripts consist of.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 1.5  # seconds
LINES = 500
FILLER = '''
class Block{n}(nn.Module):
    """A residual block."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        y = F.relu(self.norm(self.first(x)))
        y = self.second(y)
        return F.relu(x + y)


def accuracy_{n}(model, loader, device):
    model.eval()
    right = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        right += (model(x).argmax(1) == y).sum().item()
    return right / len(loader.dataset)

'''


def script() -> str:
    """500 lines of training script."""
    text = (ROOT / "fixtures" / "mnist_like" / "train.py").read_text("utf-8")
    head, tail = text.split("\ndef train(", 1)
    parts: list[str] = []
    while (head + "".join(parts) + tail).count("\n") < LINES - FILLER.count("\n") // 2:
        parts.append(FILLER.format(n=len(parts)))
    return head + "".join(parts) + "\ndef train(" + tail


def cpu(path: Path) -> float:
    """Seconds of CPU of one rewrite in a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-m",
        "autofast",
        "rewrite",
        str(path),
        "--root",
        str(path.parent),
        "-o",
        "-",
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.py"
        if len(sys.argv) > 2:
            path = Path(sys.argv[2]).resolve()
        else:
            path.write_text(script(), "utf-8")
        lines = path.read_text("utf-8", "replace").count("\n")
        best = min(cpu(path) for _ in range(rounds))
    print(f"{lines} lines: {best:.2f} s of CPU, start-up included (allowed for 500: {LIMIT} s)")


if __name__ == "__main__":
    main()
