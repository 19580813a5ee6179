"""bias-before-norm: the same function without the bias, and where it counts."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply, run

RULE = "bias-before-norm"
SCRIPT = """
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
{before}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {layers}
        self.out = nn.Linear(4, 2)

    def forward(self, x):
        {forward}
        return self.out(x.mean((2, 3)))


model = Net()
{more}
first = {{k: v.clone() for k, v in model.state_dict().items()}}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(model, optimizer):
    torch.manual_seed(1)
    losses = []
    for _ in range(4):
        x, y = torch.randn(4, 3, 8, 8), torch.randint(2, (4,))
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.eval()(torch.linspace(-1, 1, 384).view(2, 3, 8, 8).sin()).detach()


result = train(model, optimizer)
"""


def made(layers: str, forward: str, before: str = "", more: str = "") -> Applied:
    text = SCRIPT.format(
        layers=layers.strip().replace("\n", "\n        "),
        forward=forward.strip().replace("\n", "\n        "),
        before=before,
        more=more,
    )
    return apply(RULE, text, asked=True)


def trains_the_same(found: Applied) -> None:
    """From the same weights, both scripts have the same losses, and the same outputs in evaluation
    (see the card for running means).
    """
    import torch

    before, after = run(found.before), run(found.text)
    missing, extra = after["model"].load_state_dict(before["first"], strict=False)
    assert not missing and extra and all(key.endswith("bias") for key in extra)
    after["model"].train()
    optimizer = torch.optim.SGD(after["model"].parameters(), lr=0.1)
    losses, outputs = after["train"](after["model"], optimizer)
    assert losses == pytest.approx(before["result"][0], rel=1e-4)
    if "BatchNorm" not in found.text:
        torch.testing.assert_close(outputs, before["result"][1], rtol=1e-3, atol=1e-4)


GROWING = """
layers = [nn.Conv2d(3, 4, 3), nn.InstanceNorm2d(4)]
for _ in range(2):
    layers += [nn.Conv2d(4, 4, 3, padding=1), nn.InstanceNorm2d(4), nn.ReLU()]
self.body = nn.Sequential(*layers)
"""
GOOD = {
    "a Sequential": ("self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())", "x = self.body(x)", 1),
    "calls in each other": ("self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)", "x = torch.relu(self.norm(self.conv(x)))", 1),
    "one after the other": ("self.conv, self.norm = nn.ConvTranspose2d(3, 4, 3), nn.BatchNorm2d(4)", "x = self.conv(x)\nx = self.norm(x)", 1),
    "a list that grows": (GROWING, "x = self.body(x)", 2),
}  # fmt: skip


@pytest.mark.parametrize(("layers", "forward", "count"), GOOD.values(), ids=GOOD)
def test_the_bias_goes(layers: str, forward: str, count: int) -> None:
    found = made(layers, forward)
    assert len(found.fixes) == count, found.refusals
    assert found.text.count("bias=False") == count
    trains_the_same(found)


NORM = "self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)"
BAD = {
    "an activation between": (NORM, "x = self.norm(torch.relu(self.conv(x)))"),
    "used once more": (NORM, "y = self.conv(x)\nx = self.norm(y) + y"),
    "not always": (NORM, "x = self.conv(x)\nif os.environ.get('NORM'):\n    x = self.norm(x)"),
    "another normalisation": (
        "self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4)",
        "x = self.norm(self.conv(x))",
    ),
    "the last of a list": (
        "layers = [nn.Conv2d(3, 4, 3)]\nif os.environ.get('NORM'):\n    layers.append(nn.BatchNorm2d(4))\nself.body = nn.Sequential(*layers)",
        "x = self.body(x)",
    ),
    "a list that is changed": (
        "layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)]\nfor n in range(len(os.environ) % 2):\n    layers.insert(1, nn.ReLU())\nself.body = nn.Sequential(*layers)",
        "x = self.body(x)",
    ),
    "someone decided": (
        "self.conv, self.norm = nn.Conv2d(3, 4, 3, bias=True), nn.BatchNorm2d(4)",
        "x = self.norm(self.conv(x))",
    ),
    "the Sequential is cut": (
        "self.body = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))",
        "x = self.body(x) if os.environ.get('NORM') else self.body[:1](x)",
    ),
}


@pytest.mark.parametrize(("layers", "forward"), BAD.values(), ids=BAD)
def test_a_bias_that_counts_stays(layers: str, forward: str) -> None:
    assert not made(layers, forward).fixes


@pytest.mark.parametrize(
    ("before", "more", "why"),
    [
        ("", "model.norm.eval()", "from taking the mean of a batch"),
        ("", "for m in model.modules():\n    if isinstance(m, nn.BatchNorm2d):\n        m.train(False)", "from taking the mean of a batch"),
        ("", "model.conv.register_forward_hook(lambda *given: None)", "sets a hook"),
        ("", "print(model.state_dict()['conv.bias'].sum())", "names a bias"),
        ("", "print(list(model.parameters())[1])", "counts parameters"),
        ("", "model.load_state_dict(torch.load('old.pt'))", "loads weights"),
        ("", "nn.init.zeros_(model.conv.bias)", "uses biases"),
        ("", "parts = torch.utils.data.random_split(range(8), [6, 2])", "what is trained on"),
        ("def init(m):\n    if isinstance(m, nn.Conv2d):\n        m.bias.data.zero_()\n", "model.apply(init)", "uses biases"),
    ],
)  # fmt: skip
def test_weights_from_elsewhere_and_code_that_needs_biases(
    before: str, more: str, why: str
) -> None:
    found = made(NORM, "x = self.norm(self.conv(x))", before, more)
    assert not found.fixes and why in found.refusals


@pytest.mark.parametrize(
    ("before", "more"),
    [
        ("parts = torch.utils.data.random_split(range(8), [6, 2])", ""),
        ("", "g = torch.Generator().manual_seed(0)\nparts = torch.utils.data.random_split(range(8), [6, 2], generator=g)"),
        ("", "target = Net()\ntarget.load_state_dict(model.state_dict())"),
        ("", "if os.path.exists('old.pt'):\n    model.load_state_dict(torch.load('old.pt'))"),
        ("def init(m):\n    if hasattr(m, 'bias') and m.bias is not None:\n        nn.init.zeros_(m.bias)\n", "model.apply(init)"),
        ("def init(m):\n    if m.__class__.__name__.find('BatchNorm') != -1:\n        m.bias.data.fill_(0)\n", "model.apply(init)"),
    ],
)  # fmt: skip
def test_a_resumed_run_and_code_that_asks_first(before: str, more: str) -> None:
    found = made(NORM, "x = self.norm(self.conv(x))", before, more)
    assert len(found.fixes) == 1, found.refusals
    run(found.text)
