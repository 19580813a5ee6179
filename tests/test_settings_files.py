"""Objects that are made from files with settings: which file is meant, what is known of it, and
what is advised.
"""

from __future__ import annotations

import ast
import runpy
import sys
import textwrap
from pathlib import Path

import pytest

from autofast.model.values import const
from autofast.read import read_script
from tests.onerule import Applied, apply

NETS = """
import torch.nn as nn
class Base(nn.Module):
    def parts(self):
        raise NotImplementedError
class Small(Base):
    def __init__(self, width=4):
        super().__init__()
        self.a = nn.Linear(6, width)
        self.b = nn.Linear(width, 3)
    def forward(self, x):
        return self.b(self.a(x))
"""
ROWS = """
import torch
from torch.utils.data import Dataset
class Rows(Dataset):
    def __init__(self, n):
        self.n = n
    def __len__(self):
        return self.n
    def __getitem__(self, i):
        with open(__file__) as f:
            x = torch.full((6,), float(len(f.read()) % 7 + i))
        return x, i % 3
"""
JSON = """
{
    "model": {"type": "Small", "args": {"width": 5}},
    "loader": {
        "batch_size": 4,
        "num_workers": 0
    },
    "optimizer": {"type": "Adam", "args": {"lr": 0.01}},
    "device": "cpu",
    "rows": 12
}
"""
YAML = """
model: {type: Small, args: {width: 5}}
loader:
  batch_size: 4
  num_workers: 0
optimizer: {type: Adam, args: {lr: 0.01}}
device: cpu
rows: 12
"""
TOML = """
device = "cpu"
rows = 12
[model]
type = "Small"
args = {width = 5}
[loader]
batch_size = 4
num_workers = 0
[optimizer]
type = "Adam"
args = {lr = 0.01}
"""
TRAIN = """
import argparse, json
import torch
from torch.utils.data import DataLoader
import nets_of_settings as nets
import rows_of_settings as rows

def made(cfg, part, module, *args):
    kind = cfg[part]["type"]
    given = dict(cfg[part]["args"])
    return getattr(module, kind)(*args, **given)

def main(cfg):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = made(cfg, "model", nets).to(device)
    loader = DataLoader(rows.Rows(cfg["rows"]), {loader})
    optimizer = made(cfg, "optimizer", torch.optim, model.parameters())
    losses = []
    for epoch in range(2):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return losses

{load}
losses = main(cfg)
"""
OPTION = 'parser = argparse.ArgumentParser()\nparser.add_argument("-c", "--config", default={})\nargs = parser.parse_args()\n'
SPREAD = '**cfg["loader"]'
SINGLE = 'batch_size=cfg["loader"]["batch_size"], num_workers=cfg["loader"]["num_workers"]'
LOADS = {
    "open": ("settings.json", 'cfg = json.load(open("settings.json"))'),
    "with": ("a.json", 'with open("a.json") as f:\n    cfg = json.load(f)'),
    "default": ("conf/a.json", OPTION.format('"conf/a.json"') + "cfg = json.load(open(args.config))"),
    "only": ("config.json", OPTION.format("None") + "cfg = json.load(open(args.config))"),
    "path": (
        "conf/b.json",
        'from pathlib import Path\ncfg = json.loads((Path(__file__).parent / "conf" / "b.json").read_text())',
    ),
    "yaml": ("a.yaml", 'import yaml\ncfg = yaml.safe_load(open("a.yaml"))'),
    "yaml loader": ("a.yml", 'import yaml\ncfg = yaml.load(open("a.yml"), Loader=yaml.FullLoader)'),
    "toml": ("a.toml", 'import tomllib\nwith open("a.toml", "rb") as f:\n    cfg = tomllib.load(f)'),
    "commented, line by line": (
        "d.json",
        "text = ''\nwith open('d.json') as f:\n    for line in f:\n        line = line.split('//')[0] + '\\n'\n        text += line\ncfg = json.loads(text)",
    ),
    "commented, in one line": (
        "d.json",
        "cfg = json.loads('\\n'.join(l.split('//')[0] for l in open('d.json').read().splitlines()))",
    ),
    "commented, by a pattern": (
        "d.json",
        "import re\nwith open('d.json') as f:\n    cfg = json.loads(re.sub('//.*', '', f.read()))",
    ),
    "argument of the script": (
        "conf/e.yaml",
        "import sys, yaml\ndef load(argv):\n    with open(argv[0]) as f:\n        return yaml.safe_load(f)\ncfg = load(sys.argv[1:])",
    ),
    "joined": ("conf/c.json", 'import os\ncfg = json.load(open(os.path.join("conf", "c.json")))'),
}  # fmt: skip


def files(name: str) -> dict[str, str]:
    text = {"json": JSON, "yaml": YAML, "yml": YAML, "toml": TOML}[name.rpartition(".")[2]]
    if name == "d.json":
        text = "// rows\n" + text.replace("12", '12 // of "data"\n/* and\n"no": 1 */')
    return {name: text, "nets_of_settings.py": NETS, "rows_of_settings.py": ROWS}


def train(load: str, loader: str = SINGLE) -> str:
    return TRAIN.replace("{load}", load).replace("{loader}", loader)


@pytest.mark.parametrize("kind", LOADS)
def test_objects_are_followed_and_numbers_named(kind: str) -> None:
    name, load = LOADS[kind]
    found = apply("num-workers pin-memory non-blocking", train(load), files=files(name))
    line = files(name)[name].lstrip("\n").split("\n")
    number = next(n for n, text in enumerate(line, 1) if "num_workers" in text)
    assert f"the number of cores in line {number} of {name}" in found.advice
    assert "pin_memory=device.type ==" in found.text
    assert "x.to(device, non_blocking=True)" in found.text


def test_no_workers_in_a_file_get_the_reason_too() -> None:
    name, load = LOADS["yaml"]
    made = ROWS.replace("with open(__file__) as f:", "if self.n:").replace("len(f.read())", "i * i")
    found = apply("num-workers", train(load), files=files(name) | {"rows_of_settings.py": made})
    assert "items of Rows are made in memory" in found.refusals and not found.advice


def test_what_comes_through_two_stars_is_advice() -> None:
    name, load = LOADS["only"]
    found = apply("pin-memory persistent-workers", train(load, SPREAD), files=files(name))
    assert "set pin_memory beside the arguments of line 4 of config.json" in found.advice
    assert not found.fixes


def test_a_class_that_settings_name_gets_no_fused() -> None:
    name, load = LOADS["only"]
    found = apply("fused-optimizer", train(load), files=files(name))
    assert not found.fixes
    assert "set fused to true among the arguments of line 7 of config.json" in found.advice
    assert [f.node.lineno for f in found.findings] == [16]  # where the script asks for it


def test_other_classes_of_the_module_may_be_named() -> None:
    """A second network, whose ``.view`` would raise in the new layout, may be asked for by other
    settings.
    """
    name, load = LOADS["only"]
    net = NETS.replace("nn.Linear(6, width)", "nn.Conv2d(6, width, 1)").replace(
        "self.b(self", "(self"
    )
    other = net + (
        "class Other(Base):\n    def __init__(self, width=4):\n        super().__init__()\n"
        "        self.a = nn.Conv2d(6, width, 1)\n    def forward(self, x):\n        return UNKNOWN(self.a(x))\n"
    )  # fmt: skip
    one = apply("channels-last", train(load), files=files(name) | {"nets_of_settings.py": net})
    two = apply("channels-last", train(load), files=files(name) | {"nets_of_settings.py": other})
    assert one.fixes and not two.fixes


@pytest.mark.parametrize("second", ["other.json", "conf/other.json"])
def test_two_files_that_fit_are_none(second: str) -> None:
    name, load = LOADS["only"]
    found = apply("num-workers non-blocking", train(load), files=files(name) | {second: JSON})
    assert not found.advice


def test_a_setting_is_no_constant(tmp_path: Path) -> None:
    """What is off by default is not taken for off for ever: both arms are read."""
    (tmp_path / "a.json").write_text('{"flag": false, "none": null, "n": 3}')
    (tmp_path / "train.py").write_text(
        "import json, torch\ncfg = json.load(open('a.json'))\n"
        "if cfg['flag']:\n    torch.manual_seed(1)\nelse:\n    torch.manual_seed(2)\n"
        "if cfg['none'] is None:\n    torch.manual_seed(3)\nelse:\n    torch.manual_seed(4)\n"
        "if cfg['n'] == 3:\n    torch.manual_seed(5)\nelse:\n    torch.manual_seed(6)\n"
    )
    script = read_script(tmp_path / "train.py", tmp_path)
    assert len(script.calls("torch.manual_seed")) == 6


def test_the_rewritten_project_trains_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, load = LOADS["joined"]
    text = train(load)
    found = apply("pin-memory non-blocking", text, files=files(name))
    assert found.fixes
    assert losses_of(tmp_path, monkeypatch, name, found, text) == losses_of(
        tmp_path, monkeypatch, name, found, found.text
    )


def losses_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: Applied, text: str
) -> list[float]:
    import torch

    for path, content in {**files(name), **found.texts, "train.py": text}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(content.lstrip("\n"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    torch.manual_seed(0)
    try:
        return [float(x) for x in runpy.run_path("train.py")["losses"]]
    finally:
        for module in ("nets_of_settings", "rows_of_settings"):
            sys.modules.pop(module, None)


def test_settings_that_a_file_may_override_are_not_known(tmp_path: Path):
    """yacs: what stands in the code is a default, once a file is merged into it."""
    code = """
    from yacs.config import CfgNode
    class Config:
        def __init__(self, path):
            self._C = CfgNode()
            self._C.TRAIN = CfgNode()
            self._C.TRAIN.SIZE = 1
            {}
        def __getattr__(self, name):
            return self._C.__getattr__(name)
    config = Config("train.yml")
    size = config.TRAIN.SIZE
    """
    for line, known in (("self._C.freeze()", True), ("self._C.merge_from_file(path)", False)):
        entry = tmp_path / "train.py"
        entry.write_text(textwrap.dedent(code.format(line)))
        script = read_script(entry, tmp_path)
        value = next(
            n.value for n in script.each(ast.Assign) if ast.unparse(n) == "size = config.TRAIN.SIZE"
        )
        assert (const(script.values(value)) == 1) is known


@pytest.mark.parametrize(
    "load",
    [
        'import os\nbase = os.path.join("conf", "base.json")\ncfg = json.load(open(base.split(".")[0] + "_big.json"))',
        'import re\ncfg = json.loads(re.sub("4", "8", open("conf/base.json").read()))',
        'import re\ncfg = json.loads(re.sub("//a", "//b", open("conf/base.json").read()))',
        'cfg = json.load(open("conf/base.json" + input()))',
    ],
)
def test_a_path_that_is_cut_or_a_text_that_is_changed_is_another(load: str) -> None:
    """What is loaded is not what the file says."""
    more = files("conf/base.json") | {"conf/base_big.json": JSON.replace('"num_workers": 0', '"num_workers": 8')}  # fmt: skip
    found = apply("num-workers pin-memory", train(load), files=more)
    assert "base.json" not in found.advice


FAMILY = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import datasets, transforms
from base_of_settings import Base
class Small(Base):
    def __init__(self, width=4):
        super().__init__()
        self.a = nn.Conv2d(6, width, 1)
    def forward(self, x):
        return F.relu(self.a(x))
"""

BY_PATH = """
from functools import reduce
from operator import getitem
for key, value in {"loader;batch_size": getattr(args, "bs", None)}.items():
    if value is not None:
        *path, last = key.split(";")
        reduce(getitem, path, cfg)[last] = value
"""


def test_what_is_called_is_neither_a_module_nor_what_a_class_was_imported_for() -> None:
    """Options may change any setting: any class of the module may be named, and only those."""
    name, load = LOADS["only"]
    load += BY_PATH
    base = NETS.split("class Small")[0].replace("parts(self)", "forward(self, *inputs)")
    more = {"nets_of_settings.py": FAMILY, "base_of_settings.py": base}
    found = apply("channels-last", train(load), files=files(name) | more)
    assert found.fixes, found.refusals
    more["nets_of_settings.py"] += (
        "\n\nclass Other(nn.Module):\n    def forward(self, x):\n        return unknown(x)\n"
    )
    assert not apply("channels-last", train(load), files=files(name) | more).fixes


CHOSEN = """
import argparse
import torch
from torch import nn
import nets_of_settings as nets
parser = argparse.ArgumentParser()
parser.add_argument("--arch", default="made")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = getattr(nets, args.arch)().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(8, 3, 8, 8).to(device), torch.randint(0, 4, (8,)).to(device)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SHAPED = """
import torch
from torch import nn
class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3)
    def forward(self, x):
        x = self.c(x)
        return x.view(len(x) * 4, -1).mean(1).view(-1, 4)
"""


@pytest.mark.parametrize(
    "made", ["made = lambda: other_of_settings.Odd()", "made = partial(other_of_settings.Odd)"]
)
def test_a_lambda_that_the_default_names_may_stand_for_a_class(made: str) -> None:
    """Another option means the class beside it, which has to fit as well."""
    nets = SHAPED + f"import other_of_settings\nfrom functools import partial\n{made}\n"
    files = {"nets_of_settings.py": nets, "other_of_settings.py": SHAPED}
    found = apply("channels-last", CHOSEN, files=files)
    assert not found.fixes or "x.view(" not in found.texts["nets_of_settings.py"]
