"""Modules below modules, in the ways in which projects write them: what rules about layers see of
them.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from autofast.model.tensors import is_unknown_in
from autofast.model.values import Dict, Ext, Method, Tensor
from autofast.read.recover.models import layers_of
from autofast.read.state.type_tests import LAYER
from tests.amp import close
from tests.onerule import apply, run
from tests.reading import HEAD, read, shown

SCRIPT = """
import torch, torch.nn as nn, torch.nn.functional as F
from collections import OrderedDict

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
X = torch.randn(4, 2, 3, 8, 8)
Y = torch.randint(0, 4, (4, 2))
base = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
    nn.Conv2d(64, 64, 3), nn.ReLU(),
)
{classes}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        {makes}
        self.fc = nn.Linear(64, 4)

    def forward(self, x):
        {runs}
        return self.fc(x.mean((2, 3)))


model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for x, y in zip(X.to(device), Y.to(device)):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def script(makes: str, runs: str, classes: str = "") -> str:
    def indented(text: str) -> str:
        return text.strip().replace("\n", "\n        ")

    return SCRIPT.format(classes=classes, makes=indented(makes), runs=indented(runs))


WAYS = {
    "children": (
        """
layers = list(base.children())
self.a = nn.Sequential(*layers[:2])
self.b = nn.Sequential(*layers[2:])
""",
        "x = self.b(self.a(x))",
        "",
    ),
    "slice": ("self.a, self.b = base[:2], base[2:]", "x = self.b(self.a(x))", ""),
    "iterate": (
        "self.body = base",
        """
for layer in self.body[:-1]:
    x = layer(x)
""",
        "",
    ),
    "items": (
        "self.body = base",
        """
for name, layer in self.body.named_children():
    x = layer(x)
""",
        "",
    ),
    "modules dict": (
        "self.body = base",
        """
for name, layer in self.body._modules.items():
    x = layer(x)
""",
        "",
    ),
    "subscript": (
        "self.body = nn.ModuleList([base, nn.ReLU()])",
        "x = self.body[1](self.body[0](x))",
        "",
    ),
    "super init": (
        "self.a, self.b = ConvReLU(3, 64), ConvReLU(64, 64)",
        "x = self.b(self.a(x))",
        """
class ConvReLU(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
""",
    ),
    "super init list": (
        "self.a = Blocks(3)",
        "x = self.a(x)",
        """
class Blocks(nn.Sequential):
    def __init__(self, n):
        layers = [nn.Conv2d(3, 64, 3, padding=1)]
        for _ in range(n):
            layers += [nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
        super(Blocks, self).__init__(*layers)
""",
    ),
    "dense": (
        """
self.first = nn.Conv2d(3, 16, 3)
self.body = nn.Sequential(OrderedDict([("c", nn.Conv2d(16, 16, 3)), ("r", nn.ReLU())]))
self.body.add_module("block", Block(3, 16, 16))
""",
        "x = self.body(self.first(x))",
        """
class Layer(nn.Sequential):
    def __init__(self, a, g):
        super().__init__()
        self.add_module("norm", nn.BatchNorm2d(a))
        self.add_module("relu", nn.ReLU(inplace=True))
        self.add_module("conv", nn.Conv2d(a, g, 3, padding=1))

    def forward(self, x):
        new = super(Layer, self).forward(x)
        return torch.cat([x, new], 1)

class Block(nn.Sequential):
    def __init__(self, n, a, g):
        super().__init__()
        for i in range(n):
            self.add_module("denselayer%d" % (i + 1), Layer(a + i * g, g))
""",
    ),
    "dense dict": (
        """
self.body = Block(3, 16, 16)
self.first = nn.Conv2d(3, 16, 3)
""",
        "x = self.body(self.first(x))",
        """
class Layer(nn.Module):
    def __init__(self, a, g):
        super().__init__()
        self.conv = nn.Conv2d(a, g, 3, padding=1)

    def forward(self, xs):
        return torch.relu(self.conv(torch.cat(xs, 1)))

class Block(nn.ModuleDict):
    def __init__(self, n, a, g):
        super().__init__()
        for i in range(n):
            self.add_module("denselayer%d" % (i + 1), Layer(a + i * g, g))

    def forward(self, first):
        xs = [first]
        for name, layer in self.items():
            xs.append(layer(xs))
        return torch.cat(xs, 1)
""",
    ),
    "iterate self": (
        "self.body = Seq(nn.Conv2d(3, 64, 3), Step(), nn.Conv2d(64, 64, 3))",
        "x = self.body(x, 2)",
        """
class Step(nn.Module):
    def forward(self, x, n):
        return x * n

class Seq(nn.Sequential):
    def forward(self, x, n):
        for layer in self:
            if isinstance(layer, Step):
                x = layer(x, n)
            else:
                x = layer(x)
        return x
""",
    ),
    "children self": (
        "self.body = Seq(nn.Conv2d(3, 64, 3), nn.ReLU())",
        "x = self.body(x)",
        """
class Seq(nn.Sequential):
    def forward(self, x):
        for module in self._modules.values():
            x = module(x)
        return x
""",
    ),
    "index self": (
        "self.body = Seq(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3))",
        "x = self.body(x)",
        """
class Seq(nn.Sequential):
    def forward(self, x):
        return F.relu(self[1](F.relu(self[0](x))))
""",
    ),
    "list self": (
        "self.body = Many([nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3)])",
        "x = self.body(x)",
        """
class Many(nn.ModuleList):
    def forward(self, x):
        for layer in self:
            x = F.relu(layer(x))
        return x
""",
    ),
    "named": (
        """
for i in range(3):
    self.add_module(f"conv{i}", nn.Conv2d(64 if i else 3, 64, 3, padding=1))
""",
        """
for i in range(3):
    x = torch.relu(getattr(self, f"conv{i}")(x))
""",
        "",
    ),
    "named setattr": (
        """
for i in range(3):
    setattr(self, "conv%d" % i, nn.Conv2d(64 if i else 3, 64, 3, padding=1))
""",
        """
for i in range(3):
    x = torch.relu(self._modules["conv%d" % i](x))
""",
        "",
    ),
    "named in a variable": (
        """
for i in range(3):
    name = "conv" + str(i)
    setattr(self, name, nn.Conv2d(64 if i else 3, 64, 3, padding=1))
""",
        """
for i in range(3):
    name = "conv" + str(i)
    x = torch.relu(getattr(self, name)(x))
""",
        "",
    ),
    "named format": (
        """
for name in ("a", "b"):
    self.add_module("conv_{}".format(name), nn.Conv2d(64 if name == "b" else 3, 64, 3, padding=1))
""",
        "x = self.conv_b(self.conv_a(x))",
        "",
    ),
    "dict by computed names": (
        """
self.body = nn.ModuleDict()
for i in range(2):
    self.body[f"conv{i}"] = nn.Conv2d(64 if i else 3, 64, 3, padding=1)
self.body["relu"] = nn.ReLU()
""",
        """
for i in range(2):
    x = self.body[f"conv{i}"](x)
x = self.body["relu"](x)
""",
        "",
    ),
    "dict of a comprehension": (
        """
self.body = nn.ModuleDict({f"conv{i}": ConvReLU(64 if i else 3, 64) for i in range(2)})
""",
        """
for name, layer in self.body.items():
    x = layer(x)
""",
        """
class ConvReLU(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv = nn.Conv2d(a, b, 3, padding=1)
    def forward(self, x):
        return F.relu(self.conv(x))
""",
    ),
    "list that fills itself": (
        "self.body = Blocks(3)",
        "x = self.body(x)",
        """
class Blocks(nn.ModuleList):
    def __init__(self, n):
        super().__init__()
        for i in range(n):
            self.append(nn.Conv2d(64 if i else 3, 64, 3, padding=1))
    def forward(self, x):
        for layer in self:
            x = F.relu(layer(x))
        return x
""",
    ),
    "reduce": (
        "self.body = nn.ModuleList([nn.Conv2d(3, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3)])",
        "x = functools.reduce(lambda x, layer: layer(x), self.body, x)",
        "import functools",
    ),
    "computed code": (
        """
for i in range(2):
    setattr(self, "conv%d" % i, nn.Conv2d(64 if i else 3, 64, 3, padding=1))
""",
        """
for i in range(2):
    x = F.relu(eval("self.conv%d" % i)(x))
""",
        "",
    ),
    "pop": (
        """
layers = [*base]
layers.pop()
self.body = nn.Sequential(*layers)
""",
        "x = self.body(x)",
        "",
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_layers_are_seen(way: str) -> None:
    text = script(*WAYS[way])
    found = apply("autocast channels-last", text)
    assert {f.rule for f in found.fixes} == {"autocast", "channels-last"}, found.refusals
    on_cpu = apply("autocast channels-last", text, target="cpu")
    before, after = run(text)["losses"], run(on_cpu.text)["losses"]
    assert before != after and close(before, after)
    assert close(run(found.text)["losses"], before, 1e-3)


SUB = """class Sub(nn.Sequential):
        def __init__(self):
            super().__init__(nn.ReLU(), nn.LSTM(8, 8))"""
ROWS = "class Rows(nn.Sequential): pass"
LATE = """class Late(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(n):
                self.add_module(f"part{i}", nn.LSTM(8, 8))
        def forward(self, x):
            for part in self.children():
                x = part(x)[0]
            return x"""
PAIRS = """pairs = []
    for i in range(n):
        pairs.append((f"part{i}", nn.LSTM(8, 8)))"""


@pytest.mark.parametrize(
    ("before", "made"),
    [
        (ROWS, "Rows(nn.LSTM(8, 8))"),
        (ROWS, "Rows(*[nn.LSTM(8, 8) for _ in range(n)])"),
        (ROWS, 'Rows(OrderedDict([("lstm", nn.LSTM(8, 8))]))'),
        (SUB, "Sub()"),
        (LATE, "Late()"),
        (PAIRS, "nn.Sequential(OrderedDict(pairs))"),
    ],
)
def test_no_layer_is_overlooked(before: str, made: str, tmp_path: Path) -> None:
    code = f"""
    import sys
    from collections import OrderedDict
    import torch
    import torch.nn as nn

    n = len(sys.argv)
    {before}
    model = {made}
    model(torch.randn(2, 3, 8))
    """
    models = read(tmp_path, code).models
    layers, unknown, _ = layers_of(models[0].thing)
    assert "LSTM" in layers and not unknown


@pytest.mark.parametrize(
    "makes",
    [
        "self.a = nn.Sequential(*list(load().children())[:2])",
        "self.a = nn.Sequential(OrderedDict(load()))",
        "self.a = Rows(*load())",
    ],
)
def test_what_may_be_another_layer_is_not_known(makes: str) -> None:
    before = "from elsewhere import load\nclass Rows(nn.Sequential): pass"
    found = apply("autocast channels-last", script(makes, "x = self.a(x)", before))
    assert not found.fixes and "not known" in found.refusals


def test_a_library_s_model_keeps_its_parts_where_one_is_replaced(tmp_path: Path) -> None:
    code = """
    import torch
    import torch.nn as nn
    import torchvision

    whole = torchvision.models.resnet18(weights=None)
    whole.conv1 = nn.Conv2d(1, 64, 7, 2, 3, bias=False)
    model = nn.Sequential(*list(whole.children())[:-1])
    model(torch.randn(2, 1, 28, 28))
    """
    layers, unknown, _ = layers_of(read(tmp_path, code).models[0].thing)
    assert {"torchvision.models.resnet18", "Conv2d"} <= layers and not unknown


@pytest.mark.parametrize(
    "parts", ["list(net.features.children())[:23]", "net.features[:23]", "net.features.children()"]
)
def test_a_part_of_a_library_s_model_is_taken_for_the_whole(parts: str, tmp_path: Path) -> None:
    code = f"""
    import torch
    import torch.nn as nn
    import torchvision

    net = torchvision.models.vgg16(weights=None)
    model = nn.Sequential(*{parts}, nn.Conv2d(512, 1, 1))
    model(torch.randn(2, 3, 64, 64))
    """
    layers, unknown, _ = layers_of(read(tmp_path, code).models[0].thing)
    assert {"torchvision.models.vgg16", "Conv2d"} <= layers and not unknown


@pytest.mark.parametrize(
    "found", ["getattr(sys.modules[__name__], name)", "sys.modules[__name__].__dict__[name]"]
)
def test_a_function_of_the_module_that_asks_for_it(found: str, tmp_path: Path) -> None:
    nets = f"""
    import sys
    import torch.nn as nn

    def small():
        return nn.LSTM(8, 8)

    def make(name):
        return {found}()
    """
    code = "import torch\nfrom nets import make\nmake('small')(torch.randn(2, 3, 8))"
    layers, unknown, _ = layers_of(read(tmp_path, code, {"nets.py": nets}).models[0].thing)
    assert "LSTM" in layers and not unknown


def test_many_blocks_of_one_class_are_known_as_such(tmp_path: Path) -> None:
    """A deep network has a hundred of them: to their methods, each is still one of that class."""
    made = "\n".join(f"        self.b{i} = Block()" for i in range(60))
    runs = "\n".join(f"        x = self.b{i}(x)" for i in range(60))
    code = f"""
import torch, torch.nn as nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
{made}

    def forward(self, x):
{runs}
        return x

Net()(torch.ones(2, 4)).sum().backward()
"""
    found = read(tmp_path, code)
    (name,) = {
        n.func.value
        for source in found.sources
        for n in source.nodes
        if isinstance(n, ast.Call)
        and ast.unparse(n) == "self.fc(x)"
        and isinstance(n.func, ast.Attribute)
    }
    assert len(found.values(name)) == 60
    assert not is_unknown_in(found.values(name))


def test_below_a_test_for_modules_are_modules(tmp_path: Path) -> None:
    """A dict of modules is none, and has no `parameters` that one of them could be."""
    code = """
table = {probe.name(): nn.Linear(2, 2)}
x = table if probe.maybe() else nn.Linear(2, 2)
if isinstance(x, nn.Module):
    probe.show(x)
probe.show(table.parameters)
"""
    found = shown(read(tmp_path, HEAD + code))
    assert [t.name for t in found if isinstance(t, Ext)] == ["torch.nn.Linear"]
    assert not any(isinstance(t, Dict) for t in found)
    assert any(isinstance(t, Method) for t in found)


INITIALISED = """
import torch
from torch import nn

torch.manual_seed(0)

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.log = nn.Parameter(torch.zeros(4))

    def forward(self, x):
        return x * self.log.exp()

model = nn.Sequential(nn.Linear(4, 4), Scale(), nn.Sequential(nn.Linear(4, 4), nn.ReLU6()))
for module in model.modules():
    if isinstance(module, {asked}):
        reached = module.weight
    else:
        other = module
"""


def test_layers_that_are_asked_for_by_their_class(tmp_path: Path) -> None:
    def modules(asked: str, arm: str) -> set[str]:
        script = read(tmp_path, INITIALISED.format(asked=asked))
        place = ast.Attribute if arm == "if" else ast.Name
        for node in script.each(ast.Assign):
            value = node.value.value if isinstance(node.value, ast.Attribute) else node.value
            if isinstance(node.value, place) and isinstance(value, ast.Name):
                if value.id == "module":
                    return {getattr(t, "name", "Scale") for t in script.values(value)}
        return set()

    assert modules("nn.Linear", "if") == {"torch.nn.Linear", "torch.nn.ReLU6"}
    assert "Scale" in modules("nn.Linear", "else")
    assert "Scale" in modules("(nn.Linear, Scale)", "if")
    assert "torch.nn.Linear" in modules("nn.Linear", "else")  # it may have been replaced
    assert modules("nn.Embedding", "if")  # what is asked for may be in what is not known


def test_no_layer_that_is_told_apart_extends_another() -> None:
    layers = [c for n, c in vars(torch.nn).items() if LAYER.fullmatch(f"torch.nn.{n}")]
    assert len(layers) > 30
    assert not [(a, b) for a in layers for b in layers if a is not b and issubclass(a, b)]


DATA = """
import numpy as np
from torch.utils.data import DataLoader, TensorDataset

rows = np.linspace(0, 1, 256).astype("float32").reshape(64, 4)
loader = DataLoader(TensorDataset(torch.from_numpy(rows)), batch_size=8, shuffle=True)
for module in model.modules():
    if isinstance(module, nn.Linear):
        nn.init.orthogonal_(module.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(3):
    for (x,) in loader:
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""


def test_what_layers_begin_as_is_not_written_to_the_data() -> None:
    text = INITIALISED.partition("for module")[0] + DATA
    done = apply("batched-dataset", text)
    assert done.fixes and run(done.text)["losses"] == run(text)["losses"]


COLLATED = """
import torch
from torch.utils.data import DataLoader, Dataset
import probe


class Paths(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return [str(i)]


def load(batch):
    return torch.stack([torch.full((2,), float(path[0])) for path in batch])


class Loader(DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.collate_fn = load


loader = {made}
for batch in loader:
    probe.show(batch)
"""


@pytest.mark.parametrize(
    "made", ["Loader(Paths(), 2)", "DataLoader(Paths(), 2)\nloader.collate_fn = load"]
)
def test_a_collate_function_that_is_set_later(made: str, tmp_path: Path) -> None:
    found = shown(read(tmp_path, COLLATED.replace("{made}", made)))
    assert found and all(isinstance(t, Tensor) for t in found)
