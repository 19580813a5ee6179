"""What a call does outside its process is known by the function that is called, not by the words of
a refusal.
"""

from __future__ import annotations

import ast
from pathlib import Path

from autofast.facts.host_io import host_effects
from autofast.model.values import Reason, Unknown
from tests.reading import read

CODE = """
    import json
    import pandas
    import wandb

    table = json.loads("{}")
    table.update(a=1)
    run = wandb.restore("x")
    run.watch(table)
    frame = pandas.DataFrame(table).groupby("a")
    frame.to_csv("a.csv")
    missing.start()
"""


def test_methods_of_what_a_library_returned_are_the_library_s(tmp_path: Path):
    found = {ast.unparse(e.node.func): (e.kind, e.name) for e in host_effects(read(tmp_path, CODE))}
    assert found["run.watch"] == ("guard", "wandb.restore.watch")
    assert found["frame.to_csv"] == ("guard", "pandas.DataFrame.to_csv")
    assert found["missing.start"] == ("unknown", "?")
    assert "table.update" not in found


def test_what_is_not_resolved_says_why_and_what(tmp_path: Path):
    script = read(tmp_path, CODE)
    calls = {ast.unparse(n): n for n in ast.walk(script.entry.tree) if isinstance(n, ast.Call)}
    assert script.values(calls["json.loads('{}')"]) == {
        Unknown("what json.loads() returns", Reason.RESULT, "json.loads")
    }
    start = calls["missing.start()"].func
    assert isinstance(start, ast.Attribute)
    (missing,) = script.values(start.value)
    assert isinstance(missing, Unknown)
    assert (missing.reason, missing.name) == (Reason.UNDEFINED, "missing")
