"""Labels of notebooks with the lines that findings have.

    python -m benchmarks.notebook_labels LABELS.toml OUT.toml --mirror DIR

A label of a notebook counts lines through its code cells, one after the other (see the head of
labels-h.toml); a finding, like an editor, has the line of the ``.ipynb`` file. ``score.py``
compares the two as they are, so it needs labels that have been through here. DIR holds a git
directory for each repository, as ``score.py`` takes it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

from autofast.model.notebook import Notebook

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = re.compile(r"(?m)^(?=\[\[script)")


def main() -> None:
    """Write the labels once more, those of notebooks with other lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mirror", type=Path, required=True)
    options = parser.parse_args()
    repo = commit = ""
    tables = TABLE.split(options.labels.read_text(encoding="utf-8"))
    for number, table in enumerate(tables):
        if table.startswith("[[script]]"):
            script = tomllib.loads(table)["script"][0]
            repo, commit = script["repo"], script["commit"]
        elif named := re.search(r'(?m)^file = "(.+\.ipynb)"$', table):
            file = named[1]
            notebook = Notebook(Path(file), file, blob(options.mirror, repo, commit, file))
            rows = table.splitlines(keepends=True)
            tables[number] = "".join(renumbered(row, notebook) for row in rows)
    options.out.write_text("".join(tables), encoding="utf-8")


def renumbered(row: str, notebook: Notebook) -> str:
    """A row of a label's table, with the lines of the notebook's file."""
    if row.startswith("line = "):
        return f"line = {in_file(notebook, int(row[len('line = ') :]))}\n"
    if row.startswith("alt = "):
        place = re.compile(re.escape(notebook.rel) + r":(\d+)")
        return place.sub(lambda m: f"{notebook.rel}:{in_file(notebook, int(m[1]))}", row)
    return row


def in_file(notebook: Notebook, line: int) -> int:
    """The line of the file where a line of the joined code cells stands."""
    for head, cell in zip(notebook.heads, notebook.cells, strict=True):
        rows = cell.text.count("\n") + 1
        if line <= rows:
            return notebook.shown(head + line)
        line -= rows
    raise SystemExit(f"{notebook.rel} has no such line: {line} behind its last")


def blob(mirror: Path, repo: str, commit: str, path: str) -> bytes:
    """The bytes of a file of a repository."""
    top = mirror / repo.replace("/", "+")
    git = next(p for p in (top / "repo" / ".git", top / "repo", top) if p.is_dir())
    command = ["git", f"--git-dir={git}", "cat-file", "blob", f"{commit}:{path}"]
    return subprocess.run(command, check=True, capture_output=True).stdout


if __name__ == "__main__":
    main()
