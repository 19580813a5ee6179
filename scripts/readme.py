"""Brings the generated parts of README.md (the table of rules and the diff) and of docs/verify.md
(the table of checks) up to date. ``--check`` only tells whether they are.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from autofast.report.rules import markdown
from autofast.verify.judging import table

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = "fixtures/mnist_like/train.py"
PICKED = ("loss-item-sync", "fused-optimizer")  # the hunks that are shown have one of these
FOLDER = "fixtures/mnist_like"  # its own project, with the width of its own lines


def readme() -> str:
    """README.md as it should be."""
    return made("README.md", diff=diff(), rules=markdown())


def verify() -> str:
    """docs/verify.md as it should be."""
    return made("docs/verify.md", structure=checks(table.STRUCTURE), numbers=checks(table.NUMBERS))


def made(page: str, **parts: str) -> str:
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, content in parts.items():
        start = text.index("-->\n", text.index(f"<!-- {name}:")) + len("-->\n")
        text = text[:start] + content + text[text.index(f"<!-- /{name} -->") :]
    return text


def checks(rows: Sequence[table.Row]) -> str:
    lines = ["| check | compares | needs | allowed | a difference is |", "| --- " * 5 + "|"]
    for row in rows:
        needs = f"{row.seeds} seeds" if row.seeds else row.needs
        if row.effects != table.ALL:
            needs += f"; not {', '.join(e for e in table.ALL if e not in row.effects)}"
        said = row.says.value.upper()
        lines.append(f"| {row.name} | {row.compares} | {needs} | {row.allowed} | {said} |")
    return "\n".join(lines) + "\n"


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
    pages = {ROOT / "README.md": readme(), ROOT / "docs" / "verify.md": verify()}
    for page, then in pages.items():
        if "--check" not in sys.argv:
            page.write_text(then, encoding="utf-8")
        elif page.read_text(encoding="utf-8") != then:
            sys.exit(f"{page.name} is out of date: run scripts/readme.py")


if __name__ == "__main__":
    main()
