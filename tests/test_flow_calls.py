"""The call graph of small projects: callees, sites, arguments, results."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofast.flow.callgraph import CallGraph, Function
from autofast.model.script import Script
from tests.reading import read


def function(script: Script, name: str) -> Function:
    found = [
        n
        for s in script.sources
        for n in ast.walk(s.tree)
        if isinstance(n, ast.FunctionDef) and n.name == name
    ]
    assert len(found) == 1
    return found[0]


def call(script: Script, text: str) -> ast.Call:
    return next(
        n
        for s in script.sources
        for n in ast.walk(s.tree)
        if isinstance(n, ast.Call) and ast.unparse(n) == text
    )


def arguments(script: Script, text: str, *parameters: str) -> list[str | None]:
    graph = script.analysis(CallGraph)
    callee = graph.callees(call(script, text))[0]
    found = [graph.argument(call(script, text), callee, p) for p in parameters]
    return [ast.unparse(e) if e is not None else None for e in found]


PROJECT = {
    "lib.py": """
        import torch.nn as nn

        def train(model, data, lr=0.1, *rest, verbose=False, **more):
            return helper(model) + lr

        def helper(model):
            if model:
                return 1
            for k in range(3):
                return k
            def inner():
                return 5
            return

        class Net(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.width = width

            def forward(self, x):
                return self.scale(x, factor=2)

            def scale(self, x, factor):
                return x * factor

            @staticmethod
            def make(width):
                return Net(width)

            @classmethod
            def build(cls, width):
                return cls(width)

        class Meter:
            def __call__(self, value):
                return value

        def visit(n):
            return visit(n - 1) if n else again(n)

        def again(n):
            return visit(n)
        """,
    "train.py": """
        import functools
        import lib
        from lib import Net, helper as h, train

        net = Net(4)
        net(1)
        other = Net.make(5)
        third = Net.build(width=6)
        train(net, [1], verbose=True, colour=3)
        train(*[net, 2], **{"lr": 1})
        lib.train(data=1, model=net)
        part = functools.partial(train, net, lr=7)
        part([3])
        meter = lib.Meter()
        meter(8)
        lib.visit(int(input()))
        f = lambda a, b=2: a
        f(9)
        unknown = open("x").read()

        def used(): pass
        def handed(): pass
        def never(): pass
        @functools.lru_cache
        def decorated(): pass

        used()
        handed()
        decorated()
        list(map(handed, []))
        """,
}


def project(tmp_path: Path) -> Script:
    return read(tmp_path, files=PROJECT)


def names(functions: list[Function]) -> list[str]:
    return [getattr(f, "name", "<lambda>") for f in functions]


def test_callees(tmp_path: Path):
    script = project(tmp_path)
    graph = script.analysis(CallGraph)
    wanted = {
        "Net(4)": ["__init__"],
        "net(1)": ["forward"],
        "Net.make(5)": ["make"],
        "part([3])": ["train"],
        "meter(8)": ["__call__"],
        "f(9)": ["<lambda>"],
        "helper(model)": ["helper"],
        "range(3)": [],
    }
    assert {
        text: names([c.function for c in graph.callees(call(script, text))]) for text in wanted
    } == wanted
    assert graph.may_run_others(call(script, "range(3)")) and not graph.may_run_others(
        call(script, "f(9)")
    )


def test_arguments(tmp_path: Path):
    script = project(tmp_path)
    wanted = ("model", "data", "lr", "verbose", "rest", "more")
    assert arguments(script, "train(net, [1], verbose=True, colour=3)", *wanted, "colour") == [
        "net",
        "[1]",
        None,
        "True",
        None,
        None,
        None,
    ]
    assert arguments(script, "train(*[net, 2], **{'lr': 1})", *wanted) == [None] * 6
    assert arguments(script, "lib.train(data=1, model=net)", *wanted) == [
        "net",
        "1",
        None,
        None,
        None,
        None,
    ]
    assert arguments(script, "part([3])", *wanted) == ["net", "[3]", "7", None, None, None]
    assert arguments(script, "Net(4)", "self", "width") == [None, "4"]
    assert arguments(script, "net(1)", "self", "x") == [None, "1"]
    assert arguments(script, "self.scale(x, factor=2)", "self", "x", "factor") == [None, "x", "2"]
    assert arguments(script, "Net.make(5)", "width") == ["5"]
    assert arguments(script, "Net.build(width=6)", "cls", "width") == [None, "6"]
    assert arguments(script, "meter(8)", "self", "value") == [None, "8"]
    assert arguments(script, "f(9)", "a", "b") == ["9", None]


def test_defaults(tmp_path: Path):
    script = project(tmp_path)
    graph = script.analysis(CallGraph)

    def left(text: str, name: str) -> bool:
        return graph.leaves_default(call(script, text), graph.callees(call(script, text))[0], name)

    assert left("f(9)", "b") and not left("f(9)", "a")
    assert left("lib.train(data=1, model=net)", "lr") and not left("part([3])", "lr")
    assert not left("train(*[net, 2], **{'lr': 1})", "lr")


def test_sites(tmp_path: Path):
    script = project(tmp_path)
    graph = script.analysis(CallGraph)
    assert [ast.unparse(c) for c in graph.sites(function(script, "helper"))] == ["helper(model)"]
    assert {ast.unparse(c) for c in graph.sites(function(script, "train"))} == {
        "train(net, [1], verbose=True, colour=3)",
        "train(*[net, 2], **{'lr': 1})",
        "lib.train(data=1, model=net)",
        "part([3])",
    }


def test_completeness(tmp_path: Path):
    script = project(tmp_path)
    graph = script.analysis(CallGraph)
    why = {
        n: graph.complete(function(script, n))
        for n in (
            "used",
            "helper",
            "handed",
            "never",
            "decorated",
            "forward",
            "__call__",
            "train",
            "visit",
        )
    }
    assert why["used"] == why["helper"] == why["visit"] == ""
    assert why["handed"].startswith("handed() is handed around as a value on line ")
    assert why["train"].startswith("train() is handed around as a value on line ")
    assert why["never"] == "nothing in this project calls never()"
    assert why["decorated"] == "decorated() has a decorator that may call it"
    assert (
        why["forward"] == "forward() is called by torch"
        and why["__call__"] == "__call__() is called by Python"
    )
    assert (
        graph.complete(next(n for n in ast.walk(script.entry.tree) if isinstance(n, ast.Lambda)))
        == ""
    )


def test_calls_of_what_is_not_known(tmp_path: Path):
    code = """
        class Box:
            def run(self): pass
            def walk(self): pass

        box = Box()
        box.run()
        box.walk()

        def apply(something):
            something.run()
        """
    script = read(tmp_path, code)
    graph = script.analysis(CallGraph)
    assert graph.complete(function(script, "walk")) == ""
    assert graph.complete(function(script, "run")) == "line 10 of train.py may call run()"


@pytest.mark.parametrize(
    ("call", "may"),
    [
        ("something.run(1, 2)", True),
        ("something.run(1, b=2)", True),
        ("something.run(box, 1, 2)", True),  # of the class
        ("something.run(*both)", True),
        ("something.run(**both)", True),
        ("something.run('utf-8')", False),
        ("something.run()", False),
        ("something.run(1, 2, 3, 4, 5)", False),
        ("something.run(1, 2, d=3)", False),
    ],
)
def test_calls_that_give_too_much_or_too_little(tmp_path: Path, call: str, may: bool) -> None:
    code = f"""
        class Box:
            def run(self, a, b, c=0): pass

        box = Box()
        box.run(1, 2)

        def apply(something, both):
            {call}
        """
    script = read(tmp_path, code)
    found = script.analysis(CallGraph).complete(function(script, "run"))
    assert found == ("line 8 of train.py may call run()" if may else "")


def test_results(tmp_path: Path):
    script = project(tmp_path)
    graph = script.analysis(CallGraph)
    assert [ast.unparse(e) for e in graph.results(function(script, "helper"))] == ["1", "k"]
    assert [
        ast.unparse(e)
        for e in graph.results(
            next(n for n in ast.walk(script.entry.tree) if isinstance(n, ast.Lambda))
        )
    ] == ["a"]


def test_through_several_calls(tmp_path: Path):
    script = project(tmp_path)
    graph = script.analysis(CallGraph)
    assert set(names(graph.runs(function(script, "visit")))) == {"visit", "again"}
    assert names(graph.runs(function(script, "helper"))) == ["helper"]


def test_what_a_library_calls_back(tmp_path: Path):
    code = """
        import torch
        import torch.nn as nn

        class Net(nn.Module):
            def forward(self, x):
                return x

        net = nn.DataParallel(Net())
        out = net(torch.zeros(3))
        """
    script = read(tmp_path, code)
    graph = script.analysis(CallGraph)
    place = call(script, "net(torch.zeros(3))")
    assert graph.callees(place) == [] and names(graph.entered(place)) == ["forward"]


def given(script: Script, text: str) -> list[list[str]]:
    graph = script.analysis(CallGraph)
    node = call(script, text)
    return [
        graph.given_to(node, graph.callees(node)[0], a)
        for a in (*node.args, *(k.value for k in node.keywords))
    ]


def test_the_parameters_that_an_argument_is_given_to(tmp_path):
    script = project(tmp_path)
    assert given(script, "Net(4)") == [["width"]]
    assert given(script, "train(net, [1], verbose=True, colour=3)") == [
        ["model"],
        ["data"],
        ["verbose"],
        ["more"],
    ]
    assert given(script, "train(*[net, 2], **{'lr': 1})") == [
        ["model", "data", "lr", "rest"],
        ["model", "data", "lr", "verbose", "more"],
    ]
    assert given(script, "part([3])") == [["data"]]
    assert given(script, "meter(8)") == [["value"]]


def test_functions_that_nothing_runs(tmp_path):
    script = project(tmp_path)
    graph = script.analysis(CallGraph)
    names = ("used", "handed", "never", "decorated", "helper", "forward")
    assert [n for n in names if graph.is_unused(function(script, n))] == ["never"]
    assert graph.entries(function(script, "used")) == graph.sites(function(script, "used")) != []


def test_what_a_loop_runs(tmp_path: Path):
    script = read(
        tmp_path,
        """
        def often(): return deep()
        def deep(): return 1
        def seldom(): return 2
        def otherwise(): return 3
        def outside(): return 4
        outside()
        for i in range(9):
            often()
            if i % 100 == 0:
                seldom()
            if i % 100:
                pass
            else:
                otherwise()
        """,
    )
    loop = next(n for n in ast.walk(script.entry.tree) if isinstance(n, ast.For))

    def names(often: bool) -> set[str]:
        return {getattr(f, "name", "") for f in script.analysis(CallGraph).run_in(loop, often)}

    assert names(False) == {"often", "deep", "seldom", "otherwise"}
    assert names(True) == {"often", "deep", "otherwise"}
