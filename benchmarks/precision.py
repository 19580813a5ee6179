"""How many of the changes that `autofast rewrite` makes an expert would make, too: fixes beside the
labels of scripts.

    python -m benchmarks.precision --labels FILE.toml ... --mirror DIR [--only ID ...] [--json
    OUT.json] [--against OLD.json] [--list]

FILE.toml holds labelled scripts (labels-a.toml, labels-b.toml, the manifest of docs/corpus.md), DIR
their repositories as DIR/OWNER+NAME/repo. For each
script: ``autofast check --root REPO ENTRY --output-format json --exit-zero``, at the default
effect. A fix that is worth its lines is covered where an `expect` label of its rule stands in the
same file, within three lines of it (anywhere in the file for what is set once). "with": it belongs
to what a label of the script asks for, a scaler to autocast, the images to a network in
channels_last. One that is neither is not wrong for that: `--list` shows them, to be read. "labels"
are those that some fix meets, worth its lines or not, "written" those that a fix meets which is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.places import NEAR, lay_out

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

IN_FILE = {"tf32", "cudnn-benchmark", "stepwise-scheduler"}
# What a label asks for elsewhere in the script: an expert who follows it writes these, too.
WITH = {
    "grad-scaler": "autocast", "unscale-before-clip": "autocast", "checkpoint-state": "autocast",
    "gpu-data": "batched-dataset", "channels-last": "channels-last",
}  # fmt: skip
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--labels", type=Path, nargs="+", required=True)
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--only", nargs="*", help="scripts, by id")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path, help="an earlier --json: what has changed")
    parser.add_argument("--list", action="store_true", help="every fix that no label covers")
    options = parser.parse_args()
    scripts = [s for f in options.labels for s in tomllib.loads(f.read_text())["script"]]
    rows = []
    for script in scripts:
        if not options.only or script["id"] in options.only:
            rows += rows_of(script, options.mirror)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    for row in rows if options.list else []:
        if row["kind"] == "fix" and not (row["covered"] or row["with"]):
            print(f"{named(row)}: {row['message']} ({row['gain']})")
    print(table(rows))
    if options.against:
        for line in changed(json.loads(options.against.read_text()), rows):
            print(line)
    return 0


def rows_of(script: Row, mirror: Path) -> list[Row]:
    """A row for each fix that is worth its lines, and one for each label that some fix meets."""
    with tempfile.TemporaryDirectory() as folder:
        git = mirror / script["repo"].replace("/", "+") / "repo"
        lay_out(git, script["commit"], Path(folder))
        command = [sys.executable, "-m", "autofast", "check", "--root", ".", script["path"]]
        command += ["--output-format", "json", "--exit-zero"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        print(f"{script['id']}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return []
    fixes = [f for f in json.loads(done.stdout)["findings"] if f["status"] == "fix"]
    rows = []
    for fix in (f for f in fixes if f["worth"]):
        labels = [x for x in script.get("expect", ()) if meets(fix, x)]
        gain = fix["gain"]["reason"] if fix["gain"] else "no estimate"
        rows.append(row_of(script, "fix", fix["rule"], fix["path"], fix["line"]))
        rows[-1] |= {"covered": bool(labels), "message": fix["message"], "gain": gain}
        asked = WITH.get(fix["rule"], "")
        rows[-1]["with"] = any(x["technique"] == asked for x in script.get("expect", ()))
    for label in script.get("expect", ()):
        met = [f for f in fixes if meets(f, label)]
        if met:
            rows.append(row_of(script, "label", label["technique"], label["file"], label["line"]))
            rows[-1] |= {"written": any(f["worth"] for f in met), "core": is_core(label)}
    return rows


def row_of(script: Row, kind: str, rule: str, path: str, line: int) -> Row:
    return {"script": script["id"], "kind": kind, "rule": rule, "path": path, "line": line}


def is_core(label: Row) -> bool:
    return bool(label.get("need", "core") == "core")


def meets(fix: Row, label: Row) -> bool:
    """Whether the fix is what the label asks for, there or at another place that it accepts."""
    others = [str(place).rsplit(":", 1) for place in label.get("alt", ())]
    places = [(label["file"], int(label["line"])), *((file, int(line)) for file, line in others)]
    anywhere = label["technique"] in IN_FILE or "anchor" in label.get("note", "")
    last = fix["end_line"] or fix["line"]
    return fix["rule"] == label["technique"] and any(
        fix["path"] == file and (anywhere or fix["line"] - NEAR <= line <= last + NEAR)
        for file, line in places
    )


def named(row: Row) -> str:
    return f"{row['script']} {row['path']}:{row['line']} {row['rule']}"


def table(rows: list[Row]) -> str:
    """By rule, as Markdown."""
    fixes = [r for r in rows if r["kind"] == "fix"]
    labels = [r for r in rows if r["kind"] == "label"]
    counts = {
        "fixes": Counter(r["rule"] for r in fixes),
        "covered": Counter(r["rule"] for r in fixes if r["covered"]),
        "with": Counter(r["rule"] for r in fixes if r["with"] and not r["covered"]),
        "neither": Counter(r["rule"] for r in fixes if not r["covered"] and not r["with"]),
        "labels": Counter(r["rule"] for r in labels),
        "written": Counter(r["rule"] for r in labels if r["written"]),
    }
    lines = [f"| rule | {' | '.join(counts)} |", "| --- " * (1 + len(counts)) + "|"]
    for name in sorted(counts["fixes"] | counts["labels"], key=lambda n: (-counts["fixes"][n], n)):
        lines.append(f"| {name} | {' | '.join(str(c[name]) for c in counts.values())} |")
    lines.append(f"| all | {' | '.join(str(sum(c.values())) for c in counts.values())} |")
    return "\n".join(lines)


def changed(before: list[Row], after: list[Row]) -> list[str]:
    """What is in one of two results only, and what of a label is otherwise."""
    lines = []
    for kind in ("fix", "label"):
        old = {named(r): r.get("written") for r in before if r["kind"] == kind}
        new = {named(r): r.get("written") for r in after if r["kind"] == kind}
        lines += [f"- {kind} {name}" for name in old if name not in new]
        lines += [f"+ {kind} {name}" for name in new if name not in old]
        lines += [
            f"{'+' if new[n] else '-'} written: {n}" for n in old if old[n] != new.get(n, old[n])
        ]
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
