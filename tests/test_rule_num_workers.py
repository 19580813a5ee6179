"""num-workers: the helper, where the number is decided, and every reason to leave a loader alone."""

from __future__ import annotations

import ast
import multiprocessing
import os
import textwrap
from typing import Any

import pytest

from autofast.finding import Effect
from tests.loaders import FILES, script
from tests.onerule import apply

RULE = "num-workers"
PLAIN = "DataLoader(Files(), batch_size=4, shuffle=True)"


def loader_workers(text: str, cores: int, **environment: str) -> Any:
    """What the helper in a rewritten script gives on a machine with so many cores."""
    tree = ast.parse(text)
    definition = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("loader_workers"))

    class Os:
        environ = environment

        @staticmethod
        def sched_getaffinity(pid: int) -> set[int]:
            return set(range(cores))

    scope: dict[str, Any] = {"os": Os, "multiprocessing": multiprocessing}
    exec(ast.unparse(definition), scope)
    return scope[definition.name]()


# ------------------------------------------------------------------------------------------------ the helper
@pytest.mark.parametrize(("cores", "workers"), [(1, 0), (2, 0), (3, 2), (4, 3), (9, 8), (64, 8)])
def test_workers_suit_the_machine(cores: int, workers: int) -> None:
    assert loader_workers(apply(RULE, script(PLAIN)).text, cores) == workers


def test_ranks_share_the_cores() -> None:
    text = apply(RULE, script(PLAIN)).text
    assert loader_workers(text, 16, LOCAL_WORLD_SIZE="4", WORLD_SIZE="32") == 3
    assert loader_workers(text, 16, WORLD_SIZE="2") == 7
    assert loader_workers(text, 4, LOCAL_WORLD_SIZE="8") == 0


def test_a_cpu_keeps_its_cores_for_training() -> None:
    assert loader_workers(apply(RULE, script(PLAIN), target="cpu").text, 64) == 2


def test_without_affinity_the_cores_are_counted() -> None:
    assert "cores = os.cpu_count() or 1" in apply(RULE, script(PLAIN)).text


def test_a_guarded_script_gets_workers_however_they_are_started() -> None:
    found = apply(RULE, script(PLAIN))
    assert "num_workers=loader_workers()" in found.text
    assert "start_method" not in found.text


@pytest.mark.parametrize("default", ["fork", "spawn", "forkserver"])
def test_an_unguarded_script_gets_workers_where_they_are_forked(default: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = apply(RULE, script(PLAIN, guard=False)).text
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: None)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: [default, "other"])
    assert loader_workers(text, 4) == (3 if default == "fork" else 0)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none=False: "spawn")
    assert loader_workers(text, 4) == 0


def test_asking_for_the_start_method_does_not_settle_it() -> None:
    text = apply(RULE, script(PLAIN, guard=False)).text
    before = multiprocessing.get_start_method(allow_none=True)
    loader_workers(text, 4)
    assert multiprocessing.get_start_method(allow_none=True) == before


@pytest.mark.parametrize(
    "loader",
    ["DataLoader(Files(), batch_size=4, collate_fn=lambda items: items)", "DataLoader(Local(), batch_size=4)"],
)
def test_what_cannot_be_pickled_is_only_forked(loader: str) -> None:
    more = textwrap.dedent("class Local(Files):\n    pass") if "Local" in loader else ""
    assert "start_method" in apply(RULE, script(loader, more=more)).text


def test_names_of_the_user_are_left_alone() -> None:
    text = script(PLAIN, dataset="def loader_workers():\n    return 'mine'\n\nos = 3\n" + FILES)
    found = apply(RULE, text)
    assert "num_workers=loader_workers_2()" in found.text
    assert "import os as os_2" in found.text
    assert "os_2.sched_getaffinity(0)" in found.text


def test_modules_under_other_names() -> None:
    text = script(PLAIN, dataset="import os as system\n" + FILES)
    assert "len(system.sched_getaffinity(0))" in apply(RULE, text).text


# ------------------------------------------------------------------------------------------------ where the number is decided
def test_one_helper_for_several_loaders() -> None:
    text = script(PLAIN, more="val = DataLoader(Files(8), batch_size=8)", epoch="for x, y in val:\n    model(x)")
    found = apply(RULE, text)
    assert found.text.count("def loader_workers") == 1
    assert found.text.count("num_workers=loader_workers()") == 2


@pytest.mark.parametrize("few", [1, 2])
def test_a_small_number_is_raised_and_never_lowered(few: int) -> None:
    found = apply(RULE, script(f"DataLoader(Files(), batch_size=4, num_workers={few})"))
    assert f"num_workers=max({few}, loader_workers())" in found.text


@pytest.mark.parametrize("workers", ["4", "os.cpu_count()", "count()", "16"])
def test_other_numbers_are_somebody_s_choice(workers: str) -> None:
    text = script(f"DataLoader(Files(), batch_size=4, num_workers={workers})", dataset="import os\nfrom x import count\n" + FILES)
    assert not apply(RULE, text).findings


def test_a_number_given_by_position() -> None:
    assert "None, None, max(2, loader_workers()))" in apply(RULE, script("DataLoader(Files(), 4, True, None, None, 2)")).text


def test_a_dict() -> None:
    more = "options = {'batch_size': 4}\nif torch.cuda.is_available():\n    extra = {'num_workers': 1, 'persistent_workers': True}\n    options.update(extra)"
    found = apply(RULE, script("DataLoader(Files(), **options)", more=more))
    assert "extra = {'num_workers': max(1, loader_workers()), 'persistent_workers': True}" in found.text.replace('"', "'")
    assert (
        found.fixes[0].node.lineno == found.before.splitlines().index("        extra = {'num_workers': 1, 'persistent_workers': True}") + 1
    )


ARGS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default={default})
args = parser.parse_args()
"""


@pytest.mark.parametrize(
    ("default", "expected"), [(0, "loader_workers()"), (1, "max(1, loader_workers())"), (2, "max(2, loader_workers())")]
)
def test_the_default_of_an_option(default: int, expected: str) -> None:
    text = script("DataLoader(Files(), batch_size=4, num_workers=int(args.workers))", dataset=FILES + ARGS.format(default=default))
    found = apply(RULE, text)
    assert f"default={expected})" in found.text
    assert "num_workers=int(args.workers)" in found.text


def test_an_option_that_is_read_for_something_else() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=args.workers)",
        dataset=FILES + ARGS.format(default=1) + "torch.set_num_threads(args.workers)\n",
    )
    assert "reads the option for something else" in apply(RULE, text).refusals


def test_an_option_that_is_also_compared_and_printed() -> None:
    more = 'if args.workers > 0:\n    print(f"{args.workers} workers")'
    text = script("DataLoader(Files(), batch_size=4, num_workers=args.workers)", dataset=FILES + ARGS.format(default=1), more=more)
    assert "default=max(1, loader_workers())" in apply(RULE, text).text


def test_the_default_of_a_parameter() -> None:
    factory = "def make(data, workers=0):\n    return DataLoader(data, batch_size=4, num_workers=workers)\n"
    found = apply(RULE, script("make(Files())", dataset=FILES + factory))
    assert "def make(data, workers=loader_workers()):" in found.text


def test_a_parameter_that_the_caller_gives() -> None:
    factory = "def make(data, workers=0):\n    return DataLoader(data, batch_size=4, num_workers=workers)\n"
    found = apply(RULE, script("make(Files(), workers=2)", dataset=FILES + factory))
    assert "make(Files(), workers=max(2, loader_workers()))" in found.text
    assert "def make(data, workers=0):" in found.text


def test_a_factory_in_another_file() -> None:
    factory = "from torch.utils.data import DataLoader\n\ndef make(data):\n    return DataLoader(data, batch_size=4, shuffle=True)\n"
    found = apply(RULE, script("make(Files())", dataset="from factory import make\n" + FILES), files={"factory.py": factory})
    assert "num_workers=loader_workers()" in found.texts["factory.py"]
    assert "def loader_workers" in found.texts["factory.py"]
    assert "loader_workers" not in found.text


def test_a_constant_at_the_top() -> None:
    text = script("DataLoader(Files(), batch_size=4, num_workers=WORKERS)", dataset="WORKERS = 2\n" + FILES)
    assert "WORKERS = max(2, loader_workers())" in apply(RULE, text).text


# ------------------------------------------------------------------------------------------------ what is left alone
def files(item: str = "return x, x.sum()", init: str = "", more: str = "") -> str:
    """The dataset of files with other code in it."""
    text = FILES.replace("        return x, x.sum()\n", textwrap.indent(item, "        ") + "\n")
    return text.replace("range(n)]\n", "range(n)]\n" + (textwrap.indent(init, "        ") + "\n" if init else "")) + more


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
            script("DataLoader(Files(), batch_size=4)", dataset="import numpy as np\n" + files("x += self.rng.normal()\nreturn x, x.sum()", "self.rng = np.random.default_rng(0)")),
            "random generator of its own",
        ),
        (script("DataLoader(Files(), batch_size=4)", dataset="from secret import augment\n" + files("x = augment(x)\nreturn x, x.sum()")), "not known"),
        (script("DataLoader(load(), batch_size=4)", dataset="from secret import load\n"), "not known"),
        (script("", epoch="loader = DataLoader(Files(), batch_size=4)"), "made again in the loop"),
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
    assert not any("Files" in ast.unparse(f.node) or "args" in ast.unparse(f.node) for f in found.fixes if isinstance(f.node, ast.Call))


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
    plain = script("DataLoader(Files(), batch_size=4, sampler=sampler)", dataset=FILES + sampler, more=more)
    assert "num_workers=loader_workers()" in apply(RULE, plain).text
    steered = script(
        "DataLoader(Files(), batch_size=4, sampler=sampler)", dataset=FILES + sampler, more=more, epoch="sampler.order = [1, 0]"
    )
    assert "changes the sampler from outside" in apply(RULE, steered).refusals


def test_an_iterable_that_shares_its_work() -> None:
    text = script("DataLoader(Files(), batch_size=4)", dataset=ITERABLE.format(first="info = get_worker_info()"))
    assert "num_workers=loader_workers()" in apply(RULE, text).text


def test_processes_of_the_script_share_the_cores() -> None:
    text = (
        script(PLAIN).replace("    main()\n", "    torch.multiprocessing.spawn(main, nprocs=2)\n").replace("def main():", "def main(rank):")
    )
    assert "processes of its own" in apply(RULE, text).refusals


def test_random_items_are_sampling_and_sums_are_rounding() -> None:
    random = script(PLAIN, dataset=files("return x + torch.rand(4), x.sum()"))
    assert apply(RULE, random).fixes[0].effect is Effect.SAMPLING
    assert apply(RULE, script(PLAIN, dataset=files("return x - x.mean(), x[0]"))).fixes[0].effect is Effect.ROUNDING
    assert apply(RULE, script(PLAIN, dataset=files("return x, x[0]"))).fixes[0].effect is Effect.EXACT


def test_a_collate_function_that_draws() -> None:
    collate = "def collate(items):\n    x = torch.stack([i[0] for i in items])\n    return x + torch.rand(4), x[:, 0]\n"
    text = script("DataLoader(Files(), batch_size=4, collate_fn=collate)", dataset=files("return x, x[0]") + collate)
    assert apply(RULE, text).fixes[0].effect is Effect.SAMPLING


# ------------------------------------------------------------------------------------------------ the same numbers
def test_workers_do_not_change_what_the_main_process_draws(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for i in range(16):
        torch.save(torch.full((4,), float(i)), f"{i}.pt")
    text = script(PLAIN, dataset=files("return x, x[0]")).replace(
        "optimizer.step()", "optimizer.step()\n            losses.append((loss.item(), torch.rand(1).item()))"
    )
    text = text.replace("def main():\n", "losses = []\n\ndef main():\n    torch.manual_seed(0)\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    seen = []
    for source in (text, apply(RULE, text).text):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        seen.append(scope["losses"])
    assert seen[0] == seen[1]
