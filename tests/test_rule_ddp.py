"""ddp: one process gives what it gave, several processes train as one process with the same batches does, and what cannot be is refused."""

from __future__ import annotations

import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofast.finding import Effect
from tests.harness import HARNESS, Job, compare
from tests.onerule import Applied, apply
from tests.torchrun import World, same_order, torchrun

torch = pytest.importorskip("torch")

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def job_of(folder: Path, texts: Mapping[str, str], before: str = "") -> Job:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"), "utf-8")
    return Job(folder, before=before)


def done(text: str, ranks: int = 2, *, same: bool = True, **files: str) -> tuple[Applied, World]:
    """The rewritten script: in one process bit for bit the original, in ``ranks`` the same training to rounding, if ``same``."""
    others = {f"{name}.py": content for name, content in files.items()}
    made = apply("ddp", text, files=others)
    assert made.fixes, made.refusals
    with tempfile.TemporaryDirectory() as folder:
        original = job_of(Path(folder) / "a", {**others, "train.py": text})
        rewritten = job_of(Path(folder) / "b", {**others, **made.texts})
        before, alone, ordered = HARNESS.run_many([original, rewritten, replace(original, before=same_order(ranks))])
        assert before.ok, before.traceback
        assert compare(before, alone, Effect.EXACT) == [], made.text
        world = torchrun(rewritten, ranks)
    assert world.ok, world.errors + made.text
    assert world.equal, made.text
    assert not any(world.left_open)
    if same:
        assert world.ranks[0].steps == ordered.steps
        close(ordered.params, world.ranks[0].params)
    return made, world


def close(wanted: list[list[object]], found: list[list[object]]) -> None:
    assert len(wanted) == len(found)
    for mine, theirs in zip(wanted, found, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-5)


def refused(text: str, **files: str) -> str:
    made = apply("ddp", text, files={f"{name}.py": content for name, content in files.items()})
    assert not made.fixes, made.text
    assert made.text == made.before
    return made.refusals


# ------------------------------------------------------------------------------------------------ the plain form
def test_module_level():
    made, world = done(HEAD + LOOP + 'torch.save(model.state_dict(), "model.pt")\n')
    assert "DataLoader(\n    data, batch_size=8 // WORLD_SIZE, shuffle=sampler is None, sampler=sampler\n)" in made.text
    assert set(world.files["model.pt"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}
