"""Composing edits: each kind of edit in each layout, and what edits at one place make of each
other.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from textwrap import dedent

import pytest

from autofast.edit.compose import compose
from autofast.edit.edits import (
    After,
    Around,
    Before,
    Decorator,
    DictItem,
    DropElement,
    DropKeyword,
    Edit,
    EditConflict,
    Header,
    Helper,
    Import,
    Keyword,
    Parameter,
    Remove,
    Replace,
    Rewrite,
    Wrap,
)
from autofast.edit.merge import Pool
from autofast.edit.order import Rank
from autofast.edit.snippet import TemplateError
from autofast.model.source import Source
from tests.engine import call, edited, expr, source, stmt

Edits = Callable[[Source], Iterable[Edit]]


def check(before: str, edits: Edits, after: str, limit: int | None = None) -> None:
    assert edited(before, edits, limit) == dedent(after)


# ---------------------------------------------------------------------------------------- arguments
WORKERS: Edits = lambda s: [  # noqa: E731
    Keyword(call(s, "f"), "n", "4", rule="a"),
    Keyword(call(s, "f"), "pin", "True", rule="b"),
]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f()", "f(n=4, pin=True)"),
        ("f(\n)", "f(n=4, pin=True)"),
        ("f(a)", "f(a, n=4, pin=True)"),
        ("f(a,)", "f(a, n=4, pin=True,)"),
        ("f( a )", "f( a, n=4, pin=True )"),
        ("f(a, n=2)", "f(a, n=4, pin=True)"),
        ("f(a, b = 2)", "f(a, b = 2, n = 4, pin = True)"),
        ("f(a, n=2, **k)", "f(a, n=4, pin=True, **k)"),
        ("f(**k)", "f(n=4, pin=True, **k)"),
        ("f(*a, b=1)", "f(*a, b=1, n=4, pin=True)"),
        ("f(x for x in y)", "f((x for x in y), n=4, pin=True)"),
        ("f(\n    a\n)", "f(\n    a,\n    n=4,\n    pin=True\n)"),
        ("f(\n    a,\n)", "f(\n    a,\n    n=4,\n    pin=True,\n)"),
        ("f(\n    a, b\n)", "f(\n    a, b, n=4, pin=True\n)"),
        ("f(a, b,\n  c)", "f(a, b,\n  c, n=4, pin=True)"),
        ("f(a,\n  b)", "f(a,\n  b,\n  n=4,\n  pin=True)"),
        ("f(\n    *a,\n    **k,\n)", "f(\n    *a,\n    n=4,\n    pin=True,\n    **k,\n)"),
        (
            "f(\n    a,  # one\n    b=1  # two\n)",
            "f(\n    a,  # one\n    b=1,  # two\n    n=4,\n    pin=True\n)",
        ),
        (
            "f(\n    a,  # one\n    # end\n)",
            "f(\n    a,  # one\n    n=4,\n    pin=True,\n    # end\n)",
        ),
    ],
)
def test_keywords_take_the_layout_of_the_call(before: str, after: str) -> None:
    check(f"x = {before}\n", WORKERS, f"x = {after}\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("{}", '{"n": 4}'),
        ("{'a': 1}", "{'a': 1, 'n': 4}"),
        ("{'a': 1,}", "{'a': 1, 'n': 4,}"),
        ("{'n': 1, **o}", "{'n': 4, **o}"),
        ("{\n    'a': 1\n}", "{\n    'a': 1,\n    'n': 4\n}"),
        (
            "{\n    'a': 1,  # one\n    **o  # two\n    # end\n}",
            "{\n    'a': 1,  # one\n    **o,  # two\n    'n': 4\n    # end\n}",
        ),
        ("dict(a=1)", "dict(a=1, n=4)"),
    ],
)
def test_items_take_the_layout_of_the_dictionary(before: str, after: str) -> None:
    check(f"x = {before}\n", lambda s: [DictItem(s.tree.body[0].value, "n", "4")], f"x = {after}\n")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(n=1)", "f()"),
        ("f(a, n=1)", "f(a)"),
        ("f(n=1, a=2)", "f(a=2)"),
        ("f(a)", "f(a)"),
        ("f(\n    a,  # one\n    n=1,\n)", "f(\n    a,  # one\n)"),
    ],
)
def test_a_dropped_keyword_takes_its_comma_along(before: str, after: str) -> None:
    check(f"x = {before}\n", lambda s: [DropKeyword(call(s, "f"), "n")], f"x = {after}\n")


def test_several_elements_of_one_display_go() -> None:
    def edits(s: Source) -> Iterable[Edit]:
        display = expr(s, "[a, b, c, d]")
        assert isinstance(display, ast.List)
        return [DropElement(display, display.elts[n]) for n in (3, 0, 2)]

    check("x = [a, b, c, d]\n", edits, "x = [b]\n")


def test_the_comment_of_a_dropped_keyword_survives() -> None:
    check(
        "x = f(\n    a,\n    n=1,  # why\n)\n",
        lambda s: [DropKeyword(call(s, "f"), "n")],
        "# why\nx = f(\n    a,\n)\n",
    )


# -------------------------------------------------------------------------------------- parentheses
@pytest.mark.parametrize(
    ("before", "template", "after"),
    [
        ("x = a + b", "{} / 2", "x = (a + b) / 2"),
        ("x = a * b", "{} / 2", "x = a * b / 2"),
        ("x = a * b", "2 / {}", "x = 2 / (a * b)"),
        ("x = a + b", "f({})", "x = f(a + b)"),
        ("x = (a + b) * 2", "f({})", "x = f((a + b) * 2)"),
        ("x = a if b else c", "f({}, d)", "x = f(a if b else c, d)"),
        ("x = a if b else c", "{} or d", "x = (a if b else c) or d"),
        ("x = lambda: a", "{}.n", "x = (lambda: a).n"),
        ("x = -a", "{} ** 2", "x = (-a) ** 2"),
        ("x = -a", "2 ** {}", "x = 2 ** -a"),
        ("x = a ** b", "-{}", "x = -a ** b"),
        ("x = 1", "{}.real", "x = (1).real"),
        ("x = a, b", "f({})", "x = f((a, b))"),
        ("x = not a", "{} == b", "x = (not a) == b"),
        ("x = a == b", "not {}", "x = not a == b"),
        ("x = a < b", "{} < c", "x = (a < b) < c"),
        ("x = a or b", "{} and c", "x = (a or b) and c"),
        ("x = 'a' 'b'", "f({})", "x = f('a' 'b')"),
        ("x = (yield)", "f({})", "x = f((yield))"),
        ("x = a +  \\\n  b", "f({})", "x = f(a +  \\\n  b)"),
        ("x = (a +\n  b)", "f({})", "x = f(a +\n  b)"),
        ("x = (a +\n  b)", "{} + 1", "x = (a +\n  b) + 1"),
    ],
)
def test_a_wrapped_expression_gets_the_parentheses_it_needs(
    before: str, template: str, after: str
) -> None:
    check(f"{before}\n", lambda s: [Wrap(s.tree.body[0].value, template)], f"{after}\n")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "anchor", "template", "after"),
    [
        ("x = a * 2", "a", "{} + b", "x = (a + b) * 2"),
        ("x = (a) * 2", "a", "f({})", "x = f(a) * 2"),
        ("x = (a + b) * 2", "a + b", "f({})", "x = f(a + b) * 2"),
        ("x = f(a)", "a", "{} + b", "x = f(a + b)"),
        ("x = a.b", "a", "{} + b", "x = (a + b).b"),
        ("x = y[a]", "a", "{} + b", "x = y[a + b]"),
        ("x = [a for a in y if z]", "z", "{} if t else u", "x = [a for a in y if (z if t else u)]"),
        ("if a: pass", "a", "{} or b", "if a or b: pass"),
        ("while(a): pass", "a", "{} or b", "while(a or b): pass"),
        ("x = 1 if(a)else 2", "a", "f({})", "x = 1 if(f(a))else 2"),
        ("x = f(*a)", "a", "{} or b", "x = f(*a or b)"),
        ("@a\ndef f(): pass", "a", "g({})", "@g(a)\ndef f(): pass"),
        ("x = f(b for b in a)", "b for b in a", "g({})", "x = f(g(b for b in a))"),
        ("for a, b in c: pass", "c", "zip({}, d)", "for a, b in zip(c, d): pass"),
        ("with a as b: pass", "a", "c({})", "with c(a) as b: pass"),
        ("assert a, b", "a", "{} is c", "assert a is c, b"),
    ],
)
def test_a_new_expression_gets_the_parentheses_its_place_needs(
    before: str, anchor: str, template: str, after: str
) -> None:
    def find(s: Source) -> ast.expr:
        generators = [n for n in ast.walk(s.tree) if isinstance(n, ast.GeneratorExp)]
        return generators[0] if " for " in anchor else expr(s, anchor)

    check(f"{before}\n", lambda s: [Wrap(find(s), template)], f"{after}\n")


# -------------------------------------------------------------------------------- finding the place
def test_columns_are_characters_not_bytes() -> None:
    check(
        's = "é😀"; y = f(a, "ü"); z = g(b)\n',
        lambda s: [Wrap(call(s, "g"), "w({})")],
        's = "é😀"; y = f(a, "ü"); z = w(g(b))\n',
    )


def test_expressions_inside_f_strings() -> None:
    check(
        "p(f\"{é} {a.item():.4f} {f'{a.item()}'} {a.item()!r:>{w}}\")\n",
        lambda s: [Wrap(call(s, "a.item", n), f"g{n}({{}})", rule="r") for n in range(3)],
        "p(f\"{é} {g0(a.item()):.4f} {f'{g1(a.item())}'} {g2(a.item())!r:>{w}}\")\n",
    )


def test_new_strings_inside_an_f_string_avoid_its_quotes() -> None:
    check(
        'p(f"{a.item()}")\n',
        lambda s: [Wrap(call(s, "a.item"), 'g({}, "k")')],
        "p(f\"{g(a.item(), 'k')}\")\n",
    )


def test_code_that_no_f_string_can_hold_is_refused() -> None:
    with pytest.raises(EditConflict, match="f-string"):
        edited('p(f"{a()}")\n', lambda s: [Wrap(call(s, "a"), 'g({}, "\\n")')])


def test_an_elif_that_gets_company_becomes_else_and_if() -> None:
    check(
        """
        if a:
            one
        # why
        elif b:
            two
        else:
            three
        """,
        lambda s: [Before(stmt(s, "elif b"), "new()")],
        """
        if a:
            one
        # why
        else:
            new()
            if b:
                two
            else:
                three
        """,
    )


# --------------------------------------------------------------------------------------- statements
def test_parts_of_a_line_are_parted_only_where_something_comes_between() -> None:
    before = "x\n# lead\na; b; c;  # end\nd\n"
    check(
        before, lambda s: [After(stmt(s, "a"), "new()")], "x\n# lead\na\nnew()\nb; c;  # end\nd\n"
    )
    check(
        before, lambda s: [After(stmt(s, "c"), "new()")], "x\n# lead\na; b; c;  # end\nnew()\nd\n"
    )
    check(
        before, lambda s: [Before(stmt(s, "a"), "new()")], "x\nnew()\n# lead\na; b; c;  # end\nd\n"
    )
    check(before, lambda s: [Remove(stmt(s, "b"))], "x\n# lead\na; c;  # end\nd\n")
    check(before, lambda s: [Remove(stmt(s, "a"))], "x\n# lead\nb; c;  # end\nd\n")
    check(
        before,
        lambda s: [Around(stmt(s, "b"), stmt(s, "b"), "with w:")],
        "x\n# lead\na\nwith w:\n    b\nc;  # end\nd\n",
    )


def test_one_line_bodies_become_blocks_where_they_must() -> None:
    before = "for x in y: a(); b()  # end\nc()\n"
    check(before, lambda s: [Wrap(call(s, "a"), "w({})")], "for x in y: w(a()); b()  # end\nc()\n")
    check(
        before,
        lambda s: [After(stmt(s, "a"), "new()")],
        "for x in y:\n    a()\n    new()\n    b()  # end\nc()\n",
    )
    check(
        before,
        lambda s: [Around(stmt(s, "a"), stmt(s, "b"), "with w:")],
        "for x in y:\n    with w:\n        a(); b()  # end\nc()\n",
    )


def test_a_block_left_empty_gets_pass() -> None:
    check(
        "if a:\n    # why\n    b\n",
        lambda s: [Remove(stmt(s, "b"))],
        "if a:\n    # why\n    pass\n",
    )
    check("while a: b\n", lambda s: [Remove(stmt(s, "b"))], "while a:\n    pass\n")


def test_an_if_left_empty_goes_unless_it_asks_or_says_something() -> None:
    both = lambda s: [Remove(stmt(s, "b")), Remove(stmt(s, "c"))]  # noqa: E731
    check("a\nif d.e:\n    b\n    c\nf\n", both, "a\nf\n")
    check("def f():\n    if d:\n        b\n        c\n", both, "def f():\n    pass\n")
    check("if g():\n    b\n    c\n", both, "if g():\n    pass\n")
    one = lambda s: [Remove(stmt(s, "b"))]  # noqa: E731
    check("a\nif d:\n    if e:\n        b\nf\n", one, "a\nf\n")
    check("if d:\n    pass\nb\n", one, "if d:\n    pass\n")


def test_an_else_left_empty_goes_unless_it_says_something() -> None:
    before = "if a:\n    b\nelse:\n    c\nd\n"
    check(before, lambda s: [Remove(stmt(s, "c"))], "if a:\n    b\nd\n")
    kept = before.replace("    c", "    c  # why")
    assert "# why" in edited(kept, lambda s: [Remove(stmt(s, "c"))])
    idle = "if a:\n    b\nelse:\n    pass\nd\n"
    check(idle, lambda s: [Remove(stmt(s, "b"))], "if a:\n    pass\nelse:\n    pass\nd\n")


def test_new_code_goes_between_blank_lines_and_the_comment_of_a_statement() -> None:
    check(
        """
        def f():
            # part one

            # about a
            a
        """,
        lambda s: [Before(stmt(s, "a"), "new()")],
        """
        def f():
            # part one

            new()

            # about a
            a
        """,
    )


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("f(a,b,c)\n", "f(a,b,c,k=1)\n"),
        ("f(a, b,c)\n", "f(a, b,c, k=1)\n"),
        ("f(a)\ng = (1,2,3)\n", "f(a,k=1)\ng = (1,2,3)\n"),
        ("f(a)\ng = (1, 2, 3)\n", "f(a, k=1)\ng = (1, 2, 3)\n"),
        ("f(a,\n  b)\ng = (1,2,3)\n", "f(a,\n  b,\n  k=1)\ng = (1,2,3)\n"),
    ],
)
def test_a_new_argument_is_parted_as_the_others_are(text: str, becomes: str) -> None:
    check(text, lambda s: [Keyword(call(s, "f"), "k", "1")], becomes)


def test_new_code_goes_above_the_heading_of_a_part() -> None:
    check(
        """
        first

        # optimizer

        a
        """,
        lambda s: [Before(stmt(s, "a"), "new()")],
        """
        first

        new()

        # optimizer

        a
        """,
    )


def test_blank_lines_that_are_indented_as_the_block_above_count() -> None:
    before = "class A:\n    def f(self):\n        return 1\n    \n\na\n"
    after = "class A:\n    def f(self):\n        return 1\n    \n\nnew()\na\n"
    file = source(before)
    assert compose([Before(stmt(file, "a"), "new()")])[file] == after


def test_comments_of_removed_and_replaced_statements_survive() -> None:
    check(
        """
        # lead
        a(1,  # inside
          2)  # end
        b(x)  # noqa
        c(y)  # last
        d
        """,
        lambda s: [
            Remove(stmt(s, "a(")),
            Remove(stmt(s, "b(")),
            Replace(stmt(s, "c("), "new({y})\nmore()", holes={"y": expr(s, "y")}),
        ],
        """
        # lead
        # inside
        # end
        new(y)  # last
        more()
        d
        """,
    )


def test_comments_that_a_template_leaves_out_go_above_the_statement() -> None:
    check(
        "x = f(\n    a,  # one\n    b,  # two\n)\n",
        lambda s: [Rewrite(call(s, "f"), "g({b})", holes={"b": expr(s, "b")})],
        "# one\n# two\nx = g(b)\n",
    )


def test_nothing_goes_above_a_docstring_or_a_future_import() -> None:
    check(
        """
        'Module.'
        from __future__ import annotations

        def f():
            'Function.'
            a
        """,
        lambda s: [Before(stmt(s, "'Func"), "new()"), Before(stmt(s, "'Mod"), "import x")],
        """
        'Module.'
        from __future__ import annotations
        import x

        def f():
            'Function.'
            new()
            a
        """,
    )


def test_a_with_statement_goes_and_its_body_stays() -> None:
    check(
        """
        # lead
        with a:  # head
            # in
            x
            y
            # foot
        # next
        z
        """,
        lambda s: [Header(stmt(s, "with"))],
        """
        # lead
        # head
        # in
        x
        y
        # foot
        # next
        z
        """,
    )
    check("with a: x; y\n", lambda s: [Header(stmt(s, "with"))], "x; y\n")


def test_decorators_and_parameters() -> None:
    check(
        "@a\n# why\n@b(1)\ndef f(): pass\n",
        lambda s: [
            Decorator(stmt(s, "def"), "c()"),
            Decorator(stmt(s, "def"), "@d", old=expr(s, "a")),
        ],
        "@d\n# why\n@b(1)\n@c()\ndef f(): pass\n",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "n=0, o=None"),
        ("a", "a, n=0, o=None"),
        ("a, b=1", "a, b=1, n=0, o=None"),
        ("a, *r, **k", "a, *r, n=0, o=None, **k"),
        ("a, *, k", "a, n=0, o=None, *, k"),
        ("a, /", "a, /, n=0, o=None"),
        ("n", "n, o=None"),
        ("\n    a,\n    b,\n", "\n    a,\n    b,\n    n=0,\n    o=None,\n"),
    ],
)
def test_parameters_go_where_every_call_stays_right(before: str, after: str) -> None:
    def edits(s: Source) -> list[Edit]:
        return [
            Parameter(stmt(s, "def"), "n", "0", rule="a"),
            Parameter(stmt(s, "def"), "o", "None", rule="b"),
        ]

    check(f"def f({before}): pass\n", edits, f"def f({after}): pass\n")


# ----------------------------------------------------------------------------- who goes inside whom
def test_ranks_decide_what_is_inside() -> None:
    check(
        """
        # about a
        a
        b
        """,
        lambda s: [
            Before(stmt(s, "a"), "outer()", rule="r", rank=Rank.GRAD_MODE),
            Before(stmt(s, "a"), "inner()", rule="r"),
            Around(stmt(s, "a"), stmt(s, "b"), "if g:", rule="g", rank=Rank.GUARD),
            Around(stmt(s, "a"), stmt(s, "b"), "with m:", rule="m", rank=Rank.GRAD_MODE),
            After(stmt(s, "b"), "zero()", rule="a", rank=Rank.ZERO),
            After(stmt(s, "b"), "update()", rule="z", rank=Rank.SCALER_UPDATE),
            After(stmt(s, "b"), "cast()", rule="c", rank=Rank.AUTOCAST),
        ],
        """
        outer()
        with m:
            if g:
                inner()
                # about a
                a
                b
                update()
                zero()
            cast()
        """,
    )


def test_what_has_the_rank_of_a_block_stays_outside() -> None:
    check(
        "a\n",
        lambda s: [
            Before(stmt(s, "a"), "before()", rule="r", rank=Rank.GUARD),
            Around(stmt(s, "a"), stmt(s, "a"), "if g:", rule="r", rank=Rank.GUARD),
            After(stmt(s, "a"), "after()", rule="r", rank=Rank.GUARD),
        ],
        "before()\nif g:\n    a\nafter()\n",
    )


def test_blocks_inside_blocks_wherever_they_begin_and_end() -> None:
    check(
        "a\nb\nc\n",
        lambda s: [
            Around(stmt(s, "a"), stmt(s, "c"), "with w:", rule="w"),
            Around(stmt(s, "a"), stmt(s, "b"), "with v:", rule="v", rank=Rank.GRAD_MODE),
            Around(stmt(s, "b"), stmt(s, "b"), "with u:", rule="u"),
            Around(stmt(s, "c"), stmt(s, "c"), "with t:", rule="t"),
            After(stmt(s, "c"), "new()", rule="x", rank=Rank.GUARD),
        ],
        "with w:\n    with v:\n        a\n        with u:\n            b\n    with t:\n        c\nnew()\n",
    )


@pytest.mark.parametrize("step", [1, -1])
def test_wrappers_nest_by_rank_whatever_the_order_of_the_edits(step: int) -> None:
    check(
        "loss.backward()\n",
        lambda s: [
            Wrap(expr(s, "loss"), "{} / 4", rule="z", rank=Rank.LOSS_DIVIDE),
            Wrap(expr(s, "loss"), "scaler.scale({})", rule="a", rank=Rank.LOSS_SCALE),
        ][::step],
        "scaler.scale(loss / 4).backward()\n",
    )


def test_nested_edits_keep_each_other() -> None:
    check(
        "for x in load(data(1)):\n    step(x)\n",
        lambda s: [
            Keyword(call(s, "data"), "n", "4", rule="a"),
            Rewrite(
                call(s, "load"),
                "fast({d}, {n})",
                holes={"d": call(s, "data"), "n": expr(s, "1")},
                rule="b",
            ),
            Wrap(expr(s, "1"), "int({})", rule="c"),
            Wrap(call(s, "load"), "iter({})", rule="d"),
            Around(stmt(s, "for"), stmt(s, "for"), "with w:", rule="e"),
            After(stmt(s, "step"), "new()", rule="f"),
        ],
        "with w:\n    for x in iter(fast(data(int(1), n=4), int(1))):\n        step(x)\n        new()\n",
    )


def test_an_expression_can_be_moved_out_of_its_place() -> None:
    check(
        "y = f(a +\n      g(b))\n",
        lambda s: [
            Before(stmt(s, "y"), "t = {h}", holes={"h": call(s, "f").args[0]}, rule="a"),
            Rewrite(call(s, "f").args[0], "t", rule="a"),
            Keyword(call(s, "g"), "n", "4", rule="b"),
        ],
        "t = (a +\n      g(b, n=4))\ny = f(t)\n",
    )


def test_around_statements_of_which_some_or_all_are_removed() -> None:
    before = "# one\na  # end\n# two\nb\nc\n"
    some: Edits = lambda s: [Remove(stmt(s, "a")), Around(stmt(s, "a"), stmt(s, "b"), "with w:")]  # noqa: E731
    every: Edits = lambda s: [*some(s), Remove(stmt(s, "b"))]  # noqa: E731
    check(before, some, "# one\n# end\n# two\nwith w:\n    b\nc\n")
    check(before, every, "# one\n# end\n# two\nc\n")


# --------------------------------------------------------- one thing asked for twice, or two things
def test_identical_edits_become_one_with_several_owners() -> None:
    file = source("f(a)\nb\n")
    pool = Pool()
    for name in "xy":
        pool.add([Keyword(call(file, "f"), "n", "4", rule=name)])
        pool.add(
            [
                After(stmt(file, "b"), "new()", rule=name),
                Around(stmt(file, "b"), stmt(file, "b"), "with w:", rule=name),
            ]
        )
        pool.add([Import(file, "import os", rule=name), Helper(file, "h", "h = 1", rule=name)])
    assert list(pool.edits.values()) == [{"x", "y"}] * 5


TWO: list[tuple[str, Edits]] = [
    (
        "f(n=1)",
        lambda s: [
            Keyword(call(s, "f"), "n", "2", rule="a"),
            Keyword(call(s, "f"), "n", "3", rule="b"),
        ],
    ),
    (
        "f(n=1)",
        lambda s: [
            Keyword(call(s, "f"), "n", "2", rule="a"),
            DropKeyword(call(s, "f"), "n", rule="b"),
        ],
    ),
    (
        "f(n=g(1))",
        lambda s: [
            Keyword(call(s, "f"), "n", "2", rule="a"),
            Wrap(call(s, "g"), "h({})", rule="b"),
        ],
    ),
    (
        "x = f(1)",
        lambda s: [Rewrite(call(s, "f"), "g()", rule="a"), Rewrite(call(s, "f"), "h()", rule="b")],
    ),
    (
        "x = f(1)",
        lambda s: [
            Rewrite(call(s, "f"), "g()", rule="a"),
            Keyword(call(s, "f"), "n", "1", rule="b"),
        ],
    ),
    (
        "x = f(g(1))",
        lambda s: [Rewrite(call(s, "f"), "g()", rule="a"), Wrap(call(s, "g"), "h({})", rule="b")],
    ),
    ("f(g())", lambda s: [Remove(stmt(s, "f"), rule="a"), Wrap(call(s, "g"), "h({})", rule="b")]),
    ("f()", lambda s: [Remove(stmt(s, "f"), rule="a"), Replace(stmt(s, "f"), "g()", rule="b")]),
    (
        "if x:\n    f()",
        lambda s: [Remove(stmt(s, "if"), rule="a"), After(stmt(s, "f"), "g()", rule="b")],
    ),
    (
        "a\nb\nc",
        lambda s: [
            Around(stmt(s, "a"), stmt(s, "b"), "with x:", rule="a"),
            Around(stmt(s, "b"), stmt(s, "c"), "with x:", rule="b"),
        ],
    ),
    ("a", lambda s: [Import(s, "import x", rule="a"), Import(s, "import y as x", rule="b")]),
    ("a", lambda s: [Helper(s, "x", "x = 1", rule="a"), Helper(s, "x", "x = 2", rule="b")]),
    ("a", lambda s: [Helper(s, "x", "x = 1", rule="a"), Helper(s, "x", "x = 2", rule="b")]),
    (
        "def f(): pass",
        lambda s: [
            Parameter(stmt(s, "def"), "n", "0", rule="a"),
            Parameter(stmt(s, "def"), "n", "1", rule="b"),
        ],
    ),
]


@pytest.mark.parametrize(("text", "edits"), TWO)
def test_contradictions_are_refused_in_either_order(text: str, edits: Edits) -> None:
    for step in (1, -1):
        pool = Pool()
        first, second = list(edits(source(text + "\n")))[::step]
        pool.add([first])
        with pytest.raises(EditConflict) as caught:
            pool.add([second])
        assert (caught.value.first, caught.value.second) == (first, second)
        assert list(pool.edits) == [first]


def test_what_is_gone_may_be_removed_again_and_what_moves_may_be_edited() -> None:
    check(
        "if x:\n    f()\ny\n",
        lambda s: [Remove(stmt(s, "if"), rule="a"), Remove(stmt(s, "f"), rule="b")],
        "y\n",
    )
    check(
        "f(g())\n",
        lambda s: [
            Replace(stmt(s, "f"), "h({g})", holes={"g": call(s, "g")}, rule="a"),
            Keyword(call(s, "g"), "n", "1", rule="b"),
        ],
        "h(g(n=1))\n",
    )


def test_mistakes_in_a_rule_are_named() -> None:
    for template in ("f(", "f({other})", "f({x!r})"):
        with pytest.raises(TemplateError):
            edited("a\n", lambda s, t=template: [Wrap(expr(s, "a"), t)])  # type: ignore[misc]
    with pytest.raises(ValueError, match="hole"):
        edited("f(a)\n", lambda s: [Wrap(expr(s, "a"), "{x}", holes={"x": call(s, "f")})])


# ------------------------------------------------------------------------------------- module level
IMPORTS = '''
#!/usr/bin/env python
"""Doc."""
from __future__ import annotations

__author__ = "x"
import os, sys

os.environ["A"] = "1"
import torch.nn
from torch import nn

if True:
    pass
'''.lstrip()


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import json", 6),
        ("from json import load", 6),
        ("import os", 0),
        ("import torch", 0),
        ("from torch import nn", 0),
        ("import sys as s", 6),
    ],
)
def test_an_import_goes_below_the_others_but_no_package_is_imported_earlier_than_before(
    code: str, line: int
) -> None:
    lines = IMPORTS.split("\n")
    expected = [*lines[:line], code, *lines[line:]] if line else lines
    check(IMPORTS, lambda s: [Import(s, code)], "\n".join(expected))


def test_imports_from_one_module_stand_together() -> None:
    check(
        "import os\nx = 1\n",
        lambda s: [
            Import(s, "from torch import nn, amp", rule="a"),
            Import(s, "from torch import amp", rule="b"),
            Import(s, "import a.b as c"),
        ],
        "import os\nimport a.b as c\nfrom torch import amp, nn\n\nx = 1\n",
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "import os\n"),
        ("# c\n", "# c\nimport os\n"),
        ('"""d"""\n', '"""d"""\n\nimport os\n'),
        ('"""d"""\nx = 1\n', '"""d"""\n\nimport os\n\nx = 1\n'),
        ("# c\n\n# s\nx = 1\n", "# c\n\nimport os\n\n# s\nx = 1\n"),
        (
            "try:\n    import os\nexcept E:\n    os = None\n",
            "try:\n    import os\nexcept E:\n    os = None\n",
        ),
    ],
)
def test_an_import_into_a_file_without_any(before: str, after: str) -> None:
    check(before, lambda s: [Import(s, "import os")], after)


def test_an_import_that_begins_a_group_stands_in_it() -> None:
    check(
        '"""d"""\n\nimport sys\n\nfrom torch import nn\n\nx = 1\n',
        lambda s: [Import(s, "import os"), Import(s, "import torch")],
        '"""d"""\n\nimport os\nimport sys\n\nimport torch\nfrom torch import nn\n\nx = 1\n',
    )


def test_helpers_stand_below_the_imports_they_use() -> None:
    check(
        "import os\nos.x()\nimport torch\nimport re\n\ndef main(): pass\n",
        lambda s: [
            Helper(s, "h", "def h():\n    return torch.x(LIMIT)", rule="a"),
            Helper(s, "h", "def h():\n    return torch.x(LIMIT)", rule="b"),
            Helper(s, "LIMIT", "LIMIT = 1", rule="a"),
        ],
        "import os\nos.x()\nimport torch\nimport re\n\nLIMIT = 1\n\n\ndef h():\n    return torch.x(LIMIT)\n\n\ndef main(): pass\n",
    )


def test_a_helper_that_is_there_already_is_not_added() -> None:
    text = "import os\n\n\ndef h(a):  # mine\n    return  a\n"
    check(text, lambda s: [Helper(s, "h", "def h(a):\n    return a")], text)


# --------------------------------------------------------------------------------- the user's style
NEW = "if {a}:\n    f(\n        1,\n    )\nelse:\n    g()"


@pytest.mark.parametrize("unit", ["\t", "  ", "    ", "   "])
def test_new_code_is_indented_as_the_file_is(unit: str) -> None:
    def styled(text: str) -> str:
        return dedent(text).lstrip().replace("    ", unit)

    before = styled("""
        def m(x):
            while x:
                f(a)
    """)
    after = styled("""
        def m(x):
            while x:
                with w:
                    if a:
                        f(
                            1,
                        )
                    else:
                        g()
    """)

    def edits(s: Source) -> list[Edit]:
        old = stmt(s, "f(")
        return [Replace(old, NEW, holes={"a": expr(s, "a")}), Around(old, old, "with w:")]

    assert edited(before, edits) == after


def test_new_code_has_the_quotes_of_the_file() -> None:
    code = """f("a", 'b', "it's", f"{{x}}", \"\"\"long\"\"\")"""
    check(
        "a = 'x'\n",
        lambda s: [After(stmt(s, "a"), code)],
        """a = 'x'\nf('a', 'b', "it's", f"{x}", \"\"\"long\"\"\")\n""",
    )
    check(
        'a = "x"\n',
        lambda s: [After(stmt(s, "a"), code)],
        """a = "x"\nf("a", "b", "it's", f"{x}", \"\"\"long\"\"\")\n""",
    )


LONG = "loader = DataLoader(data, batch_size = 4, sampler='x')  # why\n"


def test_a_line_that_grows_too_long_is_broken_and_its_quotes_and_spaces_are_kept() -> None:
    check(
        f"if x:\n\t{LONG}",
        lambda s: [Keyword(call(s, "DataLoader"), "num_workers", "4")],
        "if x:\n\tloader = DataLoader(\n\t\tdata, batch_size = 4, sampler='x', num_workers = 4\n\t)  # why\n",
        limit=66,
    )


def test_a_line_that_still_fits_or_was_too_long_before_is_not_broken() -> None:
    for limit in (30, 200, None):
        check(
            LONG,
            lambda s: [Keyword(call(s, "DataLoader"), "num_workers", "4")],
            "loader = DataLoader(data, batch_size = 4, sampler='x', num_workers = 4)  # why\n",
            limit,
        )


@pytest.mark.parametrize(("close", "broken"), [(9, True), (3, False)])
def test_lines_that_keep_to_79_columns_are_kept_there(close: int, broken: bool) -> None:
    """Where many lines come close and none goes past; also a line that is only indented."""
    line = f"total = measure({'x' * 20}, {'y' * 20}, {'z' * 16})\n"
    assert len(line) == 78
    before = f"kept = '{'k' * 66}'\n" * (close - 1) + line
    after = f"with w:\n    {line}"
    if broken:
        after = f"with w:\n    total = measure(\n        {line[16:-2]}\n    )\n"
    check(
        before,
        lambda s: [Around(stmt(s, "total"), stmt(s, "total"), "with w:")],
        before.removesuffix(line) + after,
    )


def test_a_line_that_is_only_indented_is_not_broken() -> None:
    check(
        LONG,
        lambda s: [Around(stmt(s, "loader"), stmt(s, "loader"), "with w:")],
        f"with w:\n    {LONG}",
        limit=60,
    )


def test_the_head_of_a_block_is_broken_alone() -> None:
    check(
        "if y:\n  a\nelif f(one, two, three, four):\n  a  ;  b\n",
        lambda s: [Keyword(call(s, "f"), "five", "5")],
        "if y:\n  a\nelif f(\n  one, two, three, four, five=5\n):\n  a  ;  b\n",
        limit=36,
    )


@pytest.mark.parametrize("head", ["x, y = ", "return "])
def test_a_tuple_is_broken_between_its_parts(head: str) -> None:
    check(
        f"def f():\n    {head}a.to(device), b.to(device)  # why\n",
        lambda s: [
            Keyword(call(s, "a.to"), "non_blocking", "True"),
            Keyword(call(s, "b.to"), "non_blocking", "True"),
        ],
        f"def f():\n    {head}(\n        a.to(device, non_blocking=True),\n        b.to(device, non_blocking=True),\n    )  # why\n",
        limit=60,
    )


MOVES = [  # the assignment, and whether it may be taken apart
    ("x, y = x.to(device), y.to(device)", True),
    ("x, y = x[0].to(device), x[1].to(device)", False),
    ("x, y = y.to(device), x.to(device)", False),
    ("x, y = a.to(device), b.to(device)", True),
    ("x, y = a.to(device), b.to(x.device)", False),
    ("x, x = a.to(device), b.to(device)", False),
    ("o.x, o.y = a.to(device), b.to(device)", False),
    ("x, y = f(a).to(device), b.to(device)", False),
]


@pytest.mark.parametrize(("line", "apart"), MOVES)
def test_copies_of_one_line_become_two_statements_where_no_value_is_read_too_late(
    line: str, apart: bool
) -> None:
    def edits(s: Source) -> list[Edit]:
        calls = [c for c in ast.walk(s.tree) if isinstance(c, ast.Call) and c.args]
        moves = [c for c in calls if ast.unparse(c.func).endswith(".to")]
        return [Keyword(c, "non_blocking", "True") for c in moves]

    made = edited(f"def f():\n    {line}\n", edits, 60).split("\n")
    x, y = ast.parse(line).body[0].value.elts  # type: ignore[attr-defined]
    two = [
        f"    {n} = {ast.unparse(v)[:-1]}, non_blocking=True)"
        for n, v in zip("xy", (x, y), strict=True)
    ]
    assert (made[1:3] == two) is apart
    assert apart or any(m.lstrip().startswith("y") or m == "    )" for m in made)


# --------------------------------------------------------------------------------------- form feeds
def test_form_feeds_stay_in_lines_that_no_edit_touches() -> None:
    before = "import os\n\x0cclass A:\n    pass\n\x0c\nf(1)\n\x0cg(2)\nif os:\n    h(3)\n\x0celse:\n    pass\n"
    check(
        before,
        lambda s: [Keyword(call(s, "f"), "x", "5"), Keyword(call(s, "h"), "y", "6")],
        before.replace("f(1)", "f(1, x=5)").replace("h(3)", "h(3, y=6)"),
    )


def test_a_line_with_a_form_feed_can_be_edited() -> None:
    text = edited("import os\n\x0cf(1)\ng(2)\n", lambda s: [Keyword(call(s, "f"), "x", "5")])
    assert text.replace("\x0c", "") == "import os\nf(1, x=5)\ng(2)\n"


def test_the_distance_around_a_statement_that_goes_is_one_distance() -> None:
    before = """
    a = 1

    b = 2


    def f():
        c = 1

        # about d
        d = 2

        return c
    """
    after = """
    a = 1


    def f():
        c = 1

        # about d

        return c
    """
    check(before, lambda s: [Remove(stmt(s, "b = 2")), Remove(stmt(s, "d = 2"))], after)


def test_blocks_are_indented_as_most_of_the_file_is() -> None:
    before = """
    if a:
      b()

    def f():
        for x in y:
            g(x)
        return y
    """
    after = """
    if a:
      b()

    def f():
        with c:
            for x in y:
                g(x)
        if z:
            z = 1
        return y
    """

    def edits(s: Source) -> Iterable[Edit]:
        loop = stmt(s, "for x in y")
        return [Around(loop, loop, "with c:"), After(loop, "if z:\n    z = 1")]

    check(before, edits, after)


def test_a_comment_that_makes_a_line_too_long_folds_no_code() -> None:
    before = f"a = f(x){' ' * 60}# what it is, in words\n"
    after = f"a = f(x, n=4){' ' * 60}# what it is, in words\n"
    check(before, lambda s: [Keyword(call(s, "f"), "n", "4")], after, limit=None)


def test_numbers_of_a_folded_line_stay_as_they_are_written() -> None:
    before = "sums = made(parameters, betas=(0., 0.99), smallest=1E-8, largest=0XFF)\n"
    text = edited(before, lambda s: [Keyword(call(s, "made"), "fused", "True")], 75)
    assert all(part in text for part in ("(0., 0.99)", "1E-8", "0XFF", "fused=True")), text
    assert text.count("\n") > 1


def test_a_long_line_that_has_become_shorter_is_not_folded() -> None:
    before = (
        "labels = Variable(torch.zeros(number, classes).scatter_(1, given.view(-1, 1), 1).cuda())\n"
    )
    after = "labels = torch.zeros(number, classes).scatter_(1, given.view(-1, 1), 1).cuda()\n"

    def edits(s: Source) -> list[Edit]:
        outer = call(s, "Variable")
        return [Rewrite(outer, "{x}", {"x": outer.args[0]})]

    assert edited(before, edits, 60) == after


def test_new_code_at_the_top_of_a_cell_leaves_the_cell_above_as_it_is() -> None:
    before = "class A:\n    x = 1\n\n# %% cell 2\na = A()\n"
    check(before, lambda s: [Before(stmt(s, "a ="), "b = 2")], before.replace("a =", "b = 2\na ="))
