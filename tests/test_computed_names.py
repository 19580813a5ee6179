"""Classes and functions that a script finds by a name: ``eval("models." + name)``,
``globals()[name]``, ``getattr(models, args.arch)``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.read import read_script
from tests.onerule import apply

NETS = """
import torch.nn as nn
class First(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a = nn.Conv2d(3, width, 1)
    def forward(self, x):
        return self.a(x).mean((1, 2, 3))
class Second(First):
    pass
def helper(a, b):
    raise NotImplementedError
"""
TRAIN = """
import argparse
import torch
import nets
from nets import First, Second
parser = argparse.ArgumentParser()
parser.add_argument("--net", default="First")
parser.add_argument("--other")
parser.add_argument("--optimizer", default="SGD")
args = parser.parse_args()
kept = "Second"
def make():
    return {make}
model = make().cuda()
optimizer = eval("torch.optim." + args.optimizer)(model.parameters(), lr=0.1)
images = torch.randn(8, 3, 6, 6)
for epoch in range(2):
    for i in range(0, 8, 4):
        x = images[i : i + 4].cuda()
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()
"""


def fixed(make: str, nets: str = NETS) -> bool:
    found = apply("channels-last", TRAIN.replace("{make}", make), files={"nets.py": nets})
    return bool(found.fixes)


@pytest.mark.parametrize(
    "make",
    [
        'eval("nets." + args.net)()',
        'eval("nets." + args.net)(width=5)',
        'eval(f"nets.{args.net}")()',
        'eval("nets." + kept)()',
        'eval("nets.First")()',
        'eval("Second")()',
        "globals()[args.net]()",
        'globals()["First"](5)',
        'globals()["nets"].First(5)',
        "getattr(nets, args.net)()",
        "getattr(nets, kept)()",
    ],
)
def test_what_the_name_may_be(make: str) -> None:
    assert fixed(make)


@pytest.mark.parametrize(
    "make",
    [
        "eval(args.net)()",  # any code
        'eval("nets." + args.other)()',
        'eval("nets.First(" + args.net + ")")',
        'eval("nets.Fir" + args.other)()',
        'eval("nets." + args.net, {})()',
        "globals()[args.other]()",
        "getattr(nets, args.other)()",
    ],
)
def test_other_names_are_not_known(make: str) -> None:
    assert not fixed(make)


@pytest.mark.parametrize(
    "make", ['eval("nets." + args.net)()', "globals()[args.net]()", "getattr(nets, args.net)()"]
)
def test_others_of_the_kind_may_be_named(make: str) -> None:
    """A network whose ``.view`` may raise in the new layout is among those that the option may
    name.
    """
    third = "class Third(First):\n    def forward(self, x):\n        return UNKNOWN(self.a(x))\n"
    extended = NETS + third
    text = TRAIN.replace("import First, Second", "import First, Second, Third").replace(
        "{make}", make
    )
    found = apply("channels-last", text, files={"nets.py": extended})
    assert not found.fixes and found.refusals


def test_reading_a_variable_by_its_name_changes_none(tmp_path: Path) -> None:
    """``globals()[name]`` in a load leaves the constants of the module known."""
    (tmp_path / "nets.py").write_text(NETS)
    (tmp_path / "train.py").write_text(
        TRAIN.replace("{make}", "globals()[args.net]()")
        + "\nif kept == 'First':\n    torch.manual_seed(1)\n"
    )
    script = read_script(tmp_path / "train.py", tmp_path)
    assert script.steps and not script.calls("torch.manual_seed")
