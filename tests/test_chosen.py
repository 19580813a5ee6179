"""Networks, data and trainers that a script chooses by a name which may change: what does not
depend on the choice is rewritten, what does is left, with the reason.
"""

from __future__ import annotations

import ast
import importlib
import runpy
import sys
import types
from pathlib import Path

import pytest

from autofast.model.values import Setting
from autofast.read import read_script
from autofast.read.interpreter import calls
from tests.onerule import Applied, apply

NETS = """
import torch.nn as nn
class Small(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.a = nn.Linear(6, width)
        self.b = nn.Linear(width, 3)
    def forward(self, x):
        return self.b(self.a(x).relu())
class Wide(Small):
    pass
"""
LOOP = """
def train(model, loader, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for epoch in range(2):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return losses

def evaluate(model, loader, device):
    model.eval()
    right = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        right += (model(x).argmax(1) == y).sum().item()
    return right
"""
TRAIN = (
    """
import argparse
import importlib
import sys
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{imports}
"""
    + LOOP
    + """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(16, 6), torch.arange(16) % 3)
loader = DataLoader(data, batch_size=4, shuffle=True, pin_memory=True)
model = {make}
model = model.to(device)
losses = train(model, loader, device)
print(evaluate(model, loader, device))
"""
)
SETTINGS = 'import yaml\nwith open("a.yaml") as f:\n    cfg = yaml.safe_load(f)'
TARGET = "model:\n  target: nets_chosen.Small\n  module: nets_chosen\n  type: Small\n  args: {width: 5}\n"
FILES = {"nets_chosen.py": NETS, "a.yaml": TARGET}
OPTION = """
parser = argparse.ArgumentParser()
parser.add_argument("--net", default=None)
args = parser.parse_args()
import nets_chosen as nets
"""
BY_SETTINGS = {
    "module": ("", 'getattr(importlib.import_module(cfg["model"]["module"]), cfg["model"]["type"])()'),
    "rsplit": (
        'def made(text):\n    module, name = text.rsplit(".", 1)\n'
        "    return getattr(importlib.import_module(module), name)",
        'made(cfg["model"]["target"])(**cfg["model"]["args"])',
    ),
    "split": (
        'def made(text):\n    parts = text.split(".")\n'
        '    return getattr(importlib.import_module(".".join(parts[:-1])), parts[-1])',
        'made(cfg["model"]["target"])()',
    ),
    "__import__": ("", 'getattr(__import__(cfg["model"]["module"]), cfg["model"]["type"])()'),
    "locate": ("from pydoc import locate", 'locate(cfg["model"]["target"])(**cfg["model"]["args"])'),
}  # fmt: skip
RULES = "autocast non-blocking no-grad-eval"


def chosen(
    make: str, imports: str = "", files: dict[str, str] = FILES, rules: str = RULES
) -> Applied:
    text = TRAIN.replace("{imports}", imports).replace("{make}", make)
    return apply(rules, text, files=files)


def losses(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], text: str
) -> list[float]:
    import torch

    for path, content in {**files, "train.py": text}.items():
        (folder / path).write_text(content.lstrip("\n"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "argv", ["train.py"])
    torch.manual_seed(0)
    try:
        return [float(x) for x in runpy.run_path("train.py")["losses"]]
    finally:
        sys.modules.pop("nets_chosen", None)


@pytest.mark.parametrize("kind", BY_SETTINGS)
@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
def test_a_class_of_a_module_that_settings_name(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its step is rewritten; other settings may name a network that takes no 16 bits."""
    helper, make = BY_SETTINGS[kind]
    found = chosen(make, f"{SETTINGS}\n{helper}")
    assert {f.rule for f in found.fixes} == {"non-blocking", "no-grad-eval"}
    assert "the attribute's name is computed" in found.refusals
    before = TRAIN.replace("{imports}", f"{SETTINGS}\n{helper}").replace("{make}", make)
    texts = {**FILES, **{k: v for k, v in found.texts.items() if k != "train.py"}}
    assert losses(tmp_path, monkeypatch, FILES, before) == losses(
        tmp_path, monkeypatch, texts, found.text
    )


def test_digits_that_another_network_may_need() -> None:
    found = chosen(BY_SETTINGS["module"][1], SETTINGS, rules="tf32")
    assert not found.fixes and "perhaps the network" in found.refusals
    assert chosen("importlib.import_module('nets_chosen').Small()", rules="tf32").fixes


def many(more: str = "") -> dict[str, str]:
    classes = "".join(f"class Net{n}(Small):\n    size = {n}\n" for n in range(30))
    return {"nets_chosen.py": f"{NETS}{classes}{more}"}


def test_one_of_many_networks() -> None:
    """None is followed: what the gradient mode changes is left where they may compute gradients
    themselves, or keep what they compute.
    """
    make = "getattr(nets, args.net)()"
    found = chosen(make, OPTION, many())
    assert {f.rule for f in found.fixes} == {"non-blocking", "no-grad-eval"}
    assert "what Module is made of is not known" in found.refusals
    named = 'getattr(nets, cfg["model"]["type"])()'  # the default's is followed
    found = chosen(named, f"import nets_chosen as nets\n{SETTINGS}", {**many(), "a.yaml": TARGET})
    assert {f.rule for f in found.fixes} == {"non-blocking", "no-grad-eval"}
    assert "the attribute's name is computed" in found.refusals
    keeps = (
        "class Keeps(Small):\n    def forward(self, x):\n        self.last = x\n        return x\n"
    )
    own = "import torch\ndef force(e, x):\n    return torch.autograd.grad(e, x)\n"
    for more in (keeps, own):
        found = chosen(make, OPTION, many(more))
        assert {f.rule for f in found.fixes} == {"non-blocking"}


def test_a_base_class_is_not_what_a_name_means() -> None:
    files = {"nets_chosen.py": NETS.replace("import torch.nn as nn", "from torch import nn\nfrom torch.nn import Module")
             .replace("(nn.Module)", "(Module)")}  # fmt: skip
    found = chosen("getattr(nets, input())()", OPTION, files)
    assert {f.rule for f in found.fixes} == {"autocast", "non-blocking", "no-grad-eval"}


def test_registries_that_subclasses_fill() -> None:
    hook = """
class Base(nn.Module):
    kinds = {}
    def __init_subclass__(cls, name="", **more):
        super().__init_subclass__(**more)
        Base.kinds[name or cls.__name__] = cls
"""
    text = NETS.replace("import torch.nn as nn", f"import torch.nn as nn{hook}")
    text = text.replace("Small(nn.Module)", 'Small(Base, name="small")')
    files = {"nets_chosen.py": text}
    found = chosen('nets.Base.kinds[args.net or "small"]()', OPTION, files)
    assert {f.rule for f in found.fixes} == {"autocast", "non-blocking", "no-grad-eval"}
    # One of them, too, that gives its input to what is not known.
    text += "class Other(Base):\n    def forward(self, x):\n        return UNKNOWN(x)\n"
    found = chosen("nets.Base.kinds[args.net]()", OPTION, {"nets_chosen.py": text})
    assert {f.rule for f in found.fixes} == {"non-blocking", "no-grad-eval"}


def test_several_networks_that_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where to follow each would use up the budget, none is, and the loop is read."""
    make = "{'a': nets.Small, 'b': nets.Wide}[args.net]()"
    assert "autocast" in {f.rule for f in chosen(make, OPTION).fixes}
    monkeypatch.setattr(calls, "SEVERAL", 20)
    found = chosen(make, OPTION)
    assert {f.rule for f in found.fixes} == {"non-blocking", "no-grad-eval"}
    assert "what Module is made of is not known" in found.refusals


HYDRA = (
    """
import hydra
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
"""
    + LOOP
    + """
@hydra.main(config_path="conf", config_name="base", version_base=None)
def main(cfg):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(16, 6), torch.arange(16) % 3)
    loader = DataLoader(data, batch_size=4, shuffle=True, pin_memory=True)
    model = hydra.utils.instantiate(cfg.{model}).to(device)
    return train(model, loader, device)
losses = main()
"""
)
CONF = {
    "nets_chosen.py": NETS,
    "conf/base.yaml": "defaults:\n  - _self_\n  - net: small\n  - optional more: none\nnet: {width: 3}\n",
    "conf/net/small.yaml": "_target_: nets_chosen.Small\nwidth: 5\n",
    "conf/other.yaml": "# @package _global_\nnet: {width: 7}\n",
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*pin_memory.*")
def test_hydra_makes_what_the_settings_of_a_group_describe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HYDRA.replace("{model}", "net")
    found = apply(RULES, text, files=CONF)
    assert {f.rule for f in found.fixes} == {"non-blocking"}
    assert "gives tensors to something that is not known" in found.refusals  # another may be named
    fake = types.ModuleType("hydra")
    small = {"_target_": "nets_chosen.Small", "width": 5}
    fake.main = lambda **_: lambda f: lambda: f(types.SimpleNamespace(net=small))  # type: ignore[attr-defined]
    fake.utils = types.SimpleNamespace(  # type: ignore[attr-defined]
        instantiate=lambda c: importlib.import_module("nets_chosen").Small(c["width"])
    )
    monkeypatch.setitem(sys.modules, "hydra", fake)
    files = {"nets_chosen.py": NETS}
    before = losses(tmp_path, monkeypatch, files, text)
    assert losses(tmp_path, monkeypatch, files, found.text) == before


def test_settings_of_hydra(tmp_path: Path) -> None:
    """What stands first gives way, ``_self_`` as well; a file for the whole table is put there."""
    for name, defaults, width in (
        ("last", "[net: small, _self_]", 3),
        ("first", "[_self_, net: small]", 5),
        ("whole", "[net: small, _self_, other]", 7),
    ):
        files = {**CONF, f"conf/{name}.yaml": f"defaults: {defaults}\nnet: {{width: 3}}\n"}
        text = f"import hydra\n@hydra.main('conf', '{name}')\ndef main(cfg):\n    f(cfg.net.width)\nmain()\n"
        for path, content in {**files, "train.py": text}.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(content.lstrip("\n"))
        script = read_script(tmp_path / "train.py", tmp_path)
        call = next(c for c in script.each(ast.Call) if ast.unparse(c.func) == "f")
        (setting,) = script.values(call.args[0])
        assert isinstance(setting, Setting) and setting.value == width
