"""A file of Python 2: the one line of the error names every leftover and what to write for it."""

from __future__ import annotations

import ast

import pytest

from autofast.model.python2 import leftovers

EACH = [
    ("x = x.cuda(async=True)", "`async=` (line 2: write non_blocking=)"),
    ("print 'loss', loss", "print statement (line 2: write print(...))"),
    ("if x: print x", "print statement (line 2"),
    ("print >>f, 'x' if 1 else 2 3", "print statement (line 2"),
    ("exec 'y = 1'", "exec statement (line 2: write exec(...))"),
    ("try: pass\nexcept (A, B), e: pass", "`except A, e:` (line 3"),
    ("raise ValueError, 'no'", "`raise A, message` (line 2"),
    ("if x <> 3: pass", "`<>` (line 2: write `!=`)"),
    ("n = 10L", "a long integer (line 2: leave out the L)"),
    ("os.chmod(p, 0755)", "an octal number (line 2: write 0o...)"),
    ("s = `x`", "backquotes (line 2: write repr(...))"),
    ('s = ur"x"', 'ur"..." (line 2'),
]


@pytest.mark.parametrize(("code", "said"), EACH)
def test_each_leftover_is_named(code: str, said: str) -> None:
    text = "import torch\n" + code + "\n"
    with pytest.raises(SyntaxError):
        ast.parse(text)
    assert said in leftovers(text)


def test_all_of_them_are_named_once_with_their_lines() -> None:
    text = (
        "".join(f"print {n}\n" for n in range(9))
        + "for i in xrange(3):\n    d.iteritems()\n    x.cuda(async=True)\n"
    )
    said = leftovers(text)
    assert "print statement (lines 1, 2, 3, 4, 5, 6 and 3 more: write print(...))" in said
    assert (
        "xrange (line 10: write range)" in said
        and "iteritems (line 11: write items)" in said
        and "`async=` (line 12" in said
    )
    assert "\n" not in said


@pytest.mark.parametrize(
    "code",
    [
        "for x in y\n    pass\n",
        "print('a', 1)\nprint\nx = [print]\nf(print=1)\nx = (\n",
        "'''print 1\nx.cuda(async=True)\n'''\n# print 2\nraise ValueError(1, 2\n",
        "try:\n    pass\nexcept (A, B) as e:\n    f(a, b)\n0 0\n",
        "range = xrange = 3\nunicode x\n",
    ],
)
def test_what_is_valid_today_or_only_a_name_is_no_leftover(code: str) -> None:
    with pytest.raises(SyntaxError):
        ast.parse(code)
    assert leftovers(code) == ""


def test_text_that_cannot_be_split_into_words_does_not_stop_the_search() -> None:
    assert "`async=` (line 4" in leftovers("x = $\n  y\n z\nf(async=True)\n" + '"""')
