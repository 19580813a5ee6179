"""Models that a project registers with timm, and makes by name."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply

SCRIPT = """
import argparse
import torch
from torch import nn
from timm.models import create_model
from timm.models.registry import register_model

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="small")
parser.add_argument("--drop", type=float, default=None)
args = parser.parse_args()


class Attention(nn.Module):
    def __init__(self, width, drop=0.5):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = self.qkv(x).reshape(8, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
        {body}
        x = (weights @ v).transpose(1, 2).reshape(8, 5, 8)
        return x


@register_model
def small(pretrained=False, **kwargs):
    return Attention(width=8, **kwargs)

{more}

model = create_model({name}, pretrained=False, drop={drop}).cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(10):
    loss = model(torch.randn(8, 5, 8, device="cuda")).sum()
    loss.backward()
    optimizer.step()
"""
BODY = "weights = (q @ k.transpose(-2, -1) * 0.5).softmax(dim=-1)"
NOISE = BODY + " + torch.zeros(5, 5).cuda()"
OTHER = """
class Other(nn.Module):
    def forward(self, x):
        return torch.linalg.cholesky(x)


@register_model
def other(pretrained=False, **kwargs):
    return Other()
"""


def read(rule: str, name: str = '"small"', body: str = BODY, more: str = "") -> Applied:
    text = SCRIPT.format(name=name, body=body, more=more, drop="args.drop")
    return apply(rule, text)


@pytest.mark.parametrize("name", ['"small"', "args.model"])
def test_what_the_name_makes_is_read(name: str) -> None:
    assert read("device-creation", name, NOISE).fixes


def test_a_name_of_timm_makes_none_of_them() -> None:
    assert not read("device-creation", '"resnet18"', NOISE).findings


def test_an_option_may_name_any_that_is_registered() -> None:
    """What one of them does speaks against a rewrite for all."""
    reason = "linear algebra"
    assert reason not in read("autocast", '"small"', more=OTHER).refusals
    assert reason in read("autocast", "args.model", more=OTHER).refusals
