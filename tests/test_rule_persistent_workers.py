"""persistent-workers: where the argument goes, what it says, and when workers must not stay."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import pytest

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.registry import all_rules
from autofast.rule import Effect, Finding, Options
from tests.loaders import FILES, script
from tests.onerule import apply

RULE = "persistent-workers"
PLAIN = "DataLoader(Files(), batch_size=4, num_workers=4)"
MADE = FILES.replace("torch.load(self.paths[index])", "torch.full((4,), float(index))")


def rewritten(text: str, *rules: str) -> str:
    """The entry after one plan of several rules."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "train.py").write_text(text)
        made = Plan.make(
            read_script(root / "train.py", root),
            Options(),
            [all_rules()[name] for name in rules],
            Effect.RECIPE,
        ).texts()
        return next(iter(made.values()), text)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ("4", "True"),
        ("os.cpu_count()", "True"),
        ("max(1, n - 2)", "True"),
        ("n", "n > 0"),
        ("int(n)", "int(n) > 0"),
        ("min(4, os.cpu_count())", "True"),
        ("min(args, os.cpu_count())", "min(args, os.cpu_count()) > 0"),
        ("n if n > 2 else 0", "(n if n > 2 else 0) > 0"),
        ("n or 2", "(n or 2) > 0"),
        ("n // 2", "n // 2 > 0"),
        ("os.environ['N']", "os.environ['N'] > 0"),
        ("table['data']['workers']", "table['data']['workers'] > 0"),
        ("table.get('workers', n)", "table.get('workers', n) > 0"),
    ],
)  # fmt: skip
def test_what_it_says(workers: str, expected: str) -> None:
    text = script(
        f"DataLoader(Files(), batch_size=4, num_workers={workers})",
        dataset="import json, os\n" + FILES,
        more='n = int(os.environ["N"])\ntable = json.load(open("options.json"))',
    )
    found = apply(RULE, text)
    keyword = next(
        k
        for n in ast.walk(ast.parse(found.text))
        if isinstance(n, ast.Call)
        for k in n.keywords
        if k.arg == "persistent_workers"
    )
    assert ast.unparse(keyword.value) == ast.unparse(ast.parse(expected, mode="eval").body)


def test_beside_the_workers_in_a_dict() -> None:
    more = "options = {'batch_size': 4}\nif torch.cuda.is_available():\n    options.update({'num_workers': 2, 'pin_memory': True})"
    found = apply(RULE, script("DataLoader(Files(), **options)", more=more))
    (call,) = [
        n
        for n in ast.walk(ast.parse(found.text))
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "options.update"
    ]
    assert (
        ast.unparse(call)
        == "options.update({'num_workers': 2, 'pin_memory': True, 'persistent_workers': True})"
    )


def test_beside_an_item_assignment() -> None:
    more = (
        "options = {'batch_size': 4}\nif torch.cuda.is_available():\n    options['num_workers'] = 2"
    )
    found = apply(RULE, script("DataLoader(Files(), **options)", more=more))
    assert (
        "        options['num_workers'] = 2\n        options['persistent_workers'] = True\n"
        in found.text.replace('"', "'")
    )


def test_a_number_for_each_way() -> None:
    more = "if torch.cuda.is_available():\n    options = {'num_workers': 4}\nelse:\n    options = {'num_workers': 0}"
    text = apply(
        RULE, script("DataLoader(Files(), batch_size=4, **options)", more=more)
    ).text.replace('"', "'")
    assert "{'num_workers': 4, 'persistent_workers': True}" in text
    assert "{'num_workers': 0}" in text


@pytest.mark.parametrize("workers", ["0", "None"])
def test_without_workers_it_would_be_an_error(workers: str) -> None:
    assert not apply(
        RULE, script(f"DataLoader(Files(), batch_size=4, num_workers={workers})")
    ).fixes


@pytest.mark.parametrize(
    "given",
    ["persistent_workers=True", "persistent_workers=False", "**{'persistent_workers': True}"],
)
def test_nothing_where_it_is_there(given: str) -> None:
    assert not apply(
        RULE, script(f"DataLoader(Files(), batch_size=4, num_workers=4, {given})")
    ).findings


# ------------------------------------------------------------------------ together with num-workers
ALONE = script("DataLoader(Files(), batch_size=4)")


def test_with_the_workers_of_another_rule() -> None:
    text = rewritten(ALONE, RULE, "num-workers")
    words = " ".join(text.split()).replace("( ", "(")
    assert "num_workers=4, persistent_workers=True" in words


def test_not_without_them() -> None:
    assert rewritten(ALONE, RULE) == ALONE


@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(Files(), batch_size=4)",
        "DataLoader(Files(), batch_size=4, num_workers=1)",
        "DataLoader(Files(), **{'num_workers': 2})",
    ],
)
def test_one_after_the_other_is_both_at_once(loader: str) -> None:
    text = script(loader)
    both = ast.dump(ast.parse(rewritten(text, RULE, "num-workers")))
    assert ast.dump(ast.parse(rewritten(rewritten(text, "num-workers"), RULE))) == both


def test_in_a_shared_dict_where_only_one_loader_is_used_again() -> None:
    more = "options = {'batch_size': 4}\ntest = DataLoader(Files(8), **options)"
    text = script("DataLoader(Files(), **options)", more=more).replace(
        "\n\nif __name__", "    for x, y in test:\n        model(x)\n\n\nif __name__"
    )
    made = " ".join(rewritten(text, RULE, "num-workers").split())
    assert "num_workers': 4" in made.replace('"', "'")
    assert "loader = DataLoader(Files(), persistent_workers=True, **options)" in made


# ---------------------------------------------------------------------------------------- how often
def test_a_loader_that_is_used_once() -> None:
    text = script(PLAIN).replace("for epoch in range(3):", "if True:")
    assert not apply(RULE, text).findings


@pytest.mark.parametrize(
    ("epochs", "more", "once"),
    [
        ("range(1)", "", True),
        ("range(epochs)", "epochs = 1", True),
        ("range(2)", "", False),
        ("range(epochs)", "epochs = int(input())", False),
        ("range(1)", "for x, y in loader:\n    print(x.mean())", False),
    ],
)
def test_a_training_of_one_epoch(epochs: str, more: str, once: bool) -> None:
    text = script("DataLoader(Files(), batch_size=4, num_workers=2)\n" + more, dataset=MADE)
    found = apply(RULE, text.replace("range(3)", epochs), min_gain=0.01)
    assert [said_once(f) for f in found.findings] == [once]


def said_once(finding: Finding) -> bool:
    return finding.gain is not None and "one epoch" in finding.gain.reason


def test_a_training_of_one_epoch_that_is_called_twice() -> None:
    text = script("DataLoader(Files(), batch_size=4, num_workers=2)", dataset=MADE).replace(
        "range(3)", "range(1)"
    )
    twice = text.replace("    loader = ", "    fit(").replace("num_workers=2)", "num_workers=2))")
    twice = twice.replace(
        "    model = nn", "\n\ndef fit(loader):\n    device = 'cuda'\n    model = nn"
    )
    assert all(map(said_once, apply(RULE, twice, min_gain=0.01).findings))
    again = twice.replace("    fit(", "    loader = ").replace(
        "=2))", "=2)\n    fit(loader)\n    fit(loader)"
    )
    found = apply(RULE, again, min_gain=0.01).findings
    assert found and not any(map(said_once, found))


def test_a_loader_that_is_made_again_in_every_epoch() -> None:
    assert not apply(RULE, script("", epoch=f"loader = {PLAIN}")).findings


def test_an_iterator_that_is_made_again() -> None:
    more = f"loader = {PLAIN}\nbatches = iter(loader)"
    step = "try:\n    x, y = next(batches)\nexcept StopIteration:\n    batches = iter(loader)\n    x, y = next(batches)"
    assert (
        "persistent_workers=True"
        in apply(RULE, script("", more=more, epoch=step, over="[(x, y)]")).text
    )


def test_an_endless_loop_in_a_generator() -> None:
    cycle = "def cycle(loader):\n    while True:\n        for batch in loader:\n            yield batch\n"
    text = script(
        "",
        dataset=FILES + cycle,
        more=f"batches = cycle({PLAIN})",
        epoch="x, y = next(batches)",
        over="[(x, y)]",
    )
    assert "persistent_workers=True" in apply(RULE, text).text


# ------------------------------------------------------------------------------- what is left alone
STAGED = FILES + "    def set_epoch(self, epoch):\n        self.epoch = epoch\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script(PLAIN, epoch="loader.dataset.stage = epoch"), "would not see it"),
        (script("DataLoader(data, num_workers=4)", more="data = Files()", epoch="data.stage = epoch"), "would not see it"),
        (script("DataLoader(data, num_workers=4)", more="data = Files()", epoch="data.paths.append(f'{epoch}.pt')"), "would not see it"),
        (script("DataLoader(data, num_workers=4)", dataset=STAGED, more="data = Files()", epoch="data.set_epoch(epoch)"), "would not see it"),
        (script(PLAIN, dataset=FILES.replace("x = torch.load", "self.paths = list(self.paths)\n        x = torch.load")), "changes Files after the workers"),
        (script("DataLoader(load(), num_workers=4)", dataset="from secret import load\n"), "not known"),
        (script(PLAIN, epoch="sample = next(iter(loader))"), "takes one batch"),
        (script("DataLoader(Files(), num_workers=pick())", dataset="def pick():\n    print('!')\n    return 3\n" + FILES), "written twice"),
        (script("DataLoader(Files(), num_workers=Options()['workers'])", dataset="class Options:\n    def __getitem__(self, key):\n        print(key)\n        return 3\n" + FILES), "written twice"),
        (
            script("DataLoader(Files(), num_workers=4, sampler=s)", more="s = torch.utils.data.RandomSampler(Files(), True, int(1e10))"),
            "nothing shows that its sampler",
        ),
    ],
)  # fmt: skip
def test_what_is_left_alone(text: str, reason: str) -> None:
    found = apply(RULE, text)
    assert reason in found.refusals
    assert not found.fixes


def labelled(
    item: str = "return x * self.labels[index], x.sum()", more: str = "", before: str = ""
) -> str:
    """A dataset of files that is given something from outside."""
    text = FILES.replace("n=16):", "labels=None, n=16):\n        self.labels = labels").replace(
        "return x, x.sum()", item
    )
    return before + text + more


def between(
    epoch: str,
    more: str = "labels = [1.0] * 16",
    dataset: str = "",
    loader: str = "DataLoader(Files(labels), num_workers=4)",
) -> str:
    return script(loader, dataset=dataset or labelled(), more=more, epoch=epoch)


NUMPY, ARRAY = "import numpy as np\n", "labels = np.ones(16)"
METHOD = "    def relabel(self):\n        {}\n"
GAIN = "return x * self.gain, x.sum()"
CHANGED_BETWEEN = {
    "a list": between("labels[0] = epoch"),
    "a list that is given a new order": between("labels.sort(key=lambda k: -k)"),
    "a list that is refilled": between("labels[:] = [epoch] * 16"),
    "a list that is shuffled": between("random.shuffle(loader.dataset.labels)", dataset="import random\n" + labelled()),
    "an array": between("labels[0] = 2", ARRAY, NUMPY + labelled()),
    "an array that is shuffled": between("np.random.shuffle(labels)", ARRAY, NUMPY + labelled()),
    "an array by another name": between("mine = loader.dataset.labels\nmine[0] = 3", ARRAY, NUMPY + labelled()),
    "a tensor in place": between("labels.add_(1)", "labels = torch.ones(16)"),
    "a tensor by +=": between("labels += 1", "labels = torch.ones(16)"),
    "in a method": between("loader.dataset.relabel()", dataset=labelled(more=METHOD.format("self.labels[0] += 1"))),
    "an array in a method": between("loader.dataset.relabel()", ARRAY, NUMPY + labelled(more=METHOD.format("np.random.shuffle(self.labels)"))),
    "in a function": between("relabel(labels)", ARRAY, NUMPY + labelled(more="def relabel(labels):\n    labels[0] += 1\n")),
    "an option": between("labels['gain'] = epoch", "labels = {'gain': 1}", labelled("return x * self.labels['gain'], x.sum()")),
    "the class": between("Files.gain += 1", dataset=labelled(GAIN, more="    gain = 1\n")),
    "the class of something in it": between(
        "Stage.gain += 1", "labels = Stage()", "class Stage:\n    gain = 1\n" + labelled("return x * self.labels.gain, x.sum()")
    ),
    "a global": between("global EPOCH\nEPOCH = epoch", dataset="EPOCH = 0\n" + labelled("return x * EPOCH, x.sum()")),
    "a global dict": between("state['noise'] = epoch", dataset="state = {'noise': 0}\n" + labelled("return x + state['noise'], x.sum()")),
    "the environment": between("os.environ['A'] = '1'", dataset="import os\n" + labelled("return x * int(os.environ.get('A', 0)), x.sum()")),
    "the indices of a subset": between(
        "part.indices.extend([8])", "part = torch.utils.data.Subset(Files([1] * 16), list(range(8)))", loader="DataLoader(part, num_workers=4)"
    ),
    "the list given to a subset": between(
        "chosen[:] = [1, 2]", "chosen = [3, 4]", loader="DataLoader(torch.utils.data.Subset(Files([1] * 16), chosen), num_workers=4)"
    ),
    "collate_fn's attribute": between(
        "collate.epoch = epoch", "collate = Collate()",
        labelled("return x, x.sum()", more="class Collate:\n    epoch = 0\n    def __call__(self, items):\n        return items[0][0] * self.epoch, items[0][1]\n"),
        "DataLoader(Files(), num_workers=4, collate_fn=collate)",
    ),
    "collate_fn's closure": between(
        "scale = epoch", "scale = 1", loader="DataLoader(Files([1] * 16), num_workers=4, collate_fn=lambda items: items[0][0] * scale)"
    ),
    "a list that items fill": between("pass", dataset="seen = []\n" + labelled("seen.append(index)\n        return x, x.sum()")),
    "a generator of its own": between("pass", "labels = np.random.default_rng(0)", NUMPY + labelled("return x * self.labels.normal(), x.sum()")),
    "a model that is trained": between("pass", "labels = nn.Linear(4, 1)", labelled("return x, self.labels(x).detach()")).replace(
        "model = nn.Linear(4, 1).to(device)", "model = labels"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("after", "kept"),
    [("    else:\n        labels[0] = 2.0\n", True), ("    labels[0] = 2.0\n", False)],
)
def test_only_what_may_run_after_the_loader_changes_something(after: str, kept: bool) -> None:
    text = between("pass")
    head, loop, rest = text.partition("    for epoch in range(3):")
    body, guard, end = rest.partition("\n\n\nif __name__")
    text = f"{head}    if torch.cuda.device_count() < 9:\n{textwrap.indent(loop + body, '    ')}\n{after}{guard}{end}"
    assert bool(apply(RULE, text).fixes) is kept


@pytest.mark.parametrize("text", CHANGED_BETWEEN.values(), ids=CHANGED_BETWEEN)
def test_what_living_workers_would_not_see(text: str) -> None:
    found = apply(RULE, text)
    assert not found.fixes
    assert re.search(
        r"line \d+(?: of \S+)? changes .*would not see it|fetching an item changes .*line \d+|generator of its own|that is trained",
        found.refusals,
    )


@pytest.mark.parametrize(
    "text",
    [
        between("pass", more="labels = [1.0] * 16\nlabels[0] = 2\nlabels.append(3)"),
        between(
            "losses.append(epoch)\nstate['epoch'] = epoch",
            more="labels = [1.0] * 16\nlosses = []\nstate = {}",
        ),
        between(
            "weights[0] = epoch",
            "weights = [1.0] * 16",
            loader="DataLoader(Files([1] * 16), num_workers=4, sampler=list(weights))",
        ),
    ],
    ids=["before", "other things", "of the sampler"],
)
def test_what_is_no_matter_to_workers(text: str) -> None:
    assert "persistent_workers=True" in apply(RULE, text).text


def test_what_is_set_before_the_first_epoch_is_seen() -> None:
    assert (
        "persistent_workers=True"
        in apply(
            RULE, script("DataLoader(data, num_workers=4)", more="data = Files()\ndata.stage = 1")
        ).text
    )


SHUFFLED = (
    "import random\n" + FILES + "    def shuffle(self):\n        random.shuffle(self.paths)\n"
)


@pytest.mark.parametrize(
    ("dataset", "more", "epoch", "stays"),
    [
        (STAGED, "data = Files()\ndata.set_epoch(3)", "pass", False),
        (STAGED, "data, other = Files(), Files(8)\ndata.set_epoch(3)", "other.set_epoch(epoch)", False),
        (STAGED, "data, other = Files(), Files(8)\nother.set_epoch(3)", "data.set_epoch(epoch)", False),
        (SHUFFLED, "data = Files()\ndata.shuffle()", "pass", False),
        (SHUFFLED, "data = Files()", "data.shuffle()", False),
        (SHUFFLED, "data = Files()\nshuffle = data.shuffle", "shuffle()", False),
    ],
)  # fmt: skip
def test_a_method_that_changes_the_dataset_counts_once_workers_may_be_there(
    dataset: str, more: str, epoch: str, stays: bool
) -> None:
    text = script("DataLoader(data, num_workers=4)", dataset=dataset, more=more, epoch=epoch)
    assert ("persistent_workers=True" in apply(RULE, text).text) is stays


def test_a_sampler_s_epoch_is_no_matter() -> None:
    more = "data = Files()\nsampler = torch.utils.data.DistributedSampler(data, 1, 0)"
    text = script(
        "DataLoader(data, num_workers=4, sampler=sampler)",
        more=more,
        epoch="sampler.set_epoch(epoch)",
    )
    assert "persistent_workers=True" in apply(RULE, text).text


def test_a_dict_that_also_feeds_a_loader_used_once() -> None:
    more = "options = {'num_workers': 2}\ntest = DataLoader(Files(8), **options)"
    text = script("DataLoader(Files(), **options)", more=more).replace(
        "\n\nif __name__", "    for x, y in test:\n        model(x)\n\n\nif __name__"
    )
    assert "which is not to keep its workers" in apply(RULE, text).refusals


def test_a_dict_that_also_feeds_a_loader_that_nothing_goes_through() -> None:
    more = "options = {'num_workers': 2}\ntest = DataLoader(Files(8), **options)"
    text = script("DataLoader(Files(), **options)", more=more)
    assert '"persistent_workers": True' in apply(RULE, text).text
    handed_out = text.replace(
        "    model = nn", "    from elsewhere import show\n    show(test)\n    model = nn"
    )
    assert "which is not to keep its workers" in apply(RULE, handed_out).refusals


OWN_LOADER = """
class Loader(DataLoader):
    def __init__(self, *args, {more}**kwargs):
        super().__init__(*args, {given}**kwargs)
        self.shown = 0
"""


def test_a_class_of_loaders_that_hands_its_arguments_on() -> None:
    text = script(
        "Loader(Files(), batch_size=4, num_workers=2)",
        dataset=FILES + OWN_LOADER.format(more="", given=""),
    )
    wanted = "loader = Loader(Files(), batch_size=4, num_workers=2, persistent_workers=True)"
    assert apply(RULE, text).lines == [wanted]
    other = script(  # the class decides about it
        "Loader(Files(), batch_size=4, num_workers=2)",
        dataset=FILES
        + OWN_LOADER.format(
            more="persistent_workers=False, ", given="persistent_workers=persistent_workers, "
        ),
    )
    assert not apply(RULE, other).fixes


@pytest.mark.parametrize(("made", "kept"), [("Files(8)", True), ("data", False)])
def test_a_dict_that_also_feeds_the_loader_of_another_function(made: str, kept: bool) -> None:
    """Its workers end with that function; but where its items change between two calls, none may
    stay.
    """
    test = f"def test(model, options, data):\n    for x, y in DataLoader({made}, **options):\n        model(x)\n    data.stage = 1\n"
    stage = FILES.replace("return x, x.sum()", "return x * self.stage, x.sum()").replace(
        "self.paths =", "self.stage = 2\n        self.paths ="
    )
    text = script(
        "DataLoader(Files(), **options)",
        more="options = {'num_workers': 2}\ndata = Files(8)",
        dataset=stage,
    ).replace("\n\nif __name__", f"        test(model, options, data)\n\n\n{test}\n\nif __name__")
    done = apply(RULE, text)
    assert ("persistent_workers" in done.text) is kept
    assert kept or "which is not to keep its workers" in done.refusals


# ------------------------------------------------------------------------------------ the same data
def test_every_epoch_still_sees_every_item(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for i in range(16):
        torch.save(torch.full((4,), float(i)), f"{i}.pt")
    text = script(
        "DataLoader(Files(), batch_size=4, shuffle=True, num_workers=2)", epoch="seen.append([])"
    )
    text = text.replace("optimizer.step()", "seen[-1] += x[:, 0].tolist()").replace(
        "def main():\n", "seen = []\n\ndef main():\n    torch.manual_seed(0)\n"
    )
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    seen = []
    for source in (text, apply(RULE, text).text):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        seen.append(scope["seen"])
    assert (
        [sorted(epoch) for epoch in seen[1]]
        == [sorted(epoch) for epoch in seen[0]]
        == [[float(i) for i in range(16)]] * 3
    )
    assert seen[0][0] == seen[1][0]


def test_living_workers_see_what_was_changed_before(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for i in range(16):
        torch.save(torch.full((4,), float(i)), f"{i}.pt")
    text = between(
        "pass",
        "labels = [1.0] * 16\nlabels[0] = 3",
        loader="DataLoader(Files(labels), batch_size=4, num_workers=2)",
    )
    text = text.replace("labels[0] = 3", "labels[0] = 3\n    SCALE[0] = 2").replace(
        "self.labels[index]", "self.labels[index] * SCALE[0]"
    )
    text = text.replace("optimizer.step()", "seen.append(x.tolist())").replace(
        "def main():\n", "SCALE = [1]\nseen = []\n\ndef main():\n"
    )
    made = apply(RULE, text).text
    assert "persistent_workers=True" in made
    seen = []
    for source in (text, made):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        seen.append(scope["seen"])
    assert seen[0] == seen[1]


def test_an_object_that_items_read_something_else_of() -> None:
    """Options that the dataset keeps: the line that sets one of them runs after a first pass over
    the loader.
    """
    dataset = FILES.replace(
        "def __init__(self, n=16):\n", "def __init__(self, args, n=16):\n        self.args = args\n"
    )
    dataset = dataset.replace("return x, x.sum()", "return x * self.args.scale, x.sum()")
    dataset = (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--scale', type=int, default=1)\nargs = parser.parse_args()\n"
        + dataset
    )
    for name, fixes in (("start", 1), ("scale", 0)):
        text = script(
            "DataLoader(Files(args), batch_size=4, num_workers=4)",
            dataset=dataset,
            epoch=f"args.{name} = epoch",
        )
        found = apply(RULE, text)
        assert len(found.fixes) == fixes, found.refusals
    assert "would not see it" in found.refusals


# -------------------------------------------------------------------------------------------- seeds
NOISE = {
    "torch": "torch.rand(4)",
    "numpy": "torch.tensor(np.random.rand(4)).float()",
    "python": "torch.full((4,), random.random())",
}
NOISY = """
import random

import numpy as np

class Files(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        x = {draw}
        return x, x.sum()

def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
"""
ANEW = "sets the seed anew"


@pytest.mark.parametrize(
    ("draw", "epoch", "more", "argument", "reason"),
    [
        ("torch", "torch.manual_seed(epoch)", "", "", ANEW),
        ("numpy", "set_seed(7)", "", "", ANEW),
        ("python", "torch.manual_seed(epoch)", "", "", ANEW),
        ("torch", "g.manual_seed(epoch)", "g = torch.Generator()", ", generator=g", ANEW),
        ("numpy", "", "def init(i):\n    np.random.seed(i)", ", worker_init_fn=init", "seeds each worker"),
        ("numpy", "", "def init(i):\n    np.random.seed(torch.initial_seed() % 2**32 + i)", ", worker_init_fn=init", ""),
        ("numpy", "", "def init(i):\n    np.random.seed(torch.utils.data.get_worker_info().seed % 2**32)", ", worker_init_fn=init", ""),
        ("torch", "g.manual_seed(epoch)", "g = torch.Generator()", "", ""),
        ("torch", "", "set_seed(7)", "", ""),
        ("numpy", "np.random.seed(epoch)", "", "", ANEW),
        ("torch", "np.random.seed(epoch)", "", "", ""),
    ],
)  # fmt: skip
def test_seeds_of_each_epoch(draw: str, epoch: str, more: str, argument: str, reason: str) -> None:
    text = script(
        f"DataLoader(Files(), batch_size=4, num_workers=2{argument})",
        dataset=NOISY.format(draw=NOISE[draw]),
        more=more,
        epoch=epoch,
    )
    found = apply(RULE, text)
    assert (not found.fixes) == bool(reason) and reason in found.refusals, found.refusals


def test_what_a_seed_of_each_epoch_gives() -> None:
    """The draws of all epochs are the same, and would not be with workers that stay."""
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=1)",
        dataset=NOISY.format(draw=NOISE["numpy"]),
        epoch="set_seed(7)",
    )
    text = text.replace("optimizer.step()", "seen[epoch] = seen.get(epoch, 0) + x.sum().item()")
    text = text.replace("def main():\n", "seen = {}\n\ndef main():\n")
    kept = text.replace("num_workers=1", "num_workers=1, persistent_workers=True")
    assert apply(RULE, text).text == text.lstrip("\n")
    for source, different in ((text, 1), (kept, 3)):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        assert len(set(scope["seen"].values())) == different


@pytest.mark.parametrize(
    ("taken", "advised"),
    [
        ("batch = next(iter(other))", True),
        ("i, batch = next(enumerate(other, 0))", True),
        ("batch = next(kept)", False),
    ],
)
def test_one_batch_at_a_time(taken: str, advised: bool) -> None:
    more = "other = DataLoader(Files(), batch_size=4, num_workers=2)\nkept = iter(other)"
    found = apply(RULE, script(PLAIN, more=more, epoch=taken))
    assert ("keep one iterator" in found.advice) is advised


FRESH = {
    "json": ('ann = json.load(open("a.json"))\nann["box"][3] = 1', False),
    "deep copy": ('ann = copy.deepcopy(self.rows[index])\nann["box"][3] = 1', False),
    "copy": ('ann = self.rows[index].copy()\nann["n"] = 1', False),
    "dicts": ('rows = [dict(row) for row in self.rows]\nrows[0]["n"] = 1', False),
    "row": ('ann = self.rows[index]\nann["n"] = 1', True),
    "part of a copy": ('ann = self.rows[index].copy()\nann["box"][3] = 1', True),
    "part of a dict": ('ann = dict(self.rows[index])\nann["box"][3] = 1', True),
    "part of a list": ('for row in sorted(self.rows):\n    row["n"] = 1', True),
    "part of rows": ('rows = [row for row in self.rows]\nrows[0]["n"] = 1', True),
    "part of one of two": ('ann = list(self.rows) if index else []\nann[0]["n"] = 1', True),
}


@pytest.mark.parametrize("kind", FRESH)
def test_parts_of_shallow_copies_stay(kind: str) -> None:
    code, kept = FRESH[kind]
    dataset = FILES.replace(
        "        x = torch.load", textwrap.indent(code, " " * 8) + "\n        x = torch.load"
    ).replace(
        "        self.paths =",
        '        self.rows = json.load(open("rows.json"))\n        self.paths =',
    )
    found = apply(RULE, script(PLAIN, dataset="import copy, json\n" + dataset))
    assert bool(found.fixes) is not kept
    assert ("fetching an item changes" in found.refusals) is kept


CACHED = """        if index in self.seen:
            x = self.seen[index]
        else:
            x = torch.load(self.paths[index])
            if len(self.seen) < 100:
                self.seen[index] = x
        x = x + torch.randn(4)
"""


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("x = x + torch", "x = x + torch", True),
        ("torch.load(self.paths[index])", "torch.load(self.paths[index]).astype(float)", True),
        # drawn once, and then anew in each epoch where workers begin without it
        ("torch.load(self.paths[index])", "torch.load(self.paths[index]) + torch.randn(4)", False),
        ("x = x + torch.randn(4)", "x += torch.randn(4)", False),
        ("self.seen[index] = x", "self.seen[len(self.seen)] = x", False),
        ("self.seen[index] = x", "self.keep(index, x + torch.randn(4))", False),
        ("torch.load(self.paths[index])", "self.copy(self.paths[index])", False),
        ("if len(self.seen) < 100", "if not list(self.seen.values())", False),
    ],
)
def test_what_is_kept_by_its_index_comes_out_the_same(old: str, new: str, kept: bool) -> None:
    assert old in CACHED
    dataset = FILES.replace("        x = torch.load(self.paths[index])\n", CACHED.replace(old, new))
    dataset = dataset.replace(
        "        self.paths =", "        self.seen = {}\n        self.paths ="
    )
    if "self.keep" in dataset:
        dataset += "\n    def keep(self, index, x):\n        self.seen[index] = x\n"
    dataset += "\n    def copy(self, path):\n        return torch.load(path) + torch.randn(4)\n"
    found = apply(RULE, script(PLAIN, dataset=dataset), min_gain=0.01)
    assert bool(found.fixes) is kept, found.refusals


@pytest.mark.parametrize(("step", "kept"), [("Crop(4)", True), ("self.crop.__init__(8)", False)])
def test_a_new_object_is_no_change_of_one_that_workers_have(step: str, kept: bool) -> None:
    dataset = (
        "class Crop:\n    def __init__(self, size):\n        self.size = size\n"
        "    def __call__(self, x):\n        return x[: self.size]\n" + FILES
    )
    dataset = dataset.replace(
        "        self.paths =", "        self.crop = Crop(3)\n        self.paths ="
    )
    dataset = dataset.replace("        return x, x.sum()", "        return self.crop(x), x.sum()")
    more = "data = Files()"
    change = step.replace("self", "data") if "self" in step else f"other = {step}"
    text = script(PLAIN.replace("Files()", "data"), dataset=dataset, more=more, epoch=change)
    assert bool(apply(RULE, text).fixes) is kept


FOLDS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Files(Dataset):
    def __init__(self, fold):
        self.paths = [f"{fold}-{i}.pt" for i in range(16)]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        x = torch.load(self.paths[index])
        return x, x.sum()


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def run(fold):
    loader = DataLoader(Files(fold), batch_size=4, shuffle=True, num_workers=4)
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range({epochs}):
        for x, y in loader:
            loss = (model(x.to(device)).squeeze() - y.to(device)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


if __name__ == "__main__":
    for fold in range(5):
        run(fold)
"""


def test_a_loader_for_each_fold_is_iterated_in_many_epochs() -> None:
    assert apply(RULE, FOLDS.replace("{epochs}", "3")).fixes
    none = FOLDS.replace("{epochs}", "3").replace(", num_workers=4", "")
    assert apply("num-workers", none).fixes


def test_a_loader_for_each_fold_that_is_iterated_once() -> None:
    once = FOLDS.replace("    for epoch in range({epochs}):\n", "    if fold >= 0:\n")
    assert not apply(RULE, once).fixes


def test_a_loader_that_each_epoch_makes_anew_of_the_same_data() -> None:
    made = "DataLoader(files, batch_size=4, shuffle=True, num_workers=4)"
    anew = script("", more="files = Files()", epoch=f"loader = {made}")
    assert "make it above the loop of line" in apply(RULE, anew).advice
    # Other data for each turn are another loader.
    other = anew.replace("(files,", "(Files(epoch),")
    assert not apply(RULE, other).advice and not apply(RULE, other).findings
    assert not apply(RULE, anew.replace("num_workers=4", "num_workers=0")).findings
    # A loop that only sets them up is no loop of epochs.
    parts = f"files, loaders = Files(), {{}}\nfor part in ['train', 'test']:\n    loaders[part] = {made}"
    set_up = script("", more=parts, over="loaders['train']")
    assert "made anew" not in apply(RULE, set_up).advice


MEMO = """\
WINDOWS = {}

def window(x, size):
    key = str(size) + "_" + str(x.dtype)
    if key not in WINDOWS:
        WINDOWS[key] = torch.hann_window(size).to(x.dtype)
    return x * WINDOWS[key]

class Bank:
    opened = dict()

    @staticmethod
    def give(path):
        opened = Bank.opened
        if path in opened:
            return opened[path]
        made = torch.full((4,), float(len(path)))
        opened[path] = made
        return made

"""
ITEM = "window(torch.ones(4) * index, self.size) + Bank.give(self.paths[index])"


def remembering(old: str = "", new: str = "", train: str = "pass") -> str:
    data = (MEMO + FILES).replace("torch.load(self.paths[index])", ITEM)
    data = data.replace("self.paths = ", "self.size = 4\n        self.paths = ")
    assert old in data
    loader = "DataLoader(Files(), batch_size=4, num_workers=2)"
    text = script(loader, dataset=data.replace(old, new) if old else data)
    return text.replace("optimizer.step()", f"optimizer.step()\n            {train}")


def test_dicts_whose_entries_are_made_of_their_keys(tmp_path: Path) -> None:
    before = remembering(train="print(loss.item())").replace(
        "def main():\n", "def main():\n    torch.manual_seed(0)\n"
    )
    found = apply(RULE, before)
    assert "persistent_workers=True" in found.text
    done = [said(text, tmp_path) for text in (before, found.text)]
    assert done[0] == done[1] and len(done[0].split()) == 12
    # the training fills its own copy by the same code
    assert apply(RULE, remembering(train="window(x, 4)")).fixes


def said(text: str, folder: Path) -> str:
    (folder / "train.py").write_text(text)
    run = [sys.executable, "train.py"]
    return subprocess.run(run, cwd=folder, check=True, capture_output=True, text=True).stdout


KEY = 'key = str(size) + "_" + str(x.dtype)'
USED = "return x * WINDOWS[key]"


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [
        ("self.size)", "index)", True),
        (USED, "return x * size", True),
        (KEY, "key = f'{size}_{x.dtype}'", True),
        (KEY, "key = size, x.dtype", True),
        (KEY, "key = str(size)", False),
        (KEY, "key = size % 3, x.dtype", False),
        (KEY, 'key = str(x) + "_" + str(x.dtype)', False),
        ("torch.hann_window(size)", "torch.rand(size)", False),
        ("torch.hann_window(size)", "x.abs()", False),
        ("WINDOWS = {}", "WINDOWS = {'4_torch.float32': 2.0}", False),
        (USED, "return x * WINDOWS[key] * len(WINDOWS)", False),
        (USED, "return x * sum(WINDOWS.values())", False),
        (USED, "WINDOWS[key] *= 2\n    " + USED, False),
        (USED, "w = WINDOWS[key]\n    w *= 2\n    " + USED, False),
        (USED, "WINDOWS[str(x.dtype)] = x\n    " + USED, False),
        ("    " + USED, "        x = x + 1\n    " + USED, False),
        ("    " + USED, "    else:\n        x = x + 1\n    " + USED, False),
        ("        return made\n", "        return made + 1\n", False),
        ("        return made\n", "        made = made + 1\n        return made\n", False),
    ],
)
def test_dicts_that_show_what_was_there_before(old: str, new: str, kept: bool) -> None:
    found = apply(RULE, remembering(old, new))
    assert bool(found.fixes) is kept and ("fetching an item changes" in found.refusals) is not kept


def test_entries_of_other_sizes() -> None:
    two = ITEM + " + window(torch.ones(1), 1)"
    assert apply(RULE, remembering(ITEM, two)).fixes
    same = remembering(ITEM, two).replace(KEY, "key = str(x.dtype)")
    assert "fetching an item changes" in apply(RULE, same).refusals


def test_others_that_put_something_else_there() -> None:
    found = apply(RULE, remembering(train="WINDOWS['4_torch.float32'] = loss.item()"))
    assert not found.fixes


def test_files_that_items_write_are_the_same_for_all_workers() -> None:
    """A cache on the disk: workers that stay write what new ones would; several workers in the
    place of none may not.
    """
    text = script("DataLoader(Files(), batch_size=4, num_workers=2)").replace(
        "        return x, x.sum()",
        "        torch.save(x, self.paths[index] + '.cache')\n        return x, x.sum()",
    )
    assert "persistent_workers=True" in apply(RULE, text).text
    none = apply("num-workers", text.replace(", num_workers=2", ""))
    assert not none.fixes and "may write it at once" in none.refusals


FITTED = (
    ("import torch\nimport pytorch_lightning as pl\n" + FILES)
    .replace("import pytorch", "from torch import nn\nimport pytorch")
    .replace("as pl\n", "as pl\nfrom torch.utils.data import DataLoader, Dataset\n")
    + """
class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        return (self.layer(x).squeeze() - y).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())

train = DataLoader(Files(), batch_size=4, num_workers=4)
held_out = DataLoader(Files(), batch_size=4, num_workers=4)
last = DataLoader(Files(), batch_size=4, num_workers=4)
trainer = pl.Trainer(max_epochs=3)
"""
)


@pytest.mark.parametrize(
    ("fit", "kept"),
    [
        ("trainer.fit(Net(), train, held_out)", ["train", "held_out"]),
        ("trainer.fit(Net(), train, [held_out, last])", ["train", "held_out", "last"]),
        ("trainer.fit(model=Net(), train_dataloader=train)", ["train"]),
        ("trainer.fit(Net(), train)\ntrainer.test(Net(), last)", ["train"]),
        ("pl.Trainer(max_epochs=1).fit(Net(), train)", []),
    ],
)
def test_loaders_that_lightning_goes_through_in_each_epoch(fit: str, kept: list[str]) -> None:
    found = apply(RULE, FITTED + fit)
    assert [line.split(" = ")[0] for line in found.lines] == kept
    assert all("persistent_workers=True" in line for line in found.lines)


def test_one_batch_to_look_at_before_the_training() -> None:
    found = apply(
        RULE,
        script(PLAIN, more="", epoch="").replace(
            "    model = nn", "    sample = next(iter(loader))\n    model = nn"
        ),
    )
    assert "persistent_workers=True" in found.text


@pytest.mark.parametrize(
    ("before", "epoch", "stays"),
    [
        ("for _ in range(2):\n        first = next(iter(loader))", "pass", True),
        ("seen = 0\n    while seen < 8:\n        seen += len(next(iter(loader))[0])", "pass", True),
        ("pass", "for _ in range(2):\n            first = next(iter(loader))", False),
    ],
)
def test_batches_that_are_taken_before_the_epochs(before: str, epoch: str, stays: bool) -> None:
    """They start the workers that the epochs go on with."""
    text = script(PLAIN, epoch=epoch).replace("    model = nn", f"    {before}\n    model = nn", 1)
    found = apply(RULE, text)
    assert ("persistent_workers=True" in found.text) is stays
    assert ("takes one batch" in found.refusals) is not stays
    assert ("keep one iterator" in found.advice) is not stays


def test_composer_takes_no_loader_whose_workers_have_stayed() -> None:
    """Its DataSpec raises a ValueError where a loader has an iterator: one for two Trainers."""
    text = script("DataLoader(Files(), batch_size=4, num_workers=4)")
    assert "persistent_workers=True" in apply(RULE, text).text
    trained = "import composer\n" + text + "composer.Trainer(train_dataloader=loader).fit()\n"
    done = apply(RULE, trained)
    assert "persistent" not in done.text and "Composer" in done.refusals, done.refusals
    own = (
        text + "class Spec:\n    def take(self, loader):\n        assert loader._iterator is None\n"
    )
    assert (
        "persistent" not in apply(RULE, own).text
    )  # Composer's own examples, which are read with it


@pytest.mark.parametrize(
    ("given", "workers", "advised"),
    [
        ("{'persistent_workers': True}", "num_workers=4, ", True),
        ("{'persistent_workers': True, 'timeout': 9}", "num_workers=os.cpu_count(), ", True),
        ("{'persistent_workers': True, 'num_workers': 4}", "", False),
        ("{'persistent_workers': True}", "num_workers=0, ", False),
        ("{'persistent_workers': False}", "num_workers=4, ", False),
        ("{'timeout': 9}", "num_workers=4, ", False),
    ],
)
def test_workers_that_stay_in_some_runs_alone(given: str, workers: str, advised: bool) -> None:
    more = (
        f"import os, platform\ngiven = {{}}\nif platform.system() == 'Darwin':\n    given = {given}"
    )
    found = apply(RULE, script(f"DataLoader(Files(), batch_size=4, {workers}**given)", more=more))
    assert ("in some runs alone" in found.advice) is advised
    assert not found.fixes or not advised


def test_what_is_opened_before_is_shared_by_workers_already() -> None:
    text = script(
        "DataLoader(Files(), batch_size=4, num_workers=4)",
        dataset=FILES.replace(
            "self.paths =", "self.file = h5py.File('x.h5', 'r')\n        self.paths ="
        )
        .replace(
            "torch.load(self.paths[index])", "torch.from_numpy(self.file[self.paths[index]][()])"
        )
        .replace("class Files", "import h5py\n\n\nclass Files"),
    )
    assert "persistent_workers=True" in apply(RULE, text).text
    without = text.replace(", num_workers=4", "")
    assert "which workers would share" in apply("num-workers", without).refusals
