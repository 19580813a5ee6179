"""cache-constant: what comes out the same at every call is computed once."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.onerule import Applied, apply, run

HEAD = """
import argparse
import functools
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MEAN = np.ones(3, dtype=np.float32)
MEAN[0] += 1


class Move:
    def __init__(self, table):
        self.table = table
        self.step()

    def step(self):
        self.table += 1
"""
LOOP = """
SHIFT = 1.0
data = TensorDataset(torch.randn(32, 3), torch.randint(0, 3, (32,)))
loader = DataLoader(data, batch_size=8)
model = Net([0.2, 0.3, 0.5]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    SHIFT += 1
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
NET = """
class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.mean = mean
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        shift = torch.tensor(self.mean).view(1, 3).to(x.device)
        return self.layer(x - shift)
"""
SPEECH = """
def filters(bins, bands):
    bank = torch.zeros(bins, bands)
    for m in range(bands):
        for k in range(bins):
            bank[k, m] = max(0.0, 1 - abs(k - m * bins / bands))
    return bank


class Clips(Dataset):
    def __init__(self, n, bins=8):
        self.waves = torch.randn(n, 8)
        self.bins = bins

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        bank = filters(self.bins, 3)
        return self.waves[i] @ bank, i % 3


class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x)
"""
CLIPS = LOOP.replace(
    "data = TensorDataset(torch.randn(32, 3), torch.randint(0, 3, (32,)))", "data = Clips(32)"
)


def changed(*parts: str) -> Applied:
    return apply("cache-constant", HEAD + "".join(map(textwrap.dedent, parts)))


def fitted(*parts: str) -> list[str]:
    """The new lines, where the losses stay the same."""
    text = HEAD + "".join(map(textwrap.dedent, parts))
    found = apply("cache-constant", text)
    before, after = run(text), run(found.text)
    assert before["losses"] == after["losses"] and before.get("keys") == after.get("keys")
    return found.lines


def test_a_constant_of_a_network_becomes_a_buffer() -> None:
    assert fitted(NET, LOOP) == [
        "self.register_buffer(",
        '"shift", torch.tensor(self.mean).view(1, 3), persistent=False',
        ")",
        "shift = self.shift",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "losses = []",
            "losses = []\nparser = argparse.ArgumentParser()\nsettings = dict(vars(parser.parse_args([])))",
        ),
        (
            "        return self.layer(x - shift)",
            "        if len(x) > 99:\n            return self.layer(x)\n        return self.layer(x - shift)",
        ),
        (
            "        return self.layer(x - shift)",
            "        for k in range(3):\n            if k == 1:\n                continue\n            x = x + k\n"
            "        return self.layer(x - shift)",
        ),
    ],
    ids=["options as a dict", "it may end later", "a loop below"],
)
def test_what_comes_after_does_not_matter(old: str, new: str) -> None:
    text = (NET + LOOP).replace(old, new)
    assert "shift = self.shift" in fitted(text)


def test_what_a_lambda_makes_is_left_alone() -> None:
    """And does not keep the rule from what stands beside it."""
    net = NET.replace(
        "return self.layer(x - shift)",
        "return Through()(x - shift, lambda v: self.scaled(v))\n\n"
        "    def scaled(self, v):\n"
        "        for _ in range(2):\n"
        "            v = self.layer(v)\n"
        "        return v",
    )
    through = """
    class Through(nn.Module):
        def forward(self, x, inner):
            return inner(x)
    """
    assert any("register_buffer" in line for line in fitted(net, through, LOOP))


def test_no_checkpoint_has_it() -> None:
    keys = "\nkeys = list(model.state_dict())\n"
    fitted(NET, LOOP, keys)


def test_a_loss_is_moved_where_it_is_made() -> None:
    loss = """
    class Weighted(nn.Module):
        def __init__(self, weights):
            super().__init__()
            self.weights = weights

        def forward(self, logits, y):
            return F.cross_entropy(logits, y, weight=torch.tensor(self.weights).to(logits.device))

    class Net(nn.Linear):
        def __init__(self, mean):
            super().__init__(3, 3)
    """
    loop = LOOP.replace("losses = []", "losses = []\ncriterion = Weighted([0.2, 0.3, 0.5])")
    assert fitted(loss, loop.replace("F.cross_entropy(", "criterion(")) == [
        'self.register_buffer("weight", torch.tensor(self.weights), persistent=False)',
        "return F.cross_entropy(logits, y, weight=self.weight)",
        "criterion = Weighted([0.2, 0.3, 0.5]).to(device)",
    ]


def test_what_an_item_computes_again_becomes_an_attribute() -> None:
    assert fitted(SPEECH, CLIPS) == ["self.bank = filters(self.bins, 3)", "bank = self.bank"]


def test_a_method_that_computes_from_the_constructor_alone() -> None:
    text = SPEECH.replace("bank = filters(self.bins, 3)", "bank = self._bank()").replace(
        "    def __len__(self):",
        "    def _bank(self):\n        edges = [float(m) for m in range(3)]\n"
        "        return torch.ones(self.bins, 3) * torch.tensor(edges)\n\n    def __len__(self):",
    )
    assert fitted(text, CLIPS) == ["self.bank = self._bank()", "bank = self.bank"]


def test_a_function_with_constants_is_cached() -> None:
    text = SPEECH.replace("filters(self.bins, 3)", "features(8)").replace(
        "\nclass Clips", "\ndef features(n):\n    return filters(8, 3) * n\n\n\nclass Clips"
    )
    assert fitted(text, CLIPS) == ["@functools.lru_cache(maxsize=None)"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("losses = []", "losses = []\nmodel.mean = [1.0, 2.0, 3.0]"),
        ("losses = []", "losses = []\nsetattr(model, 'me' + 'an', [1.0, 2.0, 3.0])"),
        ("losses = []", "losses = []\nmodel.mean[0] = 7.0"),
        ("losses = []", "losses = []\nmodel.mean.append(7.0)\nmodel.mean.pop(0)"),
        ("losses = []", "losses = []\nmodel.__dict__['mean'] = [1.0, 2.0, 3.0]"),
        ("losses = []", "losses = []\nvars(model).update(mean=[1.0, 2.0, 3.0])"),
        ("losses = []", "losses = []\ndict(vars(model))['mean'][0] = 7.0"),
        ("losses = []", "losses = []\nheld = vars(model)\nheld['mean'] = [1.0, 2.0, 3.0]"),
        (
            "model = Net([0.2, 0.3, 0.5])",
            "means = [0.2, 0.3, 0.5]\nmodel = Net(means)\nmeans[0] = 5.0\nmodel = model",
        ),
        (
            "model = Net([0.2, 0.3, 0.5])",
            "settings = {'mean': [0.2, 0.3, 0.5]}\nmodel = Net(**settings)\nsettings['mean'][0] = 5.0\nmodel = model",
        ),
        (
            "model = Net([0.2, 0.3, 0.5])",
            "kept = []\nmodel = Net([0.2, 0.3, 0.5])\nkept.append(model.mean)\nkept[0][0] += 1\nmodel = model",
        ),
        ("return self.layer(x - shift)", "shift += 1\n        return self.layer(x - shift)"),
        ("return self.layer(x - shift)", "shift.add_(1)\n        return self.layer(x - shift)"),
        (
            "return self.layer(x - shift)",
            "row = shift[0]\n        row += 1\n        return self.layer(x - shift)",
        ),
        (
            "return self.layer(x - shift)",
            "self.last = shift\n        self.last += 1\n        return self.layer(x - shift)",
        ),
        (
            "        shift = torch.tensor(self.mean)",
            "        if len(x) > 99:\n            return self.layer(x)\n        shift = torch.tensor(self.mean)",
        ),
        (
            "return self.layer(x - shift)",
            "shift.requires_grad_(True)\n        return self.layer(x - shift)",
        ),
        ("losses = []", "losses = []\nobject.__setattr__(model, 'me' + 'an', [1.0, 2.0, 3.0])"),
        ("self.mean = mean", "self.mean = mean\n        self.put = self.mean.append"),
        (
            "self.mean = mean",
            "self.mean = mean\n        self.put = lambda v: self.mean.__setitem__(0, v)",
        ),
        (
            "self.mean = mean",
            "self.mean = np.ones(3, dtype=np.float32)\n        self.move = Move(self.mean)",
        ),
        ("def __init__(self, mean):", "def __init__(self, _, mean=MEAN):"),
        ("torch.tensor(self.mean)", "(torch.tensor(self.mean) + torch.rand(3))"),
        ("torch.tensor(self.mean)", "torch.tensor(np.random.randn(3)).float()"),
        ("losses = []", "losses = []\nmodel.half().float()"),
        ("losses = []", "losses = []\ntorch.save(model, 'm.pt')"),
        ("losses = []", "losses = []\ntorch.set_default_dtype(torch.float32)"),
        ("torch.tensor(self.mean)", "torch.tensor([SHIFT, 0, 0]).float()"),
        ("class Net(nn.Module):", "class Net(nn.Module):\n    __slots__ = ()\n"),
        (
            "self.layer = nn.Linear(3, 3)",
            "self.layer = nn.Linear(3, 3)\n        self.first = self(torch.zeros(1, 3)).sum().item()"
            "\n        self.mean = [v + 1 for v in mean]",
        ),
    ],
)
def test_left_alone(old: str, new: str) -> None:
    both = NET + LOOP
    assert old in both
    text = HEAD + both.replace(old, new)
    assert not apply("cache-constant", text).fixes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bank = torch.zeros(bins, bands)", "bank = torch.rand(bins, bands)"),
        ("    bank = torch.zeros", "    print(bins)\n    bank = torch.zeros"),
        ("def filters", "scale = [1.0]\n\n\ndef filters"),
        (
            "return self.waves[i] @ bank, i % 3",
            "bank *= 1\n        return self.waves[i] @ bank, i % 3",
        ),
        ("return self.waves[i] @ bank, i % 3", "return bank, i % 3"),
        ("self.bins = bins", "self.bins = bins + len(self.waves)\n        self.bank = None"),
    ],
)
def test_items_left_alone(old: str, new: str) -> None:
    assert old in SPEECH
    text = SPEECH.replace(old, new)
    if "scale" in new:
        text = text.replace("    return bank\n", "    scale[0] += 1\n    return bank * scale[0]\n")
    if "None" in new:
        text = text.replace("bank = filters", "self.bank = bank = filters")
    assert not changed(text, CLIPS).fixes


def test_a_function_of_other_numbers_is_not_cached() -> None:
    text = SPEECH.replace("filters(self.bins, 3)", "features(len(self.waves) // 4)").replace(
        "\nclass Clips", "\ndef features(n):\n    return filters(n, 3) * n\n\n\nclass Clips"
    )
    assert not changed(text, CLIPS).fixes


EDGES = """
class Edges(nn.Module):
    \"\"\"Differences of neighbours.\"\"\"

    scale = 2.0

    def forward(self, x):
        kernel = torch.tensor([[[-1.0, 0.0, 1.0]]]).to(x.device)
        return F.conv1d(x[:, None], kernel, padding=1)[:, 0]


class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.edges, self.layer = Edges(), nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(self.edges(x))
"""


def test_a_network_without_a_constructor_gets_one() -> None:
    assert fitted(EDGES, LOOP) == [
        "def __init__(self):",
        "self.register_buffer(",
        '"kernel", torch.tensor([[[-1.0, 0.0, 1.0]]]), persistent=False',
        ")",
        "kernel = self.kernel",
    ]


def test_a_loss_without_a_constructor_below_one_that_is_moved() -> None:
    text = EDGES.replace("class Net", "class Loss").replace("mean):", "out=3):")
    text = text.replace("nn.Linear(3, 3)", "nn.CrossEntropyLoss()").replace(
        "def forward(self, x):\n        return self.layer(self.edges(x))",
        "def forward(self, x, y):\n        return self.layer(self.edges(x), y)",
    )
    loop = LOOP.replace("Net([0.2, 0.3, 0.5])", "nn.Linear(3, 3)").replace(
        "losses = []", "criterion = Loss().to(device)\nlosses = []"
    )
    loop = loop.replace("F.cross_entropy(model(x), y)", "criterion(model(x), y)")
    assert "kernel = self.kernel" in fitted(text, loop)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # made of what a base has, or a base that takes arguments
        ("class Edges(nn.Module)", "class Base(nn.Module):\n    def __init__(self, n=1):\n        super().__init__()\n\nclass Edges(Base)"),
        ("class Edges(nn.Module)", "class Edges(nn.Sequential)"),
        # another thing in each call
        ("[[[-1.0, 0.0, 1.0]]]", "[[[-1.0, SHIFT, 1.0]]]"),
        ("[[[-1.0, 0.0, 1.0]]]", "[[[-1.0, 0.0, self.scale]]]"),
        ("torch.tensor([[[-1.0, 0.0, 1.0]]])", "torch.randn(1, 1, 3)"),
        # not in each call
        ("        kernel = torch.tensor([[[-1.0, 0.0, 1.0]]])", "        if x.max() > 99:\n            return x\n        kernel = torch.tensor([-1.0, 0.0, 1.0]).view(1, 1, 3)"),
        # written to
        ("to(x.device)\n", "to(x.device)\n        kernel[:, :, 1] += x.mean().item()\n"),
        # its objects are made in another way
        ("    scale = 2.0\n", "    __slots__ = ()\n"),
        ("    scale = 2.0\n", "    def __new__(cls):\n        return super().__new__(cls)\n"),
        # a subclass with a constructor of its own that does not ask for it
        ("class Net", "class More(Edges):\n    def __init__(self):\n        nn.Module.__init__(self)\n\n\nclass Net"),
        ("self.edges, self", "self.two = nn.Linear(1, 1).half()\n        self.edges, self"),
    ],
)  # fmt: skip
def test_networks_without_a_constructor_left_alone(old: str, new: str) -> None:
    old, new = old.replace("\n", "\n"), new.replace("\n", "\n")
    loop = LOOP.replace("losses = []", "losses = []\nNet.Scale = Edges.scale = 3.0")
    text = EDGES.replace(old, new).replace(
        "edges, self.layer = Edges()",
        "edges, self.layer = More()" if "More" in new else "edges, self.layer = Edges()",
    )
    done = changed(text, loop)
    assert old in EDGES and "self.kernel" not in done.text
    if done.fixes:  # a function of the module keeps it
        assert "functools.lru_cache" in done.text
        assert run(HEAD + text + loop)["losses"] == run(done.text)["losses"]


FILED = SPEECH.replace(
    "    bank = torch", "    low, high = bins / 2, bands + 1\n    bank = torch"
).replace("filters(self.bins, 3)", "features(self.settings)")
FILED = FILED.replace("    def __init__(self, n, bins=8):", "    def __init__(self, n, settings):")
FILED = FILED.replace("self.bins = bins", "self.settings = settings").replace(
    "\nclass Clips",
    "\ndef features(settings):\n    return filters(settings['bins'], settings['bands']) * 2\n\n\nclass Clips",
)
FILED_CLIPS = CLIPS.replace("Clips(32)", "Clips(32, settings)").replace(
    "SHIFT = 1.0",
    "import json, os\nSHIFT = 1.0\nsettings = json.loads(os.environ.get('X', '{\"bins\": 8, \"bands\": 3}'))",
)


def test_a_function_with_numbers_of_a_file_is_cached() -> None:
    assert fitted(FILED, FILED_CLIPS) == ["@functools.lru_cache(maxsize=None)"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # they may be lists, which no cache takes
        ("low, high = bins / 2, bands + 1", "low, high = bins, bands * 2"),
        ("low, high = bins / 2, bands + 1", "low = bins / 2 if bands else bands + 1"),
        ("low, high = bins / 2, bands + 1", "low, high = bins / 2, [bands + 1 for _ in []]"),
        ("low, high = bins / 2, bands + 1", "low, high = bins / 2, bands - torch.ones(1)"),
        # what else they may be is not known
        ("settings['bins'], settings['bands']", "settings['bins'] or len(settings), torch.ones(1)[0] * 3"),
        # somebody writes to what is kept
        ("settings['bands']) * 2", "settings['bands']).mul_(2)"),
        ("settings['bands']) * 2", "settings['bands']) or 2"),
    ],
)  # fmt: skip
def test_functions_of_a_file_left_alone(old: str, new: str) -> None:
    assert old in FILED and not changed(FILED.replace(old, new), FILED_CLIPS).fixes


WINDOW = """
def bump(sizes, width):
    axes = [np.exp(-(((np.arange(n) - (n - 1) / 2) / (n * width)) ** 2)) for n in sizes]
    return np.einsum("i,j->ij", *axes)


def features(wave):
    return wave.dot(bump((3, 3), 0.5).T)


class Clips(Dataset):
    def __init__(self, n):
        self.waves = np.random.default_rng(0).normal(size=(n, 3))

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        wave = np.array(self.waves[i])
        return torch.from_numpy(features(wave)).float(), i % 3


class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x)
"""


def test_arrays_that_others_are_multiplied_with() -> None:
    assert fitted(WINDOW, CLIPS) == ["@functools.lru_cache(maxsize=None)"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('np.einsum("i,j->ij", *axes)', 'np.einsum("i,j->ij", *axes, out=SPACE)'),
        ('np.einsum("i,j->ij", *axes)', "np.exp(*axes)"),
        ("bump((3, 3), 0.5).T", "bump([3, 3], 0.5).T"),
        ("wave.dot(bump((3, 3), 0.5).T)", "bump((3, 3), 0.5)[0]"),
        ("wave.dot(bump((3, 3), 0.5).T)", "wave.dot(bump((3, 3), 0.5), bump((3, 3), 0.5))"),
    ],
)  # fmt: skip
def test_arrays_left_alone(old: str, new: str) -> None:
    text = WINDOW.replace(old, new)
    assert old in WINDOW and not changed("SPACE = np.zeros((3, 3))\n", text, CLIPS).fixes


def test_a_tensor_that_an_evaluation_makes_first_is_not_cached() -> None:
    """One that is made under inference_mode could not be saved for a backward."""
    net = SPEECH[: SPEECH.index("\nclass Clips")] + (
        "\ndef features(x):\n    return x @ filters(3, 3)\n\n"
        + SPEECH[SPEECH.index("\nclass Net") :]
    ).replace("return self.layer(x)", "return features(self.layer(x))")
    assert fitted(net, LOOP) == ["@functools.lru_cache(maxsize=None)"]
    first = "losses = []\nwith torch.inference_mode():\n    for x, y in loader:\n"
    first += "        losses.append(model(x.to(device)).sum().item())"
    assert not changed(net, LOOP.replace("losses = []", first)).fixes


def test_an_attribute_of_a_class_that_is_set_later_is_none() -> None:
    net = SPEECH[: SPEECH.index("\nclass Clips")] + (
        "\ndef features(x):\n    return x @ filters(3, 3)\n\n"
        + SPEECH[SPEECH.index("\nclass Net") :]
    ).replace("return self.layer(x)", "return features(self.layer(x))")
    assert fitted(net, LOOP) == ["@functools.lru_cache(maxsize=None)"]
    start = "def filters("
    assert start in net
    net = net.replace(start, "class Config:\n    base = 1.0\n\n\n" + start, 1)
    body = net.index("\n", net.index(start)) + 1
    net = net[:body] + "    base = Config.base\n" + net[body:]
    assert fitted(net, LOOP) == ["@functools.lru_cache(maxsize=None)"]
    for later in ("Config.base += 1.0", "setattr(Config, 'base', 2.0)"):
        assert not changed(net, LOOP + f"\n{later}\n").fixes


BANK = """
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
X, Y = torch.randn(32, 4), torch.randint(0, 3, (32,))


def table(n):
    out = []
    for i in range(n):
        out.append(math.sin(i) + 1.5)
    return out


class Bank(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.n = n

    def forward(self, logits, labels):
        weight = torch.tensor(table(self.n)).to(logits.device)
        return F.cross_entropy(logits, labels, weight=weight)


model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
criterion = Bank(3).to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(3):
    for i in range(0, 32, 8):
        x, y = X[i : i + 8].to(device), Y[i : i + 8].to(device)
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
"""


def test_what_a_constant_is_computed_of_is_none_of_its_own() -> None:
    done = apply("cache-constant", BANK)
    assert "torch.tensor(table(self.n)), persistent=False" in done.text
    assert "lru_cache" not in done.text and "self.table" not in done.text
    assert run(BANK)["losses"] == run(done.text)["losses"]


VIEWED = BANK.replace("import math\n", "import numpy as np\n").replace(
    "        self.n = n\n",
    "        self.weights = np.ones(n, dtype=np.float32)\n\n"
    "    def bump(self):\n        rows = np.{view}\n        rows[0] += 1\n",
)
VIEWED = VIEWED.replace("torch.tensor(table(self.n))", "torch.tensor(self.weights)")
VIEWED = VIEWED[: VIEWED.index("def table")] + VIEWED[VIEWED.index("class Bank") :]
VIEWED += "    criterion.bump()\n"


@pytest.mark.parametrize(
    "view",
    [
        "ravel(self.weights)",
        "reshape(self.weights, (3,))",
        "atleast_1d(self.weights)",
        "flip(self.weights)",
        "transpose(self.weights)",
        "squeeze(self.weights)",
        "einsum('i->i', self.weights)",
        "require(self.weights)",
        "add(self.weights, 1, self.weights)",
        "sqrt(self.weights, self.weights)",
    ],
)
def test_views_of_an_array_are_written_to(view: str) -> None:
    """What NumPy gives shares its memory, whichever function it is asked by."""
    assert not apply("cache-constant", VIEWED.replace("{view}", view)).fixes
    copied = VIEWED.replace("{view}", "copy(self.weights)")
    done = apply("cache-constant", copied)
    assert done.fixes and run(copied)["losses"] == run(done.text)["losses"]


ASKED = """
class Half:
    def __get__(self, net, kind=None):
        return net.base / 2


class Net(nn.Module):
    {code}

    def __init__(self, mean):
        super().__init__()
        self.base = 2.0
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x * torch.full((3,), self.scale).to(x.device))
"""


@pytest.mark.parametrize(
    "code",
    [
        "scale = property(lambda net: net.base / 2)",
        "scale = Half()",
        "@property\n    def scale(self):\n        return self.base / 2",
        "@property\n    def scale(self):\n        return globals()['SHIFT']",
    ],
)
def test_an_attribute_that_code_answers_for_is_no_constant(code: str) -> None:
    loop = LOOP.replace("    SHIFT += 1\n", "    SHIFT += 1\n    model.base = SHIFT\n")
    assert not apply("cache-constant", HEAD + ASKED.format(code=code) + loop).fixes


def test_an_attribute_of_the_class_is_a_constant() -> None:
    text = HEAD + ASKED.format(code="scale = 0.5") + LOOP
    found = apply("cache-constant", text)
    assert found.fixes and run(text)["losses"] == run(found.text)["losses"]


SHARPNESS = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Sharpness(torch.optim.Optimizer):
    def __init__(self, params, base, **kwargs):
        super().__init__(params, kwargs)
        self.base = base(self.param_groups, **kwargs)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def step(self):
        norm = self.norm()
        for group in self.param_groups:
            for p in group["params"]:
                p.grad /= norm
        self.base.step()

    def norm(self):
        grads = [p.grad for group in self.param_groups for p in group["params"]]
        return torch.stack([g.norm() for g in grads]).norm()


model = nn.Linear(4, 3)
optimizer = Sharpness(model.parameters(), torch.optim.SGD, lr=0.1)
losses = []
for step in range(4):
    loss = F.cross_entropy(model(torch.randn(8, 4)), torch.randint(0, 3, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def test_what_another_object_holds_is_no_constant() -> None:
    """The groups of an optimizer stay the same; the gradients in them do not."""
    done = apply("cache-constant", SHARPNESS)
    assert run(SHARPNESS)["losses"] == run(done.text)["losses"]


AGAIN = NET.replace(
    "torch.tensor(self.mean).view(1, 3).to(x.device)",
    "torch.tensor(self.mean).view(1, 3)\n        shift = shift.to(x.device)",
)
GATED = AGAIN.replace(
    "        shift = shift.to(x.device)",
    "        if x.is_cuda:\n            shift = shift.cuda()",
)
CHAIN = NET.replace(
    "torch.tensor(self.mean).view(1, 3).to(x.device)",
    "torch.tensor(self.mean)\n        shift = (shift / shift.sum()).to(x.device)",
)


@pytest.mark.parametrize("net", [AGAIN, GATED])
def test_a_copy_on_a_line_of_its_own(net: str) -> None:
    assert fitted(net, LOOP)[-1] == "shift = self.shift"
    assert "shift.to" not in changed(net, LOOP).text and "is_cuda" not in changed(net, LOOP).text


def test_several_statements_go_to_the_constructor() -> None:
    assert fitted(CHAIN, LOOP) == [
        'self.register_buffer("shift", shift / shift.sum(), persistent=False)',
        "shift = self.shift",
    ]


@pytest.mark.parametrize(
    ("net", "old", "new"),
    [
        # the copy is written to, or is not all that the line does
        (AGAIN, "return self.layer(x - shift)", "shift += 1\n        return self.layer(x - shift)"),
        (GATED, "return self.layer(x - shift)", "shift[0] = 1\n        return self.layer(x - shift)"),
        (GATED, "shift.cuda()", "shift.cuda() * 2"),
        (GATED, "shift.cuda()\n", "shift.cuda()\n        else:\n            shift = shift * 2\n"),
        # what stands before is wanted there, too, or changes
        (CHAIN, "shift = (shift", "first = shift[0]\n        shift = (shift"),
        (CHAIN, "return self.layer(x - shift)", "shift *= 2\n        return self.layer(x - shift)"),
        (CHAIN, "torch.tensor(self.mean)", "torch.tensor(self.mean) + torch.rand(1)"),
        (CHAIN, "torch.tensor(self.mean)", "torch.tensor(self.mean) * len(x)"),
        (CHAIN, "        shift = (shift", "        if len(x) > 2:\n            shift = shift + 1\n        shift = (shift"),
    ],
)  # fmt: skip
def test_lines_of_their_own_left_alone(net: str, old: str, new: str) -> None:
    text = net.replace(old, new).replace("first = shift[0]", "self.first = shift[0]")
    assert old in net and "register_buffer" not in changed(text, LOOP).text


def test_a_loss_is_moved_below_the_switch_of_the_network() -> None:
    loss = """
    class Weighted(nn.Module):
        def __init__(self, weights):
            super().__init__()
            self.weights = weights

        def forward(self, logits, y):
            w = torch.FloatTensor(self.weights)
            if logits.is_cuda:
                w = w.cuda()
            return F.cross_entropy(logits, y, weight=w)

    class Net(nn.Linear):
        def __init__(self, mean):
            super().__init__(3, 3)

    use_cuda = torch.cuda.is_available()
    """
    loop = LOOP.replace(
        "Net([0.2, 0.3, 0.5]).to(device)",
        "Net([0.2, 0.3, 0.5])\nif use_cuda:\n    model = model.cuda()",
    )
    loop = loop.replace("losses = []", "criterion = Weighted([0.2, 0.3, 0.5])\nlosses = []")
    loop = loop.replace("F.cross_entropy(", "criterion(")
    assert fitted(loss, loop) == [
        'self.register_buffer("w", torch.FloatTensor(self.weights), persistent=False)',
        "w = self.w",
        "criterion = criterion.cuda()",
    ]
    again = loop.replace("losses = []", "use_cuda = False\nlosses = []").replace(
        "criterion = W", "use_cuda = False\ncriterion = W"
    )
    assert not changed(loss, again).fixes


def test_a_function_that_has_a_name_in_the_method_alone() -> None:
    """The constructor does not know it."""
    text = SPEECH.replace(
        "bank = filters(self.bins, 3)", "make = filters\n        bank = make(self.bins, 3)"
    )
    found = changed(text, CLIPS)
    assert "self.make" not in found.text


def test_numbers_beside_tensors_whose_device_is_not_known() -> None:
    text = NET.replace("self.mean)", "self.mean)").replace(
        "def forward(self, x):",
        "def forward(self, x):\n        x = getattr(x, 'contiguous', x.clone)()",
    )
    assert "shift = self.shift" in fitted(text, LOOP)


@pytest.mark.parametrize(
    "writes",
    [
        "F.relu(shift, inplace=True)",
        "F.leaky_relu(shift, 0.1, True)",
        "F.leaky_relu(shift, 0.1, len(x) > 3)",
        "F.leaky_relu(shift, **OPTIONS)",
        "F.leaky_relu(shift, *OPTIONS.values())",
    ],
)
def test_functions_that_write_in_place(writes: str) -> None:
    options = "OPTIONS = dict(negative_slope=0.1, inplace=True)\n"
    net = NET.replace("return self.layer(x - shift)", f"return self.layer(x - {writes})")
    assert not changed(options, net, LOOP).fixes


@pytest.mark.parametrize(
    "reads",
    ["F.relu(shift, inplace=False)", "F.dropout(shift, 0.0, True)", "torch.sum(shift, 1, True)"],
)
def test_functions_that_only_read(reads: str) -> None:
    net = NET.replace("return self.layer(x - shift)", f"return self.layer(x - {reads})")
    assert "shift = self.shift" in fitted(net, LOOP)


IDENTITY = """
from torch.autograd import Variable


class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.mean = mean
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        n = len(x)
        iden = Variable(torch.from_numpy(np.array(self.mean).astype(np.float32))).view(1, 3).repeat(n, 1)
        if x.is_cuda:
            iden = iden.cuda()
        x = x + iden
        return self.layer(x)
"""
COPIED = "\n        if x.is_cuda:\n            iden = iden.cuda()"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        (COPIED, "\n        iden = iden.to(x.device)"),
        (f".repeat(n, 1){COPIED}", ".repeat(n, 1).to(x.device)"),
        (f".repeat(n, 1){COPIED}", ".expand(n, -1).contiguous().to(x.device)"),
    ],
)
def test_what_rows_are_repeated_of_becomes_a_buffer(old: str, new: str) -> None:
    text = IDENTITY.replace(old, new)
    lines = fitted(text, LOOP, "keys = list(model.state_dict())")
    assert lines[0] == "self.register_buffer(" and lines[1].startswith('"iden",')
    assert lines[-1].startswith("iden = self.iden.") and ".to(" not in lines[-1]
    assert "is_cuda" not in changed(text, LOOP).text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = x + iden", "iden += x\n        x = iden"),  # somebody writes to it
        ("x = x + iden", "self.last = iden\n        x = x + iden"),
        ("n = len(x)", "n = len(x)\n        self.mean[0] += 1"),
        ("n = len(x)", "n = len(x)\n        if n < 4:\n            return x"),
        ("torch.from_numpy(np.array(self.mean).astype(np.float32))", "torch.tensor(self.mean)\n        .mul(n)"),
        ("(torch.from_numpy(np.array(self.mean).astype(np.float32)))", "(torch.rand(3))"),
        ("(torch.from_numpy(np.array(self.mean).astype(np.float32)))", "(torch.zeros(3))"),  # made there
        ("(torch.from_numpy(np.array(self.mean).astype(np.float32)))", "(torch.tensor(self.mean), requires_grad=True)"),
    ],
)  # fmt: skip
def test_rows_left_alone(old: str, new: str) -> None:
    text = IDENTITY.replace(old, new)
    assert old not in text.replace(new, "")
    run(HEAD + text + LOOP)
    assert not changed(text, LOOP).lines


def test_a_network_that_is_cast_has_no_such_buffer() -> None:
    loop = LOOP.replace(".to(device)\nopt", ".to(device).double()\nopt")
    assert not changed(IDENTITY, loop.replace("x, y = x.to", "x, y = x.double().to")).lines


FILLED = """
class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.names = ["O", "B-X", "I-X"]
        self.n = len(self.names)
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        bad = torch.zeros(self.n, self.n)
        for i, a in enumerate(self.names):
            for j, b in enumerate(self.names):
                # only behind its own kind
                if b.startswith("I-") and a not in ("B-" + b[2:], b):
                    bad[i, j] = -10.0
        return self.layer(x) @ (self.layer.weight + bad.to(self.layer.weight.device))
"""


def test_a_table_that_loops_fill_goes_to_the_constructor() -> None:
    lines = fitted(FILLED, LOOP, "keys = list(model.state_dict())")
    assert lines == [
        'self.register_buffer("bad", bad, persistent=False)',
        "return self.layer(x) @ (self.layer.weight + self.bad)",
    ]
    text = changed(FILLED, LOOP).text
    assert text.index("bad = torch.zeros") < text.index("def forward")
    assert text.count("# only behind") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        bad =", "        self.names.append('B-Y')\n        self.n += 1\n        bad ="),
        ("return self.layer(x)", "bad[0, 0] += len(x)\n        return self.layer(x)"),
        ("bad[i, j] = -10.0", "bad[i, j] = -10.0 * len(x)"),
        ("bad[i, j] = -10.0", "bad[i, j] = torch.rand(1).item()"),
        ("if b.starts", "if len(x) > 4 and b.starts"),
        (
            "        bad =",
            "        if len(x) > 99:\n            return self.layer(x)\n        bad =",
        ),
        ("return self.layer(x)", "self.last = bad\n        return self.layer(x)"),
        ("def __init__(self, mean):", "def __init__(self, mean, torch=None):"),
    ],
)
def test_tables_left_alone(old: str, new: str) -> None:
    text = FILLED.replace(old, new)
    assert old not in text.replace(new, "")
    assert "register_buffer" not in changed(text, LOOP).text


def test_a_name_that_the_constructor_has_for_something_else() -> None:
    head = "offset = [0.2, 0.3, 0.5]\n"
    net = NET.replace("tensor(self.mean)", "tensor(offset)")
    assert "register_buffer" in changed(head + net, LOOP).text
    net = net.replace(
        "nn.Linear(3, 3)", "nn.Linear(3, 3)\n        offset = 2.0\n        self.s = offset"
    )
    assert "register_buffer" not in changed(head + net, LOOP).text
    fitted(head + net, LOOP)


LISTS = """
BOUNDS = [1, 2]


class Meter:
    def __init__(self, bounds):
        self.bounds = bounds
        self.hits = torch.zeros(len(bounds))

    def update(self, x):
        for k, b in enumerate(self.bounds):
            self.hits[k] += (x > b).sum().item()


def weigh(out):
    bounds = torch.tensor(BOUNDS).to(out.device) / 2.0
    return out * (1 + torch.bucketize(out.detach(), bounds))


class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return weigh(self.layer(x))


meter = Meter(BOUNDS)
"""


def test_a_list_that_an_object_holds_and_reads() -> None:
    loop = LOOP.replace("        losses", "        meter.update(x)\n        losses")
    lines = fitted(LISTS, loop)
    assert "bounds = make_bounds(out.device)" in lines


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.hits[k] +=", "self.bounds[k] += 1\n            self.hits[k] +="),
        ("        for k, b", "        self.bounds.append(3)\n        for k, b"),
        ("        for k, b", "        import random\n        random.shuffle(self.bounds)\n        for k, b"),
        ("self.bounds = bounds", "self.bounds = bounds\n        bounds += [3]"),
        ("meter = Meter(BOUNDS)", "meter = Meter(BOUNDS)\nkept = {}\nkept['b'] = BOUNDS\nkept['b'].append(3)"),
        ("meter = Meter(BOUNDS)", "meter = Meter(BOUNDS)\ndef show():\n    return BOUNDS\nshow()[0] = 3"),
    ],
)  # fmt: skip
def test_a_list_that_an_object_writes_to(old: str, new: str) -> None:
    text = LISTS.replace(old, new)
    assert old not in text.replace(new, "")
    loop = LOOP.replace("        losses", "        meter.update(x)\n        losses")
    assert "make_bounds" not in changed(text, loop).text


SMOOTHED = """
def make(size):
    line = torch.tensor([math.exp(-float(k)) for k in range(size)]).unsqueeze(1)
    return {product}


def smooth(out):
    window = make(out.size(1)).to(out.device)
    return F.linear(out, window)


class Net(nn.Module):
    def __init__(self, mean):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return self.layer(x)
"""
PRODUCTS = ["line.mm(line.t())", "torch.matmul(line, line.t())", "line @ line.t()"]
AMP = "with torch.autocast({}, dtype=torch.bfloat16):\n            out = model(x)\n        "


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("kind", ["'cuda'", "device.type", ""])
def test_a_product_that_the_host_computes(product: str, kind: str) -> None:
    block = AMP.format(kind) if kind else "out = model(x)\n        "
    loop = LOOP.replace(
        "loss = F.cross_entropy(model(x)", f"{block}loss = F.cross_entropy(smooth(out.float())"
    )
    lines = fitted(SMOOTHED.format(product=product), loop)
    assert lines[0] == "@functools.lru_cache(maxsize=8)"
    assert lines[-1].endswith("(out.size(1), out.device)")


@pytest.mark.parametrize("product", PRODUCTS)
def test_a_product_under_the_host_s_autocast(product: str) -> None:
    block = AMP.format("device.type").replace("model(x)", "smooth(model(x))")
    loop = LOOP.replace(
        "loss = F.cross_entropy(model(x)", f"{block}loss = F.cross_entropy(out.float()"
    )
    text = SMOOTHED.format(product=product)
    run(HEAD + text + loop)
    assert not changed(text, loop).lines


def test_a_loss_is_moved_to_the_device_that_a_module_names() -> None:
    loss = NET.replace("class Net", "class Loss").replace("forward(self, x)", "forward(self, x, y)")
    loss = loss.replace("return self.layer(x - shift)", "return F.cross_entropy(x - shift, y)")
    loss = loss.replace("        self.layer = nn.Linear(3, 3)\n", "")
    loop = textwrap.indent(LOOP.split("model =")[1], "    ").lstrip()
    loop = loop.replace("Net([0.2, 0.3, 0.5])", "nn.Linear(3, 3)").replace("SHIFT += 1", "pass")
    loop = loop.replace("losses = []", "criterion = Loss([0.2, 0.3, 0.5])")
    loop = loop.replace("F.cross_entropy(model(x), y)", "criterion(model(x), y)")
    start = "\nlosses = []\n" + LOOP.split("model =")[0].split("SHIFT = 1.0")[1]
    lines = fitted(loss, start, f"\ndef main():\n    model = {loop}\n\nmain()\n")
    assert "criterion = Loss([0.2, 0.3, 0.5]).to(device)" in lines


@pytest.mark.parametrize(
    ("made", "device", "fits"),
    [
        ("torch.tensor(mean)", "x.device", True),
        ("torch.tensor(mean)", "self.layer.weight.device", True),
        ("torch.as_tensor(SHARED)", "x.device", True),
        ("torch.as_tensor(SHARED)\n        KEPT.append(SHARED)", "x.device", False),
        ("torch.tensor(mean)\n        KEPT.append(self.mean)", "x.device", False),
    ],
)
def test_a_tensor_that_others_may_have_is_said(made: str, device: str, fits: bool) -> None:
    net = NET.replace("self.mean = mean", f"self.mean = {made}")
    net = net.replace("torch.tensor(self.mean).view(1, 3).to(x.device)", f"self.mean.to({device})")
    text = f"SHARED = np.ones(3, dtype=np.float32)\nKEPT = []\n{net}"
    found = changed(text, LOOP)
    assert bool(found.fixes) == fits != ("others may have the tensor" in found.refusals)
    assert fitted(text, LOOP) == found.lines


def test_a_tensor_that_is_set_again_is_no_constant() -> None:
    net = NET.replace("self.mean = mean", "self.mean = torch.tensor(mean)")
    net = net.replace("torch.tensor(self.mean).view(1, 3).to", "self.mean.to")
    found = changed(
        net, LOOP.replace("        losses", "        model.mean = x[0].cpu()\n        losses")
    )
    assert not found.findings


DEFAULT = """
def far(x):
    return torch.cat([x, torch.Tensor([1e10]).expand(x[..., :1].shape)], -1)


def main():
    data, target = torch.randn(32, 3), torch.randn(32, 1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        loss = (model(data) - target).pow(2).mean() + far(data).min() * 0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(-10.0 * torch.log(loss.detach()) / torch.log(torch.tensor([10.0]))))


losses = []
if torch.cuda.is_available():
    torch.set_default_tensor_type({kind})
first = torch.Tensor([0.5])
main()
"""


@pytest.mark.parametrize("kind", ["'torch.cuda.FloatTensor'", "torch.cuda.FloatTensor"])
def test_numbers_where_tensors_are_made_on_the_gpu_by_default(kind: str) -> None:
    text = HEAD + DEFAULT.format(kind=kind)
    done = apply("cache-constant", text)
    assert len(done.fixes) == 2 and "first = torch.Tensor([0.5])" in done.text
    assert "torch.full((1,), 1e10).expand(" in done.text
    assert "torch.log(torch.full((1,), 10.0))" in done.text
    assert run(text)["losses"] == run(done.text)["losses"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'torch.cuda.FloatTensor'", "'torch.DoubleTensor'"),
        ("    torch.set_default_tensor_type(", "    print("),
        ("torch.Tensor([1e10])", "torch.Tensor([10])"),
        ("torch.Tensor([1e10])", "torch.FloatTensor([1e10])"),
        ("torch.Tensor([1e10])", "torch.tensor([1e10], dtype=torch.float64).float()"),
    ],
)
def test_numbers_that_are_not_made_there(old: str, new: str) -> None:
    text = (HEAD + DEFAULT.format(kind="'torch.cuda.FloatTensor'")).replace(old, new)
    assert "full((1,), 1" not in apply("cache-constant", text).text.replace("full((1,), 10.0)", "")


POSITIONS = """
def sines(size, width):
    rows = [np.sin(np.arange(size) / 10 ** (k / width)) for k in range(width)]
    return torch.tensor(np.stack(rows, 1), dtype=torch.float32)


class Net(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.grid, self.wide, self.narrow = c["image"] // c["patch"], c["wide"], c["narrow"]
        self.one, self.two = nn.Linear(3, c["narrow"]), nn.Linear(c["narrow"], 3)

    def forward(self, x):
        x = self.one(x) + sines(self.grid, self.narrow).to(x.device)
        x = torch.cat([x, x], 1) + sines(self.grid, self.wide).to(x.device)
        return self.two(x[:, : self.narrow])
"""
FILED_NET = LOOP.replace("Net([0.2, 0.3, 0.5])", "Net(yaml.safe_load(open('conf.yml')))")
CONF = "image: 32\npatch: 4\nwide: 4\nnarrow: 2\n"


def test_functions_of_numbers_that_a_file_of_settings_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of several is kept, under the name of its function; a copy of the network moves with
    it.
    """
    probing = "        losses.append(loss.item())\n"
    copied = "    with torch.no_grad():\n        copy.deepcopy(model).eval()(x)\n"
    text = (
        "import copy\nimport yaml\n"
        + HEAD
        + POSITIONS
        + FILED_NET.replace(probing, probing + copied)
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf.yml").write_text(CONF)
    found = apply("cache-constant", text, files={"conf.yml": CONF})
    assert found.lines == [
        'self.register_buffer("sines", sines(self.grid, self.narrow), persistent=False)',
        'self.register_buffer("sines_2", sines(self.grid, self.wide), persistent=False)',
        "x = self.one(x) + self.sines",
        "x = torch.cat([x, x], 1) + self.sines_2",
    ]
    assert run(text)["losses"] == run(found.text)["losses"]
