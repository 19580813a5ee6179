"""Judges every script of tests/faults with the verifier and writes the table of
docs/verify-evidence.md.

    python -m benchmarks.verify_faults [--second | --last | --third | ... | --thirteenth] [--write]
    [--before FILE] [--printed FILE]

``--second``: the set of benchmarks/verify_faults_2, of which nothing is said but the two scripts;
``--last``: its last half, which was
made when verify was done and run once. ``--third``: the set of benchmarks/verify_faults_3, written
blind; ``--fourth``: its last half, run once. ``--fifth``, ``--sixth``: the sets of
benchmarks/verify_faults_4 and _5, written blind, run once. ``--seventh``: that of
benchmarks/verify_faults_6, not blind, run once; ``--eighth``: that of benchmarks/verify_faults_7,
written blind. ``--ninth``: the set of benchmarks/verify_faults_8, written blind; ``--tenth``: its
last half, run once. ``--eleventh``: the small set of benchmarks/verify_faults_9, not blind, run
once. ``--twelfth``: the set of benchmarks/verify_faults_10, written blind; ``--thirteenth``: its
last half, run once.

Takes some minutes on two cores, the larger sets hours. ``--write`` puts the table into
docs/verify-evidence.md, with today's date and the version of
torch: of the tenth set every case, of the others how many of each script.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from datetime import date
from importlib.metadata import version
from pathlib import Path

from autofast.verify.result import Parity, Sameness
from benchmarks.pages import put
from benchmarks.verify_faults_2 import FIRST, LAST
from benchmarks.verify_faults_2 import HERE as SECOND
from benchmarks.verify_faults_3 import FOURTH, THIRD
from benchmarks.verify_faults_3 import HERE as THIRD_FOLDER
from benchmarks.verify_faults_4 import FIFTH
from benchmarks.verify_faults_4 import HERE as FOURTH_FOLDER
from benchmarks.verify_faults_5 import HERE as FIFTH_FOLDER
from benchmarks.verify_faults_5 import SIXTH
from benchmarks.verify_faults_6 import HERE as SIXTH_FOLDER
from benchmarks.verify_faults_6 import SEVENTH
from benchmarks.verify_faults_7 import EIGHTH
from benchmarks.verify_faults_7 import HERE as SEVENTH_FOLDER
from benchmarks.verify_faults_8 import HERE as EIGHTH_FOLDER
from benchmarks.verify_faults_8 import NINTH, TENTH
from benchmarks.verify_faults_9 import ELEVENTH
from benchmarks.verify_faults_9 import HERE as NINTH_FOLDER
from benchmarks.verify_faults_10 import HERE as TENTH_FOLDER
from benchmarks.verify_faults_10 import THIRTEENTH, TWELFTH
from tests.faults import CASES, HERE, Case
from tests.test_verify_faults import FINE, Bench

SETS = {
    "": (CASES, HERE),
    "second": (FIRST, SECOND),
    "last": (LAST, SECOND),
    "third": (THIRD, THIRD_FOLDER),
    "fourth": (FOURTH, THIRD_FOLDER),
    "fifth": (FIFTH, FOURTH_FOLDER),
    "sixth": (SIXTH, FIFTH_FOLDER),
    "seventh": (SEVENTH, SIXTH_FOLDER),
    "eighth": (EIGHTH, SEVENTH_FOLDER),
    "ninth": (NINTH, EIGHTH_FOLDER),
    "tenth": (TENTH, EIGHTH_FOLDER),
    "eleventh": (ELEVENTH, NINTH_FOLDER),
    "twelfth": (TWELFTH, TENTH_FOLDER),
    "thirteenth": (THIRTEENTH, TENTH_FOLDER),
}


BY_NAME = ("twelfth", "thirteenth")  # sets whose cases the page shows one by one


def _key(case: Case) -> str:
    return f"{case.base}: {case.name}"


def _printed(file: Path) -> dict[str, Parity]:
    """By case."""
    rows = [line.split(" | ", 3) for line in file.read_text().splitlines()]
    return {row[1]: Parity(Sameness(row[2]), "", (), row[3]) for row in rows if len(row) > 3}


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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/verify-evidence.md"
    )
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument(
        "--printed",
        type=Path,
        help="take what an earlier run printed, run nothing; cases that it lacks are left out",
    )
    parser.add_argument("--before", type=Path, help="what an earlier run printed: one more column")
    sets = parser.add_mutually_exclusive_group()
    sets.add_argument("--second", action="store_true", help="the second set, first half")
    sets.add_argument("--last", action="store_true", help="the second set, last half")
    sets.add_argument("--third", action="store_true", help="the third set, first half")
    sets.add_argument("--fourth", action="store_true", help="the third set, last half")
    sets.add_argument("--fifth", action="store_true", help="the fourth set")
    sets.add_argument("--sixth", action="store_true", help="the fifth set")
    sets.add_argument("--seventh", action="store_true", help="the sixth set, not blind")
    sets.add_argument("--eighth", action="store_true", help="the seventh set")
    sets.add_argument("--ninth", action="store_true", help="the eighth set, first half")
    sets.add_argument("--tenth", action="store_true", help="the eighth set, last half")
    sets.add_argument("--eleventh", action="store_true", help="the ninth set, small, not blind")
    sets.add_argument("--twelfth", action="store_true", help="the tenth set, first half")
    sets.add_argument("--thirteenth", action="store_true", help="the tenth set, last half")
    args = parser.parse_args()
    which = next((name for name in SETS if name and getattr(args, name)), "")
    cases, here = SETS[which]
    before = _printed(args.before) if args.before else {}
    place = f"faults-{which}" if which else "faults"
    rows, wrong = [], 0
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), here)
        earlier = _printed(args.printed) if args.printed else {}
        for case in (case for case in cases if args.only in _key(case)):
            if args.printed and _key(case) not in earlier:
                continue
            found = earlier[_key(case)] if args.printed else bench.judge(case)
            right = (found.verdict in FINE) == case.sound
            wrong += not right
            print(
                "right" if right else "WRONG",
                _key(case),
                found.verdict.value,
                found.summary,
                sep=" | ",
                flush=True,
            )
            rows.append((case, found))
        bench.close()
    if args.write:
        whole = which in BY_NAME
        lines = [
            f"{date.today().isoformat()}, CPU, torch {version('torch')}, at most 12 seeds: "
            f"{sum(not case.sound for case, _ in rows)} faults, {sum(case.sound for case, _ in rows)} sound rewrites, {wrong} judged wrongly.",
        ]
        if len(rows) < len(cases):
            lines[0] += f" Not run: {len(cases) - len(rows)} of the set's {len(cases)} cases."
        if before:
            some = [case for case, _ in rows if _key(case) in before]
            lines[0] += f" Of these {_wrong(before, some)} were judged wrongly before."
        verdicts = {_key(case): one for case, one in rows}
        put(place, [*lines, "", *(_by_name if whole else _by_script)(cases, verdicts, before)])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
