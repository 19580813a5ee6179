"""What autofast answers at the places of places.toml (or places-2.toml), at which an expert would
change a public training script.

    python -m benchmarks.places --mirror DIR [--set places-2] [--only NAME ...] [--json OUT.json]
    [--against OLD.json] [--list]

DIR holds the repositories as DIR/OWNER+NAME/repo. For each entry: ``autofast check -v --root REPO
ENTRY --output-format json --effect recipe --exit-zero``. A place is fixed, refused or advised where
a finding of its technique says so on its line, else in the same file within three lines (in the
same file for what is decided once for a model, anywhere for what is set once for a script or is
answered where the dataset is made), otherwise silent. Whether a reason is true is judged from the
source, by hand, and kept in places-judged.toml (places-2-judged.toml); a judgement counts only as
long as the reason is that one. What stands under `forbid` in an entry must not be changed by the
technique named: a fix there is violated. The CPU seconds of each entry are told on stderr.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
KEPT = (".py", ".ipynb", ".toml", ".cfg", ".yaml", ".yml", ".json", ".txt")
NEAR = 3  # lines between a place and a finding about it
IN_FILE = {"autocast", "channels-last", "legacy-amp-api"}
IN_SCRIPT = {"batched-dataset", "cudnn-benchmark", "tf32"}
AROUND = {"loss-item-sync", "no-grad-eval"}  # statements: all their lines count
ORDER = ("fix", "refused", "advice")  # the better answer where there are two
SHOWN = {"fix": "fixed", "refused": "refused", "advice": "advised", "": "silent"}
Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--set", default="places", help="which list: places, places-2")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of repositories' names")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--against", type=Path, help="an earlier --json: what has changed")
    parser.add_argument("--list", action="store_true", help="every place that is not fixed")
    options = parser.parse_args()
    rows = [
        row
        for entry in tomllib.loads((HERE / f"{options.set}.toml").read_text())["entry"]
        if any(part in entry["repo"] for part in options.only)
        for row in answers(entry, options.mirror)
    ]
    judge(rows, HERE / f"{options.set}-judged.toml")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    for row in rows if options.list else []:
        if row["answer"] != "fix":
            judged = f" [{row['judged']}]" if row["judged"] else ""
            print(f"{place(row)}: {SHOWN[row['answer']]}{judged}: {row['text'] or row['reason']}")
    print(table(rows))
    if options.against:
        earlier = json.loads(options.against.read_text())
        before: dict[str, str] = {place(row): str(row["answer"]) for row in earlier}
        for row in rows:
            old = before.get(place(row), str(row["answer"]))
            if old != row["answer"]:
                print(f"{place(row)}: {SHOWN[old]} -> {SHOWN[row['answer']]}")
    return 0


def answers(entry: Row, mirror: Path) -> list[Row]:
    """One row for each place of the entry, with the answer that it gets."""
    with tempfile.TemporaryDirectory() as folder:
        lay_out(mirror / entry["repo"].replace("/", "+") / "repo", entry["commit"], Path(folder))
        command = [sys.executable, "-m", "autofast", "check", "-v", "--root", ".", entry["entry"]]
        command += ["--output-format", "json", "--effect", "recipe", "--exit-zero"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        print(f"{entry['repo']} {entry['entry']}: {seconds:.1f} s", file=sys.stderr)
        at = [in_file(Path(folder) / path, str(line)) for path, line, *_ in entry["places"]]
        kept = [
            (path, in_file(Path(folder) / path, str(line)), technique)
            for path, line, technique, _ in entry.get("forbid", ())
        ]
    if done.returncode:
        print(f"{entry['repo']} {entry['entry']}: {done.stderr.strip()[-300:]}", file=sys.stderr)
    findings = json.loads(done.stdout)["findings"] if not done.returncode else []
    for path, number, technique in kept:
        for finding in findings:
            here = technique in IN_FILE | IN_SCRIPT or (
                finding["line"] <= number <= finding["end_line"]
            )
            if (finding["rule"], finding["status"]) == (technique, "fix") and (
                here and near(finding, path, number, technique)
            ):
                print(f"violated: {entry['repo']} {path}:{number} {technique}", file=sys.stderr)
    rows = []
    for (path, line, technique, reason), number in zip(entry["places"], at, strict=True):
        found = [f for f in findings if f["rule"] == technique and near(f, path, number, technique)]
        found.sort(
            key=lambda f: (
                not f["line"] <= number <= f["end_line"],
                ORDER.index(f["status"]),
                abs(f["line"] - number),
            )
        )
        rows.append(
            {
                "repo": entry["repo"],
                "entry": entry["entry"],
                "path": path,
                "line": line,
                "technique": technique,
                "reason": reason,
                "answer": found[0]["status"] if found else "",
                "text": (found[0].get("reason") or found[0]["message"]) if found else "",
                "judged": "",
            }
        )
    return rows


def near(finding: Row, path: str, line: int, technique: str) -> bool:
    """Whether the finding is about the place."""
    if technique in IN_SCRIPT:
        return True
    close = technique in IN_FILE or abs(int(finding["line"]) - line) <= NEAR
    if technique in AROUND:
        close = close or finding["line"] <= line <= finding["end_line"]
    return finding["path"] == path and close


def in_file(file: Path, line: str) -> int:
    """The line in the file; "cell:line" of a notebook is counted in its JSON, as findings are."""
    cell, _, number = line.rpartition(":")
    if not cell:
        return int(line)
    lines = file.read_text().split("\n")
    sources = [at for at, text in enumerate(lines, 1) if text.strip().startswith('"source": [')]
    return sources[int(cell)] + int(number)


def lay_out(git: Path, commit: str, into: Path) -> None:
    """Write the text files of the commit; those that the copy lacks are left out."""
    git = git / ".git" if (git / ".git").is_dir() else git
    listing = subprocess.run(
        ["git", "--git-dir", git, "ls-tree", "-r", "-z", commit], capture_output=True, check=True
    ).stdout
    for line in filter(None, listing.decode("utf-8", "replace").split("\0")):
        meta, name = line.split("\t", 1)
        if meta.startswith("120000") or not name.endswith(KEPT):
            continue
        blob = subprocess.run(
            ["git", "--git-dir", git, "cat-file", "blob", meta.split()[2]], capture_output=True
        )
        if blob.returncode == 0:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            (into / name).write_bytes(blob.stdout)


def judge(rows: list[Row], kept: Path) -> None:
    """Put into each row what was judged of its answer, where that is still the answer."""
    known = tomllib.loads(kept.read_text())["judged"] if kept.exists() else []
    by_place = {(j["place"], j["text"]): j["verdict"] for j in known}
    for row in rows:
        row["judged"] = by_place.get((place(row), row["text"]), "")


def place(row: Row) -> str:
    return f"{row['repo']} {row['path']}:{row['line']} {row['technique']}"


def table(rows: list[Row]) -> str:
    """The answers by technique, as Markdown."""
    count: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        name = "other" if row["technique"].startswith("other:") else row["technique"]
        for key in (name, "all"):
            count[key][SHOWN[row["answer"]]] += 1
            count[key]["wrong"] += row["judged"] == "wrong"
    names = sorted(count, key=lambda name: (name == "all", name == "other", -total(count[name])))
    columns = ("fixed", "refused", "advised", "wrong", "silent")
    lines = [
        "| technique | places | fixed | refused | advised | wrongly so | silent |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in names:
        cells = [str(total(count[name])), *(str(count[name][column]) for column in columns)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def total(count: Counter[str]) -> int:
    return sum(count[shown] for shown in SHOWN.values())


if __name__ == "__main__":
    raise SystemExit(main())
