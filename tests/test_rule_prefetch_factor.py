"""prefetch-factor: advice where workers read files, and nothing else."""

from __future__ import annotations

import pytest

from tests.loaders import FILES, script
from tests.onerule import apply

RULE = "prefetch-factor"


def test_advice_where_workers_read_files() -> None:
    found = apply(RULE, script("DataLoader(Files(), batch_size=4, num_workers=4)"))
    assert "prefetch_factor=4" in found.advice
    assert not found.fixes


@pytest.mark.parametrize(
    "text",
    [
        script("DataLoader(Files(), batch_size=4)"),
        script("DataLoader(Files(), batch_size=4, num_workers=0)"),
        script("DataLoader(Files(), batch_size=4, num_workers=4, prefetch_factor=2)"),
        script(
            "DataLoader(TensorDataset(a), batch_size=4, num_workers=4)",
            more="a = torch.randn(8, 4)",
        ),
        script("", epoch="loader = DataLoader(Files(), batch_size=4, num_workers=4)"),
        script("DataLoader(Files(), num_workers=4)", dataset=FILES, over="[]"),
    ],
)
def test_nothing_elsewhere(text: str) -> None:
    assert not apply(RULE, text).findings
