"""`autofast check`, as it comes, over folders of public code: what it finds, what it refuses and
why, what it cannot read, and what that takes.

    python -m benchmarks.public_files FOLDER... --json RESULTS.json
        runs; folders that are in RESULTS.json already are left out
    python -m benchmarks.public_files --json RESULTS.json
        the tables of docs/census.md
    python -m benchmarks.public_files --json RESULTS.json --draw 20 --seed 14
        twenty findings to be judged

Each folder is a project of its own (a clone, an unpacked wheel). Nothing of it is run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

COMMAND = (
    *(sys.executable, "-m", "autofast", "check"),
    *("--show-refused", "--no-cache", "--output-format", "json", "--exit-zero"),
)
Result = dict[str, Any]


def look(folder: Path) -> Result:
    """One run over one folder."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out_file, tempfile.TemporaryFile() as err_file:
        with subprocess.Popen(COMMAND, cwd=folder, stdout=out_file, stderr=err_file) as process:
            _, status, usage = os.wait4(process.pid, 0)  # with what it used
            process.returncode = os.waitstatus_to_exitcode(status)
        out_file.seek(0)
        err_file.seek(0)
        out, err = out_file.read(), err_file.read().decode("utf-8", "replace")
    answer = json.loads(out) if out.strip() else {"files": [], "findings": []}
    python = [path for path in folder.rglob("*.py") if path.is_file()]
    return {
        "files": len(python),
        "lines": sum(path.read_bytes().count(b"\n") for path in python),
        "read": answer["files"],
        "findings": answer["findings"],
        "code": process.returncode,
        "stderr": err.splitlines(),
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": time.monotonic() - began,
        "memory": usage.ru_maxrss // 1024,
    }


def kind(reason: str) -> str:
    """A reason without the names and numbers of the place that it is about."""
    text = re.sub(r"`[^`]*`", "`…`", reason)
    text = re.sub(r"\b[\w./-]+\.(py|ipynb|ya?ml|json|toml)(:\d+)?", "FILE", text)
    text = re.sub(r"\b\d[\d.,]*\b", "N", text)
    return re.sub(r"\b[A-Za-z_]\w*(\.\w+)+(\(\))?|\b\w+\(\)|\b[A-Z]\w*[A-Z]\w*\b", "NAME", text)


def tables(results: dict[str, Result], most: int) -> None:
    """What docs/census.md shows."""
    rows = results.values()
    errors = [(name, line) for name, row in results.items() for line in row["stderr"]]
    errors = [(n, line) for n, line in errors if line.startswith("autofast: ")]
    print(f"{len(results)} folders, {sum(r['files'] for r in rows):,} Python files", end="")
    print(f" of {sum(r['lines'] for r in rows):,} lines;", end=" ")
    print(f"{sum(len(r['read']) for r in rows):,} files were read with the scripts that train")
    print(
        f"{sum(r['cpu'] for r in rows):.0f} s of CPU; at most {max(r['memory'] for r in rows)} MB"
    )
    for name, row in sorted(results.items(), key=lambda item: -item[1]["cpu"])[:8]:
        print(f"   {row['cpu']:7.1f} s {row['memory']:5} MB {row['lines']:8,} lines  {name}")
    print("exit codes:", dict(Counter(row["code"] for row in rows)))
    found: dict[str, Counter[str]] = {}
    reasons: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for finding in row["findings"]:
            status = finding["status"]
            if status == "fix" and finding["worth"] is False:
                status = "small"
            found.setdefault(finding["rule"], Counter())[status] += 1
            if status == "refused":
                reasons[finding["rule"], kind(finding["reason"])] += 1
    total = sum(found.values(), Counter[str]())
    print(
        "\n| rule | fixes | not worth their lines | advice | refused |\n| --- | --- | --- | --- | --- |"
    )
    for rule, n in [*sorted(found.items()), ("all", total)]:
        print(f"| {rule} | {n['fix']} | {n['small']} | {n['advice']} | {n['refused']} |")
    print("\n| refused | rule | reason |\n| --- | --- | --- |")
    for (rule, reason), count in reasons.most_common(most):
        print(f"| {count} | {rule} | {reason} |")
    print("\nlines on standard error that are errors")
    for name, line in errors:
        print(f"   {name}: {line}")


def main() -> None:
    """Run, or show."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--most", type=int, default=25)
    parser.add_argument("--draw", type=int, help="show so many fixes and advice drawn at random")
    parser.add_argument("--seed", type=int, default=14)
    args = parser.parse_args()
    results = json.loads(args.json.read_text()) if args.json.exists() else {}
    for folder in args.folders:
        if folder.name not in results:
            results[folder.name] = look(folder)
            args.json.write_text(json.dumps(results))
            print(folder.name, f"{results[folder.name]['cpu']:.1f} s", file=sys.stderr, flush=True)
    if args.draw:
        shown = [
            (name, finding)
            for name, row in sorted(results.items())
            for finding in row["findings"]
            if finding["status"] == "advice" or (finding["status"] == "fix" and finding["worth"])
        ]
        for name, f in random.Random(args.seed).sample(shown, args.draw):
            print(
                f"{name} {f['path']}:{f['line']} {f['rule']} {f['status']}: {f['message']} ({f['reason']})"
            )
    elif not args.folders:
        tables(results, args.most)


if __name__ == "__main__":
    main()
