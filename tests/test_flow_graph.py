"""The control-flow graph: dominance, ways out of an iteration, how often a place runs; whose
variable a name is.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofast.flow import frequency as frequencies
from autofast.flow.cfg import Graph, graph_of
from autofast.flow.defuse import DefUse
from autofast.flow.frequency import Frequency, frequency, rare_arms_around
from autofast.flow.loops import loops_around
from autofast.flow.positions import is_always
from autofast.flow.program import Flow, function_around
from autofast.flow.scopes import (
    binds,
    declared,
    defaults,
    is_local,
    is_parameter,
    loaded_in,
    mentions,
    own_nodes,
    owner,
    stored_in,
)
from autofast.flow.seldom import Seldom
from autofast.model.source import Source
from tests.flow_traces import parse
from tests.reading import read


def at(source: Source, line: int) -> ast.stmt:
    return next(n for n in ast.walk(source.tree) if isinstance(n, ast.stmt) and n.lineno == line)


def graph_at(source: Source) -> Graph:
    return graph_of(next(n for n in source.tree.body if isinstance(n, ast.FunctionDef)))


ORDER = """
def f(c, xs):
    a = 1
    if c:
        b = 2
        if a:
            return b
    else:
        b = 3
    for x in xs:
        d = x
        try:
            d = g(x)
            e = 1
        except ValueError:
            e = 2
        h = e
    k = lambda: a
    return k
"""


def test_dominance():
    source = parse(ORDER)
    graph = graph_at(source)

    def before(line: int) -> set[int]:
        return {
            n
            for n in range(2, 19)
            if n not in (line, 7, 14) and graph.dominates(at(source, n), at(source, line))
        }

    assert before(8) == {2, 3}
    assert before(9) == {2, 3}
    assert before(12) == {2, 3, 9, 10, 11}
    assert before(15) == {2, 3, 9, 10, 11}
    assert before(16) == {2, 3, 9, 10, 11}
    assert before(17) == {2, 3, 9}
    assert graph.dominates(at(source, 9), at(source, 10).targets[0])  # type: ignore[attr-defined]


def test_one_of_several_dominates():
    """Each arm does it: no single statement dominates what follows."""
    source = parse(ORDER)
    graph = graph_at(source)

    def one(lines: tuple[int, ...], line: int | None) -> bool:
        return graph.one_dominates(
            [at(source, n) for n in lines], at(source, line) if line else None
        )

    assert one((4, 8), 9) and not one((4,), 9) and not one((8,), 9)
    assert (
        one((2,), None) and one((6, 9), None) and not one((9,), None)
    )  # one way returns on line 6
    assert one((13, 15), 16) and not one(
        (12, 13), 16
    )  # line 12 may raise, and then line 13 is not run
    assert not one((9,), 9) and not one((), 9)


def test_order_in_one_iteration():
    source = parse("""
def f(xs):
    for x in xs:
        a = x
        if a:
            continue
        b = a
""")
    graph = graph_at(source)
    loop = at(source, 2)
    assert isinstance(loop, ast.For)
    first, last = at(source, 3), at(source, 6)
    assert graph.may_follow(last, first, loop) and graph.may_follow(first, last)
    assert not graph.may_follow(first, last, loop)


def test_what_leaves_before_a_place():
    source = parse("""
def f(xs, c):
    for x in xs:
        if c:
            continue
        else:
            a = x
        for y in x:
            if y:
                break
        b = a
        if b:
            return b
        c = b
        continue
""")
    graph = graph_at(source)
    loop = at(source, 2)
    assert isinstance(loop, ast.For)

    def leaving(line: int, of: ast.For | None = loop) -> list[int]:
        return [s.lineno for s in graph.leaving_before(at(source, line), of)]

    assert leaving(6) == [] and leaving(10) == [4] and leaving(13) == [4, 12]
    assert leaving(13, None) == [12]


def test_postdominance():
    source = parse(ORDER)
    graph = graph_at(source)

    def behind(line: int) -> set[int]:
        return {
            n
            for n in range(2, 19)
            if n not in (line, 7, 14) and graph.postdominates(at(source, n), at(source, line))
        }

    assert behind(2) == {3}
    assert behind(8) == {9, 17, 18}
    assert behind(12) == {16, 17, 18}
    assert behind(16) == {17, 18}


def test_following():
    source = parse(ORDER)
    graph = graph_at(source)
    assert graph.may_follow(at(source, 10), at(source, 16))
    assert not graph.may_follow(at(source, 8), at(source, 4))
    assert not graph.may_follow(at(source, 2), at(source, 2))
    assert graph.may_follow(at(source, 16), at(source, 16))
    loop = at(source, 9)
    assert isinstance(loop, ast.For)
    assert graph.may_follow(at(source, 13), at(source, 16)) and not graph.may_follow(
        at(source, 13), at(source, 16), loop
    )
    assert graph.may_follow(at(source, 16), at(source, 13), loop)


def test_code_of_another_function_is_never_run():
    source = parse(ORDER)
    graph = graph_at(source)
    name = next(n.body for n in ast.walk(source.tree) if isinstance(n, ast.Lambda))
    assert graph.place(name) is None
    assert not graph.dominates(at(source, 2), name)
    assert function_around(name) is not graph.function


EXITS = """
def f(xs):
    for x in xs:
        if x:
            continue
        for y in xs:
            if y:
                break
        else:
            break
        def inner():
            for z in xs:
                continue
            return z
        try:
            raise KeyError
        except BaseException:
            pass
        try:
            if x:
                raise ValueError
        except KeyError:
            return
        while y:
            return x
    else:
        raise IndexError
"""


def test_exits():
    source = parse(EXITS)
    loop = at(source, 2)
    assert isinstance(loop, ast.For)
    assert [s.lineno for s in graph_at(source).exits(loop)] == [4, 9, 20, 22, 24]


FREQUENCY = [
    ("pass", "here()", Frequency.EVERY),
    ("if i % 100 == 0:\n    here()", "", Frequency.RARE),
    ("if i % 100 != 0:\n    here()", "", Frequency.SOME),
    ("if i % 100:\n    continue", "here()", Frequency.RARE),
    ("if i % 100 == 0:\n    continue", "here()", Frequency.SOME),
    ("if not i % 100:\n    here()", "", Frequency.RARE),
    ("if c:\n    here()", "", Frequency.SOME),
    ("if c:\n    pass\nelse:\n    here()", "", Frequency.SOME),
    ("if c and i % 100 == 0:\n    here()", "", Frequency.RARE),
    ("if i == n - 1:\n    here()", "", Frequency.RARE),
    ("if c == 1:\n    here()", "", Frequency.SOME),
    ("k = k + 1\nif k >= n:\n    here()\n    k = 0", "", Frequency.RARE),
    ("k = k + 1\nif k >= n:\n    here()", "", Frequency.SOME),
    ("if c.kept is None:\n    c.kept = here()", "", Frequency.RARE),
    ("if c.kept is None or c.kept.n != n:\n    k = here()\n    c.kept = k", "", Frequency.RARE),
    ("if c.kept is not None:\n    pass\nelse:\n    c.kept = here()", "", Frequency.RARE),
    ("if n not in c.kept:\n    c.kept[n] = here()", "", Frequency.RARE),
    ("if not hasattr(c, 'kept'):\n    c.kept = here()", "", Frequency.RARE),
    ("if c.kept is None:\n    c.kept = here()", "c.kept = None", Frequency.SOME),
    ("if c.kept is None:\n    here()", "", Frequency.SOME),
    ("if k is None:\n    k = here()", "", Frequency.SOME),
    ("if c:\n    break", "here()", Frequency.EVERY),
    ("if c:\n    continue", "here()", Frequency.SOME),
    ("for j in c:\n    here()", "", Frequency.SOME),
    ("while True:\n    here()\n    if c:\n        break", "", Frequency.EVERY),
    ("with c:\n    here()", "", Frequency.EVERY),
    ("try:\n    here()\nfinally:\n    pass", "", Frequency.EVERY),
    ("try:\n    pass\nfinally:\n    here()", "", Frequency.EVERY),
    ("try:\n    g()\nexcept ValueError:\n    here()", "", Frequency.RARE),
    ("try:\n    g()\nexcept ValueError:\n    pass", "here()", Frequency.EVERY),
    ("if c:\n    here()\nelse:\n    raise ValueError", "", Frequency.EVERY),
    ("def inner():\n    here()", "", Frequency.NEVER),
    ("k = [here() for j in c]", "", Frequency.EVERY),
    ("if False:\n    here()", "", Frequency.NEVER),
    ("break", "here()", Frequency.NEVER),
]


@pytest.mark.parametrize("first, second, wanted", FREQUENCY)
def test_frequency(first: str, second: str, wanted: Frequency):
    body = "".join(f"        {line}\n" for line in f"{first}\n{second}".splitlines() if line)
    source = parse(f"def f(xs, n, c, k):\n    for i in xs:\n{body}")
    loop = at(source, 2)
    assert isinstance(loop, ast.For)
    call = next(n for n in ast.walk(loop) if isinstance(n, ast.Name) and n.id == "here")
    assert frequency(graph_at(source), call, loop) is wanted


def test_an_iteration_is_walked_once_for_all_its_statements(monkeypatch: pytest.MonkeyPatch):
    walks = []

    def walk(*args):
        walks.append(args)
        return walked(*args)

    walked = frequencies._walk
    monkeypatch.setattr(frequencies, "_walk", walk)
    body = "".join(f"        if c:\n            a{n} = x\n        b{n} = x\n" for n in range(50))
    source = parse(f"def f(xs, c):\n    for x in xs:\n{body}")
    loop, graph = at(source, 2), graph_at(source)
    assert isinstance(loop, ast.For)
    found = [frequency(graph, s, loop) for s in loop.body]
    assert set(found) == {Frequency.EVERY} and len(walks) == 1
    inner = [s.body[0] for s in loop.body if isinstance(s, ast.If)]
    assert {frequency(graph, s, loop) for s in inner} == {Frequency.SOME} and len(walks) == 2


def test_frequency_of_the_parts_of_a_loop():
    source = parse(
        "def f(xs, c):\n    for x in xs:\n        while c:\n            a = x\n    else:\n        b = 1\n"
    )
    outer, inner = at(source, 2), at(source, 3)
    assert isinstance(outer, ast.For) and isinstance(inner, ast.While)
    graph = graph_at(source)
    assert frequency(graph, outer.iter, outer) is Frequency.NEVER
    assert frequency(graph, outer.target, outer) is Frequency.EVERY
    assert frequency(graph, at(source, 6), outer) is Frequency.NEVER
    assert frequency(graph, inner.test, inner) is Frequency.EVERY
    assert frequency(graph, at(source, 4), inner) is Frequency.EVERY
    assert frequency(graph, at(source, 4), outer) is Frequency.SOME
    assert list(loops_around(at(source, 4))) == [inner, outer]
    assert list(loops_around(at(source, 6))) == []


def test_live_after():
    source = parse(
        """
        def f(a, b, c):
            x = a
            y = b
            while c:
                x = y
                c = g(x)
            def h():
                return a
            return x
        """
    )
    function = source.tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    live = [DefUse(function).live_after(at(source, n)) for n in (2, 3, 4, 5, 6, 9)]
    assert live == [
        {"a", "b", "c", "x"},
        {"a", "c", "x", "y"},
        {"a", "x"},
        {"a", "x", "y"},
        {"a", "c", "x", "y"},
        {"a"},
    ]


SCOPES = """
import os.path
g = 1
def f(p, *rest, q=g, **more):
    global g
    g = p
    a = [e for e in rest]
    def inner(z):
        nonlocal a
        a = z
        return len(a)
    class K:
        g = 2
        def m(self):
            return g
    with open(p) as h:
        pass
    return lambda t=a: t + q
"""


def test_scopes():
    source = parse(SCOPES)
    function = source.tree.body[2]
    assert isinstance(function, ast.FunctionDef)
    inner = next(n for n in function.body if isinstance(n, ast.FunctionDef))
    cls = next(n for n in function.body if isinstance(n, ast.ClassDef))

    def owners(name: str) -> list[tuple[int, str]]:
        found = [n for n in ast.walk(source.tree) if isinstance(n, ast.Name) and n.id == name]
        return sorted((n.lineno, type(owner(n)).__name__) for n in found)

    assert owners("g") == [
        (2, "Module"),
        (3, "Module"),
        (5, "Module"),
        (12, "ClassDef"),
        (14, "Module"),
    ]
    assert owners("e") == [(6, "ListComp"), (6, "ListComp")]
    assert owners("a") == [
        (6, "FunctionDef"),
        (9, "FunctionDef"),
        (10, "FunctionDef"),
        (17, "FunctionDef"),
    ]
    assert owners("t") == [(17, "Lambda")]
    assert owners("len") == [(10, "NoneType")]
    assert [binds(function, n) for n in ("p", "rest", "a", "h", "K", "inner", "g", "e", "z")] == [
        True
    ] * 6 + [False] * 3
    assert not binds(inner, "a") and binds(cls, "g") and binds(source.tree, "os")
    assert (
        declared(function) == {"g"} and declared(inner) == {"a"} and declared(source.tree) == set()
    )
    assert (
        is_parameter(function, "more")
        and not is_parameter(function, "a")
        and not is_parameter(source.tree, "g")
    )
    assert list(defaults(function)) == ["p", "q"] and defaults(function)["p"] is None
    assert [n.lineno for n in mentions(function, "a")] == [6, 9, 10, 17]
    assert [n.lineno for n in mentions(function, "g")] == [
        3,
        5,
        14,
    ]  # those in the function, whoever owns it
    assert "z" not in {n.id for n in own_nodes(function) if isinstance(n, ast.Name)}
    assert 17 in {n.lineno for n in own_nodes(function) if isinstance(n, ast.Name) and n.id == "a"}
    assert stored_in(function) == {"f", "g", "a", "e", "inner", "K", "m", "h"}
    assert {"p", "rest", "open"} <= loaded_in(function) and "h" not in loaded_in(function)
    local = {
        n.id
        for n in ast.walk(function)
        if isinstance(n, ast.Name) and is_local(n) and n.lineno in (5, 6, 15)
    }
    assert local == {"a", "e", "h"}


def test_contexts_that_swallow(tmp_path: Path):
    script = read(
        tmp_path,
        """
        import contextlib
        import torch

        class Quiet:
            def __enter__(self):
                return self

            def __exit__(self, *error):
                return True

        def main(x):
            t = 0
            with contextlib.suppress(ValueError):
                t = int(x)
                t = 2
            print(t)

        main("1")
        """,
    )
    for context, wanted in [
        ("contextlib.suppress(ValueError)", {12, 14, 15}),
        ("Quiet()", {12, 14, 15}),
        ("torch.no_grad()", {15}),
    ]:
        text = script.entry.text.replace("contextlib.suppress(ValueError)", context)
        again = read(tmp_path, text)
        name = next(
            n
            for n in ast.walk(again.entry.tree)
            if isinstance(n, ast.Name) and n.id == "t" and isinstance(n.ctx, ast.Load)
        )
        assert {d.node.lineno for d in again.analysis(Flow).reaching(name)} == wanted, context  # type: ignore[attr-defined]
        assert again.analysis(Flow) is again.analysis(Flow)


def test_the_entry_file_ends_the_life_of_its_variables(tmp_path: Path):
    code = "from other import g\nt = 1\nprint(t)\n"
    alone = read(tmp_path / "a", code, {"other.py": "g = 1\n"})
    shared = read(tmp_path / "b", code, {"other.py": "import train\ng = 1\n"})
    live = [
        s.analysis(Flow).definitions(s.entry.tree).live_after(s.entry.tree.body[2])
        for s in (alone, shared)
    ]
    assert live == [frozenset(), {"g", "t"}]


LEAVING = """
def f(a, b, xs):
    if a:
        return 0
    for x in xs:
        if x:
            continue
        for y in x:
            if y:
                break
        if b:
            use(x)
        else:
            return 1
        if y:
            raise ValueError
        last(x)
    return 2
"""


def test_what_leaves_before_a_place_in_a_loop():
    source = parse(LEAVING)
    graph, loop = graph_at(source), at(source, 4)
    assert isinstance(loop, ast.For)
    lines = {
        line: [s.lineno for s in graph.leaving_before(at(source, line))]
        for line in (11, 13, 16, 17)
    }
    assert lines == {11: [3], 13: [3], 16: [3, 13], 17: [3, 13]}
    assert [s.lineno for s in graph.leaving_before(at(source, 11), loop)] == [6]
    assert [s.lineno for s in graph.leaving_before(at(source, 16), loop)] == [6, 13, 15]


BOUND = """
def f(a, xs):
    if a:
        one = two = 1
    else:
        one = 2
    for x in xs:
        use(x)
    try:
        three = g()
    except ValueError:
        three = 0
    del one
    global four
    four = 5
    use()
"""


def test_variables_that_are_bound_at_a_place():
    source = parse(BOUND)
    definitions = DefUse(source.tree.body[0])
    names = ("a", "one", "two", "x", "three", "four", "nothing")
    bound = {
        line: {n for n in names if definitions.is_bound_at(at(source, line), n)}
        for line in (3, 6, 7, 12, 15)
    }
    assert bound == {
        3: {"a"},
        6: {"a", "one"},
        7: {"a", "one", "x"},
        12: {"a", "one", "three"},
        15: {"a", "three", "four"},
    }


BRANCHES = """
def f(xs, done):
    for i, x in enumerate(xs):
        if i % 9 == 0:
            if done:
                a = 1
        if i % 9:
            b = 1
        else:
            c = 1
    else:
        if done % 9 == 0:
            d = 1
"""


def test_rare_arms():
    source = parse(BRANCHES)
    loop = next(n for n in ast.walk(source.tree) if isinstance(n, ast.For))

    def arms(line: int) -> list[tuple[int, bool]]:
        return [(test.lineno, arm) for test, arm in rare_arms_around(at(source, line), loop)]

    assert arms(5) == [(3, True)]
    assert arms(7) == []
    assert arms(9) == [(6, False)]
    assert arms(12) == []  # no iteration of the loop
    assert [arm for _, arm in rare_arms_around(at(source, 12), None)] == [True]


HANDLED = """
def f(xs):
    total = last = 0
    try:
        for x in xs:
            total += x
            last = x
    except ValueError:
        print(total)
    else:
        print(last)
    total += 1
    return total
"""


def test_live_before_and_origins():
    source = parse(HANDLED)
    function = source.tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    flow = DefUse(function)
    handler = next(n for n in ast.walk(source.tree) if isinstance(n, ast.ExceptHandler))
    assert flow.live_before(handler) == {"total"}
    assert flow.live_before(at(source, 4)) == {"total", "last", "xs"}
    result = at(source, 12)
    assert isinstance(result, ast.Return) and isinstance(result.value, ast.Name)
    assert {d.node.lineno for d in flow.reaching(result.value)} == {11}
    assert {d.node.lineno for d in flow.origins(result.value)} == {2, 5, 11}


@pytest.mark.parametrize(
    ("statement", "always"),
    [
        ("print(it, other)", True),
        ("print(a if it else b)", True),
        ("print(it if a else b)", False),
        ("print(it or b)", True),
        ("print(a or it)", False),
        ("print(a < it < b)", True),
        ("print(a < b < it)", False),
        ("print(sum(x for x in it))", True),
        ("print(sum(it for x in xs))", False),
        ("print(sum(x for x in xs if it))", False),
        ("print([y for x in xs for y in it])", False),
        ("show(lambda: it)", False),
        ("assert it, text", True),
        ("assert a, it", False),
        ("while it: go()", False),
    ],
)
def test_what_a_statement_computes_once_whenever_it_runs(statement: str, always: bool) -> None:
    tree = Source(Path("/train.py"), "train.py", f"{statement}\n".encode()).tree
    it = next(n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "it")
    assert is_always(it, tree.body[0]) is always


COUNTED = """
def f(self, x, task, shape):
    if self.seen == self.most:
        a = 1
        self.seen = 0
    self.seen += len(x)
    if self.on and task != self.task:
        b = 1
        self.task = task
    if self.state == 1:
        c = 1
        self.state = 0
    if shape != self.shape:
        d = 1
        self.shape = x
"""


def test_counters_that_begin_again_and_what_is_remembered():
    """Of a flag that is put back nobody knows how often it is set."""
    source = parse(COUNTED)
    rare = [[arm for _, arm in rare_arms_around(at(source, n), None)] for n in (4, 8, 11, 14)]
    assert rare == [[True], [True], [], []]


@pytest.mark.parametrize(
    ("code", "arms"),
    [
        ("shows = i % 10 == 0\nif shows:\n    use()", [True]),
        ("shows = i % 10 == 0\nif not shows:\n    use()", []),
        ("shows = False\nif i % 10 == 0:\n    shows = True\nif shows:\n    use()", []),
        ("shows = a and i % 10 == 0\nif shows and b:\n    use()", [True]),
        ("often = i % 10 != 0\nif often:\n    use()", []),
        ("often = i % 10 != 0\nif not often:\n    use()", [True]),
        ("shows = i % 10 == 0 if a else False\nif shows:\n    use()", []),
        ("shows = i % 10 == 0\nshows = b\nif shows:\n    use()", []),
        ("shows = i % 10 == 0\nshows |= b\nif shows:\n    use()", []),
        ("shows = shows or i % 10 == 0\nif shows:\n    use()", [True]),
        ("if even:\n    use()", []),  # once, above the loop
        ("if a:\n    use()", []),
    ],
)
def test_a_name_for_what_is_seldom_true(code: str, arms: list[bool]) -> None:
    body = "".join(f"        {line}\n" for line in code.splitlines())
    source = parse(f"def f(a, b, n):\n    even = n % 10 == 0\n    for i in a:\n{body}")
    loop = next(n for n in ast.walk(source.tree) if isinstance(n, ast.For))
    place = next(
        n for n in ast.walk(source.tree) if isinstance(n, ast.Expr) and "use" in ast.unparse(n)
    )
    assert [arm for _, arm in rare_arms_around(place, loop)] == arms


GIVEN = """
import random

class Steps:
    def __init__(self):
        self.n = 0

    def now(self, store):
        self.n += 1
        if self.n % 50 == 1:
            store = store
        else:
            store = None
        return store

    def always(self, store):
        return store

def put(store, x, more=None):
    if store is not None:
        store.append(x)

steps, kept, pair = Steps(), [], (1, 2)
for i in range(9):
    CALL
"""


@pytest.mark.parametrize(
    ("call", "few"),
    [
        ("put(steps.now(kept), i)", True),
        ("put(kept if i % 50 == 0 else None, i)", True),
        ("put(None if i % 50 else kept, i)", True),
        ("put(store=steps.now(kept), x=i)", True),
        ("now = steps.now(kept)\n    put(now, i)\n    put(None, i)", True),
        ("now = None\n    if i % 50 == 0:\n        now = kept\n    put(now, i)", True),
        ("put(steps.now(kept), i)\n    put(kept, i)", False),
        ("put(steps.always(kept), i)", False),
        ("put(kept if random.random() < 0.5 else None, i)", False),
        ("put(kept if i % 50 == 0 else pair, i)", False),
        ("put(kept, i)", False),
        ("put(None, i)", False),
        ("put(*pair)", False),
    ],
)
def test_what_few_calls_are_given(tmp_path: Path, call: str, few: bool) -> None:
    script = read(tmp_path, GIVEN.replace("CALL", call))
    (place,) = (n for n in script.each(ast.Expr) if ast.unparse(n) == "store.append(x)")
    assert script.analysis(Seldom).around(place, None) is few


def test_what_one_turn_is_given_the_next_have_too(tmp_path: Path) -> None:
    code = "if i % 50 == 0:\n        now = kept\n    if now is not None:\n        print(now)"
    script = read(tmp_path, "now, kept = None, []\nfor i in range(9):\n    " + code)
    (loop,) = script.each(ast.For)
    (place,) = (n for n in script.each(ast.Expr) if ast.unparse(n) == "print(now)")
    assert not script.analysis(Seldom).around(place, loop)


def test_what_is_missing_in_a_part_of_something() -> None:
    code = "def f(task):\n    if task['train'].net is None:\n        task['train'].net = make()\n"
    source = parse(code + "    if 'a' not in task['x'].seen:\n        task['x'].seen['a'] = 1\n")
    rare = [[arm for _, arm in rare_arms_around(at(source, n), None)] for n in (3, 5)]
    assert rare == [[True], [True]]


def test_what_functions_make_that_is_missing() -> None:
    code = """
def current():
    if Log.CURRENT is None:
        default()
    return Log.CURRENT


def default():
    configure()


def configure():
    Log.CURRENT = Log()
"""
    source = parse(code)
    assert [arm for _, arm in rare_arms_around(at(source, 3), None)] == [True]
    other = parse(code.replace("Log.CURRENT = Log()", "Log.LAST = Log()"))
    assert rare_arms_around(at(other, 3), None) == []


@pytest.mark.parametrize(
    ("test", "made", "rare"),
    [
        (
            "n == self.n and self.window.type() == x.type()",
            "self.window = window; self.n = n",
            True,
        ),
        ("n == self.n", "self.n = n", True),
        ("n == self.n and self.window.type() == x.type()", "self.n = n", False),
        ("n == self.n", "self.n = 0", False),
        ("n > self.n", "self.n = n", False),
    ],
)
def test_what_is_made_anew_where_it_does_not_fit(test: str, made: str, rare: bool) -> None:
    code = "def forward(self, x, n):\n    if TEST:\n        window = self.window\n    else:\n"
    code += "        window = create(n)\n        MADE\n    return window\n"
    source = parse(code.replace("TEST", test).replace("MADE", made))
    found = [arm for _, arm in rare_arms_around(at(source, 5), None)]
    assert found == ([False] if rare else [])
