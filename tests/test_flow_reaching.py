"""Reaching definitions: a table of programs against marks, and every answer against runs of the
program.
"""

from __future__ import annotations

import ast
import itertools
import re
from pathlib import Path
from typing import Any

import pytest

from autofast.flow.defuse import DefUse, bound_to
from autofast.flow.program import function_around
from autofast.flow.scopes import bound_by, owner, parameters
from autofast.model.source import Source, parent_of
from autofast.model.syntax import FUNCTIONS
from tests.flow_traces import instrumented, parse, run, spot

TEXT = (Path(__file__).parent / "flow_programs.txt").read_text("utf-8")
PROGRAMS = dict(re.findall(r"^#: (\w+)\n(.*?)(?=^#: |\Z)", TEXT, re.M | re.S))


class Context:
    def __enter__(self) -> int:
        return 1

    def __exit__(self, *error: Any) -> None:
        return None


def fail(x: int) -> None:
    if x:
        raise ValueError


NAMES = {
    "use": lambda *x: x,
    "g": lambda x: 1 - x if isinstance(x, int) else 0,
    "fail": fail,
    "ctx": lambda *_: Context(),
    "seq": lambda n: [(n >> k) & 1 for k in range(n)],  # no items, items of both kinds
    "pairs": lambda n: [(k, k + 1) for k in range(n)],
    "pair": lambda n: (n - 1, n),
}


def reads(source: Source) -> list[ast.Name]:
    """The names that read a variable of the program."""
    names = [n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and owner(n) is not None]
    return [
        n
        for n in names
        if not isinstance(n.ctx, ast.Store) or isinstance(parent_of(n), ast.AugAssign)
    ]


def reaching(source: Source) -> dict[tuple[int, int], set[tuple[int, int]]]:
    found = {}
    made: dict[int, DefUse] = {}
    for name in reads(source):
        function = function_around(name)
        if id(function) not in made:
            made[id(function)] = DefUse(function)
        found[spot(name)] = {spot(d.node) for d in made[id(function)].reaching(name)}
    return found


def marked(code: str) -> dict[int, set[int]]:
    found = {}
    for number, line in enumerate(code.splitlines(), 1):
        if mark := re.search(r"# reaches:([\d, ]*)$", line):
            found[number] = {int(n) for n in mark[1].split(",") if n.strip()}
    return found


def test_the_table_is_large_enough():
    assert len(PROGRAMS) >= 60


@pytest.mark.parametrize("name", PROGRAMS)
def test_marks(name: str):
    """The reads on a marked line, of the variables that are bound on the lines of the mark, are
    reached from these lines.
    """
    source = parse(PROGRAMS[name])
    marks = marked(source.text)
    assert marks
    binders = {n: spot(node)[0] for node in ast.walk(source.tree) for n in bound_by(node)}
    assert binders
    found = reaching(source)
    for line, wanted in marks.items():
        names = {n.id for n in reads(source) if n.lineno == line}
        at = [n for n in reads(source) if n.lineno == line and _is_meant(n, source, wanted, names)]
        assert at, f"line {line} reads nothing"
        assert {d[0] for n in at for d in found[spot(n)]} == wanted, f"line {line}"


def _is_meant(name: ast.Name, source: Source, wanted: set[int], names: set[str]) -> bool:
    if len(names) == 1 or not wanted:
        return True
    binders = [
        n for n in ast.walk(source.tree) if name.id in bound_by(n) and owner(n) is owner(name)
    ]
    return wanted <= {spot(n)[0] for n in binders}


@pytest.mark.parametrize("name", PROGRAMS)
def test_runs(name: str):
    """The definition that gave a variable its value in a run is one that reaches the read."""
    source = parse(PROGRAMS[name])
    found, code = reaching(source), instrumented(source)
    main = next(
        (s for s in source.tree.body if isinstance(s, ast.FunctionDef) and s.name == "f"), None
    )
    seen = 0
    for inputs in itertools.product(range(5), repeat=len(parameters(main)) if main else 0):
        for place, definitions in run(code, list(inputs), NAMES).seen.items():
            seen += 1
            assert definitions <= found[place], (
                f"{name}{inputs}: the read at {place} saw {definitions}"
            )
    assert seen


def test_uses_are_the_other_side():
    for code in PROGRAMS.values():
        source = parse(code)
        for function in [
            source.tree,
            *(n for n in ast.walk(source.tree) if isinstance(n, FUNCTIONS)),
        ]:
            flow = DefUse(function)
            for name in (n for n in reads(source) if function_around(n) is function):
                for definition in flow.reaching(name):
                    assert name in flow.uses(definition), (
                        ast.unparse(source.tree),
                        spot(name),
                        definition,
                    )


CHANGED = """
    def f(n):
        rows = []
        use(rows)
        for i in range(n):
            use(rows)  # after
            rows.append(i)
            later = lambda: use(rows)  # after
        use(rows)  # after
        if n:
            rows += [n]  # after
            use(rows)
        rows = []
        use(rows)
    """


def test_what_reads_an_object_that_was_changed():
    source = parse(CHANGED)
    (change,) = (
        n
        for n in ast.walk(source.tree)
        if isinstance(n, ast.Call) and ast.unparse(n) == "rows.append(i)"
    )
    flow = DefUse(function_around(change))
    variable = flow.table.find("rows", flow.function)
    assert variable is not None
    lines = {n.lineno for n in flow.uses_after(variable, change)} - {change.lineno}
    assert lines == {
        n for n, line in enumerate(source.text.splitlines(), 1) if line.endswith("# after")
    }


@pytest.mark.parametrize(
    ("assignment", "name", "given"),
    [
        ("a, b = 1, 2", "b", "2"),
        ("a, (b, c) = 1, (2, 3)", "c", "3"),
        ("a, *b, c = 1, 2, 3, 4", "a", "1"),
        ("a, *b, c = 1, 2, 3, 4", "b", None),
        ("a, *b, c = 1, 2, 3, 4", "c", None),  # 4: what stands behind `*b` is counted from the end
        ("a = [b, c] = 1, 2", "c", "2"),
    ],
)
def test_what_a_part_of_a_target_is_given(assignment: str, name: str, given: str | None) -> None:
    source = Source(Path("x.py"), "x.py", assignment.encode())
    target = next(n for n in source.each(ast.Name) if n.id == name)
    value, whole = bound_to(target)
    assert value is not None and (ast.unparse(value) if whole else None) == given


@pytest.mark.parametrize(
    ("code", "unbound"),
    [
        ("for i in g(a):\n    if i:\n        x = 1\n    if i:\n        use(x)", False),
        ("for i in g(a):\n    if i:\n        x = 1\n    if a:\n        if i:\n            use(x)", False),
        ("for i in g(a):\n    if i:\n        pass\n    else:\n        x = 1\n    if i:\n        use(x)", True),
        ("for i in g(a):\n    if not i:\n        x = 1\n    if i:\n        use(x)", True),
        ("for i in g(a):\n    if i:\n        x = 1\n    i = a\n    if i:\n        use(x)", True),
        ("for i in g(a):\n    if i:\n        x = 1\n    while a:\n        if i:\n            use(x)\n        i = a", True),
        ("for i in g(a):\n    if i:\n        use(x)\n    if i:\n        x = 1", True),
        ("if a:\n    if i:\n        x = 1\nif i:\n    use(x)", True),
        ("for i in g(a):\n    if i:\n        if a:\n            x = 1\n    if i:\n        use(x)", True),
    ],
)  # fmt: skip
def test_a_condition_that_asks_the_same_again(code: str, unbound: bool) -> None:
    source = parse("def f(a, i):\n" + "".join(f"    {line}\n" for line in code.splitlines()))
    (read,) = [n for n in reads(source) if n.id == "x"]
    flow = DefUse(function_around(read))
    variable = flow.table.of(read)
    assert variable is not None and flow.may_come_unbound(variable, read) is unbound
