"""Sizes of networks that come out of settings, and of what the script computes of them: as torch
itself counts them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from autofast.facts.cost import machine
from autofast.facts.cost.step import Cost
from autofast.read import read_script

NET = """
class Net(nn.Module):
    def __init__(self, inside, width, depth):
        super().__init__()
        layers = [nn.Linear(inside, width)]
        for _ in range(depth):
            layers += [nn.ReLU(), nn.Linear(width, width)]
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return self.layers(x)


class Whole(Net):
    def __init__(self, cfg):
        super().__init__(16, cfg.width, cfg.depth)
"""
STEPS = """
optimizer = torch.optim.Adam(net.parameters())
for step in range(1000):
    loss = net(torch.randn(64, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
FILES = {
    "config.yaml": "width: 256\ndepth: 3\nnet:\n  width: 256\n  depth: 3\n",
}
SETTINGS = {
    "argparse": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--width', type=int, default=256)\n"
        "p.add_argument('--depth', type=int, default=3)\ncfg = p.parse_args([])\n",
        "net = Whole(cfg)",
    ),
    "YAML": (
        "import yaml\nwith open('config.yaml') as f:\n    cfg = yaml.safe_load(f)\n",
        "net = Net(16, cfg['width'], cfg['depth'])",
    ),
    "a table handed on": (
        "import yaml\nwith open('config.yaml') as f:\n    cfg = yaml.safe_load(f)\n",
        "net = Net(16, **cfg['net'])",
    ),
    "a class with attributes for items": (
        "class Config(dict):\n    __getattr__ = dict.get\ncfg = Config(width=256, depth=3)\n",
        "net = Whole(cfg)",
    ),
    "fields that an object is given": (
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    width: int = None\n    depth: int = 1\n"
        "cfg = Config(width=256)\ncfg.depth = 3\n",
        "net = Whole(cfg)",
    ),
    "what a function gives": (
        "SIZES = {'small': ([16, 64], 1), 'large': ([16, 256], 3)}\n"
        "def sizes(name):\n    (first, width), depth = SIZES[name]\n    return width, depth\n"
        "def make(name='large', odd=None):\n    width, depth = sizes(name)\n    if odd:\n        depth = 1\n    return Net(16, width, depth)\n",
        "net = make()",
    ),
    "a long table of numbers": (
        "import math\nclass Table(nn.Module):\n    def __init__(self, width):\n        super().__init__()\n"
        "        rows = [[math.sin(i / (j + 1)) for j in range(width)] for i in range(512)]\n"
        "        self.rows = torch.tensor(rows)\n        self.inner = Net(16, width, 3)\n"
        "    def forward(self, x):\n        return self.inner(x)\n",
        "net = Table(256)",
    ),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_sizes_by_settings(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, made = SETTINGS[kind]
    text = f"import torch\nfrom torch import nn\n{NET}\n{settings}\n{made}\n{STEPS}"
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "train.py").write_text(text)
    found = Cost(read_script(tmp_path / "train.py", tmp_path)).estimate()
    monkeypatch.chdir(tmp_path)
    scope: dict[str, torch.nn.Module] = {}
    exec(text.replace("range(1000)", "range(1)"), scope)
    parameters = sum(p.numel() for p in scope["net"].parameters())
    assert not found.why and found.parameters == parameters
    weights = sum(p.numel() for p in scope["net"].parameters() if p.dim() > 1)
    assert found.products * machine.GPU.products == pytest.approx(3 * 2 * 64 * weights)


def test_what_has_to_be_given_is_not_known(tmp_path: Path) -> None:
    settings, made = SETTINGS["argparse"]
    text = f"import torch\nfrom torch import nn\n{NET}\n{settings}\n{made}\n{STEPS}"
    text = text.replace("type=int, default=256", "type=int, required=True")
    (tmp_path / "train.py").write_text(text)
    assert Cost(read_script(tmp_path / "train.py", tmp_path)).estimate().why


def test_one_of_several_networks_is_the_default(tmp_path: Path) -> None:
    """By a table of classes, whose other entries do not count, and behind DataParallel."""
    text = f"""
import argparse
import torch
from torch import nn
{NET}
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x):
        return self.layer(x)


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 4096)

    def forward(self, x):
        return self.layer(x)


p = argparse.ArgumentParser()
p.add_argument("--arch", default="small")
args = p.parse_args([])
net = {{"small": Small, "large": Large}}[args.arch]()
if torch.cuda.device_count() > 1:
    net = nn.DataParallel(net)
{STEPS}"""
    (tmp_path / "train.py").write_text(text)
    found = Cost(read_script(tmp_path / "train.py", tmp_path)).estimate()
    assert not found.why and found.parameters == 17 * 8
