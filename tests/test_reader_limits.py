"""The reader is never wrong, also about more functions, objects, keys and items than it tells
apart.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.model import limits
from autofast.model.source import BadInput
from autofast.model.values import Tensor
from autofast.read.library import modules
from autofast.read.recover import build
from autofast.read.recover.build import read_script
from tests.reading import HEAD, read, shown, unsound


def many(text: str, n: int = 60, between: str = "") -> str:
    """`text` for each number below `n`, which stands where it has ``<n>``."""
    return between.join(text.replace("<n>", str(i)) for i in range(n))


BY_NAME = "NETS = {}\ndef register(f):\n    NETS[f.__name__] = f\n    return f\n"
IN_LIST = "NETS = []\ndef register(f):\n    NETS.append(f)\n    return f\n"
UNDER_NAME = "NETS = {}\ndef register(name):\n    def inner(f):\n        NETS[name] = f\n        return f\n    return inner\n"
OBJECT = """
class Registry:
    def __init__(self):
        self.kept = {}
    def register(self, f):
        self.kept[f.__name__] = f
        return f
    def named(self, name):
        def keep(f):
            self.kept[name] = f
            return f
        return keep
    def build(self, name, *args):
        return self.kept[name](*args)
r = Registry()
"""
SUBCLASSES = """
class Base:
    all = {}
    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        Base.all[cls.__name__] = cls
"""
HOLDS = "class C:\n    def __init__(self, v):\n        self.v = v\n    def go(self):\n        self.v = 'x'\n"
NET = "@register\ndef net<n>():\n    return <n>\n"
PROGRAMS = {
    "functions by name": BY_NAME
    + many(NET)
    + "probe.show(NETS['net' + str(41)]())\nfor k, f in NETS.items():\n    if k == 'net50':\n        probe.show(f())\n",
    "functions in a list": IN_LIST
    + many(NET)
    + "probe.show(NETS[41]())\nprobe.show(NETS[-1]())\nprobe.show(len(NETS))\nfor f in NETS:\n    probe.show(f())\n",
    "functions under names": UNDER_NAME
    + many("@register('n<n>')\ndef net<n>():\n    return <n>\n")
    + "probe.show(NETS['n41']())\nk = 'n' + str(55)\nprobe.show(NETS[k]())\nprobe.show('n57' in NETS)\n",
    "classes in an object": OBJECT
    + many("@r.register\nclass C<n>:\n    v = <n>\n")
    + "probe.show(r.build('C41').v)\nprobe.show(r.build('C3').v)\nprobe.show(len(r.kept))\n",
    "classes under names in an object": OBJECT
    + many("@r.named('c<n>')\nclass C<n>:\n    def __init__(self, x):\n        self.v = x + <n>\n")
    + "probe.show(r.build('c41', 1).v)\nn = 'c' + str(3)\nprobe.show(r.build(n, 2).v)\n",
    "subclasses": SUBCLASSES
    + many("class C<n>(Base):\n    v = <n>\n")
    + "probe.show(Base.all['C41'].v)\nprobe.show(Base.all['C' + str(2)]().v)\nprobe.show(len(Base.all))\n",
    "functions of the module": many("def net<n>():\n    return <n>\n")
    + "probe.show(globals()['net' + str(41)]())\nimport sys\nprobe.show(getattr(sys.modules[__name__], 'net%d' % 55)())\n",
    "what one of them changes around it": "STATE = {'n': 0}\n"
    + BY_NAME
    + many("@register\ndef net<n>():\n    STATE['n'] = <n>\n")
    + "NETS['net' + str(41)]()\nprobe.show(STATE['n'])\n",
    "a global that one of them sets": "N = 0\n"
    + BY_NAME
    + many("@register\ndef net<n>():\n    global N\n    N = <n>\n")
    + "NETS['net' + str(41)]()\nprobe.show(N)\n",
    "a dict that one of them is given": BY_NAME
    + many("@register\ndef net<n>(c):\n    c['n'] = <n>\n    return c\n")
    + "c = {'n': 'a'}\nd = NETS['net' + str(41)](c)\nprobe.show(c['n'])\nprobe.show(d['n'])\n",
    "an object that one of them is given": HOLDS
    + BY_NAME
    + many("@register\ndef net<n>(c):\n    c.v = <n>\n    return c\n")
    + "c = C('a')\nd = NETS['net' + str(41)](c)\nprobe.show(c.v)\nprobe.show(d.v)\n",
    "a list that one of them appends to": "STATE = []\nfs = ["
    + many("lambda: STATE.append(<n>)", between=", ")
    + "]\nfs[41]()\nprobe.show(STATE[-1])\nprobe.show(len(STATE))\n",
    "items": "l = ["
    + many("<n>", 200, ", ")
    + "]\nprobe.show(l[150])\ni = 77\nprobe.show(l[i])\nl[100] = 'x'\nprobe.show(l[100])\nfor v in l:\n    probe.show(v)\nprobe.show(len(l))\n",
    "dicts in a list": "l = ["
    + many("{'v': <n>}", 100, ", ")
    + "]\nprobe.show(l[90]['v'])\nfor d in l:\n    d['v'] = 'n'\nprobe.show(l[90]['v'])\nprobe.show(l[3]['v'])\n",
    "keys": "d = {"
    + many("'k<n>': <n>", 300, ", ")
    + "}\nprobe.show(d['k250'])\nk = 'k' + str(7)\nprobe.show(d[k])\nd[k] = 'new'\nprobe.show(d['k7'])\nfor k, v in d.items():\n    probe.show(v)\n",
    "attributes": HOLDS
    + "c = C(0)\n"
    + many("c.a<n> = <n>\n", 300)
    + "probe.show(c.a250)\nprobe.show(getattr(c, 'a' + str(99)))\nprobe.show(vars(c)['a3'])\n",
    "objects in a list": HOLDS
    + "cs = [C(n) for n in range(100)]\nprobe.show(cs[70].v)\nfor c in cs:\n    c.v = 'x'\nprobe.show(cs[1].v)\n",
    "calls in calls": many("def f<n>(x):\n    return f<n>_(x) if x else <n>\n", 40).replace("f39_", "last")
    + "".join(f"f{n}_ = f{n + 1}\n" for n in range(39))
    + "def last(x):\n    return x\nprobe.show(f0(1))\nprobe.show(f0(0))\n",
    "turns": "x = 0\nwhile x < 300:\n    x += 1\n    if x == 299:\n        probe.show(x)\nprobe.show(x)\n",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_more_than_is_told_apart(name: str, tmp_path: Path) -> None:
    assert unsound(tmp_path, "import probe\n" + PROGRAMS[name]) == []


@pytest.mark.parametrize("n", [40, 70, 150])
def test_one_of_many_objects_is_changed(n: int, tmp_path: Path) -> None:
    program = HOLDS + many("a<n> = C(<n>)\n", n) + "pick = {" + many("'<n>': a<n>", n, ", ")
    program += f"}}\npick[str({n - 4})].go()\nprobe.show(a{n - 4}.v)\n"
    program += f"for p in pick.values():\n    p.go()\nprobe.show(a{n - 1}.v)\n"
    assert unsound(tmp_path, "import probe\n" + program) == []


def test_what_is_wrapped_again_and_again_is_looked_at_once(tmp_path: Path) -> None:
    """Each turn doubles the ways to the list: forty of them would never end."""
    program = "rows = ['a', 'b']\n" + 40 * (
        "rows = reversed(list(rows)) if probe.maybe() else filter(None, rows)\n"
    )
    assert (
        unsound(tmp_path, f"import probe\n{program}for row in rows:\n    probe.show(row)\n") == []
    )


def test_results_of_layers_in_results_of_layers(tmp_path: Path) -> None:
    pair = "class Pair(nn.Module):\n    def forward(self, x):\n        return [x, x]\n"
    nested = "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.pair = Pair()\n"
    nested += (
        "    def forward(self, x):\n" + 40 * "        x = self.pair(x)\n" + "        return x\n"
    )
    script = read(tmp_path, HEAD + pair + nested + "out = Net()(torch.ones(2))\n")
    assert not script.unread and script.models


def test_a_function_that_calls_itself_on_parts_of_trees_ends_soon(tmp_path: Path) -> None:
    """Each part of an unknown tree is a part of a part: nothing new."""
    trees = (
        "import collections, random\n"
        "Node = collections.namedtuple('Node', 'word left right')\n"
        "OPS = {'not': lambda a, b: -b, 'and': lambda a, b: a + b}\n"
        "def score(n):\n"
        "    return 1 if n.left is None else OPS[n.word](score(n.left), score(n.right))\n"
        "def grow(rng, depth):\n"
        "    if depth == 0 or rng.random() < 0.2:\n"
        "        return Node('a', None, None)\n"
        "    n = Node(rng.choice(sorted(OPS)), grow(rng, depth - 1), grow(rng, depth - 1))\n"
        "    score(n)\n"
        "    return n._replace(word='not')\n"
        "rng = random.Random(0)\n"
        "trees = [grow(rng, 4) for _ in range(3)]\n"
    )
    script = read(tmp_path, trees)
    assert not script.unread and len(script.everything) < 2_000


def test_what_is_around_a_call_that_is_given_up_is_not_around_what_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autofast.model.limits.READING", 2_000)
    long = "".join(f"                x = x + {i} * {i}\n" for i in range(600))
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\n"
        "def draw(x):\n"
        "    for _ in range(9):\n"
        "        with torch.no_grad():\n"
        "            if x:\n" + long + "    return x\n"
        "model = torch.nn.Linear(4, 1)\n"
        "def main():\n"
        "    for step in range(9):\n"
        "        draw(step)\n"
        "        loss = model(torch.ones(2, 4)).sum()\n"
        "        loss.backward()\n"
        "main()\n"
    )
    script = read_script(path, tmp_path)
    assert "draw()" in script.unread
    (backward,) = (o for site in script.methods("backward") for o in site)
    assert [type(f).__name__ for f in backward.stack] == ["CallFrame", "LoopFrame"]
    assert backward.grad == "on"


KEEPS = "        if probe.maybe():\n            self.kept = [n, [n], {1: n, 2: [n]}]\n"
KIND = "class Table<n>(Table):\n    def __init__(self, n):\n        super().__init__(n)\n"
CHOICE = f"""
class Table(Dataset):
    def __init__(self, n):
{KEEPS * 8}
    def __len__(self):
        return 10
    def __getitem__(self, i):
        return torch.ones(3), 1
{many(KIND, 8)}
def main():
    made = [{many("Table<n>", 8, ", ")}][probe.number()](7)
    model = nn.Linear(3, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(made, batch_size=2):
        optimizer.zero_grad()
        F.cross_entropy(model(x.cuda()), y.cuda()).backward()
        optimizer.step()
main()
"""


def test_many_datasets_one_of_which_is_chosen_leave_room_for_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "READING", 1_000)
    monkeypatch.setattr(limits, "CHOSEN", 300, raising=False)
    script = read(tmp_path, HEAD + CHOICE)
    assert len(script.steps) == 1
    assert "__init__()" in script.unread


ROWS = """
class Rows<n>(Dataset):
    def __len__(self):
        return 10
    def __getitem__(self, i):
        if i % 2:
            return {"x": torch.ones(3), "y": 1, "only<n>": i}
        return {"x": torch.zeros(3), "y": 0}
"""


def test_batches_of_many_datasets_one_of_which_is_chosen(tmp_path: Path) -> None:
    """Each key of their dicts holds what any of them puts there."""
    script = read(
        tmp_path,
        f"""{HEAD}{many(ROWS, 30)}
def feed(batch):
    probe.show(batch["x"])
    probe.show(batch["only7"])
made = [{many("Rows<n>()", 30, ", ")}][probe.number()]
for batch in DataLoader(made, batch_size=2):
    last = batch
for batch in DataLoader(made, batch_size=3):
    last = batch if probe.maybe() else last
feed(last)
""",
    )
    assert len(shown(script)) > 0
    assert all(isinstance(t, Tensor) and t.batch for t in shown(script))


def test_items_that_hold_themselves(tmp_path: Path) -> None:
    script = read(tmp_path, """
        import torch
        from torch.utils.data import DataLoader, Dataset
        import probe

        class Nested(Dataset):
            def __len__(self):
                return 4

            def __getitem__(self, i):
                row = [torch.ones(2)]
                while probe.maybe():
                    row = [row, torch.ones(2)]
                return {"row": row}

        for batch in DataLoader(Nested(), batch_size=2):
            probe.show(batch["row"][1])
    """)  # fmt: skip
    assert any(isinstance(t, Tensor) and t.batch for t in shown(script))


STATES = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList(nn.LSTMCell(4, 4) for _ in range(2))
    def start(self):
        return [(torch.zeros(2, 4), torch.zeros(2, 4)) for _ in self.cells]
    def forward(self, x, states):
        new = []
        for i, cell in enumerate(self.cells):
            h, c = states[i]
            for row in x:
                h, c = cell(row, (h, c))
            new.append((h, c))
        return h, new
def cut(h):
    if isinstance(h, torch.Tensor):
        return h.detach()
    return [tuple(cut(v) for v in layer) for layer in h]
def evaluate(model):
    states = model.start()
    for x in torch.ones(5, 3, 2, 4):
        out, states = model(x, states)
        states = cut(states)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    evaluate(model)
    states = model.start()
    for x in torch.ones(5, 3, 2, 4):
        states = cut(states)
        out, states = model(x, states)
        loss = out.sum()
        loss.backward()
        optimizer.step()
"""


def test_states_that_a_function_which_calls_itself_takes_apart(tmp_path: Path) -> None:
    script = read(tmp_path, HEAD + STATES)
    assert len(script.steps) == 1
    assert script.notes == []


def test_a_call_for_which_the_stack_does_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is given up alone, and what is around it read."""

    def endless(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(modules, "_output", endless)
    script = read(tmp_path, HEAD + STATES)
    assert "the call on line" in script.unread
    assert [o.name for o in script.optimizers] == ["SGD"]


def test_a_tensor_of_a_list_that_holds_itself(tmp_path: Path) -> None:
    """Nothing is taken for nested too deeply, and nothing is said of the tensor's kind."""
    script = read(tmp_path, """
        import torch
        import probe

        rows = [1.5]
        while probe.maybe():
            rows = [rows, 2.5]
        probe.show(torch.tensor(rows))
    """)  # fmt: skip
    assert script.notes == []
    assert [t.dtype for t in shown(script) if isinstance(t, Tensor)] == ["?"]


def test_devices_that_are_made_of_themselves(tmp_path: Path) -> None:
    text = """
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(3, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    device = torch.device(device)
    x = torch.zeros(3).to(device)
    model(x).sum().backward()
    optimizer.step()
"""
    (tmp_path / "train.py").write_text(text)
    script = read_script(tmp_path / "train.py", tmp_path)
    assert [t.kinds for t in script.transfers] == [{"cuda", "cpu"}]


def test_what_cannot_be_read_twice_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is left out, and makes no difference, is no reason to begin again for ever."""

    def endless(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(build, "run_hooks", endless)
    with pytest.raises(BadInput):
        read(tmp_path, "import deep\n", {"deep.py": "x = " + "+".join("1" * 60) + "\n"})
