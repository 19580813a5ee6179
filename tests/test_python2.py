"""A file of Python 2: the one line of the error names every leftover and what to write for it."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from autofast.cli import cli
from autofast.model.python2 import ASYNC, leftovers, parsed

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


# ------------------------------------------------------- what is read, and written as it is today
COPIES = """\
# größer
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

net = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(64, 4), torch.randint(2, (64,))), 8, pin_memory=True)
for x, y in loader:
    x = x.cuda(async=True); y = y.cuda(async = True)
    loss = nn.functional.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def run(*args: str) -> str:
    done = CliRunner().invoke(cli, list(args))
    assert done.exit_code == 0, done.output
    return done.output


def test_copies_that_say_async_are_written_as_they_are_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_bytes(COPIES.encode("utf-8"))
    said = run("rewrite", "train.py", "--diff")
    assert "-    x = x.cuda(async=True); y = y.cuda(async = True)" in said and ASYNC not in said
    run("rewrite", "train.py", "--patch", "fast.patch")
    run("rewrite", "train.py", "-o", "fast.py")
    fast = Path("fast.py").read_text("utf-8")
    assert "x.cuda(non_blocking=True); y = y.cuda(non_blocking=True)" in fast
    ast.parse(fast)
    subprocess.run(["git", "apply", "fast.patch"], check=True)
    assert Path("train.py").read_text("utf-8") == fast


@pytest.mark.parametrize("how", ["--ignore", "--select"])
def test_copies_that_say_async_stay_where_the_rule_is_off(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = COPIES + "    total = x.new_zeros(1).cuda()\n"
    Path("train.py").write_text(text, "utf-8")
    rules = "variable-api" if how == "--ignore" else "device-creation"
    run("rewrite", "train.py", how, rules, "--exhaustive", "-o", "fast.py")
    assert Path("fast.py").read_text("utf-8").count("async") == 2


def test_check_shows_the_line_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(COPIES, "utf-8")
    said = run("check", "train.py", "--exit-zero")
    assert "x.cuda(async=True)" in said and ASYNC not in said


@pytest.mark.parametrize(
    "code", ["f(async=True)", "async = 3", "print x.cuda(async=True)", "def f(async=1): pass"]
)
def test_other_things_that_are_called_async_stop_the_reading(code: str) -> None:
    assert parsed(f"x.cuda(async=True)\n{code}\n") is None


def test_a_text_keeps_its_length() -> None:
    text = "f(x.cuda(async=True), y.to(d, async=True))\n"
    read = parsed(text)
    assert read is not None and len(read[0]) == len(text)
    assert [k.arg for n in ast.walk(read[1]) if isinstance(n, ast.Call) for k in n.keywords] == [
        "async"
    ] * 2
