"""Plans: what becomes of findings, and what holds for the text whichever rules are chosen."""

from __future__ import annotations

import ast
import codecs
import itertools
import random
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from autofast.edit.attribution import reach
from autofast.edit.edits import After, Around, Before, Edit, Helper, Import, Keyword, Remove, Wrap
from autofast.edit.order import Rank
from autofast.edit.passes import fixed_point
from autofast.edit.plan import Plan, PostConditionError
from autofast.model.opening import read_source
from autofast.model.script import Script
from autofast.model.source import Source, block_of
from autofast.report.diff import Change, FileDiff, patch
from autofast.rule import Effect, Finding, Gain, Options, Rule
from tests.engine import call, rule, script, source, stmt

Found = Iterator[tuple[ast.AST, list[Edit]]]


def plan(text: str | Source, *rules: Rule, effect: Effect = Effect.SAMPLING) -> Plan:
    file = text if isinstance(text, Source) else source(dedent(text))
    return Plan.make(script(file), Options(), rules, effect)


def only_text(of: Plan) -> str:
    (text,) = of.texts().values()
    return text


# ----------------------------------------------------------------------------------------- findings
def keyword(name: str, value: str, **more: Any) -> Rule:
    """A rule that sets a keyword of every call of ``load`` that lacks it."""

    def edits(file: Source) -> Found:
        for node in ast.walk(file.tree):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "load"
                and all(k.arg != name for k in node.keywords)
            ):
                yield node, [Keyword(node, name, value)]

    return rule(more.pop("called", name), edits, more.pop("of_rule", Effect.EXACT), **more)


def test_findings_are_stamped_and_in_the_order_of_the_code() -> None:
    made = plan("load(1)\nload(2)\n", keyword("workers", "4"), keyword("pin", "True"))
    assert [(f.node.lineno, f.rule) for f in made.findings] == [
        (1, "pin"),
        (1, "workers"),
        (2, "pin"),
        (2, "workers"),
    ]  # type: ignore[attr-defined]
    assert {edit.rule for f in made.fixes for edit in f.edits} == {"pin", "workers"} == made.applied
    assert made.options.selected == {"pin", "workers"}
    assert only_text(made) == "load(1, pin=True, workers=4)\nload(2, pin=True, workers=4)\n"


def test_a_finding_that_contradicts_an_earlier_one_is_refused() -> None:
    for rules in (
        [keyword("n", "4", called="a"), keyword("n", "8", called="b")],
        [keyword("n", "8", called="b"), keyword("n", "4", called="a")],
    ):
        made = plan("load(1)\n", *rules)
        assert [(f.rule, f.status, f.refusal) for f in made.findings] == [
            ("a", "fix", ""),
            ("b", "refused", "a sets n=4 here"),
        ]
        assert only_text(made.subset({"b"})) == "load(1, n=8)\n"


def test_a_finding_needs_the_fixes_it_names_at_the_same_place() -> None:
    rules = [
        keyword("persistent", "True", key=1, needs=("workers",)),
        keyword("workers", "4", key=1),
        keyword("pin", "1", key=2, needs=("workers",)),
    ]
    made = plan("load(1)\n", *rules)
    assert {f.rule: f.refusal for f in made.findings} == {
        "persistent": "",
        "workers": "",
        "pin": "needs workers here",
    }
    alone = made.subset({"persistent"})
    assert [(f.status, f.refusal) for f in alone.findings] == [("refused", "needs workers here")]
    assert alone.texts() == {} and alone.hunks() == []


class Whole:
    """A decision."""


@pytest.mark.parametrize("does", ["refuses", "finds nothing", "is too strong", "applies"])
def test_who_does_nothing_decides_nothing(does: str) -> None:
    def decides(of: Any, options: Options) -> Iterator[Finding]:
        node = call(of.entry, "load")
        edits = (Keyword(node, "whole", "True"),) * (does in ("is too strong", "applies"))
        if does != "finds nothing":
            yield Finding(node, "loads", edits=edits, refusal="" if edits else "it cannot")

    def asks(of: Any, options: Options) -> Iterator[Finding]:
        node = call(of.entry, "load")
        edits = () if options.decides(Whole) else (Keyword(node, "part", "1"),)
        yield Finding(node, "loads", edits=edits, refusal="" if edits else "loaded whole")

    strong = Effect.RECIPE if does == "is too strong" else Effect.EXACT
    first = Rule("whole", strong, "", decides, decides=Whole)
    made = plan("load(1)\n", first, Rule("part", Effect.EXACT, "", asks, uses=("whole",)))
    assert ("part" in made.applied) == (does != "applies")


def test_what_is_needed_may_itself_be_refused() -> None:
    rules = [
        keyword("persistent", "True", key=1, needs=("z-workers",)),
        keyword("n", "4", called="a"),
        keyword("n", "8", called="z-workers", key=1),
    ]
    made = plan("load(1)\n", *rules)
    assert [(f.rule, f.status) for f in made.findings] == [
        ("a", "fix"),
        ("persistent", "refused"),
        ("z-workers", "refused"),
    ]


def test_effects_beyond_the_allowed_one_are_refused() -> None:
    rules = [keyword("a", "1", of_rule=Effect.SAMPLING), keyword("b", "1", of_rule=Effect.RECIPE)]
    made = plan("load(1)\n", *rules, effect=Effect.ROUNDING)
    assert [f.refusal for f in made.findings] == [
        "needs --effect sampling",
        "needs --effect recipe",
    ]
    assert [f.status for f in plan("load(1)\n", *rules, effect=Effect.RECIPE).findings] == [
        "fix",
        "fix",
    ]


def test_a_findings_own_effect_counts() -> None:
    made = plan(
        "load(1)\n", keyword("a", "1", of_rule=Effect.RECIPE, own=Effect.EXACT), effect=Effect.EXACT
    )
    assert [f.status for f in made.findings] == ["fix"]


IGNORES = """
    load(1)  # autofast: ignore[n]
    load(  # autofast: ignore
        2)
    load(3)  # autofast: ignore[other, m]
    for x in load(4):  # autofast: ignore[n]
        load(5)
    # autofast: ignore[n]
    load(6)
    def f():  # autofast: ignore
        pass
"""


def test_comments_keep_places_from_being_changed() -> None:
    made = plan(IGNORES, keyword("n", "4"), keyword("m", "1"))
    status = {(f.rule, call_value(f)): f.status for f in made.findings}
    ignored = {key for key, value in status.items() if value == "ignored"}
    assert ignored == {("n", 1), ("n", 2), ("m", 2), ("m", 3), ("n", 4), ("n", 5)}
    assert {str(unused) for unused in made.unused_ignores} == {
        "train.py:8: unused `# autofast: ignore[n]`",
        "train.py:10: unused `# autofast: ignore`",
    }
    assert "load(4, m=1)" in only_text(made) and "load(6, m=1, n=4)" in only_text(made)


def call_value(finding: Finding) -> Any:
    return finding.node.args[0].value  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------------- hunks
def test_a_hunk_names_all_rules_it_comes_from() -> None:
    rules = [
        keyword("workers", "4"),
        keyword("pin", "True"),
        rule(
            "timer",
            lambda f: [
                (
                    stmt(f, "b"),
                    [Before(stmt(f, "b"), "t = time()"), Import(f, "from time import time")],
                )
            ],
        ),
        rule("clock", lambda f: [(stmt(f, "c"), [Import(f, "from time import time")])]),
    ]
    made = plan("import os\n\nx = load(1)\na\na\nb\nc\n", *rules)
    assert [(h.old, h.new, h.lines, h.rules) for h in made.hunks()] == [
        ((1, 1), (1, 2), ("+from time import time",), ("clock", "timer")),
        ((2, 3), (3, 4), ("-x = load(1)", "+x = load(1, pin=True, workers=4)"), ("pin", "workers")),
        ((5, 5), (6, 7), ("+t = time()",), ("timer",)),
    ]
    assert {f.message for f in made.hunks()[1].findings} == {"pin speaks", "workers speaks"}


def test_only_findings_at_a_hunk_speak_for_it() -> None:
    made = plan("load(1)\na\na\na\nload(2)\n", keyword("n", "4"))
    assert [[call_value(f) for f in h.findings] for h in made.hunks()] == [[1], [2]]


def test_equal_lines_around_do_not_confuse_the_owners() -> None:
    rules = [
        rule("first", lambda f: [(stmt(f, "pass"), [After(stmt(f, "pass"), "new()")])]),
        rule(
            "last",
            lambda f: [
                (stmt(f, "z"), [Remove(stmt(f, "step()", 3)), After(stmt(f, "z"), "new()")])
            ],
        ),
    ]
    made = plan("pass\nnew()\nnew()\n\nstep()\n\nstep()\n\nstep()\n\nstep()\n\nz\nnew()\n", *rules)
    # the blank line below step() goes with it, so that both changes stand beside each other
    assert [(h.rules, h.lines) for h in made.hunks()] == [
        (("first", "last"), ("-", "-step()", "+new()")),
        (("last",), ("+new()",)),
    ]


# ---------------------------------------------------------------------------------- post-conditions
def test_no_new_name_may_be_undefined() -> None:
    text = "def f():\n    a = unknown\n    load(a)\n"
    plan(text, keyword("n", "a")).check()
    plan(text, keyword("n", "unknown")).check()  # that is the user's business
    plan("from os import *\n" + text, keyword("n", "missing")).check()
    with pytest.raises(PostConditionError, match="undefined name missing"):
        plan(text, keyword("n", "missing")).check()
    with pytest.raises(PostConditionError, match="undefined name a"):
        plan(text + "load(2)\n", keyword("n", "a")).check()


def test_the_new_text_must_compile() -> None:
    made = plan(
        "x = load(1)\n", rule("r", lambda f: [(stmt(f, "x"), [After(stmt(f, "x"), "return x")])])
    )
    with pytest.raises(
        PostConditionError,
        match=r"train.py: the new text is no Python \(line 2: 'return' outside function\)",
    ):
        made.check()


def test_an_applied_rule_must_find_nothing_in_its_own_output() -> None:
    def reread(texts: Any) -> Any:
        return script(source(next(iter(texts.values()))))

    def wrong(file: Source) -> Found:
        yield call(file, "load"), [Wrap(call(file, "load"), "iter({})")]

    plan("load(1)\n", keyword("n", "4")).check(reread)
    with pytest.raises(
        PostConditionError,
        match="train.py:1: wrong would change its own output again: wrong speaks",
    ):
        plan("load(1)\n", rule("wrong", wrong)).check(reread)


def test_what_is_worth_its_lines_beside_a_change_is_written_with_it() -> None:
    """Else a second rewrite would find it."""

    def beside_workers(script: Script, options: Options, finding: Finding, beside: Any) -> Gain:
        return Gain(0.5 * ("workers=" in script.entry.text), "half, beside workers")

    def reread(texts: Any) -> Any:
        return script(source(next(iter(texts.values()))))

    pin = replace(keyword("pin", "True"), asks=beside_workers)
    file, rules = source("load(1)\n"), [keyword("workers", "4"), pin]
    first = Plan.make(script(file), Options(min_gain=0.01), rules, Effect.SAMPLING)
    assert only_text(first) == "load(1, workers=4)\n"
    (text,) = fixed_point(first, reread).texts().values()
    assert text == "load(1, workers=4, pin=True)\n"


def test_plans_of_several_files() -> None:
    one, two = source("load(1)\n", "b.py"), source("load(2)\n", "a.py")
    made = Plan.make(
        script(one, two, source("x\n", "c.py")), Options(), [keyword("n", "4")], Effect.EXACT
    )
    assert [h.source.rel for h in made.hunks()] == ["a.py", "b.py"]
    assert set(made.texts()) == {one, two}
    made.check()


# -------------------------------------------------------------------------- properties of all plans
# Scripts are drawn from small parts. The rules below look for names in them: `load*` gets keywords,
# `step*` is wrapped, and so on; what they add has names of its own, so that `undone` can take it
# out again and must get the original program.
SIMPLE = [
    "x = load1(a)",
    "y = load2(\n{i}{u}a,  # é\n{i}{u}b=1,\n{i})",
    "step1(x +\n{i}{u}y)",
    "s = f'{{step2(x)}} ü {{y}}'",
    "drop1()  # gone?",
    "keep1(); drop2(); step3(load3(step4(é)))",
    "return(x)",
    "z = (a, *b) if(x)else step5(not y)",
    "drop3(\n{i}{u}1,  # inner\n{i})",
]
COMPOUND = [
    "for x in load4(y):",
    "if step6(x):",
    "with load5() as w:",
    "while x:",
    "def inner(x):",
    "try:",
]
CLOSERS = {"try:": "finally: keep2()", "if step6(x):": "elif step7(y): keep3(); drop4()"}
ONE_LINE = ["if step8(x): drop5(); keep4()", "for x in y: step9(load6(x))"]


@st.composite
def blocks(draw: st.DrawFn, depth: int, indent: str, unit: str) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        lines += draw(
            st.sampled_from(
                [[], [], [""], [f"{indent}# über"], ["", f"{indent}# a", f"{indent}# b"]]
            )
        )
        kind = draw(
            st.sampled_from(
                ["simple", "simple", "one-line", "compound"] if depth else ["simple", "one-line"]
            )
        )
        if kind == "simple":
            lines += (indent + draw(st.sampled_from(SIMPLE)).format(i=indent, u=unit)).split("\n")
        elif kind == "one-line":
            lines.append(indent + draw(st.sampled_from(ONE_LINE)))
        else:
            head = draw(st.sampled_from(COMPOUND))
            lines += [indent + head, *draw(blocks(depth - 1, indent + unit, unit))]
            lines += [indent + CLOSERS[head]] if head in CLOSERS else []
    return lines


@st.composite
def files(draw: st.DrawFn, unique: bool = False) -> bytes:
    unit = draw(st.sampled_from(["    ", "  ", "\t"]))
    top = draw(
        st.sampled_from(
            [
                [],
                ["# läuft"],
                ['"""Doc."""'],
                ["import os", "import torch"],
                ['"""Doc."""', "from __future__ import annotations", "", "import os; import re"],
            ]
        )
    )
    body = draw(blocks(2, unit, unit))
    text = "\n".join([*top, "", "def main(a, b, é):", *body, "", "main(1, 2, 3)"]) + draw(
        st.sampled_from(["\n", "", "\n\n"])
    )
    if unique:  # no two lines are equal, so a diff has only one way to see a change
        numbers = itertools.count(1)
        text = re.sub(r"(?<=[a-z])\d+(?=\()", lambda _: str(next(numbers)), text)
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    coding = draw(st.sampled_from(["utf-8", "bom", "latin-1"]))
    if coding == "latin-1":
        return ("# coding: latin-1" + ("\r\n" if "\r\n" in text else "\n") + text).encode("latin-1")
    return (codecs.BOM_UTF8 if coding == "bom" else b"") + text.encode()


def calls(file: Source, prefix: str) -> list[ast.Call]:
    return [
        n
        for n in ast.walk(file.tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id.startswith(prefix)
    ]


def statements(file: Source, prefix: str) -> list[ast.stmt]:
    return [
        n
        for n in ast.walk(file.tree)
        if isinstance(n, ast.stmt) and file.segment(n).startswith(prefix)
    ]


def sharing(file: Source) -> Found:
    for node in calls(file, "load"):
        yield node, [Keyword(node, "_kw1", "1"), Import(file, "import _mod")]


def wrapping(file: Source) -> Found:
    for node in calls(file, "step"):
        yield node, [Wrap(node, "{} / _one", rank=Rank.LOSS_DIVIDE)]


def scaling(file: Source) -> Found:
    for node in [*calls(file, "step"), *calls(file, "load")]:
        yield (
            node,
            [
                Wrap(node, "_scale({})", rank=Rank.LOSS_SCALE),
                Helper(file, "_scale", "def _scale(x):\n    return x"),
            ],
        )


def preparing(file: Source) -> Found:
    for node in [*statements(file, "drop"), *statements(file, "keep"), *statements(file, "x =")]:
        yield (
            node,
            [
                Before(
                    node,
                    "_new({h})",
                    holes={"h": node.value.args[0]} if node.value.args else {"h": node.value},
                )
            ],
        )  # type: ignore[attr-defined]


def following(file: Source) -> Found:
    for node in [*statements(file, "drop"), *statements(file, "for"), *statements(file, "step")]:
        yield node, [After(node, "if _flag:\n    _new(\n        1,\n    )", rank=Rank.ZERO)]


def guarding(file: Source) -> Found:
    for node in statements(file, "keep") + statements(file, "y ="):
        yield node, [Around(node, block_of(node)[-1], "with _guard:", rank=Rank.GUARD)]


def casting(file: Source) -> Found:
    for node in statements(file, "for") + statements(file, "elif") + statements(file, "drop"):
        yield node, [Around(node, node, "with _cast:", rank=Rank.AUTOCAST)]


def dropping(file: Source) -> Found:
    for node in statements(file, "drop"):
        yield node, [Remove(node)]


RULES = {
    f.__name__: rule(f.__name__, f)
    for f in (sharing, wrapping, scaling, preparing, following, guarding, casting, dropping)
}
RULES["twin"] = rule("twin", sharing)


class Undone(ast.NodeTransformer):
    """Takes out what the rules put in, and all that is dropped."""

    def visit(self, node: ast.AST) -> Any:
        node = self.generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            if isinstance(getattr(node, name, None), list):
                setattr(
                    node, name, [s for inner in getattr(node, name) for s in self.statement(inner)]
                )
        match node:
            case ast.BinOp(right=ast.Name(id="_one")):
                return node.left
            case ast.Call(func=ast.Name(id="_scale")):
                return node.args[0]
            case ast.Call():
                node.keywords = [k for k in node.keywords if k.arg != "_kw1"]
        return node

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        text = ast.unparse(node)
        if text.startswith(("_new(", "if _flag:", "import _mod", "def _scale", "pass", "drop")):
            return []
        return (
            node.body
            if isinstance(node, ast.With) and text.startswith(("with _guard:", "with _cast:"))
            else [node]
        )


def undone(text: str) -> str:
    return ast.dump(Undone().visit(ast.parse(text)))


SETTINGS = settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
NAMES = st.sets(st.sampled_from(sorted(RULES)))


@SETTINGS
@given(files(), NAMES, st.randoms(use_true_random=False))
def test_any_subset_composes(raw: bytes, names: set[str], shuffled: random.Random) -> None:
    file = source(raw)
    assert file.encode(file.text) == raw
    whole = Plan.make(script(file), Options(), RULES.values(), Effect.EXACT)
    # the subset comes of a document that has been composed before, the shuffled plan of a fresh one
    whole.hunks()
    made = whole.subset(names)
    order = [RULES[name] for name in sorted(names)]
    shuffled.shuffle(order)
    assert Plan.make(script(file), Options(), order, Effect.EXACT).texts() == made.texts()
    text = made.texts().get(file, file.text)
    if not made.fixes:
        assert text == file.text
        return
    compile(text, "train.py", "exec")
    assert undone(text) == undone(file.text)
    assert file.encode(text).count(b"\r\n") in (0, text.count("\n"))
    for finding in made.findings:
        assert finding.status in ("fix", "refused")


def overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


@SETTINGS
@given(files(unique=True), NAMES)
def test_every_hunk_has_owners_and_other_lines_stay(raw: bytes, names: set[str]) -> None:
    file = source(raw)
    made = Plan.make(script(file), Options(), RULES.values(), Effect.EXACT).subset(names)
    rebuilt, old, new = [], file.text.split("\n"), made.texts().get(file, file.text).split("\n")
    here = 0
    for hunk in made.hunks():
        assert hunk.owners and hunk.owners <= made.applied
        assert {f.rule for f in hunk.findings} == hunk.owners
        for name in hunk.owners:
            assert any(
                overlap(reach(edit), hunk.old)
                for f in hunk.findings
                if f.rule == name
                for edit in f.edits
            )
        rebuilt += old[here : hunk.old[0]] + new[slice(*hunk.new)]
        here = hunk.old[1]
    assert rebuilt + old[here:] == new or file.text[-1:] != "\n"
    if made.applied <= {"sharing", "twin"} and made.applied:
        assert all(hunk.owners == made.applied for hunk in made.hunks())


@SETTINGS
@given(files(), NAMES)
def test_comments_survive(raw: bytes, names: set[str]) -> None:
    file = source(raw)
    text = (
        Plan.make(script(file), Options(), [RULES[n] for n in names], Effect.EXACT)
        .texts()
        .get(file, file.text)
    )
    for comment in ("# é", "# gone?", "# über", "# a", "# b", "# inner", "# läuft"):
        assert text.count(comment) >= file.text.count(comment)


@pytest.mark.parametrize(
    "raw",
    [
        b"load(1)\nx\n",
        b"\xef\xbb\xbfload(1)",
        b"a\r\nload(1)\r\nb",
        "# coding: latin-1\nload('é')".encode("latin-1"),
    ],
)
def test_git_applies_the_hunks(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "train.py").write_bytes(raw)
    file = read_source(tmp_path / "train.py", tmp_path)
    rules = [
        keyword("n", "4"),
        rule("end", lambda f: [(f.tree.body[-1], [After(f.tree.body[-1], "new()")])]),
    ]
    made = plan(file, *rules)
    changes = [Change(h.old, h.new, h.rules) for h in made.hunks()]
    data = patch([FileDiff(file, only_text(made), changes)])
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=data, check=True)
    assert (tmp_path / "train.py").read_bytes() == file.encode(only_text(made))
