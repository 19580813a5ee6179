"""One rule takes no other down: neither one that raises nor one whose changes do not stand up to
being read again.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofast import registry
from autofast.edit.edits import Before, Edit, Keyword, Rewrite
from autofast.edit.plan import Plan, PostConditionError
from autofast.edit.recovery import what_stands
from autofast.model.source import BadInput, Source, statement_of
from autofast.rule import Effect, Finding, Options, Rule
from tests.engine import call, rule, script, source
from tests.test_cli import SCRIPT, autofast, files, project  # noqa: F401

Found = Iterator[tuple[ast.AST, list[Edit]]]
TWO = "load(1)\nload(2)\n"


def keyword(
    name: str, missing: Callable[[ast.Call], bool] = lambda node: True, **more: Any
) -> Rule:
    """A rule that sets the keyword ``name`` of every call of ``load`` that lacks it."""

    def edits(file: Source) -> Found:
        for node in ast.walk(file.tree):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "load"
                and all(k.arg != name for k in node.keywords)
                and missing(node)
            ):
                yield node, [Keyword(node, name, "1")]

    return rule(name, edits, **more)


def first(file: Source) -> Found:
    """Rewrites the first call as a whole, so that no other rule can change it in the same plan."""
    node = call(file, "load")
    if ast.unparse(node) == "load(1)":
        yield node, [Rewrite(node, "load(1, new=2)")]


FIRST = rule("first", first)


def plan(*rules: Rule, text: str = TWO, options: Options | None = None) -> Plan:
    return Plan.make(script(source(text)), options or Options(), rules, Effect.SAMPLING)


def reread(new: Any) -> Any:
    return script(*(source(text, of.rel) for of, text in new.items()))


def left(of: Plan) -> Plan:
    """What stands of a plan; it fulfils all post-conditions."""
    made = what_stands(of, reread)[0]
    made.check(reread)
    return made


def text_of(made: Plan) -> str:
    return "".join(made.texts().values())


# --------------------------------------------------------------------- changes that do not stand up
def test_a_conflict_that_the_second_reading_no_longer_sees() -> None:
    made = plan(FIRST, keyword("n"))
    assert {(f.rule, f.node.lineno): f.status for f in made.findings} == {  # type: ignore[attr-defined]
        ("first", 1): "fix",
        ("n", 1): "refused",
        ("n", 2): "fix",
    }
    with pytest.raises(PostConditionError, match="n would change its own output again"):
        made.check(reread)
    rest = left(made)
    assert text_of(rest) == "load(1, new=2)\nload(2)\n"
    assert [(f.rule, f.status) for f in rest.findings] == [
        ("first", "fix"),
        ("n", "refused"),
        ("n", "refused"),
    ]
    (lost,) = rest.left_out
    assert lost.rule == "n" and lost.warning.startswith(
        "n is left out: train.py:1: n would change its own output again: n speaks; please report"
    )
    assert "\n" not in lost.warning


def test_a_plan_that_stands_is_the_same_plan() -> None:
    made = plan(keyword("m"), keyword("n"))
    assert what_stands(made, reread)[0] is made and made.left_out == ()


def test_the_other_rules_are_asked_again_without_the_one_that_is_left_out() -> None:
    seen: list[frozenset[str]] = []

    def find(of: Any, options: Options) -> Iterator[Finding]:
        seen.append(options.selected)
        node = call(of.sources[0], "load", 1)
        if "n" in options.selected and not any(k.arg == "with_n" for k in node.keywords):
            yield Finding(node, "counts on n", (Keyword(node, "with_n", "1"),))

    other = Rule("other", Effect.EXACT, "other.", find, uses=("n",))
    made = left(plan(FIRST, other, keyword("n")))
    assert "n" in seen[0] and "n" not in seen[-1]
    assert text_of(made) == "load(1, new=2)\nload(2)\n" and made.applied == {"first"}


def test_a_rule_is_asked_once_however_often_a_plan_is_made() -> None:
    asked: list[Options] = []

    def find(of: Any, options: Options) -> Iterator[Finding]:
        asked.append(options)
        yield Finding(call(of.sources[0], "load", 1), "found", ())

    other = Rule("other", Effect.EXACT, "other.", find)
    whole = plan(FIRST, other, keyword("n"))
    whole.without("n", "why").subset(["other"]).amended({})
    assert len(asked) == 1 and asked[0].selected == {"other"}


def test_what_needs_a_rule_that_is_left_out_goes_with_it() -> None:
    made = left(
        plan(
            FIRST,
            keyword("n", key=1),
            keyword("z", lambda node: ast.unparse(node.args[0]) == "2", key=1, needs=("n",)),
        )
    )
    assert text_of(made) == "load(1, new=2)\nload(2)\n"
    assert [f.refusal for f in made.findings if f.rule == "z"] == ["needs n here"]


def test_several_rules_may_have_to_go() -> None:
    made = left(plan(FIRST, keyword("m"), keyword("n")))
    assert [x.rule for x in made.left_out] == ["m", "n"] and made.applied == {"first"}


def test_the_rule_that_makes_no_sense_of_a_file_is_found_by_leaving_out() -> None:
    undefined = rule(
        "undefined",
        lambda file: [(call(file, "load"), [Rewrite(call(file, "load"), "load(missing)")])],
    )
    made = left(
        plan(
            undefined,
            keyword("n", lambda node: ast.unparse(node.args[0]) == "2"),
            text="load = print\n" + TWO,
        )
    )
    assert text_of(made) == "load = print\nload(1)\nload(2, n=1)\n"
    assert [x.rule for x in made.left_out] == [
        "undefined"
    ] and "undefined name missing" in made.left_out[0].why


def test_a_fault_of_two_rules_takes_both_out_and_no_third() -> None:
    def second(node: ast.Call) -> bool:
        return ast.unparse(node.args[0]) == "2"

    def undefined(nth: int) -> Rule:
        return rule(
            f"undefined-{nth}",
            lambda file: [(call(file, "load"), [Before(file.tree.body[nth], "load(missing)")])],
        )

    made = left(plan(undefined(0), undefined(1), keyword("n", second), text="load = print\n" + TWO))
    assert [x.rule for x in made.left_out] == ["undefined-0", "undefined-1"]
    assert text_of(made) == "load = print\nload(1)\nload(2, n=1)\n"


# --------------------------------------------------------------------------------- rules that raise
def raising(error: BaseException, name: str = "bad") -> Rule:
    """A rule that yields a fix and then raises while it looks at the second call."""

    def look_at(node: ast.Call) -> None:
        raise error

    def find(of: Any, options: object) -> Iterator[Finding]:
        node = call(of.sources[0], "load")
        yield Finding(node, "half of it", (Keyword(node, "half", "1"),))
        look_at(call(of.sources[0], "load", 1))

    return Rule(name, Effect.EXACT, "bad.", find)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), r"internal error (KeyError: 'x', test_resilience.py:"),
        (StopIteration(), "internal error (StopIteration, test_resilience.py:"),
        (
            RecursionError("too deep"),
            "internal error (RecursionError: too deep, test_resilience.py:",
        ),
        (AssertionError(), "internal error (AssertionError, test_resilience.py:"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.usefixtures("resilient")
def test_a_rule_that_raises_is_one_refusal_where_it_was_at_work(
    error: Exception, said: str
) -> None:
    made = left(plan(raising(error), keyword("n")))
    assert text_of(made) == "load(1, n=1)\nload(2, n=1)\n"  # nothing of its first half
    (finding,) = [f for f in made.findings if f.rule == "bad"]
    assert (finding.status, finding.node.lineno) == ("refused", 2)  # type: ignore[attr-defined]
    assert finding.refusal.startswith(said) and finding.refusal.endswith(
        ") in rule bad, please report"
    )
    (lost,) = made.left_out
    assert (
        lost.warning
        == f"train.py:2: {finding.refusal}; the other rules go on (--debug shows the trace)"
    )


@pytest.mark.usefixtures("resilient")
def test_where_a_rule_was_at_work_may_not_be_known() -> None:
    def find(of: object, options: object) -> Iterator[Finding]:
        raise ValueError("a\nb")
        yield

    (finding,) = plan(Rule("bad", Effect.EXACT, "bad.", find)).findings
    assert isinstance(finding.node, ast.Module) and "ValueError: a b," in finding.refusal


@pytest.mark.usefixtures("resilient")
def test_the_others_are_asked_again_without_the_one_that_raised() -> None:
    def find(of: Any, options: Options) -> Iterator[Finding]:
        node = call(of.sources[0], "load")
        counts = "z" in options.selected | options.asked
        yield Finding(node, "counts on z", (Keyword(node, "with_z", str(counts)),))

    needing = keyword("needing", key=1, needs=("z",))
    rules = (Rule("a", Effect.EXACT, "a.", find, uses=("z",)), needing, raising(KeyError("x"), "z"))
    made = plan(*rules, options=Options(asked=frozenset({"z"})))
    assert text_of(made) == "load(1, with_z=False)\nload(2)\n"
    assert [f.refusal for f in made.findings if f.rule == "needing"] == ["needs z here"] * 2


@pytest.mark.parametrize(
    "error", [BadInput("train.py:1: mend it"), KeyboardInterrupt()], ids=["bad input", "Ctrl-C"]
)
@pytest.mark.usefixtures("resilient")
def test_what_the_user_did_is_no_fault_of_a_rule(error: BaseException) -> None:
    with pytest.raises(type(error)):
        plan(raising(error))


@pytest.mark.usefixtures("resilient")
def test_a_rule_that_cannot_read_its_own_output_is_left_out() -> None:
    def find(of: Any, options: object) -> Iterator[Finding]:
        node = call(of.sources[0], "load", 1)
        if node.keywords:
            raise KeyError("done")
        yield Finding(node, "once", (Keyword(node, "once", "1"),))

    made = left(
        plan(
            Rule("bad", Effect.EXACT, "bad.", find),
            keyword("n", lambda node: ast.unparse(node.args[0]) == "1"),
        )
    )
    assert text_of(made) == "load(1, n=1)\nload(2)\n"
    assert (
        "bad cannot read its own output: internal error (KeyError: 'done'" in made.left_out[0].why
    )


# ------------------------------------------------------------------------------ on the command line
@pytest.fixture
def broken(project: Path, monkeypatch: pytest.MonkeyPatch, resilient: None) -> Path:  # noqa: F811
    """A project, and the rule ``tf32`` that raises after its first finding."""
    known = dict(registry.all_rules())
    real = known["tf32"]

    def find(of: Any, options: Options) -> Iterator[Finding]:
        loader = of.loaders[0]
        yield from real.find(of, options)
        raise KeyError(loader.framework or "x")

    known["tf32"] = replace(real, find=find)
    monkeypatch.setattr(registry, "all_rules", lambda: known)
    return project


LINE = SCRIPT[: SCRIPT.index("loader = DataLoader")].count("\n") + 1


def test_rewrite_goes_on_without_a_rule_that_raises(broken: Path) -> None:
    done = autofast("rewrite", "train.py", "--in-place")
    assert done.code == 0
    assert (
        f"Warning: train.py:{LINE}: internal error (KeyError: 'x', test_resilience.py:" in done.err
    )
    assert f"  train.py:{LINE}: tf32: internal error (KeyError: 'x'" in done.err
    assert "Traceback" not in done.err
    text = (broken / "train.py").read_text()
    assert "fused=" in text and "set_float32_matmul_precision" not in text


def test_debug_shows_the_trace(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = autofast("rewrite", "train.py", "--debug")
    assert (
        done.code == 0 and "Traceback" in done.err and "raise KeyError(loader.framework" in done.err
    )
    assert "Traceback" not in autofast("rewrite", "train.py").err
    monkeypatch.setenv("AUTOFAST_DEBUG", "1")
    assert "Traceback" in autofast("check", "train.py").err


def test_check_reports_what_a_rule_raised(broken: Path) -> None:
    done = autofast("check", "train.py", "--output-format", "json")
    assert done.code == 1 and done.err.startswith(
        f"autofast: warning: train.py:{LINE}: internal error (KeyError: 'x'"
    )
    assert done.err.count("\n") == 1
    found = [f for f in json.loads(done.out)["findings"] if f["rule"] == "tf32"]
    assert [(f["path"], f["line"], f["status"]) for f in found] == [("train.py", LINE, "refused")]
    assert found[0]["reason"].endswith("in rule tf32, please report")


def test_a_rule_on_request_that_raises(broken: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.all_rules()
    monkeypatch.setitem(known, "ddp", replace(known["ddp"], find=known["tf32"].find))
    done = autofast("check", "train.py", "--effect", "recipe")
    assert "in rule ddp, please report" in done.err and "in rule tf32, please report" in done.err


def transfer(of: Any) -> ast.expr:
    """The first copy to a device of a script."""
    return min((t.node for t in of.transfers), key=lambda n: (n.lineno, n.col_offset))


def test_what_two_rules_want_of_one_call_is_done_in_two_passes(
    project: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The real ``non-blocking`` beside a rule that rewrites one of its calls as a whole."""
    known = dict(registry.all_rules())

    def find(of: Any, options: Options) -> Iterator[Finding]:
        if ast.unparse(node := transfer(of)) == "x.to(device)":
            yield Finding(node, "named", (Rewrite(node, "x.to(device=device)"),))

    known["empty-cache"] = replace(known["empty-cache"], find=find)
    monkeypatch.setattr(registry, "all_rules", lambda: known)
    done = autofast("rewrite", "train.py", "--select", "empty-cache,non-blocking", "-o", "new.py")
    assert done.code == 0 and "Warning" not in done.err, done.err
    assert "x.to(device=device, non_blocking=True)" in (project / "new.py").read_text()


def test_rewrite_says_which_rule_it_left_out(
    project: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rule that finds something to do in its own output."""
    known = dict(registry.all_rules())

    def find(of: Any, options: Options) -> Iterator[Finding]:
        node = transfer(of)
        yield Finding(node, "again", (Before(statement_of(node), "pass"),))

    known["empty-cache"] = replace(known["empty-cache"], find=find)
    monkeypatch.setattr(registry, "all_rules", lambda: known)
    before = files(project)
    done = autofast("rewrite", "train.py", "--select", "empty-cache,pin-memory", "-o", "new.py")
    assert done.code == 0, done.err
    place = SCRIPT[: SCRIPT.index("x, y = x.to")].count("\n") + 2  # of the new text
    why = f"train.py:{place}: empty-cache would change its own output again: "
    assert f"Warning: empty-cache is left out: {why}" in done.err
    text = (project / "new.py").read_text()
    assert "pin_memory=" in text and "pass" not in text
    assert {name: data for name, data in files(project).items() if name != "new.py"} == before
    assert autofast("rewrite", "train.py", "--select", "pin-memory", "-o", "-").text == text


# ---------------------------------------------------------------------------------------- estimates
@pytest.mark.usefixtures("resilient")
def test_a_question_about_the_gain_that_raises_leaves_its_rule_out() -> None:
    def ask(*_: Any) -> None:
        raise ValueError("no figure")

    made = plan(replace(keyword("x"), asks=ask), keyword("y"))
    assert [x.rule for x in made.left_out] == ["x"] and "no figure" in made.left_out[0].why
    assert made.applied == {"y"} and text_of(made) == "load(1, y=1)\nload(2, y=1)\n"
