"""Draws docs/stepwise-scheduler.svg: the learning rate of schedules as they are and as the rule
``stepwise-scheduler`` writes them. Needs torch.

The schedules are rewritten by the rule itself, and both versions are run. ``--check`` only tells
whether the file is up to date.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.registry import select
from autofast.rule import Effect, Options

OUT = Path(__file__).resolve().parent.parent / "docs" / "stepwise-scheduler.svg"
BATCHES, EPOCHS = 8, 10
SCHEDULES = {
    "CosineAnnealingLR": "CosineAnnealingLR(optimizer, T_max=10)",
    "LinearLR": "LinearLR(optimizer, 0.1, total_iters=7)",
    "CosineAnnealingWarmRestarts": "CosineAnnealingWarmRestarts(optimizer, T_0=5)",
    "ExponentialLR": "ExponentialLR(optimizer, gamma=0.75)",
}
SCRIPT = """
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR, LinearLR
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.zeros({batches}, 1)), batch_size=1)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
scheduler = {schedule}
for epoch in range({epochs}):
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).sum().backward()
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
    scheduler.step()
"""
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 130, 40, 34, 58


def rates(text: str) -> list[float]:
    """The learning rate of every update."""
    scope: dict[str, list[float]] = {"rates": []}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(text, scope)
    return scope["rates"]


def both(schedule: str) -> tuple[list[float], list[float]]:
    """The rates of a schedule, and what they are after the rewrite."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "train.py"
        path.write_text(SCRIPT.format(schedule=schedule, batches=BATCHES, epochs=EPOCHS), "utf-8")
        script = read_script(path, path.parent)
        (text,) = (
            Plan.make(script, Options(), select(["stepwise-scheduler"]), Effect.RECIPE)
            .texts()
            .values()
        )
        return rates(path.read_text("utf-8")), rates(text)


def panel(title: str, old: list[float], new: list[float], left: int, top: int) -> str:
    def at(n: float, rate: float) -> str:
        return f"{left + n / (BATCHES * EPOCHS) * WIDTH:.1f},{top + (1 - rate) * HEIGHT:.1f}"

    corners = [corner for n, rate in enumerate(old) for corner in (at(n, rate), at(n + 1, rate))]
    points = [at(n, rate) for n, rate in enumerate(new)]
    ends = "".join(
        f'<circle cx="{x}" cy="{y}" r="2.2"/>'
        for x, y in (at(n, new[n]).split(",") for n in range(0, BATCHES * EPOCHS, BATCHES))
    )
    ticks = "".join(
        f'<text x="{left + epoch / EPOCHS * WIDTH:.1f}" y="{top + HEIGHT + 14}" text-anchor="middle">{epoch}</text>'
        for epoch in range(0, EPOCHS + 1, 2)
    )
    return (
        f'<text x="{left}" y="{top - 8}" font-weight="bold">{title}</text>'
        f'<path d="M{left},{top} v{HEIGHT} h{WIDTH}" fill="none" stroke="#888"/>{ticks}'
        f'<text x="{left - 6}" y="{top + 4}" text-anchor="end">1</text><text x="{left - 6}" y="{top + HEIGHT + 4}" text-anchor="end">0</text>'
        f'<polyline points="{" ".join(corners)}" fill="none" stroke="#999" stroke-width="1.4"/>'
        f'<polyline points="{" ".join(points)}" fill="none" stroke="#c2410c" stroke-width="1.6"/><g fill="#c2410c">{ends}</g>\n'
    )


def drawing() -> str:
    width, height = 2 * (WIDTH + LEFT) + 20, 2 * (HEIGHT + GAP) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11" fill="#333">\n'
        f'<rect width="{width}" height="{height}" fill="#fff"/>\n'
    ]
    for n, (title, schedule) in enumerate(SCHEDULES.items()):
        parts.append(
            panel(
                title, *both(schedule), LEFT + n % 2 * (WIDTH + LEFT), TOP + n // 2 * (HEIGHT + GAP)
            )
        )
    foot = height - 10
    parts.append(
        f'<path d="M{LEFT},{foot - 4} h24" stroke="#999" stroke-width="1.4"/><text x="{LEFT + 30}" y="{foot}">learning rate, once an epoch</text>'
        f'<path d="M{LEFT + 186},{foot - 4} h24" stroke="#c2410c" stroke-width="1.6"/>'
        f'<text x="{LEFT + 216}" y="{foot}">after every update; below: epochs, the dots at their ends, where both agree</text>\n</svg>\n'
    )
    return "".join(parts)


def main() -> None:
    now = OUT.read_text(encoding="utf-8") if OUT.exists() else ""
    then = drawing()
    if "--check" in sys.argv:
        sys.exit(f"{OUT.name} is out of date: run scripts/schedule_plot.py" if now != then else 0)
    OUT.write_text(then, encoding="utf-8")


if __name__ == "__main__":
    main()
