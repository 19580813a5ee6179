"""Judges rewritten scripts of known truth with the verifier and writes the tables of
docs/verify-evidence.md.

    python -m benchmarks.verify_faults [--set NAME] [--every N] [--resume FILE] [--write]

``--set``: the number of the set (1: tests/faults, from 2 on benchmarks/verify_faults_N) and, where
it has two halves, ``a`` or ``b``: ``2a``, ``10b``. What each is stands in its folder.

Takes some minutes on two cores, the larger sets hours: ``--resume FILE`` appends each verdict to
FILE as it is judged and skips the cases that stand there. ``--write`` puts the table into
docs/verify-evidence.md, with today's date and the version of torch: from the tenth set on every
case, of the others how many of each script.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable
from datetime import date
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from autofast.verify.result import Parity, Sameness
from benchmarks.pages import put
from tests.faults import CASES, Case
from tests.test_verify_faults import FINE, Bench


def _sets() -> dict[str, list[Case]]:
    """By name: the lists of cases of each package, in their order."""
    found = {"1": CASES}
    packages = Path(__file__).parent.glob("verify_faults_*/__init__.py")
    for number in sorted(int(file.parent.name.rpartition("_")[2]) for file in packages):
        names = vars(import_module(f"benchmarks.verify_faults_{number}")).items()
        lists = {name: one for name, one in names if isinstance(one, list)}
        halves = {name: one for name, one in lists.items() if isinstance(one[0], Case)}
        letters = [name.removeprefix("PART_").lower() for name in halves]
        if not all(len(letter) == 1 for letter in letters):  # of other names
            letters = ["a", "b"] if len(halves) > 1 else [""]
        found |= {
            f"{number}{letter}": half for letter, half in zip(letters, halves.values(), strict=True)
        }
    return found


SETS = _sets()


def _key(case: Case) -> str:
    return f"{case.base}: {case.name}"


def _printed(file: Path) -> dict[str, Parity]:
    """By case."""
    rows = [line.split(" | ", 3) for line in file.read_text().splitlines()]
    return {row[1]: Parity(Sameness(row[2]), "", (), row[3]) for row in rows if len(row) > 3}


def _line(case: Case, found: Parity) -> str:
    right = "right" if (found.verdict in FINE) == case.sound else "WRONG"
    said = " ".join(found.summary.split())
    return " | ".join((right, _key(case), found.verdict.value, said))


def _wrong(known: dict[str, Parity], cases: list[Case]) -> int:
    return sum((known[_key(case)].verdict in FINE) != case.sound for case in cases)


def _by_name(cases: list[Case], found: dict[str, Parity], before: dict[str, Parity]) -> list[str]:
    """Every case; of those that were not run what an earlier run said."""
    lines = ["| script | what was done to it | before | verdict | because |", "| --- " * 5 + "|"]
    for case in cases:
        old, new = (known.get(_key(case)) for known in (before, found))
        name = f"*sound:* {case.name}" if case.sound else case.name
        was, now = (one.verdict.value.upper() if one else "not run" for one in (old, new))
        said = new or old
        because = re.sub(r"([|<>*_])", r"\\\1", said.summary) if said else ""
        lines.append(f"| {case.base} | {name} | {was} | **{now}** | {because} |")
    return lines


def _by_script(cases: list[Case], found: dict[str, Parity], _: dict[str, Parity]) -> list[str]:
    """How many of each script, and what is not right by name."""
    lines = [
        "| script | wrong: flagged, UNCLEAR, passed | sound: right, UNCLEAR, refused |",
        "| --- " * 3 + "|",
    ]
    for base in dict.fromkeys(case.base for case in cases):
        cells = []
        for sound in (False, True):
            of = [
                case
                for case in cases
                if case.base == base and case.sound == sound and _key(case) in found
            ]
            said = [found[_key(case)].verdict for case in of]
            open_ = said.count(Sameness.UNCLEAR)
            fine = sum(verdict in FINE for verdict in said)
            right = fine if sound else len(of) - fine - open_
            cells.append(f"{len(of)}: {right}, {open_}, {len(of) - right - open_}")
        lines.append(f"| {base} | {cells[0]} | {cells[1]} |")
    return lines


def _judged(
    cases: list[Case], known: dict[str, Parity], say: Callable[[str], None]
) -> dict[str, Parity]:
    """The verdicts that are known and those of all other cases; each is said as it is known."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), cases[0].folder)
        for case in cases:
            key = _key(case)
            found[key] = known[key] if key in known else bench.judge(case)
            print(_line(case, found[key]), flush=True)
            if key not in known:
                say(_line(case, found[key]))
        bench.close()
    return found


def _append(file: Path | None, line: str) -> None:
    if file:
        with file.open("a") as out:
            print(line, file=out)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", default="1", choices=SETS, help="which cases, 1 without it")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth case alone")
    earlier = parser.add_mutually_exclusive_group()
    earlier.add_argument(
        "--resume", type=Path, metavar="FILE", help="append verdicts to FILE, skip those in it"
    )
    earlier.add_argument(
        "--printed",
        type=Path,
        metavar="FILE",
        help="take what an earlier run printed, run nothing; cases that it lacks are left out",
    )
    parser.add_argument("--before", type=Path, help="what an earlier run printed: one more column")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/verify-evidence.md"
    )
    args = parser.parse_args()
    cases = SETS[args.set]
    before = _printed(args.before) if args.before else {}
    file = args.printed or args.resume
    known = _printed(file) if file and file.exists() else {}
    some = [case for case in cases if args.only in _key(case)][args.every - 1 :: args.every]
    some = [case for case in some if not args.printed or _key(case) in known]
    found = _judged(some, known, lambda line: _append(args.resume, line)) if some else {}
    if args.write:
        lines = [
            f"{date.today().isoformat()}, CPU, torch {version('torch')}, at most 12 seeds: "
            f"{sum(not case.sound for case in some)} faults, "
            f"{sum(case.sound for case in some)} sound rewrites, "
            f"{_wrong(found, some)} judged wrongly.",
        ]
        if len(some) < len(cases):
            lines[0] += f" Not run: {len(cases) - len(some)} of the set's {len(cases)} cases."
        if before:
            again = [case for case in some if _key(case) in before]
            lines[0] += f" Of these {_wrong(before, again)} were judged wrongly before."
        table = _by_name if int(args.set.rstrip("ab")) >= 10 else _by_script
        put(f"faults-{args.set}", [*lines, "", *table(cases, found, before)])
    return 1 if _wrong(found, some) else 0


if __name__ == "__main__":
    sys.exit(main())
