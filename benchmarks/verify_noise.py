"""A/A: scripts against themselves, again and again. FASTER or SLOWER would be a false claim.

    python -m benchmarks.verify_noise [--times 20] [--jobs 1] [--write]

Five fixtures, each judged ``--times`` times with the real order of runs and the real rules for
stopping. Runs start in a fork of a process that has imported torch, which saves two seconds each;
everything else is as in ``autofast verify``. ``--write`` puts the table into
docs/verify-evidence.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from importlib.metadata import version
from pathlib import Path

from autofast.verify.result import Speed, SpeedVerdict
from autofast.verify.running import scratch
from autofast.verify.running.runs import Program, Setup
from autofast.verify.series import ORIGINAL, REWRITTEN, Series, Wanted
from benchmarks.pages import put
from tests.forked import ForkRunner

FIXTURES = ("tabular", "trainer_class", "gan", "item_sums", "module_level")
ROOT = Path(__file__).parent.parent / "fixtures"


def once(name: str) -> Speed:
    """One fixture against itself."""
    with tempfile.TemporaryDirectory() as folder:
        made = scratch.make([ROOT / name], parent=Path(folder))
        runner = ForkRunner(Setup(cwd=ROOT / name, threads=1, limit=120), made)
        script = ROOT / name / "train.py"
        series = Series(
            runner,
            Program(ORIGINAL, script),
            Program(REWRITTEN, script),
            Wanted("exact", steps=0, budget=0),
        )
        series.measure()
    assert series.speed is not None
    return series.speed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="so many verifications at a time: a noisier machine, which is no excuse",
    )
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/verify-evidence.md"
    )
    args = parser.parse_args()
    rows, wrong = [], 0
    with ThreadPoolExecutor(args.jobs) as pool:  # the work is in the processes that they start
        for name in FIXTURES:
            speeds = list(pool.map(once, [name] * args.times))
            found = Counter(speed.verdict for speed in speeds)
            wrong += found[SpeedVerdict.FASTER] + found[SpeedVerdict.SLOWER]
            ratios, pairs = (
                [speed.ratio.value for speed in speeds],
                [speed.ratio.pairs for speed in speeds],
            )
            kinds = (
                SpeedVerdict.SAME,
                SpeedVerdict.UNCLEAR,
                SpeedVerdict.FASTER,
                SpeedVerdict.SLOWER,
            )
            counts = " | ".join(str(found[kind]) for kind in kinds)
            rows.append(
                f"| {name} | {counts} | {min(ratios):.3f} to {max(ratios):.3f} | {min(pairs)} to {max(pairs)} |"
            )
            print(rows[-1], flush=True)
    table = [
        f"{date.today().isoformat()}, CPU, torch {version('torch')}, {args.times} verifications of each fixture against itself, {args.jobs} at a time: "
        f"{wrong} false claims.",
        "",
        "| fixture | SAME | UNCLEAR | FASTER | SLOWER | ratios | pairs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    if args.write:
        put("noise", table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
