"""Calls that are summarised: followed once for what they are given, and again where something that
they rest on has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from autofast.model.values import Const, Thing
from autofast.read.interpreter.interpreter import Interpreter
from autofast.read.project import Project
from autofast.read.state import summaries
from autofast.read.state.reachable import reached
from tests.reading import HEAD, read, shown

TRAIN = """
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 2)), batch_size=2)
for x, y in loader:
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""


def numbers(folder: Path, code: str) -> set[object]:
    """The constants that ``probe.show`` may be shown."""
    return {t.value for t in shown(read(folder, HEAD + code)) if isinstance(t, Const)}


# What a call reads changes between two passes of a loop, in each of the places where a value can be
# kept.
CHANGED = {
    "attribute": (
        "class C: pass\nc = C()\nc.n = 1\ndef look(): return c.n\n",
        "c.n = 2",
    ),
    "object within": (
        "class C: pass\nc = C()\nc.c = C()\nc.c.n = 1\ndef look(): return c.c.n\n",
        "c.c.n = 2",
    ),
    "global": ("n = 1\ndef look(): return n\n", "n = 2"),
    "dict": ("d = {'n': 1}\ndef look(): return d['n']\n", "d['n'] = 2"),
    "new key": ("d = {'m': 1}\ndef look(): return d.get('n', 1)\n", "d['n'] = 2"),
    "list": ("row = [1]\ndef look(): return row[-1]\n", "row.append(2)"),
    "class": ("class C: n = 1\ndef look(): return C.n\n", "C.n = 2"),
    "function": (
        "def look(): return look.n\nlook.n = 1\n",
        "look.n = 2",
    ),
    "called function": (
        "def f(): return 1\ndef two(): return 2\ndef look(): return f()\n",
        "f = two",
    ),
    "list in a list": ("rows = [[1]]\ndef look(): return rows[0][-1]\n", "rows[0].append(2)"),
    "partial": (
        "import functools\nd = {'n': 1}\ndef get(t): return t['n']\nf = functools.partial(get, d)\ndef look(): return f()\n",
        "d['n'] = 2",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("calls", ["look()", "[look() for _ in range(2)][0]"])
def test_a_call_is_followed_again_after_a_change(name: str, calls: str, tmp_path: Path) -> None:
    before, change = CHANGED[name]
    code = f"{before}for i in range(3):\n    for j in range(3):\n        probe.show({calls})\n    {change}\n"
    assert {1, 2} <= numbers(tmp_path, code)
    straight = f"{before}look(); look()\nif probe.maybe():\n    {change}\nprobe.show({calls})\n"
    assert 2 in numbers(tmp_path, straight)


def test_a_variable_of_the_function_around_changes(tmp_path: Path) -> None:
    code = """
    def outer():
        n = 1
        def look():
            return n
        for i in range(3):
            probe.show(look())
            probe.show(look())
            n = 2
    outer()
    """
    lines = "\n".join(line[4:] for line in code.splitlines())
    assert {1, 2} <= numbers(tmp_path, lines)


def test_what_is_set_back_is_seen_meanwhile(tmp_path: Path) -> None:
    code = """
class C: pass
c = C()
c.n = 1
def look():
    probe.show(c.n)
def other():
    c.n = 2
    look()
    c.n = 1
for i in range(3):
    other()
    look()
"""
    assert numbers(tmp_path, code) == {1, 2}


# Functions made by calls that are alike, each with the variables of its own call.
MAKER = """
n = 1
def make():
    value = n
    def get():
        return value
    def put():
        nonlocal value
        value = 3
    return get, put
first, put = make()
n = 2
second, _ = make()
"""
HELD = {
    "what the first call held": ("first()", 1),
    "what the second call holds": ("second()", 2),
    "set through the function of the first call": ("put() or first()", 3),
    "the first is not the second": ("put() or second()", 2),
}


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("again", ["", "second, _ = make()\n", "first()\nsecond()\n"])
def test_functions_of_like_calls(name: str, again: str, tmp_path: Path) -> None:
    asked, expected = HELD[name]
    assert expected in numbers(tmp_path, f"{MAKER}{again}probe.show({asked})\n")


def test_a_variable_that_only_the_first_call_sets(tmp_path: Path) -> None:
    code = """
calls = []
def make():
    if not calls:
        value = 1
    def get():
        return value
    calls.append(get)
    return get
first = make()
make()
make()
probe.show(first())
"""
    assert 1 in numbers(tmp_path, code)


def test_events_of_a_call_that_is_looked_up_again(tmp_path: Path) -> None:
    """Both loops go through one helper: each is a training loop, though the helper is followed for
    one of them only.
    """
    code = """
def step(x, y):
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(8, 4), torch.randn(8, 2)
for _ in range(3):
    step(x, y)
for _ in range(3):
    step(x, y)
"""
    script = read(tmp_path, HEAD + code)
    assert len({id(step.loop) for step in script.steps}) == 2


def steps(folder: Path, code: str) -> int:
    """How many expressions are evaluated to follow a program."""
    entry = folder / "train.py"
    entry.write_text(code)
    project = Project(entry, folder)
    interp = Interpreter(project)
    interp.run_module(project.read(entry), True)
    assert not interp.notes
    return interp.steps


def test_loops_in_loops_do_not_follow_a_call_over_and_over(tmp_path: Path) -> None:
    chain = "def f0(a):\n    return a + 1\n"
    for n in range(1, 9):
        chain += f"def f{n}(a):\n    for i in range(9):\n        b = f{n - 1}(a)\n    return f{n - 1}(b)\n"
    assert (
        steps(tmp_path, chain + "x = f8(1)\n") < 20_000
    )  # each level follows the one below up to four times


BACK = {
    "flag": ("c.flag = True", "c.flag = False"),
    "key": ("d = {'a': a}", "d['b'] = a"),
    "global": ("global n; n = 2", "n = 1"),
    "function": ("def inner(b=a): return b", "inner(b)"),
}


@pytest.mark.parametrize("name", BACK)
def test_calls_that_leave_all_as_it_was(name: str, tmp_path: Path) -> None:
    """They need not be followed over and over, either."""
    first, last = BACK[name]
    chain = "class C: pass\nc = C()\nc.flag = False\nc.get = None\nn = 1\ndef f0(a):\n    return a + 1\n"
    for n in range(1, 9):
        chain += f"def f{n}(a):\n    {first}\n" + f"    b = f{n - 1}(a)\n" * 4
        chain += f"    {last}\n    return b\n"
    assert steps(tmp_path, chain + "x = f8(1)\n") < 60_000


# What a call gets is made anew for each, and is then what it was.
ANEW = {
    "object": "class C: pass\ndef made(k):\n    c = C()\n    c.n = k\n    c.n = [1]\n    return c\n",
    "dict": "def made(k):\n    d = {'n': 1}\n    d['n'] = k\n    d['n'] = 1\n    return d\n",
    "loader of a class of the project": """
from torch.utils.data import DataLoader
class Loader(DataLoader):
    def __init__(self, data):
        super().__init__(data, batch_size=2)
def made(k):
    return Loader(range(9))
""",
}


@pytest.mark.parametrize("name", ANEW)
def test_what_is_made_anew_is_as_before(name: str, tmp_path: Path) -> None:
    work = "def work(c):\n" + "    x = (c, 1, 2, 3, 4, 5, 6, 7, 8, 9)\n" * 100
    turn = "def turn(k):\n    work(made(k))\ndef a(k): turn(k)\ndef b(k): a(k)\ndef c(k): b(k)\n"
    main = "def main():\n" + "".join(f"    c({k})\n" for k in range(20)) + "main()\n"
    assert steps(tmp_path, work + ANEW[name] + turn + main) < 5_000  # work() takes 1,100


def test_a_table_that_is_changed_and_then_replaced(tmp_path: Path) -> None:
    """What stands in its place is held against what was there, not against what became of that."""
    code = """
class C: pass
c = C()
def look():
    return c.d["n"]
def make(n):
    c.d = {"n": n}
def set(n):
    c.d["n"] = n
def outer():
    make(1)
    probe.show(look())
    set(2)
    make(2)
    probe.show(look())
outer()
"""
    assert numbers(tmp_path, code) == {1, 2}


def test_networks_that_may_stand_in_each_other(tmp_path: Path) -> None:
    """The ways through them are without number; what they give is not."""
    made = "".join(
        f"class N{n}(nn.Module):\n    def forward(self, x):\n        return x + {n}\n"
        for n in range(9)
    )
    program = f"""
import torch, torch.nn as nn, probe
{made}
registry = [{", ".join(f"N{n}()" for n in range(9))}]
def build(parts):
    return nn.Sequential(*parts)
for name in probe.names():
    registry.append(build(registry))
    registry.append(nn.Sequential(*registry))
    registry.append(nn.Sequential(nn.Linear(2, 2), *registry))
    registry.append(nn.Sequential(nn.ReLU(), *registry))
    registry.append(nn.Sequential(nn.ReLU(), nn.ReLU(), *registry))
    registry.append(nn.Sequential(nn.Tanh(), nn.ReLU(), *registry))
    registry.append(nn.Sequential(nn.Tanh(), nn.Tanh(), *registry))
    registry.append(nn.Sequential(nn.GELU(), nn.Tanh(), *registry))
model = registry[probe.number()]
out = model(torch.rand(2, 2))
"""
    assert steps(tmp_path, program) < 20_000


def test_functions_that_call_each_other(tmp_path: Path) -> None:
    """A logger that sets itself up through functions that log: each way round is followed once, not
    each order of them.
    """
    names = [f"f{n}" for n in range(4)]
    text = "".join(
        f"def {name}(a):\n" + "".join(f"    {other}(a)\n" for other in names) + "    return a\n"
        for name in names
    )
    assert steps(tmp_path, text + "f0(1)\n") < 60_000


def test_files_that_import_each_other_deeply(tmp_path: Path) -> None:
    """Reading a file costs what stands in it, however deep in the chain of imports it is."""
    table = "TABLE = [\n" + "".join(f"    ({n}, {n + 1}),\n" for n in range(400)) + "]\n"
    files = {f"m{n}.py": f"import m{n + 1}\n{table}" for n in range(14)}
    script = read(tmp_path, HEAD + "import m0\n" + TRAIN, {**files, "m14.py": table})
    assert script.notes == [] and not script.unread and len(script.steps) == 1


def test_code_that_is_nested_as_people_nest_it(tmp_path: Path) -> None:
    """Twelve levels of loops and conditions in each of twelve functions that call each other."""
    text = "def f0(a):\n    return a + 1\n"
    for n in range(1, 13):
        text += f"def f{n}(a):\n"
        for level in range(1, 13):
            kind = f"if a > {level}:" if level % 2 else f"for i{level} in range(2):"
            text += "    " * level + kind + "\n"
        text += "    " * 13 + f"a = f{n - 1}(a)\n    return a\n"
    script = read(tmp_path, HEAD + text + "f12(probe.number())\n" + TRAIN)
    assert len(script.steps) == 1


def test_an_object_that_is_its_own_iterator(tmp_path: Path) -> None:
    code = """
class Batches:
    def __init__(self):
        self.left = 4

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return torch.randn(2, 4), torch.randn(2, 2)

model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in Batches():
    optimizer.zero_grad()
    F.mse_loss(model(x), y).backward()
    optimizer.step()
"""
    script = read(tmp_path, HEAD + code)
    assert len(script.steps) == 1
    assert all(
        t.device == "cpu"
        for m in script.models
        for f in m.forwards
        for o in f
        for t in o.data["inputs"]
    )


# -------------------------------------------------------------------- what the library's names mean
DTYPES = {
    "torch.randint(0, 9, (4,))": "int",
    "torch.randperm(4)": "int",
    "torch.arange(4)": "int",
    "torch.arange(0, 1, 0.25)": "f32",
    "torch.tensor([1, 2])": "int",
    "torch.tensor([1.5, 2])": "f32",
    "torch.full((2,), 0.5)": "f32",
    "torch.zeros_like(torch.randint(0, 9, (4,)))": "int",
    "torch.randint(0, 9, (4,)).type(torch.float32)": "f32",
    "torch.zeros(4).type(torch.LongTensor)": "int",
    "torch.zeros(4).type_as(torch.randperm(4))": "int",
    "torch.zeros(4, dtype=torch.uint8) / 255": "f32",
    "torch.zeros(4, dtype=torch.uint8) * 0.5": "f32",
    "nn.Embedding(9, 4)(torch.randint(0, 9, (4,)))": "f32",
}


@pytest.mark.parametrize("made", DTYPES)
def test_dtypes(made: str, tmp_path: Path) -> None:
    found = shown(read(tmp_path, HEAD + f"probe.show({made})\n"))
    assert {getattr(t, "dtype", None) for t in found} == {DTYPES[made]}


def test_dtypes_are_those_of_torch() -> None:
    import torch
    from torch import nn

    kinds = {torch.float32: "f32", torch.int64: "int"}
    for made, kind in DTYPES.items():
        assert kinds[eval(made, {"torch": torch, "nn": nn}).dtype] == kind


MODELS = {
    "pairs": (
        "from collections import OrderedDict\n",
        "nn.Sequential(OrderedDict([('a', nn.Linear(4, 8)), ('b', nn.ReLU())]))",
        {"Sequential", "Linear", "ReLU"},
    ),
    "weight_norm": (
        "from torch.nn.utils import weight_norm\n",
        "nn.Sequential(weight_norm(nn.Linear(4, 2)))",
        {"Sequential", "Linear"},
    ),
    "synchronised": (
        "from torch.nn import SyncBatchNorm\n",
        "SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)))",
        {"Sequential", "Linear", "BatchNorm1d"},
    ),
    "parametrization": (
        "from torch.nn.utils import parametrizations\n",
        "nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 2)))",
        {"Sequential", "Linear"},
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_layers(name: str, tmp_path: Path) -> None:
    before, model, layers = MODELS[name]
    script = read(tmp_path, HEAD + before + TRAIN.replace("nn.Linear(4, 2)", model))
    assert [(set(m.layers), m.unknown) for m in script.models] == [(layers, "")]


def test_progress_bar_that_came_with_everything(tmp_path: Path) -> None:
    code = "from tqdm import *\n" + TRAIN.replace("in loader", "in tqdm(loader)")
    script = read(tmp_path, HEAD + code)
    assert [len(loader.uses) for loader in script.loaders] == [1]


def test_a_model_on_a_base_that_is_not_there(tmp_path: Path) -> None:
    """It is a module as it has a ``forward``; what else it holds is not known."""
    net = "from somewhere import Base\nclass Net(Base):\n    def __init__(self):\n        super().__init__()\n"
    net += "        self.a = nn.Linear(4, 2)\n\n    def forward(self, x):\n        return self.a(x)\n\n"
    script = read(tmp_path, HEAD + net + TRAIN.replace("nn.Linear(4, 2)", "Net()"))
    assert [m.name for m in script.models] == ["Net"] and script.models[0].unknown
    assert len(script.optimizers[0].params) == 1 and len(script.steps[0].forwards) == 1


# ---------------------------------------------------------------------------- passes through models
NETWORKS = """import torch
import torch.nn as nn

class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + x)

class Wide(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one, self.two = Cell(width), Cell(width)

    def forward(self, x):
        return self.two(self.one(x))

class Deep(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.parts = nn.Sequential(Wide(width), Wide(width))
        self.last = Wide(width)

    def forward(self, x):
        return self.last(self.parts(x)) + x

class Net(nn.Module):
    def __init__(self, block, layers, width=16):
        super().__init__()
        self.one, self.two = self.stage(block, width, layers[0]), self.stage(block, width, layers[1])
        self.three, self.four = self.stage(block, width, layers[2]), self.stage(block, width, layers[3])
        self.fc = nn.Linear(width, 10)

    def stage(self, block, width, count):
        cells = [block(width)]
        for _ in range(1, count):
            cells.append(block(width))
        return nn.Sequential(*cells)

    def forward(self, x):
        x = self.four(self.three(self.two(self.one(x))))
        return self.fc(x.mean((2, 3)))

def build(depth):
    if depth == 18:
        model = Net(Deep, [2, 3, 4, 2])
    elif depth == 34:
        model = Net(Deep, [3, 4, 5, 3])
    elif depth == 50:
        model = Net(Deep, [4, 3, 6, 2])
    elif depth == 101:
        model = Net(Deep, [2, 4, 7, 3])
    return model
"""

CHOOSES = """import argparse
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from nets import build

parser = argparse.ArgumentParser()
parser.add_argument("--depth", type=int, default=18)
args = parser.parse_args()

class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

def train_epoch(epoch, model, loader, criterion, optimizer, log):
    model.train()
    losses = Meter()
    for i, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        out = model(x)
        loss = criterion(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.update(loss.item(), x.size(0))
        log.append(losses.val)

def val_epoch(epoch, model, loader, criterion, log):
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            x, y = x.cuda(), y.cuda()
            out = model(x)
            log.append(criterion(out, y).item())
    return log[-1]

def main():
    model = nn.DataParallel(build(args.depth)).cuda()
    loader = DataLoader(TensorDataset(torch.randn(64, 16, 8, 8), torch.randint(10, (64,))), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    criterion = nn.CrossEntropyLoss()
    train_log, val_log = [], []
    for epoch in range(10):
        train_epoch(epoch, model, loader, criterion, optimizer, train_log)
        val = val_epoch(epoch, model, loader, criterion, val_log)
main()
"""


@pytest.mark.parametrize("cached", [True, False])
def test_a_pass_through_a_module_is_followed_once(
    cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Several deep networks share blocks that the reader does not tell apart: each would be
    followed again on each way to it.
    """
    monkeypatch.setattr("autofast.model.limits.READING", 11_000)
    if not cached:
        monkeypatch.setattr("autofast.read.library.modules._pass_key", lambda *_: object())
    script = read(tmp_path, CHOOSES, {"nets.py": NETWORKS})
    if cached:
        assert script.notes == [] and len(script.evaluations) == 1
        assert len(script.steps[0].forwards) == 1 and len(script.loaders[0].uses) == 2
    else:
        assert any(note.startswith("train_epoch() is too large") for note in script.notes)


def test_what_reaches_too_much_is_searched_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that reaches more than to follow it costs is followed, not searched each time."""
    searches = []

    def counted(roots: Iterable[Thing], most: int) -> list[Thing] | None:
        found = reached(roots, most)
        searches.append(found)
        return found

    monkeypatch.setattr(summaries, "reached", counted)
    rows = ", ".join(f"[[{n}]]" for n in range(300))
    calls = "".join(f"counter.n = [{n}]\nget(large)\n" for n in range(9))
    read(tmp_path, f"""
class Counter:
    pass
counter = Counter()
large = [{rows}]
def get(x):
    return x
{calls}""")  # fmt: skip
    assert searches == [None]
