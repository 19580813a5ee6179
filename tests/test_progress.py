"""What ``check`` shows of its progress, on a real terminal and in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autofast.commands.rewriting import rewrite
from autofast.config import Config
from autofast.report import progress
from tests.test_cli import autofast, project  # noqa: F401

# Goes on when it is told to: what is shown then does not depend on how fast it is.
WORK = """
import sys
from autofast.report import progress
progress.AFTER = progress.EVERY = 0.01
with progress.counted() as tell:
    tell(1, 3, "a[b].py")
    sys.stdin.readline()
"""


def shown(stderr: int, read: int) -> str:
    """All that is written until the name is seen, and after the work is over."""
    child = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE, stderr=stderr)
    os.close(stderr)
    found = b""
    while b"a[b].py" not in found and (more := os.read(read, 4096)):
        found += more
    child.communicate(b"\n")
    assert child.returncode == 0
    return found.decode()


def test_a_bar_on_a_terminal() -> None:
    pty = pytest.importorskip("pty")
    read, write = pty.openpty()
    text = shown(write, read)
    assert "1/3" in text and "\r" in text
    os.close(read)


def test_lines_in_a_pipe() -> None:
    read, write = os.pipe()
    text = shown(write, read)
    assert "1 of 3: a[b].py" in text and "\x1b" not in text
    os.close(read)


def test_check_tells_and_quiet_does_not(
    project: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[int, int, str]] = []

    class Counted:
        def __enter__(self) -> object:
            return lambda *now: told.append(now)

        def __exit__(self, *error: object) -> None:
            pass

    monkeypatch.setattr(progress, "counted", Counted)
    for command in (["check"], ["check", "--diff"], ["rewrite"]):
        autofast(*command, "--quiet", "train.py")
        assert not told
    autofast("check", "train.py")
    assert told == [(0, 1, "train.py")]
    for command in (["check", "--diff"], ["rewrite"]):
        told.clear()
        autofast(*command, "train.py")
        assert told[:2] == [(0, 1, "train.py"), (0, 1, "train.py, rewritten")], command


def test_what_shares_files_is_told(project: Path) -> None:  # noqa: F811
    script = project / "train.py"
    (project / "part.py").write_text(script.read_text())
    for name in ("train.py", "other.py"):
        (project / name).write_text("import part\n\nif __name__ == '__main__':\n    part.main()\n")
    told: list[str] = []
    rewrite(script, project, Config(), tell=told.append)
    assert "other.py, which shares files with it" in told
