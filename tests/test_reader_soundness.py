"""The reader is never wrong: what a real run of a program shows is among what the reader holds
possible.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import pytest

from tests.reading import unsound

TEXT = (Path(__file__).parent / "reader_programs.txt").read_text("utf-8")
PROGRAMS = dict(re.findall(r"^#: (\w+)\n(.*?)(?=^#: |\Z)", TEXT, re.M | re.S))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, tmp_path: Path):
    code = PROGRAMS[name]
    if "except*" in code and sys.version_info < (3, 11):
        pytest.skip("except* is newer than this Python")
    assert unsound(tmp_path, "import probe\n" + code) == []


# ------------------------------------------------------------------------------- programs at random
class Writer:
    """Writes programs of assignments, branches, loops, functions, dicts, lists and objects, and
    shows what they hold.
    """

    NAMES = ("a", "b", "c")
    KEYS = ("'x'", "'y'")

    def __init__(self, seed: int):
        self.draw = random.Random(seed)
        self.lines: list[str] = []
        self.functions = ["tick", "fill", "push", "make"]

    def program(self) -> str:
        self.lines = [
            "import probe", "import copy", "import functools", "COUNT = 0",
            "class Box:", "    kind = 0", "    def __init__(self, x=0):", "        self.x = x", "        self.seen = None",
            "    def bump(self):", "        self.x += 1", "        if self.x == 3:", "            self.seen = 'three'",
            "    def see(self, v):", "        if probe.maybe():", "            return self", "        self.seen = v", "        return self",
            "def tick():", "    global COUNT", "    COUNT += 1", "    if COUNT == 2:", "        probe.show(COUNT)",
            "def fill(d, v=1):", "    if probe.maybe():", "        return d", "    d['x'] = v", "    return d",
            "def push(l, v=1):", "    l.append(v)", "    return l",
            "def make(n=0):", "    d = {'x': n}", "    if n:", "        d['y'] = n", "    return d",
            "n = 0", "m = None", "d = {'x': 1}", "e = {}", "l = [1]", "k = []", "o = Box()", "p = Box(5)",
        ]  # fmt: skip
        self.block("", 3, self.draw.randrange(6, 12), loop=False)
        for name in ("n", "m", "o.x", "p.x", "o.seen", "p.seen", "o.kind", "COUNT"):
            self.lines.append(f"probe.show({name})")
        self.lines += [
            "probe.spread(**d)",
            "probe.spread(**e)",
            "probe.spread(*l)",
            "probe.spread(*k)",
        ]
        return "\n".join(self.lines) + "\n"

    def block(self, indent: str, depth: int, size: int, loop: bool) -> None:
        for _ in range(size):
            self.statement(indent, depth, loop)

    def statement(self, indent: str, depth: int, loop: bool) -> None:
        if depth and self.draw.random() < 0.3:
            self.compound(indent, depth, loop)
        elif loop and self.draw.random() < 0.1:
            self.lines.append(
                f"{indent}if probe.maybe(): {self.draw.choice(['break', 'continue'])}"
            )
        else:
            self.lines.append(indent + self.simple())

    def compound(self, indent: str, depth: int, loop: bool) -> None:
        kind = self.draw.randrange(7)
        inner = indent + "    "
        if kind == 0:
            self.lines.append(f"{indent}if {self.test()}:")
            self.block(inner, depth - 1, 2, loop)
            self.lines.append(f"{indent}else:")
        elif kind == 1:
            self.lines.append(f"{indent}if {self.test()}:")
        elif kind == 2:
            self.lines.append(f"{indent}for i{depth} in range(3):")
        elif kind == 3:
            self.lines.append(
                f"{indent}for m in {self.draw.choice(['[0, 2]', '(1, None)', 'list(l)', 'list(d)', 'list(e)'])}:"
            )
        elif kind == 4:
            self.lines += [
                f"{indent}w{depth} = 0",
                f"{indent}while w{depth} < 3:",
                f"{inner}w{depth} += 1",
            ]
        elif kind == 5:
            self.lines.append(f"{indent}try:")
            self.block(inner, depth - 1, 2, loop)
            self.lines += [
                f"{inner}if probe.maybe(): raise ValueError",
                f"{indent}except ValueError:",
            ]
        else:
            self.lines.append(
                f"{indent}with copy_of(o) as p:"
                if False
                else f"{indent}if probe.maybe() and n is not None:"
            )
        self.block(inner, depth - 1, self.draw.randrange(1, 4), loop or kind in (2, 3, 4))

    def test(self) -> str:
        return self.draw.choice(
            [
                "probe.maybe()",
                "n == 1",
                "m is None",
                "m",
                "o.x == 2",
                "'y' in d",
                "COUNT > 1",
                "not n",
                "o.seen is None",
                "len(l) > 2",
                "o is p",
            ]
        )

    def value(self) -> str:
        return self.draw.choice(
            ["0", "1", "2", "None", "True", "'s'", "n", "m", "o.x", "COUNT", "probe.number()", "n + 1 if isinstance(n, int) else 0",
             "d.get('x')", "d.get('y', 7)", "e.get('x', m)", "getattr(o, 'seen', 4)", "(n or 3)", "(m and 2)", "(1 if probe.maybe() else m)",
             "make(2)['x']", "functools.partial(make, n=1)()['x']", "(lambda v=n: v)()", "max(1, 2)"]
        )  # fmt: skip

    def simple(self) -> str:
        v = self.value()
        dic, other = self.draw.sample(["d", "e"], 2)
        lst, second = self.draw.sample(["l", "k"], 2)
        obj, another = self.draw.sample(["o", "p"], 2)
        key = self.draw.choice(self.KEYS)
        return self.draw.choice(
            [f"n = {v}", f"m = {v}", f"n = {v}", "n, m = m, n", "tick()", f"{dic}[{key}] = {v}", f"{dic}.update(x={v})", f"{dic}.update({other})",
             f"{dic} = {other}", f"{dic} = dict({other})", f"{dic} = {{**{other}, {key}: {v}}}", f"{dic} = make(probe.number())", f"{dic} = fill({dic}, {v})",
             f"fill({other})", f"{dic}.pop({key}, None)", f"{dic}.setdefault({key}, {v})", f"{dic} |= {{{key}: {v}}}", f"{dic} = {dic}.copy()",
             f"{lst}.append({v})", f"push({lst}, {v})", f"{lst} = [{v}, n]", f"{lst} += [{v}]", f"{lst} = {second}", f"{lst} = list({second})",
             f"{lst}.extend({second}[:2])", f"{lst}.insert(0, {v})", f"{lst} = {lst}[:1]", f"{lst}.clear()",
             f"{obj}.x = {v}", f"{obj}.seen = {v}", f"{obj}.bump()", f"{obj} = Box({v})", f"{obj} = {another}", f"{obj} = copy.copy({another})",
             f"{obj} = {obj}.see({v})", f"setattr({obj}, 'seen', {v})", f"{obj} = {obj} if probe.maybe() else {another}", f"Box.kind = {v}",
             "probe.show(n)", "probe.show(m)", "probe.show(o.x)", "probe.show(p.seen)", f"probe.spread(**{dic})", f"probe.spread(*{lst})",
             f"probe.show({v})"]
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_programs_at_random(seed: int, tmp_path: Path):
    code = Writer(seed).program()
    assert unsound(tmp_path, code) == [], code
