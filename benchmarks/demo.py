"""``make demo``: rewrite the script that every tutorial starts from, show the diff, run both
versions for a few steps.

python benchmarks/demo.py [--steps N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "fixtures" / "mnist_like" / "train.py"
WATCH = ROOT / "benchmarks" / "watch.py"
WARM_UP = 3  # the first steps allocate memory and start workers

console = Console()


@dataclass(frozen=True)
class Run:
    """Seconds of each step, and its loss."""

    times: list[float]
    losses: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each version, in turn")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        exact, fast = Path(folder) / "train_exact.py", Path(folder) / "train_fast.py"
        console.rule("the rewrite")
        autofast("rewrite", SCRIPT, "--target", "cpu")
        autofast("rewrite", SCRIPT, "--target", "cpu", "--effect", "exact", "-o", exact, quiet=True)
        autofast("rewrite", SCRIPT, "--target", "cpu", "-o", fast, quiet=True)
        console.rule("original and rewritten, for a few steps on generated data")
        scripts = {"original": SCRIPT, "--effect exact": exact, "rewritten": fast}
        runs: dict[str, list[Run]] = {name: [] for name in scripts}
        for number, (name, script) in enumerate(list(scripts.items()) * args.rounds, 1):
            with console.status(f"run {number} of {args.rounds * len(scripts)}: {name}"):
                runs[name].append(run(script, args.steps))
    show(runs, args.steps)


def autofast(*arguments: object, quiet: bool = False) -> None:
    """Run the command as a user would."""
    command = [sys.executable, "-m", "autofast", *map(str, arguments)]
    if not quiet:
        console.print(
            "$ autofast " + " ".join(command[3:]).replace(f"{ROOT}/", ""),
            style="bold",
            highlight=False,
        )
    done = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE if quiet else None, text=True)
    if done.returncode:
        sys.exit(done.stderr or done.returncode)


def run(script: Path, steps: int) -> Run:
    """One run in a fresh process."""
    arguments = ["--no-accel", "--samples", str(64 * (steps + 2)), "--log-interval", str(10**6)]
    done = subprocess.run(
        [sys.executable, WATCH, str(steps), script, *arguments], capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{script} failed:\n{done.stderr}")
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def show(runs: dict[str, list[Run]], steps: int) -> None:
    """Step times and losses side by side."""
    times = [[step for r in arm for step in r.times[WARM_UP:]] for arm in runs.values()]
    losses = [arm[0].losses for arm in runs.values()]
    table = Table("", *runs, box=None, pad_edge=False)
    for name, figure in (("median step", statistics.median), ("fastest step", min)):
        table.add_row(name, *(f"{1000 * figure(arm):.1f} ms" for arm in times))
    for step in dict.fromkeys([0, 1, 2, steps // 3, 2 * steps // 3, steps - 1]):
        table.add_row(f"loss of step {step + 1}", *(f"{arm[step]:.6f}" for arm in losses))
    console.print(table)
    original, exact, fast = losses
    same = (
        "the same to the last bit"
        if original == exact
        else "NOT the same, which is a mistake of autofast"
    )
    apart = max(abs(a - b) for a, b in zip(original, fast, strict=True))
    text = f"""
        {speed(runs["original"], runs["rewritten"])} With --effect exact the losses are {same}; by default (other
        rounding, and other random numbers for dropout) they are at most {apart:.2g} apart.
        A few steps of a small network on a shared CPU are a demonstration, no benchmark: they show that all versions run and train alike.
        Figures for a GPU need a GPU."""
    console.print("\n" + " ".join(text.split()), highlight=False)


def speed(original: list[Run], rewritten: list[Run]) -> str:
    """How much faster, where every run of one is faster than every run of the other."""
    before, after = (
        [statistics.median(run.times[WARM_UP:]) for run in arm] for arm in (original, rewritten)
    )
    if min(before) > max(after):
        least, most = min(before) / max(after), max(before) / min(after)
        return f"In the median step the rewritten script is {least:.2f} to {most:.2f} times as fast here."
    apart = max(max(arm) / min(arm) for arm in (before, after))
    return (
        f"Runs of one and the same script are up to {apart:.2f} times apart on this machine now, "
        "so nothing is said of speed."
    )


if __name__ == "__main__":
    main()
