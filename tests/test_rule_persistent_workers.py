"""persistent-workers: where the argument goes, what it says, and when workers must not stay."""

from __future__ import annotations

import ast
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from autofast.finding import Effect, Options
from autofast.plan import Plan
from autofast.read import read_script
from autofast.registry import all_rules
from tests.loaders import FILES, script
from tests.onerule import apply

RULE = "persistent-workers"
PLAIN = "DataLoader(Files(), batch_size=4, num_workers=4)"


def rewritten(text: str, *rules: str) -> str:
    """The entry after one plan of several rules."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        (root / "train.py").write_text(text)
        made = Plan.make(read_script(root / "train.py", root), Options(), [all_rules()[name] for name in rules], Effect.RECIPE).texts()
        return next(iter(made.values()), text)


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ("4", "True"),
        ("os.cpu_count()", "True"),
        ("max(1, n - 2)", "True"),
        ("n", "n > 0"),
        ("int(n)", "int(n) > 0"),
        ("min(4, os.cpu_count())", "min(4, os.cpu_count()) > 0"),
        ("n if n > 2 else 0", "(n if n > 2 else 0) > 0"),
        ("n or 2", "(n or 2) > 0"),
        ("n // 2", "n // 2 > 0"),
    ],
)  # fmt: skip
def test_what_it_says(workers: str, expected: str) -> None:
    text = script(
        f"DataLoader(Files(), batch_size=4, num_workers={workers})", dataset="import os\n" + FILES, more='n = int(os.environ["N"])'
    )
    found = apply(RULE, text)
    keyword = next(
        k for n in ast.walk(ast.parse(found.text)) if isinstance(n, ast.Call) for k in n.keywords if k.arg == "persistent_workers"
    )
    assert ast.unparse(keyword.value) == ast.unparse(ast.parse(expected, mode="eval").body)


def test_beside_the_workers_in_a_dict() -> None:
    more = "options = {'batch_size': 4}\nif torch.cuda.is_available():\n    options.update({'num_workers': 2, 'pin_memory': True})"
    found = apply(RULE, script("DataLoader(Files(), **options)", more=more))
    (call,) = [n for n in ast.walk(ast.parse(found.text)) if isinstance(n, ast.Call) and ast.unparse(n.func) == "options.update"]
    assert ast.unparse(call) == "options.update({'num_workers': 2, 'pin_memory': True, 'persistent_workers': True})"


def test_beside_an_item_assignment() -> None:
    more = "options = {'batch_size': 4}\nif torch.cuda.is_available():\n    options['num_workers'] = 2"
    found = apply(RULE, script("DataLoader(Files(), **options)", more=more))
    assert "        options['num_workers'] = 2\n        options['persistent_workers'] = True\n" in found.text.replace('"', "'")


def test_a_number_for_each_way() -> None:
    more = "if torch.cuda.is_available():\n    options = {'num_workers': 4}\nelse:\n    options = {'num_workers': 0}"
    text = apply(RULE, script("DataLoader(Files(), batch_size=4, **options)", more=more)).text.replace('"', "'")
    assert "{'num_workers': 4, 'persistent_workers': True}" in text
    assert "{'num_workers': 0}" in text


@pytest.mark.parametrize("workers", ["0", "None"])
def test_without_workers_it_would_be_an_error(workers: str) -> None:
    assert not apply(RULE, script(f"DataLoader(Files(), batch_size=4, num_workers={workers})")).fixes


@pytest.mark.parametrize("given", ["persistent_workers=True", "persistent_workers=False", "**{'persistent_workers': True}"])
def test_nothing_where_it_is_there(given: str) -> None:
    assert not apply(RULE, script(f"DataLoader(Files(), batch_size=4, num_workers=4, {given})")).findings


# ------------------------------------------------------------------------------------------------ together with num-workers
ALONE = script("DataLoader(Files(), batch_size=4)")


def test_with_the_workers_of_another_rule() -> None:
    text = rewritten(ALONE, RULE, "num-workers")
    assert "num_workers=loader_workers(), persistent_workers=loader_workers() > 0" in " ".join(text.split()).replace("( ", "(")
    assert text.count("def loader_workers") == 1


def test_not_without_them() -> None:
    assert rewritten(ALONE, RULE) == ALONE


@pytest.mark.parametrize(
    "loader",
    ["DataLoader(Files(), batch_size=4)", "DataLoader(Files(), batch_size=4, num_workers=1)", "DataLoader(Files(), **{'num_workers': 2})"],
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
    assert "num_workers': loader_workers()" in made.replace('"', "'")
    assert "loader = DataLoader(Files(), persistent_workers=loader_workers() > 0, **options)" in made


# ------------------------------------------------------------------------------------------------ how often
def test_a_loader_that_is_used_once() -> None:
    text = script(PLAIN).replace("for epoch in range(3):", "if True:")
    assert not apply(RULE, text).findings


def test_a_loader_that_is_made_again_in_every_epoch() -> None:
    assert not apply(RULE, script("", epoch=f"loader = {PLAIN}")).findings


def test_an_iterator_that_is_made_again() -> None:
    more = f"loader = {PLAIN}\nbatches = iter(loader)"
    step = "try:\n    x, y = next(batches)\nexcept StopIteration:\n    batches = iter(loader)\n    x, y = next(batches)"
    assert "persistent_workers=True" in apply(RULE, script("", more=more, epoch=step, over="[(x, y)]")).text


def test_an_endless_loop_in_a_generator() -> None:
    cycle = "def cycle(loader):\n    while True:\n        for batch in loader:\n            yield batch\n"
    text = script("", dataset=FILES + cycle, more=f"batches = cycle({PLAIN})", epoch="x, y = next(batches)", over="[(x, y)]")
    assert "persistent_workers=True" in apply(RULE, text).text


# ------------------------------------------------------------------------------------------------ what is left alone
STAGED = FILES + "    def set_epoch(self, epoch):\n        self.epoch = epoch\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (script(PLAIN, epoch="loader.dataset.stage = epoch"), "would not see it"),
        (script("DataLoader(data, num_workers=4)", more="data = Files()", epoch="data.stage = epoch"), "would not see it"),
        (script("DataLoader(data, num_workers=4)", more="data = Files()", epoch="data.paths.append(f'{epoch}.pt')"), "would not see it"),
        (script("DataLoader(data, num_workers=4)", dataset=STAGED, more="data = Files()", epoch="data.set_epoch(epoch)"), "would not see it"),
        (script(PLAIN, dataset=FILES.replace("x = torch.load", "self.n = index\n        x = torch.load")), "keep what they have changed"),
        (script("DataLoader(load(), num_workers=4)", dataset="from secret import load\n"), "not known"),
        (script(PLAIN, epoch="sample = next(iter(loader))"), "takes one batch"),
        (script("DataLoader(Files(), num_workers=pick())", dataset="def pick():\n    print('!')\n    return 3\n" + FILES), "written twice"),
        (
            script("DataLoader(Files(), num_workers=4, sampler=s)", more="s = torch.utils.data.RandomSampler(Files(), True, int(1e10))"),
            "never comes to the end",
        ),
    ],
)  # fmt: skip
def test_what_is_left_alone(text: str, reason: str) -> None:
    found = apply(RULE, text)
    assert reason in found.refusals
    assert not found.fixes


def test_what_is_set_before_the_first_epoch_is_seen() -> None:
    assert "persistent_workers=True" in apply(RULE, script("DataLoader(data, num_workers=4)", more="data = Files()\ndata.stage = 1")).text


def test_a_sampler_s_epoch_is_no_matter() -> None:
    more = "data = Files()\nsampler = torch.utils.data.DistributedSampler(data, 1, 0)"
    text = script("DataLoader(data, num_workers=4, sampler=sampler)", more=more, epoch="sampler.set_epoch(epoch)")
    assert "persistent_workers=True" in apply(RULE, text).text


def test_a_dict_that_also_feeds_a_loader_used_once() -> None:
    more = "options = {'num_workers': 2}\ntest = DataLoader(Files(8), **options)"
    text = script("DataLoader(Files(), **options)", more=more).replace(
        "\n\nif __name__", "    for x, y in test:\n        model(x)\n\n\nif __name__"
    )
    assert "which is not to keep its workers" in apply(RULE, text).refusals


# ------------------------------------------------------------------------------------------------ the same data
def test_every_epoch_still_sees_every_item(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for i in range(16):
        torch.save(torch.full((4,), float(i)), f"{i}.pt")
    text = script("DataLoader(Files(), batch_size=4, shuffle=True, num_workers=2)", epoch="seen.append([])")
    text = text.replace("optimizer.step()", "seen[-1] += x[:, 0].tolist()").replace(
        "def main():\n", "seen = []\n\ndef main():\n    torch.manual_seed(0)\n"
    )
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2}, raising=False)
    seen = []
    for source in (text, apply(RULE, text).text):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        seen.append(scope["seen"])
    assert [sorted(epoch) for epoch in seen[1]] == [sorted(epoch) for epoch in seen[0]] == [[float(i) for i in range(16)]] * 3
    assert seen[0][0] == seen[1][0]
