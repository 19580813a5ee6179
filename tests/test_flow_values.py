"""May a value come to a bad use? A toy question (what `secret()` gives must not come to
`leak(...)`) over small programs.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofast.flow.usage import Act, Usage, usage_of
from autofast.flow.valueflow import Answer, ValueFlow, Verdict, first_bad, first_reason
from autofast.model.script import Script
from autofast.model.values import Func, Ref, Thing, Values
from tests.reading import read


class Secrets(ValueFlow[None]):
    def judge(self, use: Usage, context: None) -> Answer:
        ends = (Act.COMPARED, Act.TESTED, Act.DROPPED, Act.TARGET)
        return Verdict.STOPS if use.act in ends else Verdict.GOES_ON

    def given(self, use: Usage, callee: Thing, context: None) -> Answer:
        if isinstance(callee, Func):
            leaks = callee.node.name == "leak"  # type: ignore[union-attr]
            return f"line {use.expr.lineno}" if leaks else Verdict.ENTERS
        return Verdict.STOPS if callee == Ref("builtins.len") else Verdict.GOES_ON

    def lost(self, use: Usage) -> str:
        return f"lost on line {use.expr.lineno}"

    def put(self, target: ast.Subscript, context: None) -> str:
        assert isinstance(target.value, ast.Name)
        return first_reason(self.follow(n, None) for n in self.filled(target.value, target))

    def kept(self, target: ast.Attribute, context: None) -> str:
        reads = (n for n in self.script.each(ast.Attribute) if n.attr == target.attr)
        return first_reason(self.follow(n, None) for n in reads if isinstance(n.ctx, ast.Load))


HEAD = """
import torch
def secret(): return torch.ones(3)
def leak(x): pass
class Box: pass
box, rows = Box(), {}
"""


def script_of(tmp_path: Path, text: str) -> tuple[Script, ast.Call]:
    script = read(tmp_path, HEAD + text)
    calls = [c for c in script.each(ast.Call) if ast.unparse(c.func) == "secret"]
    return script, calls[-1]


@pytest.mark.parametrize(
    "text",
    [
        "leak(secret())",
        "x = secret()\nleak(x)",
        "x, y = (secret(), 1)\nleak(x)",
        "leak([1, *[secret() + 1]][0])",
        "leak((y := secret()))",
        "y = 0\ny += secret()\nleak(y)",
        "for row in secret():\n    leak(row)",
        "leak([row for row in secret()])",
        "def give():\n    return secret()\nx = give()\nleak(x)",
        "def take(x, y=1):\n    leak(y)\ntake(1, y=secret())",
        "def take(*all):\n    leak(all)\ntake(1, secret())",
        "box.x = secret()\nleak(box.x)",
        "rows[0] = secret()\nleak(rows)",
        "x = secret()\ndef later():\n    leak(x)\nlater()",
        "leak(secret().view(-1).data)",
        "leak(sum(secret() if rows else [0]))",
    ],
)
def test_found(tmp_path: Path, text: str) -> None:
    script, source = script_of(tmp_path, text)
    assert Secrets(script).follow(source, None).startswith("line ")


@pytest.mark.parametrize(
    "text",
    [
        "secret()",
        "x = secret()\nx = 1\nleak(x)",
        "leak(len(secret()))",
        "leak(secret() is None)",
        "if secret():\n    leak(1)",
        "def take(x, y=1):\n    leak(y)\ntake(secret())",
        "leak(rows)\nrows[0] = secret()",
        "x = secret()\ndel x",
        "def again(x, n=3):\n    return again(x, n - 1) if n else 0\nagain(secret())",
    ],
)
def test_not_found(tmp_path: Path, text: str) -> None:
    script, source = script_of(tmp_path, text)
    assert Secrets(script).follow(source, None) == ""


def test_by_the_values_of_the_reader(tmp_path: Path) -> None:
    script, source = script_of(tmp_path, "x = secret()\ny = x\nprint(y[0])\nprint(y)")
    wanted = script.values(source)

    def holds(found: Values) -> bool:
        return bool(found & wanted)

    def judge(use: Usage) -> Answer:
        return "takes" if use.act is Act.TAKEN else Verdict.GOES_ON

    found = first_bad(script, holds, judge)
    assert found is not None and ast.unparse(found[0]) == "y" and found[1] == "takes"


@pytest.mark.parametrize(
    ("text", "act"),
    [
        ("x.real", Act.ASKED),
        ("x.sum()", Act.ASKED),
        ("x[0]", Act.TAKEN),
        ("x[0] = 1", Act.FILLED),
        ("del x[0]", Act.FILLED),
        ("rows[x]", Act.INDEXES),
        ("rows[x:]", Act.INDEXES),
        ("x()", Act.CALLED),
        ("print(x)", Act.GIVEN),
        ("print(end=x)", Act.GIVEN),
        ("print(*x)", Act.HELD),
        ("y = x", Act.BOUND),
        ("y: int = x", Act.BOUND),
        ("y: x = 1", Act.OTHER),
        ("y += x", Act.ADDED),
        ("for y in x: pass", Act.LOOPED),
        ("[y for y in x]", Act.LOOPED),
        ("[y for y in rows if x]", Act.TESTED),
        ("{y: x for y in rows}", Act.HELD),
        ("x if y else 1", Act.CHOSEN),
        ("1 if x else y", Act.TESTED),
        ("y or x", Act.CHOSEN),
        ("-x", Act.COMPUTED),
        ("x < 1", Act.COMPARED),
        ("assert x", Act.TESTED),
        ("f'{x}'", Act.SHOWN),
        ("x", Act.DROPPED),
        ("x = 1", Act.TARGET),
        ("x += 1", Act.TARGET),
        ("del x", Act.TARGET),
        ("with x: pass", Act.OTHER),
    ],
)
def test_what_is_done_with_a_value(tmp_path: Path, text: str, act: Act) -> None:
    script = read(tmp_path, f"rows, y = [1], 0\n{text}\n")
    name = next(n for n in script.each(ast.Name) if n.id == "x")
    assert usage_of(name).act is act
