"""What the probe costs per optimizer step when it only times (autofast/verify/probe): the same
script with and without it.

The script takes the CPU time of its own loop (with one thread that is its time on an idle machine):
a DataLoader without workers, a small model, Adam. Rounds alternate, in fresh processes; the least
of each is shown beside the median, as the rest is other people's load.

python benchmarks/probe_overhead.py [ROUNDS]
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PROBE = Path(__file__).parent.parent / "autofast" / "verify" / "probe"
STEPS = 3000
SCRIPT = f"""
import time, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn({STEPS} * 2, 8), torch.randint(0, 2, ({STEPS} * 2,)))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters())
for number, (x, y) in enumerate(DataLoader(data, 2, shuffle=True)):
    if number == 200:
        start = time.process_time()
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print((time.process_time() - start) / (number - 199) * 1e6)
"""
WAYS: dict[str, dict[str, object] | None] = {
    "without": None,
    "timed": {},
    "every detail": {"detail": {"gradients": True, "batches": True, "state": True}},
}


def once(folder: Path, settings: dict[str, object] | None) -> float:
    """Microseconds per step."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "script.py"]
    if settings is not None:
        command.insert(1, str(PROBE))
        environment["AUTOFAST_PROBE"] = json.dumps(
            {"out": str(folder / "record.json"), "scratch": str(folder), **settings}
        )
    done = subprocess.run(
        command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return float(done.stdout)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "script.py").write_text(SCRIPT)
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for _ in range(rounds):
            for way, settings in WAYS.items():
                times[way].append(once(folder, settings))
    base = times["without"]
    for way, values in times.items():
        least, median = min(values), statistics.median(values)
        more = (
            f"   +{least - min(base):5.1f}  +{median - statistics.median(base):5.1f}"
            if way != "without"
            else ""
        )
        print(f"{way:14}{least:8.1f} us least {median:8.1f} us median{more}")


if __name__ == "__main__":
    main()
