"""Brings the generated parts of README.md up to date: the table of rules and the diff. ``--check``
only tells whether they are.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from autofast.report.rules import markdown

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = "fixtures/mnist_like/train.py"
PICKED = ("loss-item-sync", "fused-optimizer")  # the hunks that are shown have one of these
FOLDER = "fixtures/mnist_like"  # its own project, with the width of its own lines


def readme() -> str:
    """README.md as it should be."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name, content in (("diff", diff()), ("rules", markdown())):
        start = text.index("-->\n", text.index(f"<!-- {name}:")) + len("-->\n")
        text = text[:start] + content + text[text.index(f"<!-- /{name} -->") :]
    return text


def diff() -> str:
    """Some of the hunks that ``make demo`` shows, but for a GPU."""
    command = [sys.executable, "-m", "autofast", "rewrite", SCRIPT, "--root", FOLDER, "--diff"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True
    )
    head, *hunks = re.split(r"^(?=@@)", done.stdout, flags=re.MULTILINE)
    picked = [h for h in hunks if any(rule in h.splitlines()[0] for rule in PICKED)]
    said = f"{len(picked)} of the {len(hunks)} hunks of `autofast rewrite {SCRIPT} --root {FOLDER}`"
    return f"{said}:\n\n```diff\n{head}{''.join(picked)}```\n"


def main() -> None:
    now = (ROOT / "README.md").read_text(encoding="utf-8")
    then = readme()
    if "--check" in sys.argv:
        sys.exit("README.md is out of date: run scripts/readme.py" if now != then else 0)
    (ROOT / "README.md").write_text(then, encoding="utf-8")


if __name__ == "__main__":
    main()
