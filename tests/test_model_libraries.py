"""Image models of libraries besides torchvision, which stand in for them here."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from tests.amp import amp, close, trained
from tests.onerule import apply, run

SCRIPT = """
import torch
from torch import nn
import {library}

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = {library}.{made}.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
X = torch.randn(6, 2, 3, 8, 8)
losses = []
for i in range(6):
    x = X[i].to(device)
    optimizer.zero_grad()
    model.train()
    loss = (model(x) - 1).abs().mean()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        losses.append(model(x).mean().item())
"""
MADE = [
    ("timm", 'create_model("resnet18")'),
    ("segmentation_models_pytorch", 'Unet("resnet34", classes=3)'),
    ("efficientnet_pytorch", 'EfficientNet.from_pretrained("efficientnet-b0")'),
]


def net(*args: Any, **kwargs: Any) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1))


@pytest.fixture(autouse=True)
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("timm", "segmentation_models_pytorch", "efficientnet_pytorch"):
        module: Any = ModuleType(library)
        module.create_model = module.Unet = net
        module.EfficientNet = type("EfficientNet", (), {"from_pretrained": staticmethod(net)})
        monkeypatch.setitem(sys.modules, library, module)


@pytest.mark.parametrize(("library", "made"), MADE)
def test_it_gives_one_tensor_that_can_be_brought_to_fp32(library: str, made: str) -> None:
    done = amp(SCRIPT.format(library=library, made=made), target="cpu", rules="autocast")
    assert "model(x).float()" in done.text
    assert close(trained(done.before)["losses"], trained(done.text)["losses"], 0.02)


def test_parts_that_are_asked_for_are_no_tensor() -> None:
    text = SCRIPT.format(library="timm", made='create_model("resnet18", features_only=True)')
    assert "no plain tensor" in amp(text, target="cpu", rules="autocast").refusals


@pytest.mark.parametrize(("library", "made"), MADE)
def test_layout_and_evaluation(library: str, made: str) -> None:
    done = apply("channels-last no-grad-eval", SCRIPT.format(library=library, made=made))
    assert "memory_format=torch.channels_last" in done.text
    assert "with torch.inference_mode():" in done.text


def test_networks_that_reshape_keep_their_layout() -> None:
    text = SCRIPT.format(library="segmentation_models_pytorch", made='MAnet("resnet34")')
    assert not apply("channels-last", text).fixes


WITHIN = """
class Encoder(nn.Module):
    def __init__(self, name="resnet18"):
        super().__init__()
        self.body, self.scale = timm.create_model(NAME, num_classes=0), nn.Linear(8, 8)

    def forward(self, x):
        return self.scale(self.body(x))


torch.manual_seed(0)
"""


@pytest.mark.parametrize(
    ("name", "is_network"), [('"resnet18"', True), ("name", True), ("str(name)", False)]
)
def test_a_part_that_is_a_network_of_a_library(name: str, is_network: bool) -> None:
    script = SCRIPT.format(library="timm", made="Encoder()").replace("timm.Encoder", "Encoder")
    text = script.replace("torch.manual_seed(0)\n", WITHIN.replace("NAME", name), 1)
    done = apply("channels-last cudnn-benchmark", text)
    assert ("memory_format=torch.channels_last" in done.text) is is_network
    assert ("if all batches have one shape" in done.advice) is is_network
    assert run(text)["losses"] == pytest.approx(run(done.text)["losses"], rel=1e-4)


LAYERS = """
import torch
from torch import nn
from timm.models.layers import DropPath
from timm.utils import accuracy


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.drop_path = nn.Linear(8, 8), DropPath(0.1)

    def forward(self, x):
        return x + self.drop_path(self.fc(x))


torch.manual_seed(0)
model = Block()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
X = torch.randn(6, 4, 8)
hits = []
for i in range(6):
    model.train()
    loss = (model(X[i]) - 1).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        for x in X:
            hits.append(accuracy(model(x), torch.arange(4)).item())
"""


def test_layers_and_metrics_of_timm_keep_nothing_of_an_evaluation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = apply("no-grad-eval", LAYERS)
    assert found.lines == ["with torch.inference_mode():"]
    layers: Any = ModuleType("timm.models.layers")
    layers.DropPath = nn.Dropout
    utils: Any = ModuleType("timm.utils")
    utils.accuracy = lambda output, target: (output.argmax(1) == target).float().mean()
    for module in (layers, utils, ModuleType("timm.models")):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    assert run(LAYERS)["hits"] == run(found.text)["hits"] != []
