"""Programs that would explode end within counted budgets, and what a budget cuts off says so."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autofast.commands.rewriting import read, rewrite
from autofast.config import Config
from autofast.edit.plan import Plan
from autofast.edit.running import run
from autofast.model.limits import READING, RULE, WORK, TooLarge, Work
from autofast.model.script import Script
from autofast.model.source import BadInput
from autofast.rule import Effect, Finding, Options
from tests.engine import rule, script, source

HEAD = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8)
model = torch.nn.Linear(4, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAINING = """
for epoch in range(3):
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""


def lines(text: str, n: int, indent: int = 0) -> str:
    """``text`` for each number below ``n``, which stands where it has ``<n>``, and the next where
    it has ``<m>``.
    """
    return "".join(
        " " * indent + text.replace("<n>", str(i)).replace("<m>", str(i + 1)) + "\n"
        for i in range(n)
    )


def attribute_of_itself(n: int) -> str:
    return (
        "class Set:\n    def __init__(self, x):\n        self.x = x\n    def cut(self):\n"
        + lines("self.x = self.x[<n>:] + self.x", n, 8)
        + "items = Set(torch.arange(64))\nitems.cut()\nitems.cut()\n"
    )


def calls_of_calls(n: int) -> str:
    begin = "def f0(x):\n    return x * 2\n"
    return begin + lines("def f<m>(x): return f<n>(f<n>(x) + f<n>(x + 1))", n) + f"a = f{n}(1)\n"


def branches_in_loops(n: int) -> str:
    arms = lines("if a % <m> == 0: b, a = a + b, [b, a][0]", n, 12)
    return f"a, b = 1, 2\nfor i in range(9):\n    for j in range(9):\n        for k in range(9):\n{arms}"


def mutual_recursion(n: int) -> str:
    return (
        lines("def g<n>(d, x): d[x] = d; return g<m>(d, [x, d]) or g<n>([d], x)", n)
        + f"def g{n}(d, x): return g0(d, x)\n"
        + "tree = g0({}, 1)\n"
    )


def pyramid(n: int) -> str:
    text = "z0"
    for i in range(n):
        text = f"[{text} for z{i} in [{text}, z{i}]]" if i < 5 else f"[{text} for z{i} in range(3)]"
    return f"z0 = z1 = z2 = z3 = z4 = 1\np = {text}\n"


def long_chain(n: int) -> str:
    chain = "if a == -1: c = a\n" + lines("elif a == <n>: a, c = c, [a, c]", n)
    return f"a, c = 1, 2\nfor i in range(9):\n{''.join(f'    {x}' for x in chain.splitlines(True))}"


def table(n: int) -> str:
    rows = lines("('name<n>', <n>, [<n>, <m>], {'k': <n>}),", n, 4)
    return f"TABLE = [\n{rows}]\ntotal = sum(row[1] for row in TABLE)\n"


def long_file(n: int) -> str:
    return lines("v<m> = (v<n> + <n>) * 2 if loader else v<n>", n).replace("v0 ", "1 ")


def layers_that_are_chosen(n: int) -> str:
    nets = lines(
        "nets['n<n>'] = type('N', (torch.nn.Module,), {}) if <n> else torch.nn.Linear(4, 4)", n
    )
    return (
        f"nets = {{}}\n{nets}x = torch.ones(4, 4)\nfor i in range(4):\n"
        + "    for net in list(nets.values()):\n        x = [net(x), x][i % 2]\n"
    )


def copies_of_what_holds_one_another(n: int) -> str:
    return (
        "import copy\nclass Part:\n    def __init__(self, *parts):\n        self.parts = parts\n"
        + "p0 = Part()\n"
        + "".join(f"p{i} = Part({', '.join(f'p{j}' for j in range(i))})\n" for i in range(1, n))
        + "def keep(parts):\n    return copy.deepcopy(parts)\n"
        + f"a = [{', '.join(f'p{i}' for i in range(n))}]\n"
        + "for i in range(9):\n    a = keep({'all': a, **{str(j): p for j, p in enumerate(a)}})['all']\n"
    )


# How much of each, and how much at most for twice as much: nothing may grow faster than with the
# square.
PROGRAMS: dict[str, tuple[Callable[[int], str], int]] = {
    "an attribute made of itself": (attribute_of_itself, 20),
    "calls of calls": (calls_of_calls, 10),
    "branches in loops": (branches_in_loops, 12),
    "mutual recursion over containers": (mutual_recursion, 4),
    "a pyramid of comprehensions": (pyramid, 5),
    "a long chain of conditions": (long_chain, 60),
    "a large table": (table, 400),
    "a long file": (long_file, 1_250),
    "copies of what holds one another": (copies_of_what_holds_one_another, 24),
    "networks by name": (layers_that_are_chosen, 15),
}


def work_for(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many units it takes to rewrite a program, other scripts and all."""
    counted = Work()
    for module in ("model.contents", "model.script", "flow.solve", "edit.running", "edit.worth"):
        monkeypatch.setattr(f"autofast.{module}.WORK", counted)
    for module in ("read.interpreter.expressions", "read.recover.build"):
        monkeypatch.setattr(f"autofast.{module}.WORK", counted)
    path.write_text(HEAD + text + TRAINING)
    found = rewrite(path, path.parent, Config())
    assert not found.warnings
    assert any(r.rule == "fused-optimizer" for r in found.records)  # the training is still seen
    return counted.done


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_would_explode_ends_within_its_budget(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, n = PROGRAMS[name]
    small = work_for(tmp_path / "small.py", make(n), monkeypatch)
    large = work_for(tmp_path / "large.py", make(2 * n), monkeypatch)
    assert large <= 5 * small
    assert large <= 2 * READING + RULE


def spending(file_text: str, units: int) -> tuple[Script, Callable[..., Iterator[Finding]]]:
    """A script, and a rule that works for so long."""
    read_in = script(source(file_text))

    def find(script: Script, options: Options) -> Iterator[Finding]:
        node = script.entry.tree.body[0]
        assert isinstance(node, ast.Expr)
        for _ in range(units):
            WORK.spend()
        yield Finding(node.value, "done", advice="done")

    return read_in, find


def test_a_rule_that_takes_too_much_is_left_out_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autofast.edit.running.RULE", 100)
    read_in, endless = spending("load(1)\n", 101)
    _, short = spending("load(1)\n", 99)
    plain = rule("plain", lambda file: iter(()))
    rules = [replace(plain, name="endless", find=endless), replace(plain, name="short", find=short)]
    plan = Plan.make(read_in, Options(), rules, Effect.EXACT)
    said = {f.rule: f.refusal or f.advice for f in plan.findings}
    assert said["short"] == "done"
    assert said["endless"].startswith("too large to follow: endless would take more than 100 steps")
    assert [x.rule for x in plan.left_out] == ["endless"]


def test_a_script_that_cannot_be_read_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(HEAD + TRAINING)
    monkeypatch.setattr("autofast.read.recover.build.SCRIPT", 50)
    with pytest.raises(BadInput, match=r"^train.py: too large to follow: .* more than 50 steps$"):
        read(path, tmp_path)


def test_a_budget_ends_with_what_it_is_for() -> None:
    work = Work()
    with pytest.raises(TooLarge), work.at_most(3):
        with work.at_most(100), work.apart():  # not the question that is asked
            for _ in range(50):
                work.spend()
        for _ in range(4):
            work.spend()
    for _ in range(100):
        work.spend()


class _Half:
    """An analysis that a rule fills bit by bit."""

    def __init__(self, script: Script) -> None:
        self.filled = False


def test_what_a_broken_question_left_behind_is_dropped(tmp_path: Path) -> None:
    """An analysis that was broken off half-way answers nobody else: the next rule asks anew."""

    def breaks_off(script: Script, options: Options) -> Iterator[Finding]:
        script.analysis(_Half).filled = True
        raise TooLarge
        yield

    (tmp_path / "train.py").write_text(HEAD + TRAINING)
    found = read(tmp_path / "train.py", tmp_path)
    broken = replace(rule("broken", lambda file: ()), find=breaks_off)
    _, (left,) = run([broken], found, Options())
    assert left.rule == "broken"
    assert not found.analysis(_Half).filled
