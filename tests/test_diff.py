"""Diffs: text for people, bytes that ``git apply`` takes."""

from __future__ import annotations

import difflib
import subprocess
from pathlib import Path

import pytest

from autofast.model.opening import read_source
from autofast.report.diff import Change, FileDiff, patch, shown
from autofast.report.style import Style

OLD = "".join(f"line{n} = {n}\n" for n in range(40))


def changes(old: str, new: str) -> list[Change]:
    matcher = difflib.SequenceMatcher(None, old.split("\n"), new.split("\n"), autojunk=False)
    return [
        Change((a, b), (c, d), ("some-rule",))
        for kind, a, b, c, d in matcher.get_opcodes()
        if kind != "equal"
    ]


def edited(text: str) -> str:
    lines = text.split("\n")
    lines[1:2] = ["first = 'é'", "second = 2"]
    del lines[20]
    lines[-2] += "  # last"
    return "\n".join(lines)


def applied(folder: Path, name: str, raw: bytes, change: str | None = None) -> bytes:
    """What git makes of the file with our patch."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    source = read_source(path, folder)
    new = edited(source.text) if change is None else change
    data = patch([FileDiff(source, new, changes(source.text, new))])
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    done = subprocess.run(["git", "apply", "-"], cwd=folder, input=data, capture_output=True)
    assert done.returncode == 0, done.stderr.decode() + data.decode("utf-8", "replace")
    assert path.read_bytes() == source.encode(new)
    return data


@pytest.mark.parametrize("name", ["train.py", "my scripts/train me.py", 'odd"name.py', "später.py"])
def test_git_takes_any_name(tmp_path: Path, name: str) -> None:
    applied(tmp_path, name, OLD.encode())


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(OLD.replace("\n", "\r\n").encode(), id="crlf"),
        pytest.param(b"\xef\xbb\xbf" + OLD.encode(), id="bom"),
        pytest.param(("# coding: latin-1\nname = 'é'\n" + OLD).encode("latin-1"), id="latin-1"),
    ],
)
def test_git_takes_any_bytes(tmp_path: Path, raw: bytes) -> None:
    applied(tmp_path, "train.py", raw)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("touched", ["last", "near", "far"])
def test_missing_last_newline(tmp_path: Path, end: str, touched: str) -> None:
    lines = [f"x{n} = {n}" for n in range(12)]
    new = list(lines)
    new[{"last": -1, "near": -3, "far": 1}[touched]] += "  # touched"
    data = applied(tmp_path, "train.py", end.join(lines).encode(), "\n".join(new))
    assert (b"No newline" in data) is (touched != "far")


def test_carriage_returns_alone_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_bytes(b"a = 1\rb = 2\r")
    source = read_source(path, tmp_path)
    with pytest.raises(Exception, match="carriage return"):
        patch([FileDiff(source, "a = 2\nb = 2\n", [Change((0, 1), (0, 1), ("r",))])])


def test_hunks_name_their_rules_and_share_context(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(OLD)
    source = read_source(path, tmp_path)
    lines = OLD.split("\n")
    lines[10], lines[15], lines[30] = "ten", "fifteen", "thirty"
    owners = {10: ("tf32",), 15: ("autocast", "tf32"), 30: ("no-grad-eval",)}
    near = [Change((n, n + 1), (n, n + 1), rules) for n, rules in owners.items()]
    text = shown([FileDiff(source, "\n".join(lines), near)], Style())
    assert [line for line in text.splitlines() if line.startswith("@@")] == [
        "@@ -8,12 +8,12 @@  tf32, autocast",
        "@@ -28,7 +28,7 @@  no-grad-eval",
    ]
    assert text.startswith("--- a/train.py\n+++ b/train.py\n") and "\x1b" not in text
    assert "\x1b[32m+ten\x1b[0m" in shown(
        [FileDiff(source, "\n".join(lines), near)], Style(on=True)
    )
