"""What the pages print of `fixtures/mnist_like` is what the commands print."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.test_cli import autofast, project

__all__ = ["project"]  # a fixture
ROOT = Path(__file__).parent.parent
# page, command, and what it prints where only its end stands in the page
SHOWN = [
    ("getting-started.md", "autofast rewrite train.py", "train.py: 3 rules"),
    ("usage.md", "autofast check train.py", ""),
    ("usage.md", "autofast explain train.py:142", ""),
]


def blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize(("page", "command", "start"), SHOWN, ids=lambda value: value or "-")
def test_what_a_page_prints(project: Path, page: str, command: str, start: str) -> None:
    """Line for line, in this order; only where `...` stands some may be left out."""
    shutil.copy(ROOT / "fixtures" / "mnist_like" / "train.py", project / "train.py")
    head = start or f"$ {command}\n"
    (block,) = [b for b in blocks(page) if b.startswith(head)]
    done = autofast(*command.split()[1:])
    printed = done.err[done.err.index(start) :] if start else done.text  # behind any progress
    parts = block.removeprefix(f"$ {command}\n").split("...\n")
    assert printed.startswith(parts[0]) and len(parts[0]) > 100, (parts[0], printed)
    at = 0
    for part in parts:
        found = printed.find(part.strip("\n"), at)
        assert found >= 0, (part, printed[at:])
        at = found + len(part.strip("\n"))
