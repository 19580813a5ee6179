"""Programs in a fork end as programs do, and leave nothing behind."""

from __future__ import annotations

import os
import select
from pathlib import Path

import pytest

from tests.zygote import PROGRAM, QUIET, ZYGOTE

pytest.importorskip("torch")


@pytest.mark.parametrize(
    "text, code, stdout, stderr",
    [
        ("import sys; print(sys.argv[1:]); sys.exit(3)", 3, "['a']\n", ""),
        ("raise SystemExit('no data')", 1, "", "no data\n"),
        ("import atexit; atexit.register(print, 'bye'); print('done')", 0, "done\nbye\n", ""),
        (
            "import threading as t; t.Thread(target=lambda: (t.main_thread().join(), print('late'))).start()",
            0,
            "late\n",
            "",
        ),
        ("import io, sys; print('kept'); sys.stdout = io.StringIO()", 0, "kept\n", ""),
    ],
)
def test_the_end_of_a_program(tmp_path: Path, text: str, code: int, stdout: str, stderr: str):
    (tmp_path / "script.py").write_text(text)
    outputs = {"stdout": tmp_path / "out", "stderr": tmp_path / "err"}
    ended = ZYGOTE.run(
        PROGRAM, ["script.py", "a"], limit=60, cwd=tmp_path, environment=QUIET, **outputs
    )
    assert (ended, (tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == (
        code,
        stdout,
        stderr,
    )


def test_what_a_program_starts_ends_with_it(tmp_path: Path):
    (tmp_path / "script.py").write_text("import os, signal\nif not os.fork():\n    signal.pause()")
    ours, theirs = os.pipe()
    outputs = {"stdout": theirs, "stderr": tmp_path / "err"}
    assert (
        ZYGOTE.run(PROGRAM, ["script.py"], limit=60, cwd=tmp_path, environment=QUIET, **outputs)
        == 0
    )
    with open(ours, "rb", buffering=0) as output:
        assert (
            select.select([output], [], [], 60)[0] and output.read() == b""
        )  # at its end: nobody is left who could write
