"""set-to-none: zeros that a script asks for are pointed out, and stay."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply

SCRIPT = """
import torch
from torch import nn

model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(12):
    {zero}
    loss = model(torch.randn(8, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
"""


def made(zero: str) -> Applied:
    return apply("set-to-none", SCRIPT.format(zero=zero))


@pytest.mark.parametrize(
    "zero",
    [
        "optimizer.zero_grad(set_to_none=False)",
        "optimizer.zero_grad(False)",
        "model.zero_grad(set_to_none=False)",
        "given = {'set_to_none': False}; optimizer.zero_grad(**given)",
    ],
)
def test_zeros_on_purpose_are_pointed_out(zero: str) -> None:
    found = made(zero)
    (finding,) = found.findings
    assert not found.fixes and "weight decay stop" in finding.advice


@pytest.mark.parametrize(
    "zero",
    [
        "optimizer.zero_grad()",
        "optimizer.zero_grad(set_to_none=True)",
        "optimizer.zero_grad(step > 3)",
        "for p in model.parameters(): p.grad = None",
        "for p in model.parameters():\n        if p.grad is not None: p.grad.zero_()",
    ],
)
def test_nothing_to_do(zero: str) -> None:
    assert not made(zero).findings
