"""cache-constant: what the constructor of a module keeps on the host, and every forward pass
copies, becomes a buffer.
"""

from __future__ import annotations

import pytest

from tests.onerule import apply, run

SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Places(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.table = torch.zeros(length, width)
        at = torch.arange(length).unsqueeze(1).float()
        self.table[:, 0::2] = torch.sin(at * torch.arange(0, width, 2) / width)
        self.scale = torch.tensor([1.0, 2.0])
        self.up = nn.Linear(width, width)

    def forward(self, x):
        table = self.table[: x.size(1)].to(x.device)
        up = self.up(x).unsqueeze(-1) * nn.Parameter(self.scale, requires_grad=False).to(device)
        return up.sum(-1) + table

places = Places(8, 16)
model = nn.Sequential(places, nn.Linear(8, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
X, Y = torch.randn(6, 4, 5, 8), torch.randint(0, 3, (6, 4, 5))
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
keys = list(model.state_dict())
"""
BUFFERS = [
    'self.register_buffer("table", torch.zeros(length, width), persistent=False)',
    'self.register_buffer("scale", torch.tensor([1.0, 2.0]), persistent=False)',
]


def test_tables_go_to_the_device_with_their_module() -> None:
    found = apply("cache-constant", SCRIPT)
    assert found.lines == BUFFERS and not any(f.effect for f in found.fixes)
    before, after = run(SCRIPT), run(found.text)
    assert before["losses"] == after["losses"] and before["keys"] == after["keys"]
    assert not dict(before["model"].named_buffers())
    moved = after["model"].to("meta")
    assert {name for name, b in moved.named_buffers() if b.is_meta} == {"0.table", "0.scale"}


@pytest.mark.parametrize(
    ("line", "instead", "fixes"),
    [
        ("keys = ", "rows = places.table.numpy().sum()\nkeys = ", 1),  # where it is now
        (
            "    def forward",
            "    def longer(self, n):\n        self.table = torch.zeros(n, 8)\n\n    def forward",
            1,
        ),
        (
            "    def __init__",
            "    table = None\n\n    def __init__",
            1,
        ),  # register_buffer raises KeyError
        (
            "        return up",
            "        table += 1\n        return up",
            1,
        ),  # of the buffer
        ("        super().__init__()\n", "", 0),
        ("optimizer = ", "model = model.double().float()\noptimizer = ", 0),
        ("optimizer = ", "nn.Module.float(nn.Module.double(model))\noptimizer = ", 0),
        ("optimizer = ", "list(map(nn.Module.float, [model]))\noptimizer = ", 0),
        ("optimizer = ", "model = model.to(torch.float32)\noptimizer = ", 0),
        ("keys = ", "for kept in model.buffers():\n    kept.mul_(0.5)\nkeys = ", 0),
        (
            "self.table = torch.zeros(length, width)",
            "self.table = nn.Parameter(torch.zeros(length, width), False)",
            1,
        ),
        ("import torch\n", "import torch\nfrom torch._six import inf\n", 2),
        ("optimizer = ", "model = model.float()\noptimizer = ", 0),  # of a table in fp64
        ("optimizer = ", "model = model.to(torch.zeros(1).double())\noptimizer = ", 0),
        ("optimizer = ", 'model = model.to(getattr(torch, "half"[:]))\noptimizer = ', 0),
        ("optimizer = ", "model = model.to(device)\noptimizer = ", 2),
        ("optimizer = ", "model = nn.parallel.DistributedDataParallel(model)\noptimizer = ", 0),
        ("keys = ", "from functorch import make_functional\nmake_functional(model)\nkeys = ", 0),
        ("keys = ", "torch.jit.script(places).save('places.pt')\nkeys = ", 0),  # with its buffers
        ("keys = ", "kept = sorted(vars(places))\nkeys = ", 0),
        ("        self.up =", "        self.rows = self.table.numpy()\n        self.up =", 1),
        (
            "        self.up =",
            "        import numpy as np\n        self.rows = np.asarray(self.table)\n        self.up =",
            1,
        ),
        ("keys = ", "import operator\noperator.methodcaller('float')(places)\nkeys = ", 0),
        (
            "    def forward",
            "    def float(self):\n        return super().float()\n\n    def forward",
            0,
        ),
        ("keys = ", "kept = len(places._buffers)\nkeys = ", 0),
        (
            "        self.up =",
            "        self.rows = lambda: self.table.numpy()\n        self.up =",
            1,
        ),  # where it is now
        ("keys = ", "kept = dict(places.__dict__)\nkeys = ", 0),
        ("keys = ", 'rows = getattr(places, "table").numpy()\nkeys = ', 1),
        ("keys = ", 'rows = getattr(places, "up").weight\nkeys = ', 2),
        ("keys = ", 'setattr(places, "table", 1)\nkeys = ', 1),
        (
            "    def forward",
            "    def __getattr__(self, name):\n        return self._modules[name]\n\n    def forward",
            0,
        ),
        (
            "    def forward",
            "    def __setattr__(self, name, value):\n        super().__setattr__(name, value)\n\n"
            "    def forward",
            0,
        ),
        (
            "    def forward",
            "    def register_buffer(self, name, value):\n        pass\n\n    def forward",
            0,
        ),
        (
            "        self.up = nn.Linear(width, width)",
            "        nn.Module.__init__(self)\n        self.up = nn.Linear(width, width)",
            0,
        ),
        (
            "        return up.sum(-1) + table",
            "        return up.sum(-1) + table, table[:1]",  # which the caller may write to
            1,
        ),
        ("self.table[: x.size(1)]", "self.table[torch.arange(x.size(1))]", 1),  # rows of a bank
        ("class Places(nn.Module)", "class Places(nn.Identity)", 0),  # it may have such a buffer
    ],
)
def test_what_speaks_against_it(line: str, instead: str, fixes: int) -> None:
    text = SCRIPT.replace(line, instead, 1)
    assert text != SCRIPT
    found = apply("cache-constant", text)
    assert len([x for x in found.lines if "register_buffer" in x]) == fixes, found.lines


def test_a_torch_that_knows_no_buffers_beside_the_state() -> None:
    found = apply("cache-constant", SCRIPT, files={"requirements.txt": "torch==1.4.0\n"})
    assert not found.fixes


FILLED = """
import numpy as np
KEPT = []

def ramp(length, width):
    made = torch.zeros(length, width)
    for n in range(length):
        made[n] = n
    return made

def clips(count):
    rows = np.lib.format.open_memmap("/dev/null", "r") if count > 99 else np.zeros((count, 8))
    for n in range(count):
        rows[n] = n
    return rows

class Places"""
GIVEN = "def __init__(self, width, length, table"
OF_ARRAY = {
    "def __init__(self, width, length": GIVEN,
    "self.table = torch.zeros(length, width)": "self.table = torch.from_numpy(table)",
    "places = Places(8, 16)": "array = np.zeros((16, 8), dtype=np.float32)\nplaces = Places(8, 16, array)",
}
OF_OBJECT = {
    "places = Places(8, 16)": """\
class Kept:
    def __init__(self):
        self.rows = np.zeros((16, 8)).astype(np.float32)

kept = Kept()
places = Places(8, 16, kept.rows)"""
}


def replaced(changes: dict[str, str]) -> str:
    text = SCRIPT.replace("\nclass Places", FILLED, 1)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize(
    "changes",
    [
        {"torch.zeros(length, width)": "ramp(length, width)"},
        {"torch.zeros(length, width)": "ramp(length, width)", "losses = []": "losses = []\nclips(3)"},
        {
            "def __init__(self, width, length": GIVEN,
            "self.table = torch.zeros(length, width)": "self.table = table",
            "places = Places(8, 16)": "places = Places(8, 16, ramp(16, 8))",
        },
        OF_ARRAY,
        {**OF_ARRAY, "losses = []": "losses, sizes = [], [len(array), array.shape]"},
        {**OF_ARRAY, **OF_OBJECT},
        {"table = self.table[: x.size(1)].to(x.device)": "here = self.up.weight.device\n        table = self.table[: x.size(1)].to(here)"},
        {"        return up.sum(-1) + table": "        return up.sum(-1) + torch.stack([table, table]).mean(0)"},
    ],
)  # fmt: skip
def test_memory_that_nobody_else_can_have(changes: dict[str, str]) -> None:
    """Whatever other arrays and tensors are written to."""
    text = replaced({**changes, "    loss.backward()": "    (x + 1).add_(1)\n    loss.backward()"})
    found = apply("cache-constant", text)
    assert any('"table"' in line for line in found.lines), found.findings
    assert run(text)["losses"] == run(found.text)["losses"]


@pytest.mark.parametrize(
    "changes",
    [
        {**OF_ARRAY, "losses = []": "losses, other = [], torch.from_numpy(array)", "    loss.backward()": "    other.add_(0.1)\n    loss.backward()"},
        {**OF_ARRAY, "    loss.backward()": "    array[0] += 0.1\n    loss.backward()"},
        {**OF_ARRAY, **OF_OBJECT, "    loss.backward()": "    kept.rows[0] += 0.1\n    loss.backward()"},
        {**OF_ARRAY, **OF_OBJECT, "    loss.backward()": "    np.random.shuffle(kept.rows)\n    loss.backward()"},
        {**OF_ARRAY, **OF_OBJECT, "    loss.backward()": "    KEPT.append(kept.rows)\n    KEPT[0][0] += 0.1\n    loss.backward()"},
        {**OF_ARRAY, "losses = []": "losses, rows = [], [array]", "    loss.backward()": "    rows[0] += 0.1\n    loss.backward()"},
        {"self.up =": "KEPT.append(self.table)\n        self.up =", "    loss.backward()": "    KEPT[0].add_(0.1)\n    loss.backward()"},
        {"self.table = torch.zeros(length, width)": "made = torch.zeros(length, width)\n        KEPT.append(made)\n        self.table = made", "    loss.backward()": "    KEPT[0].add_(0.1)\n    loss.backward()"},
        {"    return made": "    KEPT.append(made)\n    return made", "torch.zeros(length, width)\n        at": "ramp(length, width)\n        at", "    loss.backward()": "    KEPT[0].add_(0.1)\n    loss.backward()"},
        {"self.up =": "self.rows = self.table[:2]\n        self.up =", "    loss.backward()": "    places.rows.add_(0.1)\n    loss.backward()"},
        {"self.table = torch.zeros(length, width)": "self.table = torch.zeros(length, width, requires_grad=False or width > 9)"},
        {"losses = []": "losses = []\nplaces.other = places.table"},
        {"        table = self.table": "        ramp.last = self.table\n        table = self.table"},
    ],
)  # fmt: skip
def test_memory_that_somebody_may_write_to(changes: dict[str, str]) -> None:
    """The buffer would be a copy of it, on the device."""
    found = apply("cache-constant", replaced(changes))
    assert not any('"table"' in line for line in found.lines), found.lines
