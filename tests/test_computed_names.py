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


PACKAGE = {
    "zoo/__init__.py": "import zoo.first\nfrom . import second\n",
    "zoo/first.py": NETS + "\ndef build(width, scale=1):\n    return First(width)\n",
    "zoo/second.py": NETS + "\ndef build(width, scale=1):\n    return Second(width)\n",
}
NAMED = """
import yaml
import zoo, nets_of
options = {"net": "first", "kind": "First"}
def update(path):
    for key, value in yaml.safe_load(open(path)).items():
        options[key] = value
import sys
update(sys.argv[1])
"""
NETS_OF = "from __future__ import division\nfrom zoo.first import First\nfrom zoo.second import Second\n"


def named(make: str, **files: str) -> bool:
    text = TRAIN.replace("{make}", make).replace("kept = ", NAMED + "kept = ")
    given = {"nets.py": NETS, "nets_of.py": NETS_OF, **PACKAGE, **files}
    return bool(apply("channels-last", text, files=given).fixes)


@pytest.mark.parametrize(
    "make",
    [
        "eval('zoo.' + options['net'] + '.build')(4)",
        "eval('zoo.{}.build'.format(options['net']))(4)",
        "eval('nets_of.' + options['kind'])()",
        "eval(f\"nets_of.{options['kind']}\")(width=5)",
        "getattr(nets_of, options['kind'])()",
    ],
)
def test_a_file_of_settings_may_say_another_name(make: str) -> None:
    """What the settings of the script name, and all else that the module offers."""
    assert named(make)


UNKNOWN = (
    NETS.replace("self.a(x)", "OTHER(self.a(x))")
    + "\ndef build(width, scale=1):\n    return First(width)\n"
)


@pytest.mark.parametrize(
    ("make", "files"),
    [
        # whether something imports it is not known
        ("eval('zoo.' + options['net'] + '.build')(4)", {"zoo/third.py": UNKNOWN}),
        ("eval('zoo.' + options['net'] + '.missing')(4)", {}),
        ("eval('nets_of.' + options['kind'])()", {"zoo/second.py": UNKNOWN}),
        (
            "eval('nets_of.' + options['kind'])()",
            {"nets_of.py": NETS_OF + "import library\nglobals()[library.name()] = library.Net\n"},
        ),
        ("eval(options['kind'])()", {}),
        ("eval('zoo' + options['net'] + '.build')(4)", {}),
        ("eval(options['net'] + '.build')(4)", {}),
    ],
)  # fmt: skip
def test_settings_that_may_name_what_is_not_known(make: str, files: dict[str, str]) -> None:
    assert not named(make, **files)


@pytest.mark.parametrize(
    ("function", "call", "known"),
    [
        ("def other():", "(4)", True),  # it would only raise
        ("def other():", "(4, **options)", True),
        ("def other(*, width=1):", "(4)", True),
        ("def other(width=1):", "(4)", False),
        ("def other(*widths):", "(4)", False),
        ("def other():", "()", False),
        ("def other():", "(*sizes)", False),
        ("@library.made\ndef other():", "(4)", False),
    ],
)
def test_what_takes_no_such_arguments_is_not_called(function: str, call: str, known: bool) -> None:
    nets = f"import library\n{NETS_OF.partition(chr(10))[2]}{function}\n    return library.net()\n"
    text = f"eval('nets_of.' + options['kind']){call}"
    assert named(text.replace("sizes", "library.sizes()"), **{"nets_of.py": nets}) is known
