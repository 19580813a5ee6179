"""Which rows of the data are taken, and in which order: by an index, by a loader, under noise."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from autofast.verify.evidence.gathered import gather
from autofast.verify.evidence.record import FULL
from autofast.verify.judging import rows
from autofast.verify.probe.rows import looks
from tests import probing
from tests.test_verify_judge import LOSSES, made

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data, windows = torch.randn(96, 4), torch.arange(90)[:, None] + torch.arange(4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(x):
    optimizer.zero_grad()
    model(x + torch.randn_like(x)).square().mean().backward()
    optimizer.step()


for epoch in range(3):
    order = torch.randperm(96)
    {taken}
    with torch.no_grad():
        model(data[torch.arange(96)])
"""
TAKEN = (
    "for i in range(0, 96, 16): train(data[order[i : i + 16]]); data[order[i : i + 16], 0]",
    "for i in range(0, 96, 16): train(data.index_select(0, order[i : i + 16]))",
    "for i in range(0, 96, 16): train(torch.index_select(data, 0, index=order[i : i + 16]))",
    "for i in range(0, 96, 16): train(torch.index_select(index=order[i : i + 16], dim=0, input=data))",
    "for x in data[order].split(16): train(x)",
    "for x, in DataLoader(TensorDataset(data), batch_size=16, shuffle=True): train(x)",
    "for x in order.fmod(90).split(16): train(data[windows[x]][:, 0]); data[windows[x] + 1]",
)


@pytest.mark.parametrize("taken", TAKEN)
def test_rows_are_seen_however_they_are_taken(tmp_path: Path, taken: str) -> None:
    """Once, of inputs and labels together, and in training alone."""
    (tmp_path / "train.py").write_text(SCRIPT.format(taken=taken))
    ran = probing.run(tmp_path, str(tmp_path / "train.py"), detail=FULL)
    assert ran.code == 0, ran.stderr
    many, apart, together, mean = ran.record.rows["96"]
    assert many == 3 * 96
    assert 0.2 < apart < 0.5 and together < 0.15 and 0.4 < mean < 0.55


def mixed(draw: random.Random, rows: list[int]) -> list[int]:
    return draw.sample(rows, len(rows))


def batches(draw: random.Random, fixed: list[int]) -> list[list[int]]:
    return mixed(draw, [fixed[i : i + 16] for i in range(0, 96, 16)])  # type: ignore[arg-type, return-value]


ORDERS: dict[str, tuple[Callable[[random.Random, list[int]], list[int]], str]] = {
    "anew": (lambda draw, fixed: mixed(draw, fixed), ""),
    "sorted in batches": (
        lambda draw, fixed: [x for some in batches(draw, mixed(draw, fixed)) for x in sorted(some)],
        "",
    ),
    "one order": (lambda draw, fixed: fixed, "taken again"),
    "begun anywhere": (
        lambda draw, fixed: (start := draw.randrange(96)) * 0 or fixed[start:] + fixed[:start],
        "follow",
    ),
    "batches drawn once": (
        lambda draw, fixed: [x for some in batches(draw, fixed) for x in some],
        "follow",
    ),
    "mixed nearby": (
        lambda draw, fixed: [x for i in range(0, 96, 16) for x in mixed(draw, fixed[i : i + 16])],
        "taken again",
    ),
    "with replacement": (lambda draw, fixed: draw.choices(fixed, k=96), "taken again"),
    "the newest": (
        lambda draw, fixed: [int(96 * draw.random() ** 0.5) for _ in fixed],
        "taken again|mean place",
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_other_orders_and_rows(name: str) -> None:
    def taken(name: str, seed: int) -> dict[str, tuple[float, ...]]:
        draw, order = random.Random(f"{name}{seed}"), ORDERS[name][0]
        fixed = mixed(draw, list(range(96)))
        return {"96": tuple(looks(96, [x for _ in range(8) for x in order(draw, fixed)]))}

    words = ORDERS[name][1]
    runs = [made(losses=LOSSES, seed=s, rows=taken("anew", s)) for s in range(4)]
    runs += [made("rewritten", LOSSES, seed=s + 4, rows=taken(name, s + 4)) for s in range(4)]
    runs = [made(r.arm, LOSSES, seed=i % 4, rows=r.record.rows) for i, r in enumerate(runs)]
    check = rows.check(gather("unknown", runs))
    assert check is not None and check.passed is (not words)
    assert not words or any(word in check.text for word in words.split("|"))


LOOKS = (400.0, 0.33, 0.04, 0.5)


@pytest.mark.parametrize(
    ("after", "passed"),
    [
        ({"80": LOOKS}, True),
        ({"80": (300.0, 0.0, 1.0, 0.5)}, None),  # others, of another step of the data
        ({"90": (400.0, 0.0, 1.0, 0.5)}, None),
        ({"80": (400.0, -1.0, -1.0, 0.5)}, True),  # hardly any came again
        ({"80": (400.0, 0.33, 0.04, 0.7)}, False),
    ],
)
def test_only_the_same_data_are_compared(
    after: dict[str, tuple[float, ...]], passed: bool | None
) -> None:
    runs = [made(losses=LOSSES, seed=s, rows={"80": LOOKS}) for s in range(4)]
    runs += [made("rewritten", LOSSES, seed=s, rows=after) for s in range(4)]
    check = rows.check(gather("unknown", runs))
    assert (check.passed if check is not None else None) is passed
