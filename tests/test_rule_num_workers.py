"""num-workers: the helper, where the number is decided, and every reason to leave a loader
alone.
"""

from __future__ import annotations

import ast
import json
import os
import re
import textwrap
import types
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autofast.cli import cli
from autofast.commands.rewriting import rewrite
from autofast.config import Config
from autofast.facts.cost import items
from autofast.model.script import Script
from autofast.rule import Effect
from tests.loaders import FILES, script as bare
from tests.onerule import apply

RULE = "num-workers"
PLAIN = "DataLoader(Files(), batch_size=4, shuffle=True)"


def script(*given: Any, **more: Any) -> str:
    """A script that can ask how many cores there are."""
    return "import os\n" + bare(*given, **more)


def workers_on(
    text: str, cores: int, *, start: str = "fork", system: str = "linux", **environment: str
) -> Any:
    """The number of workers that a rewritten script computes on a machine with so many cores, which
    starts processes in one way.
    """
    tree = ast.parse(text)
    names = ("cores", "workers", "loader_workers")
    made = [
        n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) in names
    ]
    (number,) = {
        ast.unparse(k.value)
        for k in ast.walk(tree)
        if isinstance(k, ast.keyword) and k.arg == "num_workers"
    }

    class Os:
        environ = environment

        @staticmethod
        def cpu_count() -> int:
            return cores

    class Multiprocessing:
        @staticmethod
        def get_start_method() -> str:
            return start

    scope: dict[str, Any] = {"os": Os, "multiprocessing": Multiprocessing}
    exec("\n".join(map(ast.unparse, made)), scope)
    return eval(number, scope)


# --------------------------------------------------------------------------------------- the helper
@pytest.mark.parametrize(("cores", "workers"), [(1, 1), (2, 2), (8, 8), (64, 8)])
def test_workers_suit_the_machine(cores: int, workers: int) -> None:
    assert workers_on(apply(RULE, script(PLAIN)).text, cores) == workers


def test_ranks_share_the_cores() -> None:
    text = apply(
        RULE,
        script(PLAIN).replace(
            "    main()\n", "    torch.distributed.init_process_group()\n    main()\n"
        ),
    ).text
    assert workers_on(text, 16, LOCAL_WORLD_SIZE="4", WORLD_SIZE="32") == 4
    assert workers_on(text, 16) == 8
    assert workers_on(text, 4, LOCAL_WORLD_SIZE="8") == 0


def test_a_cpu_keeps_its_cores_for_training() -> None:
    assert workers_on(apply(RULE, script(PLAIN), target="cpu").text, 64) == 2


def test_a_guarded_script_gets_workers_however_they_are_started() -> None:
    found = apply(RULE, script(PLAIN))
    assert found.lines == [
        "loader = DataLoader(",
        "Files(), batch_size=4, shuffle=True, num_workers=min(8, os.cpu_count())",
        ")",
    ]


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_an_unguarded_script_gets_workers_where_they_are_forked(start: str) -> None:
    text = apply(RULE, script(PLAIN, guard=False)).text
    assert workers_on(text, 4, start=start) == (4 if start == "fork" else 0)


@pytest.mark.parametrize(("asked", "forked"), [("2", False), ("0", True)])
def test_an_unguarded_script_that_has_workers_says_how_it_is_run(asked: str, forked: bool) -> None:
    """Where workers would begin by running it again, it does not run as it is."""
    other = (
        f"val = DataLoader(Files(), batch_size=2, num_workers={asked})\nfor x in val:\n    pass\n"
    )
    text = script(PLAIN, guard=False) + other
    done = apply(RULE, text)
    assert done.fixes and ("get_start_method" in done.text) is forked


def test_an_unguarded_script_that_decides_how_processes_start() -> None:
    """Asking for the start method settles it, and setting it afterwards is an error."""
    text = script(
        PLAIN, guard=False, dataset="torch.multiprocessing.set_start_method('spawn')\n" + FILES
    )
    found = apply(RULE, text)
    assert not found.fixes and "decides how workers are started" in found.refusals
    guarded = script(PLAIN, dataset="torch.multiprocessing.set_start_method('spawn')\n" + FILES)
    assert apply(RULE, guarded).fixes


@pytest.mark.parametrize(
    "reader",
    [
        "cv2.imread",
        "scipy.misc.imread",
        "scipy.io.loadmat",
        "matplotlib.image.imread",
        "tifffile.imread",
        "numpy.load",
    ],
)
def test_functions_that_read_files(reader: str) -> None:
    module, _, name = reader.rpartition(".")
    dataset = FILES.replace(
        "torch.load(self.paths[index])", f"torch.as_tensor({name}(self.paths[index]))"
    )
    assert apply(RULE, script(PLAIN, dataset=f"from {module} import {name}\n" + dataset)).fixes


@pytest.mark.parametrize("module", ["blobfile", "fsspec", "pyarrow", "hashlib"])
def test_files_and_formats_draw_nothing(module: str) -> None:
    dataset = FILES.replace("return x, x.sum()", f"{module}.load(index)\n        return x, x.sum()")
    assert apply(RULE, script(PLAIN, dataset=f"import {module}\n" + dataset)).fixes


@pytest.mark.parametrize(
    "draw", ["scipy.stats.norm.rvs(size=4)", "skimage.util.random_noise(x)", "os.urandom(4)"]
)
def test_functions_that_draw_in_libraries_that_mostly_do_not(draw: str) -> None:
    module = draw.partition("(")[0].rpartition(".")[0] if "norm" not in draw else "scipy.stats"
    dataset = FILES.replace("return x, x.sum()", f"{draw}\n        return x, x.sum()")
    found = apply(RULE, script(PLAIN, dataset=f"import {module}\n" + dataset))
    assert "what an item of Files draws is not known: line " in found.refusals


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ("self.size = x.numel()", "pass", True),
        ("self.size, self.rank = x.numel(), x.dim()", "x = x * self.size", True),
        ("x = x + self.size; self.size = 3", "pass", False),
        ("self.size = self.size + 1", "pass", False),
        ("self.size += 1", "pass", False),
        ("if index == 3:\n            self.size = 1", "x = x * self.size", False),
        ("self.size = index", "x = x + getattr(self, 'size')", False),
        ("self.paths = list(self.paths)", "pass", False),
    ],
)
def test_what_an_item_only_writes_down_on_its_way(before: str, after: str, kept: bool) -> None:
    """An attribute that nobody reads, or only the call that has just set it, is no state that
    workers would have copies of.
    """
    dataset = FILES.replace(
        "        return x, x.sum()", f"        {before}\n        {after}\n        return x, x.sum()"
    )
    found = apply(RULE, script(PLAIN, dataset=dataset))
    assert bool(found.fixes) is kept
    assert ("fetching an item changes `self." in found.refusals) is not kept


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        (
            "DataLoader(Files(), batch_size=4, collate_fn=lambda items: items)",
            "a lambda cannot be pickled for a spawned worker",
        ),
        (
            "DataLoader(Local(), batch_size=4)",
            "a spawned worker cannot import `Local`, which a function defines",
        ),
        ("DataLoader(Rolled(), batch_size=4)", "a module cannot be pickled for a spawned worker"),
    ],
)
def test_what_cannot_be_pickled_is_only_forked(loader: str, why: str) -> None:
    more = textwrap.dedent("class Local(Files):\n    pass") if "Local" in loader else ""
    rolled = "class Rolled(Files):\n    def __init__(self):\n        super().__init__()\n        self.rng = np.random\n"
    files = f"import numpy as np\n{FILES}\n{rolled}" if "Rolled" in loader else FILES
    text = apply(RULE, script(loader, more=more, dataset=files)).text
    assert f"# Only with fork: {why}\n" in text and "start_method" in text


def test_names_of_the_user_are_left_alone() -> None:
    mine = "def workers(cores):\n    return 'mine'\n\nos = 3\n"
    found = apply(RULE, bare(PLAIN, dataset=mine + FILES), workers=-1)
    assert "num_workers=min(8, os_2.cpu_count())" in found.text
    assert "import os as os_2" in found.text
    found = apply(RULE, bare(PLAIN, guard=False, dataset=mine + FILES))
    assert "loader_workers = 4 if multiprocessing.get_start_method()" in found.text
    assert "num_workers=loader_workers" in found.text
    mine += "loader_workers = 1\n"
    both = apply(RULE, script(PLAIN, guard=False, dataset=mine + FILES))
    assert "num_workers=workers_2" in both.text


def test_modules_under_other_names() -> None:
    text = bare(PLAIN, dataset="import os as system\n" + FILES)
    assert "num_workers=min(8, system.cpu_count())" in apply(RULE, text).text


def test_a_plain_number_where_the_cores_cannot_be_asked_without_an_import() -> None:
    """Four, or two beside a CPU that trains; every loader its own, without a constant."""
    text = bare(
        PLAIN,
        more="val = DataLoader(Files(8), batch_size=8, num_workers=1)",
        epoch="for x, y in val:\n    model(x)",
    )
    found = apply(RULE, text)
    assert found.text.count("num_workers=4") == 2 and "import os" not in found.text
    assert apply(RULE, text, target="cpu").text.count("num_workers=2") == 2
    unguarded = apply(RULE, bare(PLAIN, guard=False))
    assert 'workers = 4 if multiprocessing.get_start_method() == "fork" else 0' in unguarded.text


@pytest.mark.parametrize(
    ("files", "old"),
    [
        ({"README.md": "Python: 2.7\n\nPyTorch: 0.4.0\n"}, True),
        ({"environment.yml": "dependencies:\n  - python=2.7\n"}, True),
        ({"README.md": "Python 2.7 or 3.6, PyTorch 0.4\n"}, False),
        ({"README.md": "Python >= 2.7\n"}, False),
    ],
)
def test_python_2_cannot_count_cores(files: dict[str, str], old: bool) -> None:
    """Nor does it say how processes are started."""
    dataset = FILES.replace('f"{i}.pt"', '"%d.pt" % i')  # f-strings are of Python 3
    found = apply(RULE, script(PLAIN, dataset=dataset), files=files)
    assert ("num_workers=4" in found.text) is old and ("os.cpu_count()" in found.text) is not old
    unguarded = apply(RULE, script(PLAIN, dataset=dataset, guard=False), files=files)
    assert bool(unguarded.fixes) is not old
    assert not old or "where nothing says how workers are started" in unguarded.refusals


@pytest.mark.parametrize(
    "setting",
    ["torch.backends.cudnn.deterministic = True", "torch.use_deterministic_algorithms(True)"],
)
def test_runs_that_are_to_be_the_same_everywhere(setting: str) -> None:
    """Each worker draws numbers of its own: how many there are is no matter of the machine."""
    text = script(PLAIN)
    assert "min(8, os.cpu_count())" in apply(RULE, text).text
    text = text.replace("torch.manual_seed(0)\n", f"torch.manual_seed(0)\n{setting}\n", 1)
    found = apply(RULE, text if setting in text else f"import torch\n{setting}\n{text}")
    assert "num_workers=4" in found.text and "cpu_count" not in found.text


# ---------------------------------------------------------------------- where the number is decided
def test_one_helper_for_several_loaders() -> None:
    text = script(
        PLAIN,
        more="val = DataLoader(Files(8), batch_size=8)",
        epoch="for x, y in val:\n    model(x)",
    )
    found = apply(RULE, text)
    assert found.text.count("workers = min(8, os.cpu_count())") == 1
    assert found.text.count("num_workers=workers") == 2


@pytest.mark.parametrize("few", [1, 2])
def test_a_small_number_is_raised_in_its_place_on_every_system(few: int) -> None:
    """Its own number says that workers can be started: no constant, no question about the
    system.
    """
    found = apply(RULE, script(f"DataLoader(Files(), batch_size=4, num_workers={few})"))
    assert "import sys" not in found.text
    value = found.text.split("num_workers=")[1].split("))")[0] + "))"
    for cores, workers in [(1, 1), (4, 4), (64, 8)]:
        system = types.SimpleNamespace(cpu_count=lambda n=cores: n)
        assert eval(value, {"os": system}) == workers
    two = script(
        "DataLoader(Files(), batch_size=4, num_workers=2)",
        more="val = DataLoader(Files(8), batch_size=8, num_workers=1)",
        epoch="for x, y in val:\n    model(x)",
    )
    assert apply(RULE, two).text.count("num_workers=min(8, os.cpu_count())") == 2
    cpu = apply(RULE, script("DataLoader(Files(), batch_size=4, num_workers=2)"), target="cpu")
    assert not cpu.findings  # two are as many as it would get


TORCHVISION = "from torchvision import datasets, transforms\n"
PLANES = "datasets.STL10('data', transform=transforms.RandAugment())"
RANKS = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
TENSORS = "from torch.utils.data import TensorDataset\n"


@pytest.mark.parametrize(
    ("dataset", "few", "before", "reason"),
    [
        ("Files()", 1, FILES, ""),
        ("Files()", 2, FILES, ""),
        (PLANES, 1, TORCHVISION, ""),
        (PLANES, 2, TORCHVISION, "no files are read, and there are 2 workers"),
        ("Files()", 1, RANKS + FILES, "each rank has 1 of them"),
        ("Files()", 2, RANKS + FILES, "each rank has 2 of them"),
        ("TensorDataset(torch.ones(9, 3), torch.ones(9))", 1, TENSORS, "read out of memory"),
    ],
)
def test_a_small_number_is_raised_where_more_are_likely_to_help(
    dataset: str, few: int, before: str, reason: str
) -> None:
    text = script(f"DataLoader({dataset}, batch_size=4, num_workers={few})", dataset=before)
    found = apply(RULE, text, min_gain=0.01)
    assert bool(found.fixes) is not bool(reason)
    assert all(f.worth or (f.gain and reason in f.gain.reason) for f in found.findings)


@pytest.mark.parametrize(
    ("later", "effect"),
    [
        ("data.transform = transforms.Compose([transforms.RandAugment()])", Effect.SAMPLING),
        ("parts = random_split(data, [5, 4])\nparts[0].dataset.transform = FLIP", Effect.SAMPLING),
        ("data.transform = transforms.Compose([transforms.ToTensor()])", Effect.EXACT),
    ],
)
def test_transforms_that_a_dataset_is_given_later(later: str, effect: Effect) -> None:
    made = "FLIP = transforms.RandomHorizontalFlip()\ndata = datasets.ImageFolder('d', transforms.ToTensor())\n"
    text = script(
        "DataLoader(data, batch_size=4)",
        dataset=f"{TORCHVISION}from torch.utils.data import random_split\n{made}{later}\n",
    )
    assert apply(RULE, text).fixes[0].effect is effect


@pytest.mark.parametrize("workers", ["4", "os.cpu_count()", "count()", "16"])
def test_other_numbers_are_somebody_s_choice(workers: str) -> None:
    text = script(
        f"DataLoader(Files(), batch_size=4, num_workers={workers})",
        dataset="import os\nfrom x import count\n" + FILES,
    )
    assert not apply(RULE, text).findings


def test_a_number_given_by_position() -> None:
    found = apply(RULE, script("DataLoader(Files(), 4, True, None, None, 2)"))
    assert "None, None, min(8, os.cpu_count())" in " ".join(found.text.split())


def test_a_dict() -> None:
    more = "options = {'batch_size': 4}\nif torch.cuda.is_available():\n    extra = {'num_workers': 1, 'persistent_workers': True}\n    options.update(extra)"
    found = apply(RULE, script("DataLoader(Files(), **options)", more=more))
    assert "'num_workers': min(8, os.cpu_count())" in found.text.replace('"', "'")
    assert (
        found.fixes[0].node.lineno
        == found.before.splitlines().index(
            "        extra = {'num_workers': 1, 'persistent_workers': True}"
        )
        + 1
    )


ARGS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default={default})
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (0, "min(8, os.cpu_count())"),
        (1, "min(8, os.cpu_count())"),
        (2, "min(8, os.cpu_count())"),
    ],
)
def test_the_default_of_an_option(default: int, expected: str) -> None:
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=int(args.workers))",
        dataset=FILES + ARGS.format(default=default),
    )
    found = apply(RULE, text)
    assert f"default={expected})" in found.text
    assert "num_workers=int(args.workers)" in found.text


def test_an_option_that_is_read_for_something_else() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=args.workers)",
        dataset=FILES + ARGS.format(default=1) + "torch.set_num_threads(args.workers)\n",
    )
    assert "reads it for something else" in apply(RULE, text).refusals


MAKE = """
def make(files, workers=1):
    {more}
    return DataLoader(files, batch_size=4, num_workers=workers)
"""


@pytest.mark.parametrize(
    ("call", "more", "reason"),
    [
        ("make(Files(), args.workers)", "pass", ""),
        ("make(Files(), workers=int(args.workers))", "pass", ""),
        ("make(Files(), args.workers)", "torch.set_num_threads(workers)", "reads it for something"),
        ("make(Files(), args.workers + (torch.set_num_threads(args.workers) or 0))", "pass", "-"),
    ],
)
def test_an_option_that_a_function_gets_for_its_loader(call: str, more: str, reason: str) -> None:
    """The default of the parameter decides nothing, and the call that gives the option is no other
    place that reads it.
    """
    dataset = FILES + ARGS.format(default=1) + MAKE.format(more=more)
    found = apply(RULE, script(call, dataset=dataset))
    assert ("default=min(8, os.cpu_count()))" in found.text) is not bool(reason)
    assert "workers=1)" in found.text and (reason == "-" or reason in found.refusals)


SETTINGS = {
    "dict": ("cfg = {'lr': 0.1, 'workers': 2}", "cfg['workers']"),
    "dict in a dict": ("cfg = {'train': {'workers': 2}}", "cfg['train']['workers']"),
    "class": ("class cfg:\n    lr = 0.1\n    workers = 2", "cfg.workers"),
    "object of a class": ("class Config:\n    workers: int = 2\ncfg = Config()", "cfg.workers"),
    "namespace": (
        "from types import SimpleNamespace\ncfg = SimpleNamespace(workers=2)",
        "cfg.workers",
    ),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_number_among_settings(kind: str) -> None:
    settings, workers = SETTINGS[kind]
    call = f"DataLoader(Files(), batch_size=4, num_workers={workers})"
    found = apply(RULE, script(call, dataset=FILES + settings + "\n"))
    assert "min(8, os.cpu_count())" in found.text
    assert f"num_workers={workers}" in found.text
    other = f"{settings}\ntorch.set_num_threads({workers})\n"
    found = apply(RULE, script(call, dataset=FILES + other))
    assert "reads it for something else" in found.refusals


def test_a_setting_that_is_given_anew() -> None:
    settings = "from dataclasses import dataclass\n@dataclass\nclass Config:\n    workers: int = 2\ncfg = Config(workers=8)\n"
    call = "DataLoader(Files(), batch_size=4, num_workers=cfg.workers)"
    assert not apply(RULE, script(call, dataset=FILES + settings)).fixes


DATACLASS = "from dataclasses import asdict, dataclass\n@dataclass\nclass Config:\n    workers: int = 0\n    lr: float = 0.1\n"
OPTIONS = """parser = argparse.ArgumentParser()
for name, value in asdict(Config()).items():
    parser.add_argument(f"--{name}", type=type(value), default=value)
cfg = Config(**vars(parser.parse_args()))
"""


@pytest.mark.parametrize("made", ["cfg = Config()\n", "cfg = Config(lr=0.2)\n", OPTIONS])
def test_the_default_of_a_dataclass(made: str) -> None:
    call = "DataLoader(Files(), batch_size=4, num_workers=cfg.workers)"
    found = apply(RULE, script(call, dataset=FILES + "import argparse\n" + DATACLASS + made))
    assert "workers: int = min(8, os.cpu_count())" in found.text


def test_a_dataclass_that_is_given_its_number() -> None:
    call = "DataLoader(Files(), batch_size=4, num_workers=cfg.workers)"
    found = apply(RULE, script(call, dataset=FILES + DATACLASS + "cfg = Config(workers=2)\n"))
    assert "Config(workers=min(8, os.cpu_count()))" in found.text
    set_later = DATACLASS + "cfg = Config()\ncfg.workers = 0\n"
    found = apply(RULE, script(call, dataset=FILES + set_later))
    assert not found.fixes and "num_workers=0 is written out" in found.refusals


def test_a_number_that_is_not_followed_is_said() -> None:
    call = "DataLoader(Files(), batch_size=4, num_workers=cfg.workers)"
    set_twice = DATACLASS + "cfg = Config()\ncfg.workers = 0\ncfg.workers = 0\n"
    found = apply(RULE, script(call, dataset=FILES + set_twice))
    assert not found.fixes and "`.workers` is set in 2 places" in found.refusals


def test_an_option_that_is_also_compared_and_printed() -> None:
    more = 'if args.workers > 0:\n    print(f"{args.workers} workers")'
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=args.workers)",
        dataset=FILES + ARGS.format(default=1),
        more=more,
    )
    assert "default=min(8, os.cpu_count())" in apply(RULE, text).text


def test_the_default_of_a_parameter() -> None:
    factory = "def make(data, workers=0):\n    return DataLoader(data, batch_size=4, num_workers=workers)\n"
    found = apply(RULE, script("make(Files())", dataset=FILES + factory))
    assert "def make(data, workers=min(8, os.cpu_count())):" in found.text


def test_a_parameter_that_the_caller_gives() -> None:
    factory = "def make(data, workers=0):\n    return DataLoader(data, batch_size=4, num_workers=workers)\n"
    found = apply(RULE, script("make(Files(), workers=2)", dataset=FILES + factory))
    assert "make(Files(), workers=min(8, os.cpu_count()))" in found.text
    assert "def make(data, workers=0):" in found.text


def test_a_factory_in_another_file() -> None:
    factory = "from torch.utils.data import DataLoader\n\ndef make(data):\n    return DataLoader(data, batch_size=4, shuffle=True)\n"
    found = apply(
        RULE,
        script("make(Files())", dataset="from factory import make\n" + FILES),
        files={"factory.py": factory},
    )
    assert "num_workers=4" in found.texts["factory.py"]
    assert "workers = max(" not in found.text


def test_a_constant_at_the_top() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=WORKERS)", dataset="WORKERS = 2\n" + FILES
    )
    assert "WORKERS = min(8, os.cpu_count())" in apply(RULE, text).text


# ------------------------------------------------------------------------------- what is left alone
def files(item: str = "return x, x.sum()", init: str = "", more: str = "", before: str = "") -> str:
    """The dataset of files with other code in it."""
    text = before + FILES.replace(
        "        return x, x.sum()\n", textwrap.indent(item, "        ") + "\n"
    )
    return (
        text.replace(
            "range(n)]\n",
            "range(n)]\n" + (textwrap.indent(init, "        ") + "\n" if init else ""),
        )
        + more
    )


ITERABLE = """
from torch.utils.data import IterableDataset, get_worker_info
class Files(IterableDataset):
    def __init__(self, n=8):
        self.n = n
    def __iter__(self):
        {first}
        for i in range(self.n):
            x = torch.load(f"{{i}}.pt")
            yield x, x.sum()
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script("DataLoader(Files(), batch_size=4, num_workers=0)"), "written out"),
        (script("DataLoader(Files(), batch_size=4, num_workers=WORKERS)", dataset="WORKERS = 0\n" + FILES), "written out"),
        (script("DataLoader(TensorDataset(a, a.sum(1)), batch_size=4)", more="a = torch.randn(16, 4)"), "read out of memory"),
        (script("DataLoader(Files(), batch_size=4)", dataset=ITERABLE.format(first="pass")), "get_worker_info"),
        (script("DataLoader(Files(), batch_size=4)", dataset=files("x = x.cuda()\nreturn x, x.sum()")), "on the device"),
        (script("DataLoader(Files(), batch_size=4)", dataset=files(init='self.file = open("index")')), "share"),
        (script("DataLoader(Files(), batch_size=4)", dataset="import h5py\n" + files(init='self.file = h5py.File("x.h5")')), "share"),
        (script("DataLoader(Files(), batch_size=4)", dataset=files("self.seen[index] = x\nreturn x, x.sum()", "self.seen = {}")), "changes"),
        (script("DataLoader(Files(), batch_size=4)", dataset=files("self.count += 1\nreturn x, x.sum()", "self.count = 0")), "changes"),
        (
            script("DataLoader(Files(), batch_size=4)", dataset="import numpy as np\n" + files("x += self.rng.normal()\nreturn x, x.sum()", "self.rng = np.random.default_rng(0).spawn(2)[0]")),
            "random generator of",
        ),
        (
            script("DataLoader(Files(), batch_size=4)", dataset="import numpy as np\n" + files("x += self.rng.normal()\nreturn x, x.sum()", "self.rng = np.random.default_rng(0)")),
            "random generator of its own",
        ),
        (script("DataLoader(Files(), batch_size=4)", dataset="from secret import augment\n" + files("x = augment(x)\nreturn x, x.sum()")), "not known"),
        (script("DataLoader(load(), batch_size=4)", dataset="from secret import load\n"), "not known"),
        (script("", epoch="for part in range(2):\n    loader = DataLoader(Files(), batch_size=4)\n    for x, y in loader:\n        model(x)"), "made again in the loop"),
        (
            script("DataLoader(Files(), batch_size=4, num_workers=4)").replace("            loss.backward()", "            for a, b in DataLoader(Files(), batch_size=4):\n                model(a)\n            loss.backward()"),
            "made again in the loop",
        ),
        (script("", epoch="loader = DataLoader(Files(), batch_size=4)", over="[next(iter(loader))]"), "made again in the loop"),
        (script("DataLoader(Files(), batch_size=4)", epoch="x, y = next(iter(loader))", over="[(x, y)]"), "for one batch"),
        (script("DataLoader(Files(), batch_size=4, sampler=pick())", dataset="from secret import pick\n" + FILES), "sampler is not known"),
        (
            script("DataLoader(Files(), batch_size=4, generator=g)", more="g = torch.Generator()\nother = DataLoader(Files(), generator=g)", epoch="for x, y in other:\n    model(x)"),
            "its generator is also that of",
        ),
        (script("DataLoader(Files(), batch_size=4)", more='torch.set_default_device("cuda")'), "another device"),
    ],
)  # fmt: skip
def test_what_is_left_alone(text: str, reason: str) -> None:
    found = apply(RULE, text)
    assert reason in found.refusals
    assert not any(
        "Files" in ast.unparse(f.node) or "args" in ast.unparse(f.node)
        for f in found.fixes
        if isinstance(f.node, ast.Call)
    )


@pytest.mark.parametrize("place", ["0)", "WORKERS)"])
def test_a_number_that_is_written_out_gives_way_where_the_rule_is_named(place: str) -> None:
    """But never the reasons against workers."""
    constant = "WORKERS = 0\n" if "W" in place else ""
    text = script(
        f"DataLoader(Files(), batch_size=4, num_workers={place}", dataset=constant + FILES
    )
    assert not apply(RULE, text).fixes
    found = apply(RULE, text, asked=True)
    assert len(found.fixes) == 1 and "os.cpu_count()" in found.text
    assert "WORKERS = 0" not in found.text and "num_workers=0" not in found.text
    counting = constant + files("self.count += 1\nreturn x, x.sum()", "self.count = 0")
    text = script(f"DataLoader(Files(), batch_size=4, num_workers={place}", dataset=counting)
    found = apply(RULE, text, asked=True)
    assert not found.fixes and "changes" in found.refusals


@pytest.mark.parametrize("given", ["", ", num_workers=0", ", num_workers=1", ", num_workers=2"])
def test_so_many_as_the_user_says(given: str) -> None:
    loader = f"DataLoader(Files(), batch_size=4{given})"
    found = apply(RULE, script(loader), workers=6)
    assert len(found.fixes) == 1 and "os.cpu_count()" not in found.text
    assert "num_workers=6" in found.text or "workers = 6 if multiprocessing" in found.text


@pytest.mark.parametrize("given", ["", ", num_workers=0", ", num_workers=1", ", num_workers=2"])
def test_as_many_as_there_are_cores(given: str) -> None:
    """``--workers auto``: a number that is written out gives way, but not to workers that would
    break the script.
    """
    loader = f"DataLoader(Files(), batch_size=4{given})"
    found = apply(RULE, script(loader), workers=-1)
    assert len(found.fixes) == 1 and "min(8, os.cpu_count())" in found.text
    assert "num_workers=0" not in found.text
    counting = files("self.count += 1\nreturn x, x.sum()", "self.count = 0")
    assert not apply(RULE, script(loader, dataset=counting), workers=-1).fixes


def test_auto_on_the_command_line_and_in_the_configuration(tmp_path: Path) -> None:
    loader = "DataLoader(Files(), batch_size=4, num_workers=0)"
    (tmp_path / "train.py").write_text(script(loader))
    call = ["rewrite", "--root", str(tmp_path), str(tmp_path / "train.py"), "--exhaustive"]

    def said(*options: str) -> str:
        done = CliRunner().invoke(cli, [*call, *options])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "cpu_count" not in said() and "min(8, os.cpu_count())" in said("--workers", "auto")
    (tmp_path / "pyproject.toml").write_text('[tool.autofast]\nworkers = "auto"\n')
    assert "min(8, os.cpu_count())" in said() and "cpu_count" not in said("--workers", "3")
    wrong = CliRunner().invoke(cli, [*call, "--workers", "all"])
    assert wrong.exit_code == 2


def test_more_workers_than_the_user_says_stay() -> None:
    text = script("DataLoader(Files(), batch_size=4, num_workers=2)")
    assert not apply(RULE, text, workers=2).fixes


def test_a_sampler_that_training_steers() -> None:
    sampler = """
from torch.utils.data import Sampler
class Hard(Sampler):
    def __init__(self):
        self.order = [0, 1]
    def __len__(self):
        return 2
    def __iter__(self):
        return iter(self.order)
"""
    more = "sampler = Hard()"
    plain = script(
        "DataLoader(Files(), batch_size=4, sampler=sampler)", dataset=FILES + sampler, more=more
    )
    assert "num_workers=min(" in apply(RULE, plain).text
    steered = script(
        "DataLoader(Files(), batch_size=4, sampler=sampler)",
        dataset=FILES + sampler,
        more=more,
        epoch="sampler.order = [1, 0]",
    )
    assert "changes the sampler from outside" in apply(RULE, steered).refusals


def test_an_iterable_that_shares_its_work() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4)",
        dataset=ITERABLE.format(first="{}"),
    )
    shared = "info = get_worker_info()\n        self.n //= info.num_workers if info else 1"
    asked = "info = get_worker_info()\n        torch.manual_seed(info.seed if info else 0)"
    assert (
        "num_workers=min("
        in apply(RULE, text.replace("{}", shared.replace("self.n //=", "n ="))).text
    )
    assert "share its data out" in apply(RULE, text.replace("{}", asked)).refusals


def test_processes_of_the_script_share_the_cores() -> None:
    text = (
        script(PLAIN)
        .replace("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=2)\n")
        .replace("def main():", "def main(rank):")
    )
    assert "processes of its own" in apply(RULE, text).refusals


def test_random_items_are_sampling_and_sums_are_rounding() -> None:
    random = script(PLAIN, dataset=files("return x + torch.rand(4), x.sum()"))
    assert apply(RULE, random).fixes[0].effect is Effect.SAMPLING
    assert (
        apply(RULE, script(PLAIN, dataset=files("return x - x.mean(), x[0]"))).fixes[0].effect
        is Effect.ROUNDING
    )
    assert (
        apply(RULE, script(PLAIN, dataset=files("return x, x[0]"))).fixes[0].effect is Effect.EXACT
    )


@pytest.mark.parametrize(
    "drawn",
    [
        "torch.nn.functional.dropout(x)",
        "torch.nn.Dropout()(x)",
        "torch.nn.functional.gumbel_softmax(x, 0)",
        "x[torch.multinomial(torch.ones(4), 4)]",
        "torch.poisson(x.abs())",
        "torch.ones(4).bernoulli()",
        "torch.zeros(4).exponential_()",
    ],
)
def test_whatever_of_torch_draws_is_sampling(drawn: str) -> None:
    text = script(PLAIN, dataset=files(f"return {drawn}, x[0]"))
    assert apply(RULE, text).fixes[0].effect is Effect.SAMPLING


def test_items_that_seed_are_sampling() -> None:
    """In the main process, they would also seed what training draws."""
    assert (
        apply(RULE, script(PLAIN, dataset=files("torch.manual_seed(index)\nreturn x, x[0]")))
        .fixes[0]
        .effect
        is Effect.SAMPLING
    )


def test_a_collate_function_that_draws() -> None:
    collate = "def collate(items):\n    x = torch.stack([i[0] for i in items])\n    return x + torch.rand(4), x[:, 0]\n"
    text = script(
        "DataLoader(Files(), batch_size=4, collate_fn=collate)",
        dataset=files("return x, x[0]") + collate,
    )
    assert apply(RULE, text).fixes[0].effect is Effect.SAMPLING


# --------------------------------------------------------------- state that workers would not share
def labelled(
    item: str = "return x * self.labels[index], x.sum()", more: str = "", before: str = ""
) -> str:
    """A dataset of files that is given something from outside."""
    return files(item, more=more, before=before).replace(
        "n=16):", "labels=None, n=16):\n        self.labels = labels"
    )


def stepping(step: str, **given: Any) -> str:
    """A script whose loop over batches does something more at its end."""
    given.setdefault("loader", "DataLoader(Files(labels), batch_size=4)")
    text = script(
        given.pop("loader"),
        dataset=given.pop("dataset", None)
        or labelled(given.pop("item", "return x * self.labels[index], x.sum()")),
        **given,
    )
    return text.replace(
        "            optimizer.step()\n",
        "            optimizer.step()\n" + textwrap.indent(step, " " * 12) + "\n",
    )


def collating(collate: str, name: str = "collate", **given: Any) -> str:
    return script(
        f"DataLoader(Files(), batch_size=4, collate_fn={name})",
        dataset=FILES + textwrap.dedent(collate),
        **given,
    )


def item(code: str, **given: str) -> str:
    return script(
        "DataLoader(Files(), batch_size=4)", dataset=files(code + "\nreturn x, x.sum()", **given)
    )


STACKED = "torch.stack([x for x, _ in items]), torch.stack([y for _, y in items])"
METER = "class Meter:\n    def __init__(self):\n        self.n = 0\n    def add(self, k):\n        self.n += k\n"
COUNT = "class Count:\n    n = 0\n    def __call__(self, x):\n        self.n += 1\n        return x * self.n\n"
CHANGED_BY_ITEMS = {
    "a counter of the class": item("type(self).count += 1", more="    count = 0\n"),
    "a list of the class": item("Files.missing.append(index)", more="    missing = []\n"),
    "a global": item("global n\nn += 1", before="n = 0\n"),
    "a global dict": item("seen['n'] += 1", before="seen = {'n': 0}\n"),
    "part of a global dict": item("mine = CONFIG['items']\nmine['last'] = index", before="CONFIG = {'items': {}}\n"),
    "a list by another name": item("log = self.log\nlog.append(index)", init="self.log = []"),
    "a list in a function": item("note(self.log, index)", init="self.log = []", before="def note(log, what):\n    log.append(what)\n"),
    "a list from a method": item("self.notes().append(1)", init="self.log = []", more="    def notes(self):\n        return self.log\n"),
    "a method taken before": item("push = self.log.append\npush(1)", init="self.log = []"),
    "an extended list": item("seen = self.seen\nseen += [index]", init="self.seen = []"),
    "elements of a list": item("for box in self.boxes:\n    box.append(1)", init="self.boxes = [[], []]"),
    "a pool": item("x = x + self.pool.pop()", init="self.pool = [1.0] * 99"),
    "a shortened list": item("del self.pool[0]", init="self.pool = list(range(99))"),
    "a shuffled list": item("random.shuffle(self.paths)", before="import random\n"),
    "a deque": item("recent.append(x)\nx = x + recent[0]", before="import collections\nrecent = collections.deque(maxlen=3)\n"),
    "a queue": item("x = x + self.queue.get()", init="self.queue = queue.Queue()", before="import queue\n"),
    "a stored tensor": item("y = self.table[index]\ny.add_(1)", init="self.table = torch.zeros(16, 4)"),
    "a stored tensor by +=": item("y = self.table[index]\ny += 1", init="self.table = torch.zeros(16, 4)"),
    "one of two results": item("mine, new = both(self.log)\nmine.append(1)", init="self.log = []", before="def both(log):\n    return log, []\n"),
    "one of two results of another function": item(
        "new, mine = both(self.log)\nmine.append(1)", init="self.log = []",
        before="def both(log):\n    return pair(log)\ndef pair(log):\n    return [], log\n",
    ),
    "one of two results that come one by one": item(
        "new, mine = both(self.log)\nnew.append(1)", init="self.log = []", before="def both(log):\n    yield log, 1\n    yield [], 2\n"
    ),
    "an attribute by setattr": item("setattr(self, 'last', index)"),
    "an attribute of another object": item("self.owner.last = index", init="self.owner = Owner()", before="class Owner:\n    last = 0\n"),
    "a meter": item("self.meter.add(1)", init="self.meter = Meter()", before=METER),
    "a property": item("x = x * self.gain", init="self._n = 0", more="    @property\n    def gain(self):\n        self._n += 1\n        return self._n\n"),
    "a library's attribute": item("settings.last = index", before="import settings\n"),
    "an iterator": item("x = x * next(self.gain)", init="self.gain = itertools.cycle([1, 2])", before="import itertools\n"),
    "a generator": item("x = x * next(gains)", before="def numbers():\n    k = 0\n    while True:\n        k += 1\n        yield k\n\ngains = numbers()\n"),
    "a loop over a generator": item("for gain in self.gains:\n    break", init="self.gains = (i for i in range(99))"),
    "an open file": item("x = x * float(lines.readline())", before="lines = open('labels.txt')\n"),
    "a method of an open file": item("x = x * float(self.line())", init="self.line = open('labels.txt').readline"),
    "a database": item("x = x * DB.execute('select v from t').fetchone()[0]", before="import sqlite3\nDB = sqlite3.connect('x.db')\n"),
    "the environment": item("os.environ['LAST'] = str(index)", before="import os\n"),
    "a log file": item("with open('log.txt', 'a') as log:\n    log.write(str(index))"),
    "a saved tensor": item("torch.save(x, f'{index}.seen.pt')"),
    "a transform in Compose": script(
        "DataLoader(Files(transform), batch_size=4)",
        dataset="from torchvision import transforms\n" + COUNT + "transform = transforms.Compose([Count()])\n"
        + FILES.replace("n=16):", "transform, n=16):\n        self.transform = transform").replace("return x, x", "return self.transform(x), x"),
    ),
    "collate_fn and a global list": collating(f"seen = []\ndef collate(items):\n    seen.append(len(items))\n    return {STACKED}\n"),
    "collate_fn and its default": collating(f"def collate(items, seen=[]):\n    seen.append(len(items))\n    return {STACKED}\n"),
    "collate_fn and a closure": collating(
        f"def counting():\n    n = 0\n    def collate(items):\n        nonlocal n\n        n += 1\n        return {STACKED}\n    return collate\n", "counting()"
    ),
    "collate_fn and partial": collating(
        f"import functools\nseen = []\ndef collate(seen, items):\n    seen.append(len(items))\n    return {STACKED}\n", "functools.partial(collate, seen)"
    ),
    "collate_fn as a lambda": collating("seen = []\n", "lambda items: (seen.append(1), torch.stack([x for x, _ in items]))"),
    "collate_fn as an object": collating(
        f"class Fading:\n    scale = 1.0\n    def __call__(self, items):\n        self.scale *= 0.9\n        return {STACKED}\n", "Fading()"
    ),
    "collate_fn as a method": collating(
        f"class Maker:\n    n = 0\n    def collate(self, items):\n        self.n += 1\n        return {STACKED}\n", "Maker().collate"
    ),
    "a dataset in a dataset": script(
        "DataLoader(Outer(), batch_size=4)",
        dataset=FILES + "class Inner(Files):\n    def __getitem__(self, i):\n        counter['n'] += 1\n        return super().__getitem__(i)\n"
        "class Outer(Inner):\n    inner = Inner()\n    def __getitem__(self, i):\n        return self.inner[i]\ncounter = {'n': 0}\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", CHANGED_BY_ITEMS.values(), ids=CHANGED_BY_ITEMS)
def test_what_items_change_is_not_copied(text: str) -> None:
    found = apply(RULE, text)
    assert not found.fixes
    assert re.search(
        r"fetching an item (changes|writes) .*\bline \d+|self\.\w+. of (Files|Meter)|items are read through .*line \d+",
        found.refusals,
    )


ITEMS_OF_THEIR_OWN = {
    "containers": item("out = []\nout.append(x)\nd = {}\nd['x'] = x\nd.update(y=1)\nx[0] = 1\nx += 1"),
    "a copy of a list": item("order = list(self.order)\nrandom.shuffle(order)\norder.sort()", init="self.order = [3, 1]", before="import random\n"),
    "a copy of a tensor": item("y = self.table[index].clone()\ny.add_(1)\ny[0] = 1\nx = x + y", init="self.table = torch.zeros(16, 4)"),
    "a number": item("y = self.labels[index]\ny += 1", init="self.labels = list(range(16))"),
    "a dict that a function fills": item("t = {}\nfill(t, x)", before="def fill(t, x):\n    t['x'] = x\n"),
    "one of two results": item("held, new = both(self.log)\nnew.append(1)", init="self.log = []", before="def both(log):\n    return log, []\n"),
    "one of two results of another function": item(
        "x, t = self.change(x, {})\nt['x'] = x", init="self.log = []",
        more="    def change(self, x, t):\n        return self.other(x, t)\n    def other(self, x, t):\n        return x, t\n",
    ),
    "an object": item("box = Box(x)\nbox.x = box.x + 1", before="class Box:\n    def __init__(self, x):\n        self.x = x\n"),
    "pairs": item("for a, b in zip(self.a, self.b):\n    x = x * a + b", init="self.a = [1, 2]\nself.b = [3, 4]"),
    "what a file holds": item("meta = json.load(open(self.paths[index] + '.json'))\nmeta['x'] = 1\nmeta['boxes'].append(3)", before="import json\n"),
    "a batch": collating(
        "def collate(items):\n    items.sort(key=len)\n    xs, ys = zip(*items)\n    out = torch.zeros(len(xs), 4)\n"
        "    for i, x in enumerate(xs):\n        out[i] = x\n    return out, torch.stack(ys)\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", ITEMS_OF_THEIR_OWN.values(), ids=ITEMS_OF_THEIR_OWN)
def test_what_items_make_for_themselves_is_no_matter(text: str) -> None:
    assert "num_workers=min(" in " ".join(apply(RULE, text).text.split())


SAMPLER = """
class Hard(torch.utils.data.Sampler):
    last = 0
    def __init__(self, weights):
        self.weights = weights
    def __len__(self):
        return 16
    def __iter__(self):
        {indices}
"""
LAZY = SAMPLER.format(indices="for _ in self.weights:\n            yield max(self.weights)")
AT_ONCE = SAMPLER.format(indices="return iter(torch.multinomial(self.weights, 16).tolist())")
TELLING = SAMPLER.format(
    indices="for i in range(16):\n            self.last = i\n            yield i"
)
HARD = "DataLoader(Files([1] * 16), batch_size=4, sampler=Hard(weights))"
RELABEL = "    def relabel(self, loss):\n        self.labels[0] = loss.item()\n"
CALLBACK = "class Callback:\n    def __init__(self, labels):\n        self.labels = labels\n    def on_batch(self, loss):\n        self.labels[0] = loss.item()\n"
LIST, ARRAY, NUMPY = "labels = [1.0] * 16", "labels = np.ones(16)", "import numpy as np\n"
# A list that the same call has made is not the one that workers read, whoever calls again.
READS = """
def read(path):
    rows = []
    for line in open(path):
        rows.append(float(line))
    return rows

"""


@pytest.mark.parametrize(
    ("rows", "fixed"), [("rows = []", True), ("rows = ROWS", False), ("rows = ROWS or []", False)]
)
def test_what_a_call_makes_is_its_own(rows: str, fixed: bool) -> None:
    dataset = labelled(before="ROWS = []\n" + READS.replace("rows = []", rows))
    text = stepping("held_out = Files(read('b'))", more="labels = read('a')", dataset=dataset)
    found = apply(RULE, text)
    assert bool(found.fixes) is fixed and ("rows" in found.refusals) is not fixed


def test_a_list_in_the_function_of_the_loop_is_no_new_one() -> None:
    found = apply(RULE, stepping("labels.append(1.0)", more="labels = []"))
    assert not found.fixes and "changes `labels" in found.refusals


# Of settings that are not known, a file is written by one entry, and items are read by another.
ENTRIES = "import json\nsettings = json.load(open('settings.json'))\n"


@pytest.mark.parametrize(("key", "fixed"), [("checkpoints", True), ("images", False)])
def test_files_by_an_entry_of_the_settings(key: str, fixed: bool) -> None:
    dataset = labelled("return torch.load(self.labels['paths']['images']), x.sum()", before=ENTRIES)
    found = apply(
        RULE,
        stepping(
            f"torch.save(x, settings['paths']['{key}'])", more="labels = settings", dataset=dataset
        ),
    )
    assert bool(found.fixes) is fixed and ("writes a file by" in found.refusals) is not fixed


def test_one_batch_to_look_at() -> None:
    text = script(PLAIN).replace(
        "    model = nn", "    sample = next(iter(loader))\n    model = nn"
    )
    assert apply(RULE, text).fixes


# A function of a module, by a name from a file: whatever the module offers.
CLEANING = """
import re

SPACES = " "


def lower(text):
    return text.lower()


def plain(text):
    return lower(text).strip()
"""
CLEANED = """
import json
import cleaners

NAMES = json.load(open("names.json"))


class Files(Dataset):
    def __init__(self, n=16):
        self.paths = [f"{i}.pt" for i in range(n)]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        text = self.paths[index]
        for name in NAMES:
            text = getattr(cleaners, name)(text)
        x = torch.load(text)
        return x, x.sum()
"""


@pytest.mark.parametrize(
    ("more", "fixed"),
    [
        ("", True),
        ("\n\ndef spelled(text):\n    import secret\n    return secret.say(text)\n", False),
    ],
)
def test_a_function_by_a_name_that_is_not_known(more: str, fixed: bool) -> None:
    found = apply(RULE, script(PLAIN, dataset=CLEANED), files={"cleaners.py": CLEANING + more})
    assert bool(found.fixes) is fixed and ("is not known" in found.refusals) is not fixed


CHANGED_MEANWHILE = {
    "a list": stepping("labels[0] = 1.0", more=LIST),
    "a list that grows": stepping("labels.append(1.0)", more=LIST),
    "a tensor": stepping("labels[0] = loss.item()", more="labels = torch.ones(16)"),
    "a tensor in place": stepping("labels.mul_(2)", more="labels = torch.ones(16)"),
    "a tensor by *=": stepping("labels *= 2", more="labels = torch.ones(16)"),
    "an array": stepping("labels[0] = 2", more=ARRAY, dataset=labelled(before=NUMPY)),
    "an array that is shuffled": stepping("np.random.shuffle(labels)", more=ARRAY, dataset=labelled(before=NUMPY)),
    "an array in a function": stepping(
        "relabel(labels, loss)", more=ARRAY, dataset=labelled(before=NUMPY, more="def relabel(labels, loss):\n    labels[0] = loss.item()\n")
    ),
    "an array in a method": stepping(
        "data.relabel(loss)", more="data = Files(np.ones(16))", loader="DataLoader(data, batch_size=4)", dataset=labelled(before=NUMPY, more=RELABEL)
    ),
    "an array in another object": stepping(
        "callback.on_batch(loss)", more=ARRAY + "\ncallback = Callback(labels)", dataset=labelled(before=NUMPY, more=CALLBACK)
    ),
    "an array by another name": stepping("mine = loader.dataset.labels\nmine[0] = 3", more=ARRAY, dataset=labelled(before=NUMPY)),
    "a dict": stepping("labels['a'] = 2", more="labels = {'a': 1}", item="return x * self.labels['a'], x.sum()"),
    "a dict that is updated": stepping("labels.update(a=2)", more="labels = {'a': 1}", item="return x * self.labels['a'], x.sum()"),
    "a dict, by a method of dicts": stepping("dict.update(labels, a=2)", more="labels = {'a': 1}", item="return x * self.labels['a'], x.sum()"),
    "a dict, by a method with a name": stepping("put('a', 2)", more="labels = {'a': 1}\nput = labels.__setitem__", item="return x * self.labels['a'], x.sum()"),
    "attributes under a name": stepping("held['labels'] = [2] * 16", more="data = Files([1] * 16)\nheld = vars(data)", loader="DataLoader(data, batch_size=4)"),
    "a constructor that runs again": stepping("data.__init__([2] * 16)", more="data = Files([1] * 16)", loader="DataLoader(data, batch_size=4)"),
    "an attribute of the dataset": stepping("loader.dataset.labels = [epoch] * 16", more=LIST),
    "an attribute of the class": stepping("Files.gain = 3", more=LIST, dataset=labelled("return x * self.gain, x.sum()", more="    gain = 1\n")),
    "a global list": stepping("SCALE[0] = 2", more=LIST, dataset=labelled("return x * SCALE[0], x.sum()", before="SCALE = [1]\n")),
    "a global number": stepping(
        "grow()", more=LIST, dataset=labelled("return x * SCALE, x.sum()", before="SCALE = 1\ndef grow():\n    global SCALE\n    SCALE += 1\n")
    ),
    "a closure": stepping("scale = 2", more="scale = 1", loader="DataLoader(Files(), batch_size=4, collate_fn=lambda items: items * scale)", dataset=FILES),
    "the environment": stepping(
        "os.environ['A'] = '3'", more=LIST, dataset=labelled("return x * int(os.environ['A']), x.sum()", before="import os\n")
    ),
    "the indices of a subset": stepping(
        "chosen.append(3)", more="chosen = [1, 2]", loader="DataLoader(torch.utils.data.Subset(Files([1] * 16), chosen), batch_size=4)"
    ),
    "a hook": stepping("pass", more=LIST).replace(
        "    for epoch", "    def hook(*_):\n        labels[0] += 1\n    model.register_forward_hook(hook)\n    for epoch"
    ),
    "a generator of batches": stepping("labels[0] = 2", more=LIST, over="batches")
    .replace("    model = nn", "    batches = cycle(loader)\n    model = nn")
    .replace("def main", "def cycle(loader):\n    while True:\n        for batch in loader:\n            yield batch\n\n\ndef main"),
    "a model that is trained": stepping(
        "pass", more="net = nn.Linear(4, 1)", loader="DataLoader(Files(net), batch_size=4)", item="return x, self.labels(x).detach()"
    ).replace("model = nn.Linear(4, 1).to(device)", "model = net"),
    "files": stepping("torch.save(x, data.paths[0])", more="data = Files([1] * 16)", loader="DataLoader(data, batch_size=4)"),
    "files in a folder": stepping(
        "torch.save(x, os.path.join(root, 'a.pt'))", more="root = '.'", loader="DataLoader(Files(root), batch_size=4)",
        dataset=labelled("return x + torch.load(os.path.join(self.labels, 'a.pt')), x.sum()", before="import os\n"),
    ),
    "weights of a sampler": stepping("weights[0] = 2", more="weights = [1, 2]", loader=HARD, dataset=labelled(more=LAZY)),
    "indices that are a list": stepping("order.append(1)", more="order = [1, 2]", loader="DataLoader(Files([1] * 16), batch_size=4, sampler=order)"),
    "what a sampler tells": stepping("print(s.last)", more="s = Hard(3)", loader="DataLoader(Files([1] * 16), batch_size=4, sampler=s)", dataset=labelled(more=TELLING)),
}  # fmt: skip


@pytest.mark.parametrize("text", CHANGED_MEANWHILE.values(), ids=CHANGED_MEANWHILE)
def test_what_is_changed_while_items_are_fetched_ahead(text: str) -> None:
    found = apply(RULE, text)
    assert not found.fixes
    assert re.search(
        r"line \d+(?: of \S+)? (changes|writes) .*(ahead|would not see)|a model that is trained|line \d+(?: of \S+)? reads, and workers",
        found.refusals,
    )


NOT_MEANWHILE = {
    "before the loop": stepping("pass", more=LIST + "\nlabels[0] = 2\nlabels.append(1)"),
    "between epochs": stepping("pass", epoch="labels[0] = epoch\nloader.dataset.stage = epoch", more=LIST),
    "other things": stepping(
        "losses.append(loss.item())\nmeter.add(loss.item())", more=LIST + "\nlosses = []\nmeter = Meter()", dataset=labelled(more=METER)
    ),
    "the batch": stepping("x[0] = 1\ny += 1\nx.add_(1)", more=LIST),
    "other options": stepping(
        "args.lr = args.lr * 0.9", more="args = argparse.ArgumentParser().parse_args()", loader="DataLoader(Files(args), batch_size=4)",
        dataset=labelled("return x * self.labels.gain, x.sum()", before="import argparse\n"),
    ),
    "a global that items do not read": stepping(
        "grow()", more=LIST, dataset=labelled(before="SCALE = 1\ndef grow():\n    global SCALE\n    SCALE += 1\n")
    ),
    "a checkpoint": stepping("torch.save(model.state_dict(), os.path.join('runs', 'm.pt'))", more=LIST, dataset=labelled(before="import os\n")),
    "indices that are drawn at once": stepping("weights[0] = 2", more="weights = torch.ones(16)", loader=HARD, dataset=labelled(more=AT_ONCE)),
}  # fmt: skip


@pytest.mark.parametrize("text", NOT_MEANWHILE.values(), ids=NOT_MEANWHILE)
def test_what_is_changed_at_other_times(text: str) -> None:
    assert "num_workers=min(" in " ".join(apply(RULE, text).text.split())


def test_a_sampler_that_draws_as_it_goes_draws_earlier() -> None:
    drawing = SAMPLER.format(indices="for _ in range(16):\n            yield random.randrange(16)")
    shuffling = SAMPLER.format(
        indices="order = list(range(16))\n        random.shuffle(order)\n        for i in order:\n            yield i"
    )
    for sampler, effect in ((drawing, Effect.SAMPLING), (shuffling, Effect.EXACT)):
        dataset = "import random\n" + files("return x, x[0]") + sampler
        assert (
            apply(
                RULE, script("DataLoader(Files(), batch_size=4, sampler=Hard(1))", dataset=dataset)
            )
            .fixes[0]
            .effect
            is effect
        )


def test_a_tensor_beside_files_is_no_dataset_in_memory() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4)",
        dataset=files("return x, self.labels[index]", init="self.labels = torch.arange(16) % 4"),
    )
    assert "num_workers=min(" in apply(RULE, text).text


@pytest.mark.parametrize(
    "text",
    [
        stepping(
            "pass",
            more="global SIZE\nSIZE = 2",
            loader="DataLoader(Files(), batch_size=4)",
            dataset=labelled("return x * SIZE, x.sum()"),
        ),
        stepping(
            "pass",
            more="CONFIG['a'] = 2\n" + LIST,
            dataset=labelled("return x * CONFIG['a'], x.sum()", before="CONFIG = {'a': 1}\n"),
        ),
        stepping(
            "pass",
            more="Files.gain = 3\n" + LIST,
            dataset=labelled("return x * self.gain, x.sum()", more="    gain = 1\n"),
        ),
        stepping("pass", more=LIST, dataset=labelled("return x * SIZE, x.sum()")).replace(
            "    main()\n", "    SIZE = 2\n    main()\n"
        ),
    ],
    ids=["a global", "a dict", "a class", "below the guard"],
)
def test_what_only_this_process_has_set_needs_a_fork(text: str) -> None:
    assert "start_method" in apply(RULE, text).text
    assert "start_method" not in apply(RULE, stepping("pass", more=LIST)).text


# --------------------------------------------------------------------------------- the same numbers
def test_workers_do_not_change_what_the_main_process_draws(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for i in range(16):
        torch.save(torch.full((4,), float(i)), f"{i}.pt")
    text = script(PLAIN, dataset=files("return x, x[0]")).replace(
        "optimizer.step()",
        "optimizer.step()\n            losses.append((loss.item(), torch.rand(1).item()))",
    )
    text = text.replace("def main():\n", "losses = []\n\ndef main():\n    torch.manual_seed(0)\n")
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    seen = []
    for source in (text, apply(RULE, text).text):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        seen.append(scope["losses"])
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "text",
    [
        script(
            "DataLoader(Files(), batch_size=4, shuffle=True)",
            dataset="GAIN = [1.0]\n"
            + files(
                "out = {}\nout['x'] = x * GAIN[0]\nreturn out['x'] + self.paths.index(f'{index}.pt'), x[0]"
            ),
            epoch="GAIN[0] = epoch\nloader.dataset.paths.reverse()",
        ),
        stepping(
            "weights[0] *= 2",
            more="weights = torch.ones(16)",
            loader=HARD,
            dataset=labelled(more=AT_ONCE),
        ),
        script(
            "DataLoader(Files(), batch_size=4)",
            dataset=files(
                "return x, self.labels[index]", init="self.labels = torch.arange(16.0) % 4"
            ),
        ),
    ],
    ids=["changed between epochs", "indices drawn at once", "a tensor beside files"],
)
def test_the_same_items_come_from_workers(
    text: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for i in range(16):
        torch.save(torch.full((4,), float(i)), f"{i}.pt")
    text = text.replace("optimizer.step()", "seen.append((x.tolist(), y.tolist()))").replace(
        "def main():\n", "seen = []\n\ndef main():\n    torch.manual_seed(0)\n"
    )
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    rewritten = apply(RULE, text).text
    assert "workers = 4 if" in rewritten or "workers=min(8, os.cpu_count())" in rewritten
    seen = []
    for source in (text, rewritten):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        seen.append(scope["seen"])
    assert seen[0] == seen[1]


def test_a_library_that_a_composed_transform_of_another_file_calls_is_not_changed() -> None:
    half = (
        "from skimage import transform\n"
        "class Half:\n    def __call__(self, x):\n        return transform.resize(x, (2,))\n"
    )
    composed = script(
        "DataLoader(Files(transforms.Compose([Half()])), batch_size=4, num_workers=1)",
        dataset="from torchvision import transforms\nfrom half import Half\n"
        + FILES.replace("n=16):", "half, n=16):\n        self.half = half").replace(
            "return x, x", "return self.half(x), x"
        ),
    )
    assert (
        "num_workers=min(8, os.cpu_count())" in apply(RULE, composed, files={"half.py": half}).text
    )


def test_an_image_set_that_is_chosen_by_its_name() -> None:
    choice = "datasets.__dict__[input()]('data', train=True, transform=transforms.Compose([transforms.ToTensor()]))"
    head = "from torchvision import datasets, transforms\n"
    found = apply(RULE, script(f"DataLoader({choice}, batch_size=4, num_workers=1)", dataset=head))
    assert (
        "loader = DataLoader(" in found.text and "num_workers=min(8, os.cpu_count())" in found.text
    )
    unknown = choice.replace("transforms.ToTensor()", "transforms.ToTensor(), secret.flip()")
    assert apply(
        RULE,
        script(
            f"DataLoader({unknown}, batch_size=4, num_workers=1)", dataset=head + "import secret\n"
        ),
    ).refusals


@pytest.mark.parametrize(
    ("epoch", "reason"),
    [
        ("np.random.seed(epoch)", "workers take theirs from torch's"),
        ("np.random.seed(epoch)\ntorch.manual_seed(epoch)", ""),
        ("random.seed(epoch)", ""),
    ],
)
def test_a_generator_that_is_seeded_in_each_epoch(epoch: str, reason: str) -> None:
    dataset = "import random\nimport numpy as np\n" + files("return x + np.random.rand(), x[0]")
    found = apply(RULE, script(PLAIN, dataset=dataset, epoch=epoch))
    assert (not found.fixes) == bool(reason) and reason in found.refusals, found.refusals


@pytest.mark.parametrize(
    "epoch",
    [
        "loader = DataLoader(Files(), batch_size=4)",
        "if epoch:\n    loader = DataLoader(Files(), batch_size=4)\nelse:\n    loader = DataLoader(Files(), batch_size=4, shuffle=True)",
        "def made():\n    return DataLoader(Files(), batch_size=4)\nloader = made()",
    ],
)
def test_a_loader_of_each_epoch_gets_workers(epoch: str) -> None:
    """They are started as often as those of any loader that does not keep them."""
    found = apply(RULE, script("", epoch=epoch))
    alone = epoch.count("DataLoader") == 1
    number = "num_workers=min(8, os.cpu_count())" if alone else "num_workers=workers"
    assert found.text.count(number) == epoch.count("DataLoader") and not found.refusals
    assert "persistent" not in apply(f"{RULE} persistent-workers", script("", epoch=epoch)).text


def test_items_are_read_out_of_an_hdf5_file_that_each_of_them_opens() -> None:
    dataset = (
        "import h5py\n\n\nclass Files(torch.utils.data.Dataset):\n"
        '    def __getitem__(self, i):\n        with h5py.File("x.h5", "r") as f:\n'
        '            return f["x"][i] / 255.0\n\n    def __len__(self):\n        return 8\n'
    )
    assert apply(RULE, script(PLAIN, dataset=dataset)).fixes
    unsaid = script(PLAIN, dataset=dataset.replace(', "r"', ""))
    assert apply(RULE, unsaid).fixes
    old = apply(RULE, unsaid, files={"requirements.txt": "torch==1.6.0\n"})
    assert not old.fixes and "several workers may write it at once" in old.refusals  # before h5py 3
    for mode in ("a", "r+", "w-"):
        assert not apply(RULE, script(PLAIN, dataset=dataset.replace('"r"', f'"{mode}"'))).fixes


@pytest.mark.parametrize(
    ("head", "number", "written"),
    [
        ("", "4", "num_workers=4"),
        (ARGS.format(default=4), "args.workers", "num_workers=args.workers"),
        # whatever it is by default
        (ARGS.format(default="int(open('n').read())"), "args.workers", "num_workers=args.workers"),
        (
            ARGS.format(default=0),
            "args.workers",
            "num_workers=min(8, os.cpu_count())",
        ),  # none by default
        ("", "2", "num_workers=min(8, os.cpu_count())"),  # is raised itself
    ],
)
def test_the_number_of_a_loader_beside_it(head: str, number: str, written: str) -> None:
    text = script(
        f"DataLoader(Files(), batch_size=4, num_workers={number})",
        dataset=FILES + head,
        epoch="for x, y in val:\n    model(x)",
    ).replace("    model =", "    val = DataLoader(Files(8), batch_size=8)\n    model =", 1)
    found = apply(RULE, text)
    assert f"val = DataLoader(Files(8), batch_size=8, {written})" in found.text
    both = apply(f"{RULE} persistent-workers", text).text
    assert "4 > 0" not in both


def test_one_worker_becomes_the_number_that_the_script_asks_for_beside_it() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=args.workers)",
        dataset=FILES + ARGS.format(default=4),
        epoch="for x, y in val:\n    model(x)",
    ).replace(
        "    model =", "    val = DataLoader(Files(8), batch_size=8, num_workers=1)\n    model =", 1
    )
    assert (
        "val = DataLoader(Files(8), batch_size=8, num_workers=args.workers)"
        in apply(RULE, text).text
    )


def test_a_number_that_is_known_later_is_not_that_of_the_loader_beside_it() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=count)",
        more="val = DataLoader(Files(8), batch_size=8)\ncount = 4",
        epoch="for x, y in val:\n    model(x)",
    )
    assert "batch_size=8, num_workers=min(8, os.cpu_count()))" in apply(RULE, text).text


def test_workers_in_a_notebook(tmp_path: Path) -> None:
    """No worker runs a notebook again: what it gets has to be importable, which what a cell defines
    is not.
    """
    text = script(
        "DataLoader(ImageFolder('data', transform=ToTensor()), batch_size=4, shuffle=True)",
        guard=False,
        dataset="from torchvision.datasets import ImageFolder\nfrom torchvision.transforms import ToTensor\n",
    )
    own = script(PLAIN, guard=False)
    for code, forks in [(text, False), (own, True)]:
        cell = {"cell_type": "code", "source": code + "main()\n", "outputs": [], "metadata": {}}
        book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
        (tmp_path / "train.ipynb").write_text(json.dumps(book), "utf-8")
        config = Config(select=(RULE,), exhaustive=True)
        done = str(rewrite(tmp_path / "train.ipynb", tmp_path, config).texts)
        assert ("get_start_method" in done) is forks and "num_workers=" in done
        assert ("cannot import `Files`, which this notebook defines" in done) is forks


@pytest.mark.parametrize(("context", "elsewhere"), [("cuda", True), ("cpu", False)])
def test_tensors_that_a_context_puts_on_another_device(context: str, elsewhere: bool) -> None:
    """Workers are forked within the block, and make their batches there."""
    text = script(PLAIN).replace(
        "        for x, y in loader:",
        f"        with torch.device('{context}'):\n         for x, y in loader:",
    )
    found = apply(f"{RULE} pin-memory", text)
    assert bool(found.fixes) is not elsewhere
    assert found.refusals.count("puts new tensors on another device") == 2 * elsewhere


# ---------------------------------------------------------------------- what items have from before
H5 = """
import h5py
import random
import tarfile
import numpy as np
class Files(Dataset):
    def __init__(self, n=16):
        self.paths = [f"{{i}}.pt" for i in range(n)]
        {init}
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, index):
        {item}
        x = torch.load(self.paths[index])
        return x, x.sum()
"""
ROW = "row = self.rows[index]"
SHARED, ON_DEVICE, OWN = "which workers would share", "put on the device", "draw the same numbers"


@pytest.mark.parametrize(
    ("init", "item", "reason"),
    [
        ('f = h5py.File("x.h5"); self.rows = f["rows"]', ROW, SHARED),
        ('f = h5py.File("x.h5"); self.rows = f["rows"][:]', ROW, ""),
        ('with h5py.File("x.h5") as f: self.rows = np.array(f["rows"])', ROW, ""),
        ('f = h5py.File("x.h5"); self.rows = f["a"].get("rows")', ROW, SHARED),
        ('self.parts = {k: h5py.File(k) for k in "ab"}', 'row = self.parts["a"]["rows"][index]', SHARED),
        ('self.parts = {k: h5py.File(k)["rows"][:] for k in "ab"}', 'row = self.parts["a"][index]', ""),
        ("pass", 'row = h5py.File("x.h5")["rows"][index]', ""),
        ('self.parts = np.load("x.npz")', 'row = self.parts["rows"][index]', SHARED),
        ('self.parts = np.load(self.paths[0])', 'row = self.parts["rows"][index]', SHARED),
        ('self.parts, self.key = np.load("x.npz"), input()', "row = self.parts[self.key][index]", SHARED),
        ('self.rows = np.load("x.npz")["rows"]', ROW, ""),
        ('f = np.load("x.npz"); self.rows = f["rows"]', ROW, ""),
        ('self.rows = np.load("x.npy")', ROW, ""),
        ("pass", 'row = np.load("x.npz")["rows"][index]', ""),
        ('self.tar = tarfile.open("x.tar")', 'row = self.tar.extractfile("a").read()', SHARED),
        ('self.names = tarfile.open("x.tar").getnames()', "name = self.names[index]", ""),
        ('self.rows = torch.load("rows.pt").cuda()', "row = self.rows[index].cpu()", ON_DEVICE),
        ('self.rows = torch.load("rows.pt").cuda().cpu()', "row = self.rows[index]", ""),
        ("self.draws = torch.Generator().manual_seed(0)", "r = torch.rand(1, generator=self.draws)", OWN),
        ("pass", "r = torch.rand(1, generator=torch.Generator().manual_seed(index))", ""),
        ("pass", "r = draw()", OWN),
    ],
)  # fmt: skip
def test_what_items_have_from_before(init: str, item: str, reason: str) -> None:
    draw = "def draw(rng=random.Random(0)):\n    return rng.random()\n"
    dataset = H5.format(init=init, item=item).replace("class Files", draw + "class Files")
    found = apply(RULE, script("DataLoader(Files(), batch_size=4)", dataset=dataset))
    assert bool(found.fixes) is not bool(reason), found.refusals
    assert reason in found.refusals
    assert ("`dict(np.load(path))`" in found.refusals) is (bool(reason) and "np.load" in init)


@pytest.mark.parametrize(
    ("before", "after", "draw", "applied"),
    [
        ("", "torch.utils.data.random_split(range(9), [6, 3])", "torch.randn(1)", False),
        ("", "torch.utils.data.random_split(range(9), [6, 3])", "random.random()", True),
        ("torch.utils.data.random_split(range(9), [6, 3])", "", "torch.randn(1)", True),
        (
            "",
            "torch.utils.data.random_split(range(9), [6, 3], torch.Generator())",
            "torch.randn(1)",
            True,
        ),
    ],
)
def test_a_split_after_items_have_drawn(before: str, after: str, draw: str, applied: bool) -> None:
    """Another split on the way to a resumed run would train on what it was validated on."""
    dataset = "import random\n" + files(f"x = x + {draw}\nreturn x, 1.0")
    text = script(PLAIN, dataset=dataset, more=before).replace(
        "    main()", f"    main()\n    {after}"
    )
    found = apply(RULE, text)
    assert bool(found.fixes) is applied, found.refusals
    assert applied or "after items have drawn" in found.refusals


def test_the_generator_of_a_split_is_no_matter() -> None:
    text = script(
        "DataLoader(part, batch_size=4)",
        more="part, _ = torch.utils.data.random_split(Files(), [8, 8], generator=torch.Generator().manual_seed(0))",
    )
    assert apply(RULE, text).fixes


@pytest.mark.parametrize(
    ("made", "call", "known"),
    [
        ("imgaug.augmenters.Fliplr(0.5)", "augment_image(x)", False),
        ("secret.Mixer()", "mix(x)", False),
        ("omegaconf.DictConfig({})", "get('size')", True),
    ],
)
def test_methods_of_objects_of_libraries(made: str, call: str, known: bool) -> None:
    head = f"import {made.split('(')[0].rpartition('.')[0]}\n"
    dataset = head + files(f"y = self.part.{call}\nreturn x, x.sum()", f"self.part = {made}")
    found = apply(RULE, script(PLAIN, dataset=dataset))
    assert bool(found.fixes) is known, found.refusals


# ---------------------------------------------------------------------------------- items in memory
SCENES = """
import random
import numpy
class Files(Dataset):
    def __init__(self):
        self.scenes = [numpy.zeros((16 + i, 16, 3), dtype=numpy.uint8) for i in range(8)]
    def __len__(self):
        return len(self.scenes)
    def darker(self, scene):
        return numpy.clip(scene * 0.9, 0, 255)
    def __getitem__(self, index):
        scene = self.scenes[index]
        {more}
        return torch.from_numpy(scene.astype(numpy.float32)), 1.0
"""
WORK = "scene = numpy.pad(scene, ((4, 4), (4, 4), (0, 0)))[:16]\n        scene = numpy.rot90(scene, random.randint(0, 3))"


def test_what_was_drawn_before_is_no_generator() -> None:
    drawn = "rng = np.random.RandomState(0)\nself.noise = rng.rand(4, 6)"
    own = files("x = x + self.noise[index % 4, 0]\nreturn x, x.sum()", drawn)
    text = script("DataLoader(Files(), batch_size=4)", dataset="import numpy as np\n" + own)
    assert apply(RULE, text).fixes


TURNED = """\
scene = scene.copy()
        for y in range(16):
            for x in range({n}):
                scene[y, x % 16] = y * x % 256"""


@pytest.mark.parametrize(
    ("more", "size", "worth"),
    [
        (WORK, 64, False),  # 42 µs for an item, at the least
        (WORK, 128, True),
        (WORK, 4, False),
        ("pass", 128, False),
        ("scene = self.darker(scene)", 128, False),
        ("\n        ".join(["scene = self.darker(scene)"] * 4), 128, True),  # followed
        (TURNED.format(n=64), 128, True),
        (TURNED.format(n="index"), 128, False),
        (TURNED.format(n=64) + "\n                if y == x: break", 128, False),
        ("scene = scene + numpy.random.normal(0, 1, (96, 96, 3))", 64, True),
        ("scene = scene + numpy.random.normal(0, 1, (8, 8, 3))", 64, False),
        (TURNED.format(n="index"), 512, True),  # as many turns as are usual
    ],
)
def test_what_items_in_memory_cost(more: str, size: int, worth: bool) -> None:
    decided(SCENES.format(more=more), size, worth)


def decided(dataset: str, size: int, worth: bool) -> None:
    """Whether a batch of this size is worth a worker, or has to be measured."""
    text = script(f"DataLoader(Files(), batch_size={size})", dataset=dataset)
    found = apply(RULE, text)
    assert [f.status for f in found.findings] == ["fix" if worth else "refused"], found.refusals
    assert worth or "has to be measured" in found.refusals


# ----------------------------------------------------------------------------------- albumentations
PIPELINE = """import albumentations as A
import cv2


class Tiles(Dataset):
    def __init__(self):
        self.pipeline = A.Compose([%s])

    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.from_numpy(self.pipeline(image=cv2.imread(f"{index}.png"))["image"])


def seeded(worker):
    pipeline = torch.utils.data.get_worker_info().dataset.pipeline
    pipeline.set_random_seed(torch.initial_seed() %% 2**32)
"""
FLIPS = "A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast()"


@pytest.mark.parametrize(
    ("transforms", "more", "requirements", "has_workers"),
    [
        (FLIPS, "", "", False),
        (FLIPS, "", "albumentations>=1.3\n", False),
        (FLIPS, "", "albumentations==1.3.1\n", True),
        (FLIPS, "", "albumentations<1.4.21\n", True),
        (FLIPS, ", worker_init_fn=seeded", "", True),
        (FLIPS, ", worker_init_fn=print", "", False),
        ("A.Resize(8, 8), A.Normalize()", "", "", True),
        ("A.Resize(8, 8), A.Normalize(p=0.5)", "", "", False),
    ],
)
def test_pipelines_of_albumentations_have_generators_of_their_own(
    transforms: str, more: str, requirements: str, has_workers: bool
) -> None:
    """With 2.0.8 two workers were seen to draw the same numbers, in each epoch the same ones."""
    text = script(f"DataLoader(Tiles(), batch_size=4{more})", dataset=PIPELINE % transforms)
    found = apply(RULE, text, files={"requirements.txt": requirements})
    assert ("num_workers=" in found.text) is has_workers
    assert has_workers or "set_random_seed()" in found.refusals


@pytest.mark.parametrize(
    ("draw", "more", "requirements", "has_workers"),
    [
        ("np.random.rand() < 0.5", "", "torch==1.7.1\n", False),
        ("np.random.rand() < 0.5", "", "torch>=1.7\n", False),
        ("np.random.rand() < 0.5", "", "torch>=1.9\n", True),
        ("np.random.rand() < 0.5", "", "", True),
        ("random.random() < 0.5", "", "torch==1.7.1\n", True),
        ("np.random.rand() < 0.5", ", worker_init_fn=seeded", "torch==1.7.1\n", True),
        ("np.random.rand() < 0.5", ", worker_init_fn=print", "torch==1.7.1\n", False),
        ("np.random.rand() < 0.5", ", worker_init_fn=numbered", "torch==1.7.1\n", True),
        ("np.random.rand() < 0.5", ", worker_init_fn=constant", "torch==1.7.1\n", False),
    ],
)
def test_old_workers_do_not_seed_numpy(
    draw: str, more: str, requirements: str, has_workers: bool
) -> None:
    dataset = f"""import random

import numpy as np
from PIL import Image


class Files(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        image = torch.from_numpy(np.asarray(Image.open(f"{{index}}.png")))
        return image.flip(-1) if {draw} else image


def seeded(worker):
    np.random.seed(torch.initial_seed() % 2**32)


def numbered(worker):
    np.random.seed(7 + worker)


def constant(worker):
    np.random.seed(7)
"""
    text = script(f"DataLoader(Files(), batch_size=4{more})", dataset=dataset)
    found = apply(RULE, text, files={"requirements.txt": requirements})
    assert ("num_workers=" in found.text) is has_workers
    assert has_workers or "requirements.txt:1" in found.refusals


def test_workers_that_a_comment_counts_stay() -> None:
    two = "DataLoader(Files(), batch_size=4, shuffle=True, num_workers=2)"
    assert apply(RULE, script(two)).fixes
    told = apply(RULE, script(f"{two}  # 8 workers may work faster"))
    assert not told.fixes and "a comment there speaks of their number" in told.refusals
    assert apply(RULE, script(f"{two}  # number of workers")).fixes


OPTION = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=0{more})
args = parser.parse_args([])
"""


@pytest.mark.parametrize(
    ("more", "stays"),
    [
        (', help="0: the label machine has little shared memory"', True),
        (")  # it hangs otherwise\nprint(", True),
        (', help="how many processes make batches"', False),
        (")  # of each loader\nprint(", False),
    ],
)
def test_options_that_say_why_they_are_0(more: str, stays: bool) -> None:
    made = "DataLoader(Files(), batch_size=4, shuffle=True, num_workers=args.workers)"
    text = script(made, more=OPTION.format(more=more))
    found = apply(RULE, text)
    assert bool(found.fixes) is not stays
    assert ("speaks against workers" in found.refusals) is stays
    assert apply(RULE, text, asked=True).fixes


WORDS = """
from transformers import AutoTokenizer
class Files(Dataset):
    def __init__(self):
        self.texts = ["a b c"] * 8
        self.tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
    def __len__(self):
        return len(self.texts)
    def __getitem__(self, index):
        words = self.tokenizer(self.texts[index], truncation=True{more})
        return torch.tensor(words["input_ids"]).float(), 1.0
"""


@pytest.mark.parametrize(
    ("more", "size", "worth"),
    [
        ("", 32, False),
        (", max_length=256", 32, True),  # half of it is filled: 0.2 ms an item
        (", max_length=256", 8, False),
        (", max_length=32", 32, False),
        (", max_length=len(self.texts[0])", 32, False),
    ],
)
def test_what_texts_cost_that_are_cut_into_words(more: str, size: int, worth: bool) -> None:
    decided(WORDS.format(more=more), size, worth)


def test_a_function_of_the_items_is_asked_for_its_time_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[ast.AST] = []
    real = items._once

    def counted(script: Script, node: ast.AST, *rest: Any) -> float:
        asked.append(node)
        return real(script, node, *rest)

    monkeypatch.setattr(items, "_once", counted)
    each = "".join(
        f"def part{n}(x):\n    return {' + '.join([f'part{n + 1}(x)'] * 8)}\n" for n in range(6)
    )
    dataset = each + "def part6(x):\n    return numpy.pad(x, 1)\n"
    dataset += SCENES.format(more="part0(scene)")
    apply(RULE, "import numpy\n" + script("DataLoader(Files(), batch_size=64)", dataset=dataset))
    assert 40 < len(asked) <= 2 * len(set(asked)), len(asked)  # for memory and for files
