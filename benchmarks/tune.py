"""Workloads as users write them: what does ``autofast tune`` keep on this CPU, and does a separate
``autofast verify`` confirm it?

    python -m benchmarks.tune [--budget 590] [--checking 100] [--only tabular,pictures] [--results
    DIR] [--write]

Takes ten minutes for each of four; leave the machine alone meanwhile. ``--results`` keeps what
comes out (the tuned scripts, both JSON documents, the pages), and takes up what is there already.
``--write`` puts the table into docs/tune.md. Needed besides torch: Pillow, NumPy.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.pages import put

HERE = Path(__file__).parent / "workloads"
PAGE = Path(__file__).parent.parent / "docs" / "tune.md"
NAMES = ("tabular", "pictures", "chargpt", "nothing")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=590.0, help="seconds for each search")
    parser.add_argument("--checking", type=float, default=100.0, help="seconds for each verify")
    parser.add_argument("--only", type=lambda names: names.split(","), default=list(NAMES))
    parser.add_argument("--results", type=Path, help="keep what comes out in this folder")
    parser.add_argument("--write", action="store_true", help="put the table into docs/tune.md")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = (args.results or Path(temporary)).resolve()
        found = [one(name, results, args.budget, args.checking) for name in args.only]
    table = [*_head(found, args), *(_row(*x) for x in found)]
    print("\n".join(table))
    if args.write:
        put("workloads", table, PAGE)
    return 0


def one(
    name: str, results: Path, budget: float, checking: float
) -> tuple[str, dict[str, Any], dict[str, Any] | None]:
    """What tune says of a workload, and what verify says of the tuned script; None where that is
    the original.
    """
    folder = results / name
    folder.mkdir(parents=True, exist_ok=True)
    script, tuned = folder / "train.py", folder / "tuned.py"
    script.write_bytes((HERE / name / "train.py").read_bytes())
    if not (folder / "tune.json").exists():
        _autofast(
            folder,
            *("tune", script.name, "-o", tuned.name, "--force", "--time-budget", f"{budget:.0f}"),
            *("--json", "tune.json", "--report", "tune.html"),
        )
    read = json.loads((folder / "tune.json").read_text())
    if not read["kept"]["rules"]:
        assert tuned.read_bytes() == script.read_bytes()
        return name, read, None
    if not (folder / "verify.json").exists():
        _autofast(
            folder,
            *("verify", script.name, tuned.name, "--time-budget", f"{checking:.0f}"),
            *("--json", "verify.json", "--seed", "1"),
        )
    return name, read, json.loads((folder / "verify.json").read_text())


def _autofast(folder: Path, *words: str) -> None:
    command = [sys.executable, "-m", "autofast", *words, "--root", ".", "--threads", "1"]
    with open(folder / f"{words[0]}.txt", "w") as out:
        done = subprocess.run(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode > 1 or done.returncode and words[0] == "tune":
        sys.exit((folder / f"{words[0]}.txt").read_text())


def _head(found: list[Any], args: argparse.Namespace) -> list[str]:
    torch = found[0][1]["environment"]["torch"]
    return [
        f"{date.today().isoformat()}, {_cpu()}, 1 thread, torch {torch}, at most {args.budget:.0f} s for each search,",
        f"{args.checking:.0f} s for the separate verify.",
        "",
        "| workload | kept | time before ÷ after, as confirmed | separate verify | dropped | runs, seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]


def _row(name: str, read: dict[str, Any], checked: dict[str, Any] | None) -> str:
    kept = ", ".join(f"{r['rule']} {_ratio(r['alone'])}" for r in read["rules"] if r["kept"])
    dropped = ", ".join(
        f"{r['rule']} ({r['outcome'].replace('-', ' ')}{', ' * bool(r['alone'])}{_ratio(r['alone'])})"
        for r in read["rules"]
        if not r["kept"]
    )
    said = "-"
    if checked is not None and checked["speed"] is not None:
        speed, parity = checked["speed"], checked["parity"]
        said = f"{speed['verdict'].upper()} {_ratio(speed['ratio'])}, {parity['verdict'].upper()}"
    claim = f"**{_ratio(read['claim'])}**" if read["claim"] else "the original stays"
    cost = f"{read['runs']}, {read['seconds']:.0f}"
    return f"| {name} | {kept or 'nothing'} | {claim} | {said} | {dropped or '-'} | {cost} |"


def _ratio(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return ""
    ends = [ratio["low"], ratio["high"]]
    if not all(isinstance(x, float) for x in ends) or ends[0] <= 0:
        return f"{ratio['value']:.2f}"
    return f"{ratio['value']:.2f} ({ends[0]:.2f} to {ends[1]:.2f})"


def _cpu() -> str:
    try:
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        return f"{names[0]}, {len(names)} cores"
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
