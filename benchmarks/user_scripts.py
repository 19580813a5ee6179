"""Projects in as many people's styles: what is found there, and what rewriting changes.

    python -m benchmarks.user_scripts [NAME ...] [--set 1..20] [--python PYTHON] [--json FILE]

``benchmarks/user_scripts`` has a folder for each of sixteen, ``user_scripts_2`` for eighteen more
of another hand, ``user_scripts_3`` for fourteen of a third, ``user_scripts_4`` to ``_6`` for
twelve, eight and ten of three more, ``_7`` to ``_19`` for eight each of thirteen more, ``_20`` for
ten of two; its ``RUN`` file is the command that trains it on generated data (10 to 20 s each on one
core; ``PYTHON`` needs torch, NumPy, Pillow, PyYAML, click and tqdm). In ``labels.toml`` their
writer said what an expert would change and what must stay, before any rule had seen them. Each is
rewritten three times and run again: up to ``exact`` it must print the same but for times; with the
others, that round and draw otherwise, it must run. Five minutes a set on a machine that is at rest.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.progress import track

from autofast.model.notebook import Notebook
from benchmarks.notebook_labels import in_file
from benchmarks.precision import Row, is_core, meets

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SETS = {"1": "user_scripts"} | {str(n): f"user_scripts_{n}" for n in range(2, 21)}
REWRITES = {
    "exact": ["--effect", "exact", "--exhaustive"],
    "default": [],
    "exhaustive": ["--exhaustive"],
}
TIMES = re.compile(
    r"\d+(\.\d+)? ?(s|sec|ms|ms/step|it/s|img/s|sps|fps|words/s|pos/s|iters/s|steps/s)\b|\b(?i:sps) +\d+|[\d-]{10} [\d:]{8},\d+|time: [\d.]+"
)


def autofast(*options: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autofast", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def findings(folder: Path, entry: str) -> list[Row]:
    """The fixes, also those that are not worth their lines."""
    options = ["--output-format", "json", "--effect", "recipe", "--exit-zero"]
    done = autofast("check", "--root", ".", entry, *options, folder=folder)
    return [f for f in json.loads(done.stdout)["findings"] if f["status"] == "fix"]


def placed(label: Row, folder: Path) -> Row:
    """A label with the line of the file, also where that is a notebook."""
    path = folder / label["file"]
    if path.suffix != ".ipynb" or "cell" in label:
        return label
    notebook = Notebook(path, label["file"], path.read_bytes())
    return {**label, "line": in_file(notebook, label["line"])}


def labelled(script: Row, folder: Path) -> Row:
    """Which labels are met, and which fixes stand where nothing must be changed: ``exhaustive``
    are those that are not worth their lines.
    """
    fixes = findings(folder, script["entry"])
    core = [placed(x, folder) for x in script["expect"] if is_core(x)]
    forbidden = [placed(x, folder) for x in script["forbid"]]
    missed = [x for x in core if not any(meets(f, x) for f in fixes)]
    # A finding about a loop may be met by a line above its function.
    asked_again = {x["technique"] for x in missed} & {f["rule"] for f in fixes}
    lines = {rule: changed_lines(folder, script["entry"], rule) for rule in asked_again}
    missed = [x for x in missed if not is_written(x, lines.get(x["technique"], {}))]
    asked = {(x["technique"], x["file"], x["line"]) for x in core}
    others = [f for f in fixes if (f["rule"], f["path"], f["line"]) not in asked]
    touched = [[f for f in others if is_touched(f, x)] for x in forbidden]
    pairs = list(zip(forbidden, touched, strict=True))
    return {
        "core": len(core),
        "missed": missed,
        "forbidden": len(forbidden),
        "violated": [x for x, those in pairs if any(f["worth"] for f in those)],
        "exhaustive": [x for x, those in pairs if those and not any(f["worth"] for f in those)],
    }


def changed_lines(folder: Path, entry: str, rule: str) -> dict[str, set[int]]:
    """For each file, the lines that one rule alone writes at."""
    with tempfile.TemporaryDirectory() as out:
        options = ["--select", rule, "--effect", "recipe", "--exhaustive", "--output-dir", out]
        autofast("rewrite", entry, "--root", ".", *options, folder=folder)
        found: dict[str, set[int]] = {}
        for new in (path for path in Path(out).rglob("*") if path.is_file()):
            name = new.relative_to(out).as_posix()
            if (old := folder / name).is_file():
                a, b = (path.read_text(encoding="utf-8").splitlines() for path in (old, new))
                spans = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
                found[name] = {
                    line
                    for kind, first, last, _, _ in spans
                    if kind != "equal"
                    for line in range(first + 1, max(last, first + 1) + 1)
                }
    return found


def is_written(label: Row, lines: dict[str, set[int]]) -> bool:
    return any(abs(line - label["line"]) <= 1 for line in lines.get(label["file"], ()))


def is_touched(fix: Row, label: Row) -> bool:
    return (fix["rule"], fix["path"]) == (label["technique"], label["file"]) and (
        abs(fix["line"] - label["line"]) <= 1
    )


def trained(folder: Path, python: str) -> str:
    """What it prints, without times; raises where it fails."""
    paths = os.pathsep.join((str(Path(python).parent), os.environ.get("PATH", "")))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PATH": paths}
    command = (folder / "RUN").read_text().strip()
    done = subprocess.run(
        command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return TIMES.sub("T", done.stdout)


def rewritten(home: Path, folder: Path, entry: str, before: str, python: str) -> dict[str, str]:
    """For each rewrite, whether what it prints is the same."""
    said = {}
    for name, options in REWRITES.items():
        copy = folder.parent / name
        shutil.copytree(home, copy)
        done = autofast("rewrite", entry, "--root", ".", "--in-place", *options, folder=copy)
        try:
            after = trained(copy, python)
            said[name] = "the same" if after == before else "other numbers"
        except RuntimeError as error:
            said[name] = f"fails: {error}"
        if done.returncode not in (0, 1):
            said[name] = f"not rewritten: {done.stderr.strip()[-300:]}"
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--set", choices=SETS, default="1")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    here = Path(__file__).parent / SETS[options.set]
    scripts = tomllib.loads((here / "labels.toml").read_text(encoding="utf-8"))["script"]
    rows = []
    for script in track([s for s in scripts if s["name"] in options.names or not options.names]):
        with tempfile.TemporaryDirectory() as top:
            folder = Path(top) / "original"
            shutil.copytree(here / script["name"], folder)
            row = {"script": script["name"], **labelled(script, folder)}
            before = trained(folder, options.python)
            home, entry = here / script["name"], script["entry"]
            row["runs"] = rewritten(home, folder, entry, before, options.python)
        rows.append(row)
        print(
            f"{row['script']}: {row['core'] - len(row['missed'])} of {row['core']}; {row['runs']}"
        )
        for what in ("missed", "violated", "exhaustive"):
            for label in row[what]:
                print(f"  {what}: {label['technique']} {label['file']}:{label['line']}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    core, missed = sum(r["core"] for r in rows), sum(len(r["missed"]) for r in rows)
    counts = {k: sum(len(r[k]) for r in rows) for k in ("violated", "exhaustive")}
    forbidden = sum(r["forbidden"] for r in rows)
    print(f"{core - missed} of {core} met; of {forbidden} that must stay, {counts}")
    runs = [(name, said) for r in rows for name, said in r["runs"].items()]
    wrong = [s for n, s in runs if s[:3] in ("fai", "not") or (n == "exact" and s != "the same")]
    print(f"{len(runs)} rewrites, {len(wrong)} that fail or are not exact")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
