"""What model/ offers under one name: the look of calls, ``elif``, what is inside of values."""

from __future__ import annotations

import ast
from pathlib import Path

from autofast.model.calls import (
    call_of,
    has_unpacking,
    is_method,
    is_path,
    keyword_of,
    pairs_of,
    short_name,
)
from autofast.model.contents import attributes, members, with_contents, wrapped
from autofast.model.source import is_elif
from autofast.model.values import Const, Dict, Ext, Inst, Seq, things
from tests.reading import read

TEXT = """
if a:
    pass
elif b:
    pass
else:
    if c:
        pass
x, y = f(1, *args), self.net.run(k=2)
"""


def test_calls_by_their_look(tmp_path: Path) -> None:
    script = read(tmp_path, TEXT)
    nodes = script.entry.nodes
    calls = {ast.unparse(n.func): n for n in nodes if isinstance(n, ast.Call)}
    f, run = calls["f"], calls["self.net.run"]
    assert is_method(run) and is_method(run, "run", "go") and not is_method(run, "go")
    assert not is_method(f) and not is_method(None)
    assert call_of(run.func) is run and call_of(run) is None
    assert ast.unparse(keyword_of(run, "k") or f) == "2" and keyword_of(run, "n") is None
    assert has_unpacking(f) and not has_unpacking(run)
    names = [short_name(e) for e in (f.func, run.func, run, None)]
    assert names == ["f", "run", "", ""]
    assert is_path(run.func) and not is_path(run)
    assign = next(n for n in nodes if isinstance(n, ast.Assign))
    pairs = pairs_of(assign.targets[0], assign.value)
    assert [(ast.unparse(a), b) for a, b in pairs] == [("x", f), ("y", run)]
    assert len(pairs_of(assign.targets[0], f)) == 1


def test_an_if_below_else_is_no_elif(tmp_path: Path) -> None:
    nodes = read(tmp_path, TEXT).entry.nodes
    found = {ast.unparse(n.test): is_elif(n) for n in nodes if isinstance(n, ast.If)}
    assert found == {"a": False, "b": True, "c": False}


def test_what_is_inside_of_values(tmp_path: Path) -> None:
    script = read(
        tmp_path,
        """
        class Bag:
            def __init__(self):
                self.rows = [1, (2, 3)]

        bag = Bag()
        bag.own = bag
        for n, x in enumerate([{"a": bag}]):
            pass
        """,
    )
    names = {n.id: n for n in script.entry.nodes if isinstance(n, ast.Name)}
    bag = script.values(names["bag"])
    assert set(with_contents(bag)) == set(bag)
    inner = list(with_contents(bag, attributes))
    assert {t.value for t in inner if isinstance(t, Const)} >= {1}
    assert len(inner) == len({id(t) for t in inner})
    loop = next(n for n in script.entry.nodes if isinstance(n, ast.For))
    over = list(with_contents(script.values(loop.iter), wrapped))
    assert any(isinstance(t, Ext) for t in over) and any(isinstance(t, Seq) for t in over)
    every = list(with_contents(script.values(loop.iter), members))
    assert not any(isinstance(t, (Dict, Inst)) for t in over)
    assert any(isinstance(t, Inst) for t in with_contents(things(*every), members))
