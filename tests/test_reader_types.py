"""What torch and Python give decides which arm of a program runs: the reader never holds one for
dead that runs, and what is set there is not lost behind it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reading import HEAD, run, unsound

TEXT = (Path(__file__).parent / "reader_types.txt").read_text("utf-8")
PROGRAMS = dict(re.findall(r"^#: (\w+)\n(.*?)(?=^#: |\Z)", TEXT, re.M | re.S))


def by_flags(code: str) -> str:
    """The same program, which asks behind each `if` whether its arm was run."""
    arm = re.compile(r"^( *)if (.*):\n( *probe\.show\(.*\))\n(?! *(?:else|elif))", re.M)
    return arm.sub(r"\1flag = 0\n\1if \2:\n\1    flag = 1\n\1if flag:\n\3\n", code)


@pytest.mark.parametrize("write", [str, by_flags])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arms(name: str, write: type, tmp_path: Path) -> None:
    code = HEAD.lstrip() + write(PROGRAMS[name])
    assert run(code)
    assert unsound(tmp_path, code, seeds=1) == []
