"""Programs at random: whatever a run of one does, the graph, reaching definitions and liveness hold
possible.
"""

from __future__ import annotations

import ast
import random
from typing import Any

import pytest

from autofast.flow.cfg import graph_of
from autofast.flow.defuse import DefUse
from autofast.flow.frequency import Frequency, frequency
from autofast.flow.loops import loops_around
from autofast.flow.program import function_around
from autofast.flow.scopes import bound_by, owner
from autofast.model.source import Source, parent_of
from tests.flow_traces import Spot, Trace, instrumented, parse, run, spot
from tests.test_flow_reaching import Context, reaching


class Writer:
    """Writes a function of assignments, branches, loops, exceptions and closures; what a condition
    gives is drawn in the run.
    """

    NAMES = ("a", "b", "c")

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        self.lines: list[str] = []

    def program(self) -> str:
        self.lines = [
            "g = 0",
            "def bump():",
            "    global g",
            "    g = g + 1",
            "def f(a, b):",
            "    c = 0",
        ]
        if self.draw.random() < 0.3:
            self.lines += [
                "    def inner(a=b):",
                "        nonlocal c",
                "        if maybe():",
                "            c = a",
                "        return c",
            ]
        else:
            self.lines += ["    def inner():", "        return a"]
        self.block("    ", 3, self.draw.randrange(3, 7), False)
        self.lines.append("    use(a, b, c)")
        return "\n".join(self.lines) + "\n"

    def block(self, indent: str, depth: int, size: int, loop: bool) -> None:
        for _ in range(size):
            if depth and self.draw.random() < 0.5:
                self.compound(indent, depth - 1, loop)
            else:
                self.lines.append(indent + self.simple(loop))

    def body(self, indent: str, depth: int, loop: bool) -> None:
        self.block(indent + "    ", depth, self.draw.randrange(1, 4), loop)

    def compound(self, indent: str, depth: int, loop: bool) -> None:
        name = self.draw.choice(self.NAMES)
        kind = self.draw.choice(
            ["if", "if", "for", "while", "try", "finally", "with", "match", "class"]
        )
        if kind == "if":
            self.head(indent, f"if {self.test()}:", depth, loop)
            if self.draw.random() < 0.5:
                self.head(indent, "else:", depth, loop)
        elif kind in ("for", "while"):
            self.head(
                indent,
                f"for {name} in some():" if kind == "for" else f"while {self.test()}:",
                depth,
                True,
            )
            if self.draw.random() < 0.3:
                self.head(indent, "else:", depth, loop)
        elif kind in ("try", "finally"):
            self.head(indent, "try:", depth, loop)
            if kind == "try" or self.draw.random() < 0.4:
                self.head(
                    indent,
                    f"except ValueError{self.draw.choice(['', ' as ' + name])}:",
                    depth,
                    loop,
                )
                if self.draw.random() < 0.3:
                    self.head(
                        indent, self.draw.choice(["except:", "except KeyError:"]), depth, loop
                    )
                if self.draw.random() < 0.3:
                    self.head(indent, "else:", depth, loop)
            if kind == "finally":
                self.head(indent, "finally:", depth, loop)
        elif kind == "with":
            self.head(indent, f"with ctx(){self.draw.choice(['', ' as ' + name])}:", depth, loop)
        elif kind == "match":
            self.lines.append(f"{indent}match number():")
            for pattern in self.draw.sample(
                ["case 0:", "case 1 | 2:", f"case {name}:"], self.draw.randrange(1, 3)
            ):
                if pattern != f"case {name}:":
                    self.head(indent + "    ", pattern, depth, loop)
            self.head(
                indent + "    ",
                self.draw.choice(["case 3:", f"case {name}:", "case _:"]),
                depth,
                loop,
            )
        else:
            self.lines += [
                f"{indent}class K:",
                f"{indent}    {name} = number()",
                f"{indent}    use({name})",
            ]

    def head(self, indent: str, line: str, depth: int, loop: bool) -> None:
        self.lines.append(indent + line)
        self.body(indent, depth, loop)

    def test(self) -> str:
        name = self.draw.choice(self.NAMES)
        return self.draw.choice(
            [
                "maybe()",
                "maybe()",
                f"maybe() and {name}",
                f"({name} := number())",
                f"maybe() or ({name} := number())",
                "not maybe()",
            ]
        )

    def simple(self, loop: bool) -> str:
        x, y, z = (self.draw.choice(self.NAMES) for _ in range(3))
        choices = [
            f"{x} = number()", f"{x} = {y}", f"{x} = {y} + {z}", f"{x}, {y} = {z}, {x}", f"{x} += {y}", f"use({x}, {y})", f"fail({x})", "fail(maybe())",
            f"del {x}", f"use([{x} for {x} in some()], {y})", f"use([{x} := {y} for {z} in some()])" if x != z else "pass", "use(inner())", "bump()",
            f"use({x}, ({x} := number()), {x})", f"{x} = {y} if maybe() else ({z} := 1)", f"use(sum({y} for {x} in some()))", "use(g)",
            f"k = lambda {x}={y}: {x} + {z}", "assert maybe(), inner()", f"import math as {x}",
        ]  # fmt: skip
        if self.draw.random() < 0.25:
            choices = [
                "return",
                f"return {x}",
                "raise ValueError",
                *(["break", "continue"] * 2 if loop else []),
            ]
        return self.draw.choice(choices)


def runs(source: Source, seed: int, times: int) -> list[Trace]:
    draw = random.Random(seed)

    def fail(x: Any) -> None:
        if x:
            raise ValueError

    names = {
        "use": lambda *x: x,
        "fail": fail,
        "ctx": Context,
        "maybe": lambda: draw.random() < 0.5,
        "number": lambda: draw.randrange(5),
        "some": lambda: [0, 1, 2][: draw.randrange(4)],
    }
    code = instrumented(source)
    return [run(code, [0, 1], names) for _ in range(times)]


def program(seed: int) -> tuple[Source, ast.FunctionDef]:
    while True:
        code = Writer(seed).program()
        try:
            compile(code, "program.py", "exec")
        except SyntaxError:  # ``nonlocal`` after a use, or a name that a comprehension cannot bind
            seed += 100_000
            continue
        source = parse(code)
        return source, next(
            s for s in source.tree.body if isinstance(s, ast.FunctionDef) and s.name == "f"
        )


SEEDS = [range(n, n + 40) for n in range(0, 80, 40)]


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_reaching(seeds: range):
    seen = 0
    for seed in seeds:
        source, _ = program(seed)
        found = reaching(source)
        for trace in runs(source, seed, 20):
            for place, definitions in trace.seen.items():
                seen += len(definitions)
                assert definitions <= found[place], (
                    f"{source.text}\nseed {seed}: the read at {place} saw {definitions}, not {found[place]}"
                )
    assert seen > 1000


def begun(trace: Trace, statements: dict[Spot, ast.stmt]) -> list[ast.stmt]:
    """The statements of the function in the order in which they began."""
    return [
        statements[place]
        for what, place, _ in trace.events
        if what == "begin" and place in statements
    ]


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_order(seeds: range):
    checked = dict.fromkeys(("dominates", "postdominates"), 0)
    for seed in seeds:
        source, function = program(seed)
        graph = graph_of(function)
        statements = {
            spot(n): n for n in ast.walk(function) if isinstance(n, ast.stmt) and graph.starts(n)
        }
        pairs = [(a, b) for a in statements.values() for b in statements.values() if a is not b]
        before = [(a, b) for a, b in pairs if graph.dominates(a, b)]
        # the head of a ``while`` runs again and again: runs are recorded only when the whole
        # statement begins
        behind = [
            (a, b) for a, b in pairs if graph.postdominates(a, b) and not isinstance(a, ast.While)
        ]
        for trace in runs(source, seed, 20):
            order = begun(trace, statements)
            first = {id(s): n for n, s in reversed(list(enumerate(order)))}
            last = {id(s): n for n, s in enumerate(order)}
            for a, b in before:
                if id(b) in first:
                    checked["dominates"] += 1
                    assert first.get(id(a), len(order)) < first[id(b)], (
                        f"{source.text}\nline {b.lineno} began without line {a.lineno}"
                    )
            for a, b in behind if trace.ended == "return" else []:
                if id(b) in last:
                    checked["postdominates"] += 1
                    assert last.get(id(a), -1) > last[id(b)], (
                        f"{source.text}\nline {a.lineno} did not follow line {b.lineno}"
                    )
            for k, a in enumerate(order):
                for b in {id(s): s for s in order[k + 1 : k + 20]}.values():
                    assert graph.may_follow(b, a), (
                        f"{source.text}\nline {b.lineno} followed line {a.lineno}"
                    )
    assert all(n > 1000 for n in checked.values()), checked


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_liveness(seeds: range):
    """A value that is read after a simple statement, and has not been replaced by then, was live
    after the statement.
    """
    checked = 0
    for seed in seeds:
        source, function = program(seed)
        flow = DefUse(function)
        simple = {
            spot(n): flow.live_after(n)
            for n in ast.walk(function)
            if isinstance(n, ast.stmt)
            and not hasattr(n, "body")
            and not isinstance(n, ast.Match)
            and function_around(n) is function
            if not isinstance(parent_of(n), ast.ClassDef)
        }
        mine = {
            spot(n)
            for n in ast.walk(function)
            if (isinstance(n, ast.Name) or bound_by(n)) and owner(n) is function
        }
        for trace in runs(source, seed, 10):
            starts = [k for k, (what, _, _) in enumerate(trace.events) if what == "begin"]
            for begin, end in zip(starts, starts[1:], strict=False):
                place = trace.events[begin][1]
                if place not in simple:
                    continue
                # a handler, a case and the next round of a loop bind their names before the next
                # statement begins
                replaced = {
                    n
                    for what, where, n in trace.events[begin:end]
                    if what == "define" and where in mine and where[0] != place[0]
                }
                for what, where, name in trace.events[end : end + 60]:
                    if what == "define" and where in mine:
                        replaced.add(name)
                    elif what == "use" and where in mine and name not in replaced:
                        checked += 1
                        assert name in simple[place], (
                            f"{source.text}\n{name} is read at {where} after {place}"
                        )
    assert checked > 1000


@pytest.mark.parametrize("seeds", SEEDS, ids=str)
def test_frequency(seeds: range):
    """What runs in an iteration is not held to run in none."""
    checked = 0
    for seed in seeds:
        source, function = program(seed)
        graph = graph_of(function)
        places = {
            spot(n): n for n in ast.walk(function) if isinstance(n, ast.stmt) and graph.starts(n)
        }
        found = {
            (p, id(o)): frequency(graph, n, o) for p, n in places.items() for o in loops_around(n)
        }
        for trace in runs(source, seed, 10):
            for what, place, _ in trace.events:
                if what == "begin" and place in places:
                    for loop in loops_around(places[place]):
                        checked += 1
                        assert found[place, id(loop)] is not Frequency.NEVER
    assert checked > 100
