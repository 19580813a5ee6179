"""``autofast rewrite -i``: nothing is written but what was wanted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_cli import SCRIPT, Done, autofast, files, project

__all__ = ["project"]  # fixtures


def pick(answers: str, *options: str) -> Done:
    return autofast("rewrite", "train.py", "-i", *options, stdin=answers.encode())


def asked(done: Done) -> list[str]:
    return re.findall(r"^Apply ([\w-]+) \(\d+ of \d+\)\? \[y,n,a,q,\?\] ", done.err, re.MULTILINE)


def test_all_and_none(project: Path) -> None:
    whole = autofast("rewrite", "train.py", "-o", "-").out
    none = pick("q\n")
    assert none.code == 0 and "nothing to rewrite" in none.err
    assert files(project) == {"train.py": SCRIPT.encode()}
    every = pick("a\n")
    assert every.code == 0 and len(asked(every)) == 1 and "Wrote train.py" in every.err
    assert (project / "train.py").read_bytes() == whole


@pytest.mark.parametrize("wanted", ["no-grad-eval", "fused-optimizer"])
def test_one_of_them(project: Path, wanted: str) -> None:
    order = asked(pick("n\n" * 50))
    assert (
        wanted in order
        and len(order) == len(set(order))
        and files(project) == {"train.py": SCRIPT.encode()}
    )
    done = pick("".join("Y\n" if rule == wanted else "no\n" for rule in order), "-o", "-")
    assert done.code == 0 and "not wanted" in done.err
    alone = autofast("rewrite", "train.py", "-o", "-", "--select", wanted).out
    assert done.out == alone != SCRIPT.encode()


def test_what_needs_a_fix_that_is_not_wanted_is_left(project: Path) -> None:
    options = ("--select", "autocast,grad-scaler", "--precision", "fp16", "-o", "-")
    order = asked(pick("n\n" * 50, *options))
    assert {"autocast", "grad-scaler"} == set(order)
    done = pick("".join("y\n" if rule == "grad-scaler" else "n\n" for rule in order), *options)
    assert done.out == SCRIPT.encode()


def test_the_card_and_other_answers(project: Path) -> None:
    done = pick("?\nwhat\nq\n")
    first = asked(done)[0]
    assert (
        asked(done) == [first] * 3 and f"# {first}\n" in done.err and "leave it and all" in done.err
    )


def test_no_answer_writes_nothing(project: Path) -> None:
    done = pick("y\n")
    assert (
        done.code == 2
        and done.err.endswith("no answer: standard input has ended; nothing was written\n")
        and files(project) == {"train.py": SCRIPT.encode()}
    )
    assert autofast("rewrite", "-", "-i", stdin=SCRIPT.encode()).code == 2
