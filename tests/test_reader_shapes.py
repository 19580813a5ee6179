"""What the reader recovers from training scripts of every shape: loaders, steps, evaluations,
transfers, reads of values.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from autofast.model.script import Script
from autofast.model.values import Const, Ext, Ref, Tensor, const
from tests.reading import HEAD, read, shown

DATA = "data = TensorDataset(torch.randn(8, 4), torch.randint(0, 2, (8,)))\n"
MODEL = "model = nn.Linear(4, 2)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
STEP = "    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
LOADER = "loader = DataLoader(data, batch_size=2, num_workers=0)\n"
SETUP = HEAD + DATA + MODEL + LOADER


def test_samples_of_a_batch_side_by_side_are_no_pass_over_the_loader(
    tmp_path: Path,
) -> None:
    loop = "for x, y in loader:\n    for a, b in zip(x, y):\n        print(a.shape, b.shape)\n"
    (loader,) = read(tmp_path, SETUP + loop + STEP).loaders
    assert [ast.unparse(u.node.iter) for u in loader.uses] == ["loader"]


def trains_once(script: Script, name: str = "TensorDataset") -> None:
    """One loader over one dataset, used to train; one step with all its parts."""
    assert [d.name for loader in script.loaders for d in loader.datasets] == [name]
    assert [u.trains for loader in script.loaders for u in loader.uses] == [True]
    assert len(script.steps) == 1
    step = script.steps[0]
    assert (
        len(step.forwards),
        len(step.losses),
        len(step.backwards),
        len(step.updates),
        len(step.zeros),
    ) == (1, 1, 1, 1, 1)
    assert list(step.loaders) == script.loaders[0].things
    assert [o.name for o in script.optimizers] == ["SGD"] and len(script.optimizers[0].updates) == 1


def workers(script: Script) -> object:
    return const(script.loaders[0].args.get(5, "num_workers"))


# ----------------------------------------------------------------------------------- ways to a loop
LOOPS = {
    "plain": "for x, y in loader:\n",
    "enumerate": "for i, (x, y) in enumerate(loader):\n",
    "tqdm": "from tqdm import tqdm\nfor x, y in tqdm(loader):\n",
    "tqdm_module": "import tqdm\nfor i, (x, y) in enumerate(tqdm.tqdm(loader, desc='train')):\n",
    "zip_range": "for (x, y), i in zip(loader, range(100)):\n",
    "islice": "import itertools\nfor x, y in itertools.islice(loader, 10):\n",
    "iter": "for x, y in iter(loader):\n",
    "cycle": "from itertools import cycle\nfor x, y in cycle(loader):\n",
    "one_name": "for batch in loader:\n    x, y = batch\n",
    "subscript": "for batch in loader:\n    x = batch[0]\n    y = batch[1]\n",
    "with_bar": "from tqdm import tqdm\nwith tqdm(loader) as bar:\n  for x, y in bar:\n",
}


@pytest.mark.parametrize("name", LOOPS)
def test_wrappers_around_a_loop(name: str, tmp_path: Path):
    loop = LOOPS[name]
    step = STEP.replace("    ", "      ") if "with tqdm" in loop else STEP
    trains_once(read(tmp_path, SETUP + loop + step))


def test_next_of_an_iterator(tmp_path: Path):
    script = read(
        tmp_path, SETUP + "it = iter(loader)\nfor i in range(10):\n    x, y = next(it)\n" + STEP
    )
    assert [(u.is_next, u.trains) for u in script.loaders[0].uses] == [(True, True)]
    assert len(script.steps) == 1 and len(script.steps[0].forwards) == 1


# ----------------------------------------------------------------------------- spellings of imports
IMPORTS = {
    "alias": ("import torch as th\n", "th.utils.data.DataLoader", "th.optim.SGD", "th.nn.functional.cross_entropy", "th.nn.Linear"),
    "from_data": (
        "from torch.utils import data as D\nfrom torch import nn as neural, optim\nimport torch.nn.functional as fun\n",
        "D.DataLoader", "optim.SGD", "fun.cross_entropy", "neural.Linear",
    ),
    "deep": (
        "from torch.utils.data.dataloader import DataLoader as L\nfrom torch.optim.sgd import SGD as S\nfrom torch.nn import functional, Linear\n",
        "L", "S", "functional.cross_entropy", "Linear",
    ),
    "star": ("from torch.utils.data import *\nfrom torch.nn import *\nfrom torch.optim import *\n", "DataLoader", "SGD", "functional.cross_entropy", "Linear"),
    "guarded": (
        "try:\n    from torch.utils.data import DataLoader\nexcept ImportError:\n    DataLoader = None\nimport torch\n",
        "DataLoader", "torch.optim.SGD", "torch.nn.functional.cross_entropy", "torch.nn.Linear",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPORTS)
def test_spellings_of_imports(name: str, tmp_path: Path):
    head, loader, sgd, cross_entropy, linear = IMPORTS[name]
    code = f"""{head}
from things import data
model = {linear}(4, 2)
optimizer = {sgd}(model.parameters(), lr=0.1)
loader = {loader}(data, batch_size=2)
for x, y in loader:
    optimizer.zero_grad()
    loss = {cross_entropy}(model(x), y)
    loss.backward()
    optimizer.step()
"""
    files = {"things.py": "import torch\nfrom torch.utils.data import TensorDataset\n" + DATA}
    trains_once(read(tmp_path, code, files))


# ------------------------------------------------------------------------------------- across files
FILES: dict[str, Mapping[str, str]] = {
    "absolute": {
        "train.py": "from lib import make\n",
        "lib.py": HEAD + DATA + "def make(n):\n    return DataLoader(data, 2, num_workers=n)\n",
    },
    "package": {
        "train.py": "from lib import make\n",
        "lib/__init__.py": "from .loaders import make\n",
        "lib/loaders.py": HEAD
        + "from . import sets\ndef make(n):\n    return DataLoader(sets.data, 2, num_workers=n)\n",
        "lib/sets.py": HEAD + DATA,
    },
    "star": {
        "train.py": "from lib import *\n",
        "lib/__init__.py": "from .loaders import *\n",
        "lib/loaders.py": HEAD
        + DATA
        + "def make(n):\n    return DataLoader(data, 2, num_workers=n)\n",
    },
    "namespace": {
        "train.py": "import lib.loaders\nmake = lib.loaders.make\n",
        "lib/loaders.py": HEAD
        + DATA
        + "def make(n):\n    return DataLoader(data, 2, num_workers=n)\n",
    },
    # A folder without __init__.py that is called like a library: that one is not installed where
    # this runs.
    "namespace like a library": {
        "train.py": "from datasets.loaders import make\n",
        "datasets/loaders.py": HEAD
        + "import datasets.sets\ndef make(n):\n    return DataLoader(datasets.sets.data, 2, num_workers=n)\n",
        "datasets/sets.py": HEAD + DATA,
    },
    "cycle": {
        "train.py": "from lib import make\n",
        "lib.py": HEAD + "import other\n" + DATA + "def make(n):\n    return other.build(n)\n",
        "other.py": HEAD
        + "import lib\ndef build(n):\n    return DataLoader(lib.data, 2, num_workers=n)\n",
    },
}


@pytest.mark.parametrize("name", FILES)
def test_factories_in_other_files(name: str, tmp_path: Path):
    files = dict(FILES[name])
    code = HEAD + files.pop("train.py") + MODEL + "loader = make(3)\nfor x, y in loader:\n" + STEP
    script = read(tmp_path, code, files)
    trains_once(script)
    assert workers(script) == 3


# ---------------------------------------------------------------------------------------- arguments
ARGUMENTS: dict[str, tuple[str, object]] = {
    "literal": ("loader = DataLoader(data, 2, num_workers=3)\n", 3),
    "positional": ("loader = DataLoader(data, 2, False, None, None, 3)\n", 3),
    "constant": ("N = 3\nloader = DataLoader(data, num_workers=N)\n", 3),
    "dict": ("kw = {'num_workers': 3}\nloader = DataLoader(data, **kw)\n", 3),
    "dict_call": (
        "kw = dict(batch_size=2)\nkw.update(num_workers=3)\nloader = DataLoader(data, **kw)\n",
        3,
    ),
    "dict_item": ("kw = {}\nkw['num_workers'] = 3\nloader = DataLoader(data, **kw)\n", 3),
    "partial": (
        "import functools\nmake = functools.partial(DataLoader, num_workers=3)\nloader = make(data)\n",
        3,
    ),
    "lambda": ("make = lambda d, n: DataLoader(d, num_workers=n)\nloader = make(data, 3)\n", 3),
    "class": ("class C:\n    n = 3\nloader = DataLoader(data, num_workers=C.n)\n", 3),
    "instance": (
        "class C:\n    def __init__(self): self.n = 3\nloader = DataLoader(data, num_workers=C().n)\n",
        3,
    ),
    "star": ("args = (data, 2)\nloader = DataLoader(*args, num_workers=3)\n", 3),
    "two_values": (
        "n = 3 if probe.maybe() else 0\nloader = DataLoader(data, num_workers=n)\n",
        ...,
    ),
    "unknown": ("loader = DataLoader(data, num_workers=probe.number())\n", ...),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str, tmp_path: Path):
    make, expected = ARGUMENTS[name]
    script = read(tmp_path, HEAD + DATA + MODEL + make + "for x, y in loader:\n" + STEP)
    trains_once(script)
    assert workers(script) == expected


def test_a_key_set_under_a_condition_is_not_sure(tmp_path: Path):
    code = (
        HEAD
        + DATA
        + MODEL
        + "kw = {'batch_size': 2}\nif torch.cuda.is_available():\n    kw['num_workers'] = 3\nloader = DataLoader(data, **kw)\n"
    )
    args = read(tmp_path, code + "for x, y in loader:\n" + STEP).loaders[0].args
    assert args.named["batch_size"].sure and not args.named["num_workers"].sure and not args.open


def test_keywords_that_are_not_known(tmp_path: Path):
    args = (
        read(
            tmp_path,
            HEAD
            + DATA
            + MODEL
            + "loader = DataLoader(data, **probe.options())\nfor x, y in loader:\n"
            + STEP,
        )
        .loaders[0]
        .args
    )
    assert args.open and "num_workers" not in args.named


def test_an_option_has_its_default(tmp_path: Path):
    code = (
        HEAD
        + DATA
        + MODEL
        + """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--workers', '-j', type=int, default=4)
args = parser.parse_args()
loader = DataLoader(data, batch_size=2, num_workers=args.workers)
for x, y in loader:
"""
    )
    (option,) = read(tmp_path, code + STEP).loaders[0].args.get(5, "num_workers")
    assert (option.name, option.default) == ("workers", frozenset({Const(4)}))  # type: ignore[union-attr]


def test_defaults_of_options_that_are_set_later(tmp_path: Path):
    code = (
        HEAD
        + DATA
        + "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', type=int, default=4)\np.set_defaults(n=0)\n"
    )
    (option,) = (
        read(tmp_path, code + "loader = DataLoader(data, num_workers=p.parse_args().n)\n")
        .loaders[0]
        .args.get(5, "num_workers")
    )
    assert option.default == frozenset({Const(0)})  # type: ignore[union-attr]


# ------------------------------------------------------------------------------- shapes of programs
STRUCTURES = {
    "function": "def train(m, l, o):\n    for x, y in l:\n        o.zero_grad()\n        loss = F.cross_entropy(m(x), y)\n        loss.backward()\n        o.step()\n"
    "for epoch in range(2):\n    train(model, loader, optimizer)\n",
    "returned": "def parts():\n    return model, optimizer, (loader, loader)\nm, o, (l, _) = parts()\n"
    "for x, y in l:\n    o.zero_grad()\n    loss = F.cross_entropy(m(x), y)\n    loss.backward()\n    o.step()\n",
    "closure": "def run():\n    def step(x, y):\n        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    "    for x, y in loader:\n        step(x, y)\nrun()\n",
    "trainer": "class Base:\n    def __init__(self, model, loader):\n        self.net, self.batches = model, loader\n        self.setup()\n    def fit(self):\n"
    "        for b in self.batches:\n            self.step(b)\n"
    "class Trainer(Base):\n    def setup(self):\n        self.opt = optimizer\n    @property\n    def lossfn(self):\n        return F.cross_entropy\n    def step(self, b):\n"
    "        x, y = b\n        self.opt.zero_grad()\n        loss = self.lossfn(self.net(x), y)\n        loss.backward()\n        self.opt.step()\n"
    "Trainer(model, loader).fit()\n",
    "spawn": "import torch.multiprocessing as mp\ndef work(rank, l):\n    for x, y in l:\n        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n"
    "        loss.backward()\n        optimizer.step()\nmp.spawn(work, args=(loader,), nprocs=2)\n",
    "process": "import torch.multiprocessing as mp\ndef work(l):\n    for x, y in l:\n        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n"
    "        loss.backward()\n        optimizer.step()\nmp.Process(target=work, args=(loader,)).start()\n",
    "while": "it = 0\nwhile True:\n    for x, y in loader:\n        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n        loss.backward()\n        optimizer.step()\n"
    "        it += 1\n    if it > 100:\n        break\n",
    "early_return": "def main():\n    if probe.maybe():\n        return\n    for x, y in loader:\n        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n"
    "        loss.backward()\n        optimizer.step()\nif __name__ == '__main__':\n    main()\n",
    "async": "import asyncio\nasync def main():\n    for x, y in loader:\n        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n        loss.backward()\n"
    "        optimizer.step()\nasyncio.run(main())\n",
    "comprehension": "loaders = {k: loader for k in ('train',)}\nfor x, y in loaders['train']:\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n"
    "    loss.backward()\n    optimizer.step()\n",
    "decorated": "import functools\ndef timed(f):\n    @functools.wraps(f)\n    def inner(*a, **k):\n        return f(*a, **k)\n    return inner\n@timed\ndef train(l):\n    for x, y in l:\n"
    "        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n        loss.backward()\n        optimizer.step()\ntrain(loader)\n",
    "wrapped method": "def alias(name, others):\n    def decorator(f):\n        def wrapper(*args, **kwargs):\n            for other in others:\n"
    "                if other in kwargs:\n                    kwargs[name] = kwargs.pop(other)\n                    break\n            return f(*args, **kwargs)\n"
    "        return wrapper\n    return decorator\nclass Trainer:\n    def __init__(self):\n        self.opt = optimizer\n"
    "    @alias('l', ['batches', 'data'])\n    @alias('m', ['net'])\n    def fit(self, l=None, m=None):\n        for x, y in l:\n            self.opt.zero_grad()\n"
    "            loss = F.cross_entropy(m(x), y)\n            loss.backward()\n            self.opt.step()\nTrainer().fit(data=loader, m=model)\n",
    "generator": "def batches(l):\n    for x, y in l:\n        yield x, y\nfor x, y in batches(loader):\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n"
    "    loss.backward()\n    optimizer.step()\n",
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures(name: str, tmp_path: Path):
    script = read(tmp_path, SETUP + STRUCTURES[name])
    if (
        name == "generator"
    ):  # the loop over the loader is the generator's: the step finds it through its batches
        assert len(script.steps) == 1 and script.steps[0].loaders == script.loaders[0].things
    else:
        trains_once(script)
    if name == "early_return":
        assert script.guarded
    elif name == "function":
        assert script.loaders[0].uses[0].repeated and not script.guarded


def test_classes_of_the_users_with_names_of_torch(tmp_path: Path):
    code = (
        HEAD
        + DATA
        + MODEL
        + """
class DataLoader:
    def __init__(self, data): self.data = data
    def __iter__(self): return iter(self.data)
class Adam:
    def step(self): pass
for x, y in DataLoader(data):
    F.cross_entropy(model(x), y).backward()
    Adam().step()
"""
    )
    script = read(tmp_path, code)
    assert script.loaders == [] and [o.name for o in script.optimizers] == ["SGD"]


def test_a_name_that_is_a_module_first(tmp_path: Path):
    files = {"model.py": HEAD + "class Net(nn.Module):\n    def __init__(self):\n        super(Net, self).__init__()\n        self.fc = nn.Linear(4, 2)\n"
             "    def forward(self, x):\n        return self.fc(x)\n"}  # fmt: skip
    code = (
        HEAD
        + DATA
        + "import model\nmodel = model.Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        + LOADER
        + "for x, y in loader:\n"
        + STEP
    )
    script = read(tmp_path, code, files)
    trains_once(script)
    assert [m.name for m in script.models] == ["Net"] and script.models[0].layers == {"Linear"}


def test_several_optimizers_and_backwards(tmp_path: Path):
    code = (
        SETUP
        + """
other = nn.Linear(4, 2)
second = torch.optim.Adam(other.parameters())
for x, y in loader:
    optimizer.zero_grad()
    a = F.cross_entropy(model(x), y)
    a.backward()
    optimizer.step()
    second.zero_grad()
    b = F.cross_entropy(other(x), y)
    b.backward()
    second.step()
"""
    )
    (step,) = read(tmp_path, code).steps
    assert (
        len(step.backwards) == 2
        and len(step.updates) == 2
        and len(step.optimizers) == 2
        and len(step.models) == 2
    )


def test_closure_of_lbfgs(tmp_path: Path):
    code = (
        HEAD
        + DATA
        + "model = nn.Linear(4, 2)\noptimizer = torch.optim.LBFGS(model.parameters())\n"
        + LOADER
        + """
for x, y in loader:
    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss
    optimizer.step(closure)
"""
    )
    (step,) = read(tmp_path, code).steps
    assert [u.closure for u in step.updates] == [True] and len(step.forwards) == 1


def test_training_and_evaluation_in_one_function(tmp_path: Path):
    code = (
        SETUP
        + """
test = DataLoader(data, batch_size=4)
def run(loader, train):
    for x, y in loader:
        out = model(x)
        loss = F.cross_entropy(out, y)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
for epoch in range(3):
    run(loader, True)
    with torch.no_grad():
        run(test, False)
"""
    )
    script = read(tmp_path, code)
    assert [[u.trains for u in loader.uses] for loader in script.loaders] == [[True], [False]]
    assert [e.mode for e in script.evaluations] == ["off"]


def test_phases(tmp_path: Path):
    code = (
        SETUP
        + """
loaders = {'train': loader, 'val': DataLoader(data, batch_size=4)}
for epoch in range(3):
    for phase in ['train', 'val']:
        for x, y in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == 'train'):
                loss = F.cross_entropy(model(x), y)
                if phase == 'train':
                    loss.backward()
                    optimizer.step()
"""
    )
    script = read(tmp_path, code)
    assert [sorted({u.trains for u in loader.uses}) for loader in script.loaders] == [
        [True],
        [False],
    ]


# ---------------------------------------------------------------------------- what is there already
DONE = {
    "legacy": "scaler = torch.cuda.amp.GradScaler()\nfor x, y in loader:\n    optimizer.zero_grad()\n    with torch.cuda.amp.autocast():\n        loss = F.cross_entropy(model(x), y)\n"
    "    scaler.scale(loss / 2).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
    "variable": "scaler = torch.amp.GradScaler('cuda')\nctx = torch.autocast('cuda', dtype=torch.float16)\nfor x, y in loader:\n    optimizer.zero_grad()\n    with ctx:\n"
    "        loss = F.cross_entropy(model(x), y)\n    scaler.scale(loss / 2).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
    "ternary": "import contextlib\nscaler = torch.amp.GradScaler('cuda')\nctx = torch.autocast('cuda') if probe.maybe() else contextlib.nullcontext()\nfor x, y in loader:\n"
    "    optimizer.zero_grad()\n    with ctx:\n        loss = F.cross_entropy(model(x), y)\n    scaler.scale(loss / 2).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
    "partial": "import functools\nscaler = torch.amp.GradScaler('cuda')\nctx = functools.partial(torch.autocast, 'cuda')\nfor x, y in loader:\n    optimizer.zero_grad()\n    with ctx():\n"
    "        loss = F.cross_entropy(model(x), y)\n    scaler.scale(loss / 2).backward()\n    scaler.step(optimizer)\n    scaler.update()\n",
}


@pytest.mark.parametrize("name", DONE)
def test_mixed_precision_that_is_there(name: str, tmp_path: Path):
    (step,) = read(tmp_path, SETUP + DONE[name]).steps
    (backward,) = step.backwards
    assert (
        backward.scaled
        and ast.unparse(backward.expr) == "loss"
        and len(step.autocast) == 1
        and len(step.scalers) == 1
        and step.updates[0].scaled
    )


FRAMEWORKS = {
    "accelerate": "from accelerate import Accelerator\na = Accelerator()\nmodel, optimizer, loader = a.prepare(model, optimizer, loader)\n"
    "for x, y in loader:\n    loss = F.cross_entropy(model(x), y)\n    a.backward(loss)\n    optimizer.step()\n",
    "lightning": "import pytorch_lightning as pl\nclass M(pl.LightningModule):\n    def training_step(self, b, i):\n        return F.cross_entropy(model(b[0]), b[1])\npl.Trainer().fit(M(), loader)\n",
    "hf-trainer": "from transformers import Trainer\nTrainer(model=model, train_dataset=data).train()\n",
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks(name: str, tmp_path: Path):
    assert name in read(tmp_path, SETUP + FRAMEWORKS[name]).frameworks


# ----------------------------------------------------------------------- transfers, reads of values
def test_transfers_and_reads_of_values(tmp_path: Path):
    code = (
        SETUP
        + """
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
total = 0.0
for i, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    total += loss.item()
    if i % 10 == 0:
        print(float(loss))
"""
    )
    script = read(tmp_path, code)
    assert [(t.how, bool(t.loaders), t.to_device, sorted(t.kinds)) for t in script.transfers] == [
        ("to", True, True, ["cpu", "cuda"])
    ] * 2
    assert [(s.how, s.gated, s.training) for s in script.syncs] == [
        ("item", False, True),
        ("float", True, True),
    ]


# ---------------------------------------------------------------------------- more than can be read
def test_a_file_of_ten_thousand_lines(tmp_path: Path):
    code = (
        SETUP
        + "".join(f"v{i} = [len(str({i})), v{i - 1} if {i} else 0]\n" for i in range(1, 10_000))
        + "for x, y in loader:\n"
        + STEP
    )
    trains_once(read(tmp_path, code))


LONG = "b = 0\n" + "".join(f"a = [b, {i}]\nb = [a, {i}]\n" for i in range(400))  # 2,401 expressions
# what stands before a long function, its parameters and last lines, the call, and what it may have
# changed
CUT = {
    "argument": ("c = C()\n", "c", "c.n = 0", "long(c)", "c.n"),
    "within_an_argument": (
        "c = C()\nc.inner = C()\n",
        "c",
        "c.inner.n = 0",
        "long(c)",
        "c.inner.n",
    ),
    "keyword": ("c = C()\n", "**kw", "kw['c'].n = 0", "long(c=c)", "c.n"),
    "default": ("c = C()\n", "c=c", "c.n = 0", "long()", "c.n"),
    "dict": ("c = {'n': 3}\n", "c", "c['n'] = 0", "long(c)", "c['n']"),
    "list": ("c = [3]\n", "c", "c[0] = 0", "long(c)", "c[0]"),
    "dict_in_a_list": ("c = [{'n': 3}]\n", "c", "c[0]['n'] = 0", "long(c)", "c[0]['n']"),
    "global": ("N = 3\n", "", "global N; N = 0", "long()", "N"),
    "global_function": ("def f(): return 3\n", "", "global f; f = lambda: 0", "long()", "f()"),
    "global_object": ("c = C()\n", "", "c.n = 0", "long()", "c.n"),
    "class": ("", "", "C.n = 0", "long()", "C.n"),
    "module": ("import lib\n", "", "lib.n = 0", "long()", "lib.n"),
    "module_of_a_module": ("import lib\n", "", "lib.other.n = 0", "long()", "lib.other.n"),
    "partial": (
        "import functools\ndef zero(c): c.n = 0\nc = C()\n",
        "f",
        "f()",
        "long(functools.partial(zero, c))",
        "c.n",
    ),
    "yielded": ("", "", "yield 3; yield 0", "n = max(long())", "n"),
    "returned": ("", "", "return 0", "n = long()", "n"),
}


def cut_off(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch | None) -> Script:
    before, params, last, call, changed = CUT[name]
    if name == "yielded":
        last, long = "yield 0", "yield 3\n" + LONG
    else:
        long = LONG
    code = (
        HEAD
        + DATA
        + MODEL
        + f"class C:\n    n = 3\n{before}def long({params}):\n"
        + indented(long + last)
    )
    code += f"def main():\n    {call}\n    loader = DataLoader(data, num_workers={changed})\n    for x, y in loader:\n        model(x)\n"
    if monkeypatch is not None:
        monkeypatch.setattr(
            "autofast.model.limits.READING", 2_650
        )  # 90 % of it are not enough for the long function
    return read(
        folder, code + "main()\n", {"lib.py": "import other\nn = 3\n", "other.py": "n = 3\n"}
    )


def indented(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.splitlines())


@pytest.mark.parametrize("name", CUT)
def test_what_is_not_followed_to_the_end_is_unknown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script = cut_off(tmp_path, name, monkeypatch)
    assert script.notes == ["long() is too large to follow to the end"]
    assert workers(script) is ... and script.loaders[0].uses
    assert script.evaluations and all(e.unknown for e in script.evaluations)


@pytest.mark.parametrize("name", CUT)
def test_what_is_followed_to_the_end_is_known(name: str, tmp_path: Path):
    script = cut_off(tmp_path, name, None)
    assert script.notes == [] and 0 in {
        getattr(t, "value", 0) for t in script.loaders[0].args.get(5, "num_workers")
    }
    assert script.evaluations and not any(e.unknown for e in script.evaluations)


def test_variables_around_what_is_not_followed_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    code = (
        HEAD
        + DATA
        + "def main():\n    n, m = 3, 3\n    def long():\n        nonlocal n\n"
        + indented(indented(LONG + "n = 0"))
    )
    code += "    long()\n    return DataLoader(data, num_workers=n), DataLoader(data, num_workers=m)\nmain()\n"
    monkeypatch.setattr("autofast.model.limits.READING", 2_650)
    script = read(tmp_path, code)
    assert script.notes and [
        const(loader.args.get(5, "num_workers")) for loader in script.loaders
    ] == [..., ...]


def test_a_call_from_the_top_level_may_use_the_whole_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    code = (
        HEAD
        + DATA
        + "N = 3\ndef long():\n    global N\n"
        + indented(LONG + "N = 0")
        + "long()\nloader = DataLoader(data, num_workers=N)\n"
    )
    monkeypatch.setattr("autofast.model.limits.READING", 3_500)
    script = read(tmp_path, code)
    assert script.notes == [] and workers(script) == 0
    monkeypatch.setattr("autofast.model.limits.READING", 1_500)
    script = read(tmp_path, code)
    assert script.notes == ["train.py is too large to follow to the end"] and script.loaders == []


# ------------------------------------------------------------------------- one of several functions
def test_what_cannot_be_called_like_this_is_not_called(tmp_path: Path):
    """A table of everything in a file: layers that want arguments, modules and constants are not
    what makes the model.
    """
    nets = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n\nWIDTH = 8\n\nclass Block(nn.Module):\n"
    nets += "    def __init__(self, width):\n        super().__init__()\n        self.a = nn.Linear(4, width)\n\n"
    nets += "    def forward(self, x):\n        return self.a(x)\n\ndef init(m, *, gain):\n    return m\n\ndef narrow(width=2):\n    return Block(width)\n"
    made = "import sys\nimport nets\nmodel = nets.__dict__[sys.argv[1]]()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    script = read(
        tmp_path,
        HEAD + DATA + made + LOADER + "for x, y in loader:\n" + STEP,
        files={"nets.py": nets},
    )
    assert [m.name for m in script.models] == ["Block"] and not script.models[0].unknown
    wanted = read(
        tmp_path,
        HEAD + DATA + made.replace("]()", "](2)") + LOADER + "for x, y in loader:\n" + STEP,
        files={"nets.py": nets},
    )
    assert len(wanted.models) == 2  # the class itself, and what the function makes


# -------------------------------------------------------------------------------- from ... import *
@pytest.mark.parametrize(
    "module", ["math", "random", "torch.nn", "torch.optim", "torchvision.transforms", "tqdm"]
)
def test_builtins_beside_what_a_library_binds(module: str, tmp_path: Path):
    loop = "for i, (x, y) in enumerate(loader):\n"
    trains_once(read(tmp_path, f"from {module} import *\n" + SETUP + loop + STEP))


@pytest.mark.parametrize("more", ["", "from torch.nn import *\n", "from math import *\n"])
def test_a_library_that_may_bind_anything(more: str, tmp_path: Path):
    loop = "for i, (x, y) in enumerate(loader):\n"
    script = read(tmp_path, "from elsewhere import *\n" + more + SETUP + loop + STEP)
    assert not any(use for loader in script.loaders for use in loader.uses)


def test_a_name_of_the_standard_library_that_is_also_a_builtin(tmp_path: Path):
    script = read(
        tmp_path,
        "from math import *\nfrom random import *\na = pow(2, 3)\nb = sqrt(2)\nc = randint(0, 3)\nd = int(c)\n",
    )
    names = {
        t.name
        for node in ast.walk(script.entry.tree)
        if isinstance(node, ast.Call)
        for t in script.values(node.func)
        if isinstance(t, Ref)
    }
    assert names == {"math.pow", "math.sqrt", "random.randint", "builtins.int"}


# ---------------------------------------------------------------------- one of a thousand functions
def test_one_of_a_thousand_networks_is_unknown_and_the_training_known(tmp_path: Path):
    """As in timm: following some of them costs more than the script, and tells nothing of the
    others.
    """
    nets = "".join(
        f"@register\ndef net_{n}(width=8):\n    return nn.Sequential(*[nn.Linear(width, width) for _ in range(20)])\n"
        for n in range(60)
    )
    code = (
        HEAD
        + "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--net', default='net_3')\n"
        + "args = parser.parse_args()\nNETS = {}\ndef register(f):\n    NETS[f.__name__] = f\n    return f\n"
        + nets
        + DATA
        + "model = NETS[args.net.strip()]()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        + "for x, y in DataLoader(data, batch_size=4):\n    loss = F.mse_loss(model(x), y)\n"
        + "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    )
    script = read(tmp_path, code)
    assert not script.unread and len(script.steps) == 1 and len(script.steps[0].updates) == 1
    assert script.models == []


def test_the_training_in_a_function_that_nothing_calls_has_most_of_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    code = HEAD + DATA + "N = 3\ndef train(path):\n    global N\n" + indented(LONG + "N = 0")
    monkeypatch.setattr("autofast.model.limits.READING", 6_000)
    assert read(tmp_path, code).notes == []


def test_a_batch_that_is_told_by_its_length(tmp_path: Path) -> None:
    """The rest of a tuple is spread over the parameters, and what is for batches of another length
    is left out.
    """
    code = """
    def moved(batch):
        if len(batch) == 3:
            name, x, y = batch
            return name, x.cuda(), y.cuda()
        if len(batch) == 2:
            return batch
    def error(x, y):
        return F.cross_entropy(model(x), y)
    for x, y in loader:
        batch = moved(("rows", x, y))
        loss = error(*batch[1:])
    """
    script = read(tmp_path, SETUP + "import textwrap\n" + textwrap.dedent(code) + STEP)
    inside = next(n for n in script.each(ast.FunctionDef) if n.name == "error")
    call = next(
        n for n in ast.walk(inside) if isinstance(n, ast.Call) and ast.unparse(n.func) == "model"
    )
    (x,) = script.values(call.args[0])
    assert getattr(x, "device", "") == "dev" and getattr(x, "batch", None)


# ---------------------------------------------------------------------------- ranks of what is made
@pytest.mark.parametrize(
    ("divisor", "rank"),
    [
        ("x.size(0)", "0d"),
        ("x.shape[0]", "0d"),
        ("(x.size(0) * 3.0)", "0d"),
        ("(len(x) + x.numel())", "0d"),
        ("int(x.shape[1])", "0d"),
        ("numpy.arange(3)", ""),
        ("weights", ""),
    ],
)
def test_a_sum_divided_by_a_number_is_a_number(tmp_path: Path, divisor: str, rank: str) -> None:
    """Through a function of the project; an array of NumPy's gives an array."""
    code = f"""
import numpy
weights = numpy.load("weights.npy")
def mine(x):
    return x.pow(2).sum() / {divisor}
for x, y in loader:
    made = mine(x)
"""
    script = read(tmp_path, SETUP + code)
    (made,) = (n.value for n in script.each(ast.Assign) if ast.unparse(n.targets[0]) == "made")
    assert {t.rank for t in script.values(made) if isinstance(t, Tensor)} == {rank}


def test_a_list_that_a_loop_sorts_again_does_not_nest(tmp_path: Path) -> None:
    code = """
rows = []
for i in range(9):
    rows.append(open(str(i)).readlines())
    rows[i] = sorted(rows[i])
    rows[i] = list(map(str.__add__, rows[0], rows[i]))
"""
    script = read(tmp_path, SETUP + code)
    (call,) = (n for n in script.each(ast.Call) if ast.unparse(n.func) == "sorted")
    for thing in script.values(call):
        inside = thing.attrs["over"] if isinstance(thing, Ext) else frozenset()
        assert not any(isinstance(t, Ext) and t.name == "builtins.sorted" for t in inside)


PREPARES = """
class Loader:
    def __init__(self, loader): self.loader = loader
    def __len__(self): return len(self.loader)
    def __iter__(self):
        for batch in self.loader:
            yield batch
class Accelerator:
    def prepare(self, *things):
        out = []
        for t in things:
            if isinstance(t, nn.Module):
                t = t.to(device)
            elif isinstance(t, DataLoader):
                t = Loader(t)
            out.append(t)
        return out if len(out) > 1 else out[0]
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model, optimizer, loader = Accelerator().prepare(model, optimizer, loader)
for x, y in loader:
"""


def test_what_a_function_prepares_one_by_one_is_what_it_was(tmp_path: Path) -> None:
    """Each of the things that a loop goes over, by its type, in the list that it makes of them."""
    script = read(tmp_path, SETUP + PREPARES + STEP)
    (step,) = script.steps
    assert (len(step.forwards), len(step.updates), len(step.zeros)) == (1, 1, 1)
    assert [len(script.values(n)) for n in script.nodes if ast.unparse(n) == "model(x)"] == [1]


def test_what_is_set_behind_globals_is_known(tmp_path: Path) -> None:
    code = "import sys\nrate = 0.1\nfor a in sys.argv[1:]:\n    globals()[a] = 3\nsize = 8\n"
    script = read(tmp_path, f"{HEAD}{code}print(rate, size)\n")
    known = {
        ast.unparse(n): const(script.values(n)) for n in script.nodes if isinstance(n, ast.Name)
    }
    assert known["size"] == 8 and known["rate"] is ...


def test_a_batch_of_many_tensors_that_are_moved_one_by_one(tmp_path: Path) -> None:
    code = """
    class Rows(Dataset):
        def __len__(self): return 8
        def __getitem__(self, i):
            kinds = [torch.float32, torch.int64] * 3
            return tuple(torch.zeros(2, dtype=kind) for kind in kinds)
    def joined(rows):
        a, b, c, d, e, f = zip(*rows)
        return torch.stack(a), torch.stack(b).long(), torch.stack(c).long(), torch.stack(d).float(), torch.stack(e), 3
    words = nn.Embedding(9, 4)
    for batch in DataLoader(Rows(), batch_size=2, collate_fn=joined):
        *_, many = batch
        a, b, c, d, e = [t.to("cpu") for t in batch[:-1]]
        probe.show(b)
        probe.show(d)
        probe.show(words(torch.as_tensor(many)))
    """
    found = shown(read(tmp_path, HEAD + textwrap.dedent(code)))
    assert [t.dtype for t in found if isinstance(t, Tensor)] == ["int", "f32", "f32"]
