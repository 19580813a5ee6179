"""cache-constant: what is made of sizes alone is kept by a function of its own."""

from __future__ import annotations

import textwrap

import pytest

from tests.onerule import Applied, apply, run

HEAD = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
NAMES = ["click", "hum", "knock"]
"""
LOOP = """
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
X = torch.randn(24, 5, 4)
losses = []
for epoch in range(2):
    for i in range(0, 24, 8):
        x = X[i : i + 8, : 5 - i // 8].to(device)
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
ROTARY = """
def rotary(x, base):
    t, d = x.shape[-2], x.shape[-1]
    inv = 1.0 / base ** (torch.arange(0, d, 2).float() / d)
    angle = torch.outer(torch.arange(t).float(), inv).to(x.device)
    cos, sin = angle.cos(), angle.sin()
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.base = 100.0

    def forward(self, x):
        return rotary(self.layer(x), self.base)
"""
POSITIONS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.dim = 4
        self.layer = nn.Linear(4, 4)

    def positions(self, length):
        \"\"\"Sines and cosines.\"\"\"
        table = torch.zeros(length, self.dim)
        steps = torch.arange(length).float().unsqueeze(1)
        div = torch.exp(torch.arange(0, self.dim, 2).float() * (-math.log(100.0) / self.dim))
        table[:, 0::2] = torch.sin(steps * div)  # even
        table[:, 1::2] = torch.cos(steps * div)
        return table

    def forward(self, x):
        return self.layer(x + self.positions(x.size(1)).to(x.device))
"""
WEIGHTED = """
def weighted(x):
    # rare ones count more
    weight = torch.tensor([2.0 if name == "hum" else 1.0 for name in NAMES] + [1.0]).to(x.device)
    return x * weight


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return weighted(self.layer(x))
"""
EVALUATED = """
    with torch.inference_mode():
        losses.append(model(X[:8].to(device)).sum().item())
"""


def changed(*parts: str) -> Applied:
    return apply("cache-constant", HEAD + "".join(map(textwrap.dedent, parts)))


def fitted(*parts: str) -> list[str]:
    """The new lines, where the losses stay the same to the last bit."""
    text = HEAD + "".join(map(textwrap.dedent, parts))
    found = apply("cache-constant", text)
    assert run(text)["losses"] == run(found.text)["losses"]
    return found.lines


def test_a_part_of_a_function() -> None:
    assert fitted(ROTARY, LOOP) == [
        "import functools",
        "@functools.lru_cache(maxsize=8)",
        "def make_cos_sin(base, d, t, device):",
        "angle = torch.outer(torch.arange(t).float(), inv).to(device)",
        "return angle.cos(), angle.sin()",
        "cos, sin = make_cos_sin(base, d, t, x.device)",
    ]


MASKED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def causal_mask(self, n: int) -> torch.Tensor:
        mask = torch.zeros(n, n)
        for i in range(n):
            mask[i, i + 1 :] = float("-inf")
        return mask

    def forward(self, x):
        return self.encoder(x, mask=self.causal_mask(x.size(1)).to(x.device))
"""


def test_a_mask_for_layers_of_torch() -> None:
    """They read it."""
    assert fitted(MASKED, LOOP)[1:] == [
        "@staticmethod",
        "@functools.lru_cache(maxsize=8)",
        "def causal_mask(n: int, device) -> torch.Tensor:",
        "return mask.to(device)",
        "return self.encoder(x, mask=self.causal_mask(x.size(1), x.device))",
    ]


OF_TWO = """
def angles(length, width, base=100.0):
    inv = 1.0 / base ** (torch.arange(0, width, 2).float() / width)
    angle = torch.outer(torch.arange(length).float(), inv)
    return angle.cos(), angle.sin()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = 4
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        B, T, C = x.shape
        cos, sin = angles(T, self.width)
        cos, sin = cos.to(x.device), sin.to(x.device)
        a, b = self.layer(x).chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
"""


def test_two_tables_of_a_function() -> None:
    assert fitted(OF_TWO, LOOP) == [
        "import functools",
        "@functools.lru_cache(maxsize=8)",
        "def make_cos_sin(T, width, device):",
        "cos, sin = angles(T, width)",
        "return cos.to(device), sin.to(device)",
        "cos, sin = make_cos_sin(T, self.width, x.device)",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a, b = self", "cos += x[0, 0, 0]\n        a, b = self"),
        ("return angle.cos(), angle.sin()", "return [angle.cos() + torch.rand(1), angle.sin()]"),
        ("return angle.cos(), angle.sin()", "return torch.stack([angle.cos(), angle.sin()])"),
        ("self.width = 4", "self.width, self.kept = 4, []"),
    ],
)
def test_two_tables_that_are_not_kept(old: str, new: str) -> None:
    text = OF_TWO.replace(old, new)
    assert text != OF_TWO
    if "kept" in new:
        text = text.replace(
            "        a, b = self", "        self.kept.append(cos)\n        a, b = self"
        )
    assert not any("lru_cache" in line for line in fitted(text, LOOP))


def test_it_is_made_once_for_each_length() -> None:
    scope = run(changed(ROTARY, LOOP).text)
    known = scope["make_cos_sin"].cache_info()
    assert (known.misses, known.hits) == (3, 3)


def test_a_method_that_makes_nothing_else() -> None:
    assert fitted(POSITIONS, LOOP) == [
        "import functools",
        "@staticmethod",
        "@functools.lru_cache(maxsize=8)",
        "def positions(length, dim, device):",
        "table = torch.zeros(length, dim)",
        "div = torch.exp(torch.arange(0, dim, 2).float() * (-math.log(100.0) / dim))",
        "return table.to(device)",
        "return self.layer(x + self.positions(x.size(1), self.dim, x.device))",
    ]


def test_a_method_that_copies_what_it_makes() -> None:
    text = (
        POSITIONS.replace("(self, length)", "(self, length, device)")
        .replace("return table\n", "return table.to(device)\n")
        .replace("(x.size(1)).to(x.device)", "(x.size(1), x.device)")
    )
    assert fitted(text, LOOP)[3:] == [
        "def positions(length, dim, device):",
        "table = torch.zeros(length, dim)",
        "div = torch.exp(torch.arange(0, dim, 2).float() * (-math.log(100.0) / dim))",
        "return self.layer(x + self.positions(x.size(1), self.dim, x.device))",
    ]


def test_a_function_that_callers_copy_from() -> None:
    text = POSITIONS[: POSITIONS.index("    def positions")] + "\n    def forward"
    text += POSITIONS.split("    def forward")[1]
    body = textwrap.dedent(
        "    def positions" + POSITIONS.split("    def positions")[1].split("    def forward")[0]
    )
    body = body.replace("(self, length)", "(length: int, dim: int) -> torch.Tensor")
    text = body.replace("self.dim", "dim") + "\n\n" + text
    text = text.replace("self.positions(x.size(1))", "positions(x.size(1), self.dim)")
    assert fitted(text, LOOP) == [
        "import functools",
        "@functools.lru_cache(maxsize=8)",
        "def positions(length: int, dim: int, device) -> torch.Tensor:",
        "return table.to(device)",
        "return self.layer(x + positions(x.size(1), self.dim, x.device))",
    ]


def test_weights_of_a_list_that_stays() -> None:
    assert fitted(WEIGHTED, LOOP) == [
        "import functools",
        "@functools.lru_cache(maxsize=None)",
        "def make_weight(device):",
        'return torch.tensor([2.0 if name == "hum" else 1.0 for name in NAMES] + [1.0]).to(device)',
        "weight = make_weight(x.device)",
    ]


def test_where_it_is_used() -> None:
    text = WEIGHTED.replace("    return x * weight", "    return x * 2 * weight")
    text = text.replace(
        '    weight = torch.tensor([2.0 if name == "hum" else 1.0 for name in NAMES] + [1.0]).to(x.device)\n',
        "    weight = torch.tensor([2.0, 1.0, 1.0, 1.0])\n    weight = weight / weight.sum()\n",
    ).replace("* weight", "* weight.to(x.device)")
    assert fitted(text, LOOP) == [
        "import functools",
        "@functools.lru_cache(maxsize=None)",
        "def make_weight(device):",
        "return weight.to(device)",
        "return x * 2 * make_weight(x.device)",
    ]


@pytest.mark.parametrize("text", [ROTARY, POSITIONS, WEIGHTED])
def test_an_evaluation_comes_first(text: str) -> None:
    """What is made under inference_mode could not be saved for a backward."""
    loop = LOOP.replace("    for i in", textwrap.indent(EVALUATED[1:], "") + "    for i in")
    assert "@torch.inference_mode(False)  # training reads it, too" in fitted(text, loop)


def test_evaluations_stay_under_inference_mode() -> None:
    first = (
        "    with torch.no_grad():\n        losses.append(model(X[:8].to(device)).sum().item())\n"
    )
    text = HEAD + ROTARY + LOOP.replace("    for i in", first + "    for i in")
    found = apply("cache-constant no-grad-eval", text)
    assert {
        "with torch.inference_mode():",
        "@torch.inference_mode(False)  # training reads it, too",
    } <= {*found.lines}
    assert run(text)["losses"] == run(found.text)["losses"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # written to, also under another name, or kept by somebody
        ("    a, b = ", "    if t == 4:\n        cos = cos * 2\n    a, b = "),
        ("    a, b = ", "    cos.add_(1)\n    a, b = "),
        ("    a, b = ", "    row = cos[0]\n    row += x.mean().item()\n    a, b = "),
        ("    a, b = ", "    KEPT.append(cos)\n    a, b = "),
        ("    a, b = ", "    rotary.last = cos\n    a, b = "),
        # made of more than numbers
        ("torch.arange(t)", "(torch.rand(t) + torch.arange(t))"),
        ("1.0 / base", "SCALE[0] / base"),
        ("1.0 / base", "x.mean().cpu() / base"),
        # numbers that are none, or others on the way
        ("self.base)", "[self.base])"),
        ("    angle =", "    t = t + 0\n    angle ="),
        # names that no other function sees, or takes for others
        ("    inv = ", "    from math import cos as k\n    inv = k(0) * "),
        ("    inv = ", "    k = torch.ones\n    inv = k(1) * "),
        ("torch.arange(t)", "torch.arange(t, device=str(device)[:0] or 'cpu')"),
        # where sizes are recorded
        ("class Net", "torch.jit.trace(torch.cos, torch.ones(1))\n\n\nclass Net"),
        ("class Net", "torch.func.grad(torch.cos)(torch.ones(()))\n\n\nclass Net"),
        ("class Net", "torch.func.linearize(torch.cos, torch.ones(1))\n\n\nclass Net"),
        ("class Net", "torch.vmap(torch.cos)(torch.ones(1))\n\n\nclass Net"),
        ("class Net", "from torch.fx.experimental.proxy_tensor import make_fx\nmake_fx(torch.cos)(torch.ones(1))\n\n\nclass Net"),
        ("class Net", "from torch._subclasses.fake_tensor import FakeTensorMode\nwith FakeTensorMode():\n    rotary(torch.ones(3, 5, 4), 100.0)\n\n\nclass Net"),
        ("class Net", "from torch._subclasses import FakeTensorMode\nwith FakeTensorMode():\n    rotary(torch.ones(3, 5, 4), 100.0)\n\n\nclass Net"),
        ("class Net", "torch.set_default_dtype(torch.float32)\n\n\nclass Net"),
    ],
)  # fmt: skip
def test_parts_left_alone(old: str, new: str) -> None:
    text = ROTARY.replace(old, new).replace("1.0 / [", "1.0 / base[0] ** [")
    if "[self.base]" in new:
        text = text.replace("1.0 / base", "1.0 / base[0]")
    assert (
        old in ROTARY and not changed("KEPT, SCALE = [], [1.0]\nSCALE[0] += 1\n", text, LOOP).fixes
    )


@pytest.mark.parametrize(
    "more", ["cos += 1", "sin[0] = 0", "for k in range(t):\n        cos[k] *= k"]
)  # fmt: skip
def test_what_else_is_made_of_it(more: str) -> None:
    assert "cos, sin = make_cos_sin(base, d, t, x.device)" in fitted(
        ROTARY.replace("    a, b = ", f"    {more}\n    a, b = "), LOOP
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # a number that is another one in each step: nothing that is kept would be asked for again
        ("self.base)", "float(x.sum()))"),
        ("self.base)", "self.base)\n        self.base += 1"),
        ("rotary(self.layer(x), self.base)", "sum(rotary(self.layer(x), 2.0 + k) for k in range(9))"),
        ("torch.arange(t)", "(torch.arange(t) + step / 2)"),
    ],
)  # fmt: skip
def test_numbers_that_change_in_each_step(old: str, new: str) -> None:
    text = ROTARY.replace(old, new)
    if "self.base += 1" in new:
        text = text.replace("return rotary(", "out = rotary(") + "        return out\n"
    loop = LOOP.replace("losses = []", "losses = []\nstep = 0")
    loop = loop.replace("        optimizer.step()", "        optimizer.step()\n        step += 1")
    assert old in ROTARY and not changed("step = 0\n", text, loop).fixes


def test_a_plain_number_is_made_on_the_device() -> None:
    text = WEIGHTED.replace(
        'torch.tensor([2.0 if name == "hum" else 1.0 for name in NAMES] + [1.0])',
        "torch.full((4,), math.exp(1.0) / x.size(1))",
    )
    assert not changed(text, LOOP).fixes


def test_one_and_one_point_nought_are_one_key() -> None:
    text = ROTARY.replace(
        "def forward(self, x):", "def forward(self, x):\n        x = rotary(x, 100)"
    )
    found = changed(text.replace("1.0 / base **", "torch.tensor(base) * 1.0 ** -"), LOOP)
    assert not found.fixes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # others want it where it is made, or as it is
        ("return self.layer(x +", "self.positions(len(x)).sum()\n        return self.layer(x +"),
        ("return self.layer(x +", "make = self.positions\n        make(2)\n        return self.layer(x +"),
        ("return self.layer(x +", "self.last = self.positions(2).to(x.device)\n        return self.layer(x +"),
        ("        return table", "        self.last = table\n        return table"),
        ("        return table", "        print(length)\n        return table"),
        ("        return table", "        return table + self.layer.weight[0].detach().cpu()"),
        ("def positions(self, length)", "def positions(self, length=3)"),
        ("    def positions", "    @torch.no_grad()\n    def positions"),
        ("class Net(nn.Module)", "class Base(nn.Module):\n    def positions(self, length):\n        return torch.zeros(1)\n\n\nclass Net(Base)"),
    ],
)  # fmt: skip
def test_functions_left_alone(old: str, new: str) -> None:
    assert old in POSITIONS and not changed(POSITIONS.replace(old, new), LOOP).fixes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("losses = []", "losses = []\nNAMES.append('beep')\nNAMES.pop()"),
        ("losses = []", "losses = []\nglobals()['NAMES'] = ['hum'] * 3"),
        ("losses = []", "losses = []\nnames = NAMES\nnames[0] = 'hum'"),
        ("losses = []", "losses = []\nimport random\nrandom.shuffle(NAMES)"),
        (
            "        optimizer.step()",
            "        optimizer.step()\n        NAMES = NAMES[1:] + NAMES[:1]",
        ),
    ],
)
def test_lists_that_change(old: str, new: str) -> None:
    assert old in LOOP and not changed(WEIGHTED, LOOP.replace(old, new)).fixes


def test_a_plain_mask_is_made_on_the_device() -> None:
    text = WEIGHTED.replace(
        'torch.tensor([2.0 if name == "hum" else 1.0 for name in NAMES] + [1.0])',
        "torch.tril(torch.ones(x.size(1), 4))",
    )
    assert not changed(text, LOOP).fixes
    assert apply("cache-constant device-creation", HEAD + text + LOOP).lines == [
        "weight = torch.tril(torch.ones(x.size(1), 4, device=x.device))"
    ]


def test_what_is_compiled_keeps_nothing() -> None:
    compiled = LOOP.replace("losses = []", "{}model = torch.compile(model)\nlosses = []")
    assert not changed(ROTARY, compiled.replace("{}", "")).fixes
    assert changed(ROTARY, compiled.replace("{}", "if len(NAMES) > 3:\n    ")).fixes


def test_replicas_have_devices_of_their_own() -> None:
    text = WEIGHTED.replace(".to(x.device)", ".cuda()")
    assert changed(text, LOOP).fixes
    wrapped = LOOP.replace("Net()", "nn.DataParallel(Net())")
    assert not changed(text, wrapped).fixes
    assert changed(WEIGHTED, wrapped).fixes


def test_casts_of_the_model_leave_it_alone() -> None:
    fitted(
        ROTARY,
        LOOP.replace("Net().to(device)", "Net().double().to(device)").replace(
            "4)\nlosses", "4).double()\nlosses"
        ),
    )


def test_copies_of_the_model_share_it() -> None:
    fitted(
        POSITIONS,
        "import copy\n",
        LOOP.replace("losses = []", "model = copy.deepcopy(model)\nlosses = []")
        .replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "")
        .replace(
            "losses = []", "losses = []\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
        ),
    )


def test_two_of_one_name() -> None:
    other = WEIGHTED.replace("def weighted(x):", "def also(x):").split("\n\n\nclass")[0]
    text = WEIGHTED.replace("weighted(self.layer(x))", "also(weighted(self.layer(x)))")
    lines = fitted(other.replace("2.0 if", "3.0 if") + "\n", text, LOOP)
    assert {"def make_weight(device):", "def make_weight_2(device):"} <= {*lines}


# --------------------------------------------------------------------------- losses, told devices
CLASSES = """
import numpy as np
from torch.nn import CrossEntropyLoss
RARE = [0.2, 0.3, 0.5]
MEAN = np.array([0.1, 0.2, 0.3])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)


def loss_of(out, y):
    {code}


model = {model}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
X, Y = torch.randn(6, 8, 4), torch.randint(0, 3, (6, 8))
losses = []
for x, y in zip(X, Y):
    loss = loss_of(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def of_classes(code: str, model: str = "Net().to(device)") -> str:
    inner = code.replace("\n", "\n    ")
    return CLASSES.replace("{code}", inner).replace("{model}", model)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        (
            "criterion = nn.CrossEntropyLoss(torch.Tensor(RARE).to(out.device), reduction='sum')\nreturn criterion(out, y)",
            "return torch.Tensor(RARE).to(device)",
        ),
        (
            "return CrossEntropyLoss(weight=torch.tensor(RARE).to(device)).to(device)(out, y)",
            "return torch.tensor(RARE).to(device)",
        ),
        (
            "return F.cross_entropy(out, y, weight=torch.tensor(RARE, device=out.device))",
            "return torch.tensor(RARE, device=device)",
        ),
        (
            "scale = torch.as_tensor([1.0, 2.0, 4.0], dtype=torch.float32, device=device).view(1, 3)\nreturn F.cross_entropy(out * scale, y)",
            "return torch.as_tensor([1.0, 2.0, 4.0], dtype=torch.float32, device=device).view(1, 3)",
        ),
        (
            "shift = torch.from_numpy(MEAN).float().to(out.device)\nreturn F.cross_entropy(out - shift, y)",
            "return torch.from_numpy(MEAN).float().to(device)",
        ),
    ],
)
def test_constants_of_a_loss_are_copied_once(code: str, kept: str) -> None:
    for model in ("Net().to(device)", "nn.DataParallel(Net()).to(device)"):
        lines = fitted(of_classes(code, model))
        assert "@functools.lru_cache(maxsize=None)" in lines and kept in lines


@pytest.mark.parametrize(
    "code",
    [
        "criterion = nn.CrossEntropyLoss(torch.Tensor(RARE).to(device))\ncriterion.weight += 1\nreturn criterion(out, y)",
        "criterion = nn.CrossEntropyLoss(torch.Tensor(RARE).to(device))\nkeep.append(criterion)\nreturn criterion(out, y)",
        "weight = torch.tensor(RARE, device=device)\nweight.mul_(1 + len(losses))\nreturn F.cross_entropy(out, y, weight=weight)",
        "MEAN[0] += 1\nshift = torch.from_numpy(MEAN).float().to(device)\nreturn F.cross_entropy(out - shift, y)",
        "part = MEAN[1:]\npart += 1\nshift = torch.from_numpy(MEAN).float().to(device)\nreturn F.cross_entropy(out - shift, y)",
        "RARE.append(RARE.pop())\nreturn F.cross_entropy(out, y, weight=torch.tensor(RARE, device=device))",
        "level = torch.tensor([len(losses), 1.0, 1.0], device=device)\nreturn F.cross_entropy(out * level, y)",
    ],
)
def test_constants_of_a_loss_that_change(code: str) -> None:
    text = HEAD + "keep = []" + of_classes(code)
    run(text)
    assert "lru_cache" not in apply("cache-constant", text).text


def test_arrays_that_other_files_have() -> None:
    code = (
        "shift = torch.from_numpy(MEAN).float().to(device)\nreturn F.cross_entropy(out - shift, y)"
    )
    text = HEAD + of_classes(code).replace(
        "MEAN = np.array([0.1, 0.2, 0.3])", "from means import MEAN"
    )
    files = {"means.py": "import numpy as np\nMEAN = np.array([0.1, 0.2, 0.3])\n"}
    assert "lru_cache" not in apply("cache-constant", text, files=files).text


@pytest.mark.parametrize(
    ("index", "kept"),
    [
        ("[2, 1, 0]", "return torch.tensor([2, 1, 0], device=device)"),
        ("SWAP", "return torch.tensor(SWAP, device=device)"),
        ("np.r_[1:3, 0]", "return torch.tensor(np.r_[1:3, 0], device=device)"),
        ("list(range(2, 3)) + [0, 1]", "return torch.tensor(list(range(2, 3)) + [0, 1], dtype=torch.long, device=device)"),
    ],
)  # fmt: skip
def test_an_index_that_is_written_out(index: str, kept: str) -> None:
    code = f"out = out[:, {index}]\nout = out + out[..., {index}]\nreturn F.cross_entropy(out, y)"
    text = "SWAP = (1, 2, 0)\n" + of_classes(code)
    lines = fitted(text)
    assert kept in lines and lines.count("@functools.lru_cache(maxsize=None)") == 1
    assert "out = out + out[..., make_index(out.device)]" in " ".join(lines).replace("swap_", "")


@pytest.mark.parametrize("index", ["[len(losses), 1]", "[True, False, True]", "PAIR, 0", "ROWS"])
def test_an_index_that_is_no_constant(index: str) -> None:
    code = f"more = out[:, {index}].sum()\nROWS.append(1)\nreturn F.cross_entropy(out, y) + more"
    text = (
        HEAD + "PAIR = True\nROWS = [0, 1]\n" + of_classes(code.replace("out[:, PAIR", "out[PAIR"))
    )
    assert "make_index" not in apply("cache-constant", text).text
