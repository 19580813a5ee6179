"""Several files are one change: all are written or none, whatever comes in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from autofast.commands import files
from autofast.commands.files import Output, write_all
from autofast.model.source import BadInput

NAMES = ("a.py", "b.py", "c.py")
# What happens behind the first rename.
PROGRAM = """
import os, signal, sys
from pathlib import Path
from autofast.commands.files import Output, write_all

if sys.argv[1] == "SIGINT":  # which what runs in the background may have been told to ignore
    signal.signal(signal.SIGINT, signal.default_int_handler)
real = os.replace
def replace(old, new):
    real(old, new)
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
os.replace = replace
write_all([Output(Path(name), b"new", was=b"old") for name in ("a.py", "b.py", "c.py")])
"""


@pytest.fixture
def three(tmp_path: Path) -> list[Output]:
    for name in NAMES:
        (tmp_path / name).write_bytes(b"old")
    return [Output(tmp_path / name, b"new", was=b"old") for name in NAMES]


def texts(folder: Path) -> list[bytes]:
    return [(folder / name).read_bytes() for name in NAMES]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="Windows cannot hold signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_friendly_end_waits_for_the_last_file(
    tmp_path: Path, three: list[Output], name: str
) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], cwd=tmp_path, capture_output=True)
    assert done.returncode == -getattr(signal, name)
    assert texts(tmp_path) == [b"new"] * 3


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no kill -9")
def test_what_a_kill_leaves_is_not_lost(tmp_path: Path, three: list[Output]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, "SIGKILL"], cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert texts(tmp_path) == [b"new", b"old", b"old"]
    (kept,) = tmp_path.glob(".a.py.*.autofast-old")
    assert kept.read_bytes() == b"old"


def test_a_rename_that_fails(
    tmp_path: Path, three: list[Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.replace, []

    def replace(old: Path, new: Path) -> None:
        calls.append(new)
        if len(calls) == 3:
            raise OSError(5, "Input/output error", str(new))
        real(old, new)

    monkeypatch.setattr(files.os, "replace", replace)
    with pytest.raises(BadInput, match=r"c\.py: cannot be written \(.*\); nothing was changed"):
        write_all(three)
    assert texts(tmp_path) == [b"old"] * 3
    assert sorted(p.name for p in tmp_path.iterdir()) == list(NAMES)


def test_what_cannot_be_put_back_is_kept(
    tmp_path: Path, three: list[Output], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.replace, []

    def replace(old: Path, new: Path) -> None:
        calls.append(new)
        if len(calls) >= 3:
            raise OSError(5, "Input/output error", str(new))
        real(old, new)

    monkeypatch.setattr(files.os, "replace", replace)
    with pytest.raises(BadInput, match=r"what stood in .*b\.py, .*a\.py is in .*\.autofast-old"):
        write_all(three)
    kept = sorted(tmp_path.glob("*.autofast-old"))
    assert len(kept) == 2 and {path.read_bytes() for path in kept} == {b"old"}


def test_no_room(tmp_path: Path, three: list[Output], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(BadInput, match=r"a\.py: cannot be written \(No space left on device\)"):
        write_all(three)
    assert texts(tmp_path) == [b"old"] * 3 and len(list(tmp_path.iterdir())) == 3
