"""Speed cases of known truth: what `autofast verify` measures of scripts whose every step costs a
known amount of work.

    python -m benchmarks.verify_speed [--only WORDS] [--budget 60] [--write]

Two scripts for each case do so many units of work (a loop of integers, no sleep: under load both
take longer alike) before the first step, in each step, after each pass and in each evaluation. The
truth is the ratio of the CPU seconds that the two take from the first step to the end of the script
by the process's own clock, in runs of their own that verify does not see; that of whole runs has
the start-up with it, whose part outside of the script is taken from verify's runs. Units alone do
not tell: a long stretch of work takes less than many short ones. ``--write`` puts the table into
docs/verify-evidence.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from autofast.verify.estimates import median
from autofast.verify.evidence.record import Detail
from autofast.verify.result import Ratio, Speed, SpeedVerdict
from autofast.verify.running import scratch
from autofast.verify.running.runs import Program, Setup
from autofast.verify.series import ORIGINAL, REWRITTEN, Series, Wanted
from benchmarks.pages import put
from tests.forked import ForkRunner

PASSES, LENGTH = 6, 15
STEPS = PASSES * LENGTH
UNIT = 20_000  # turns of the loop: about a millisecond
CLOCKED = 9  # runs of each script for the truth
SCRIPT = '''
import json
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

PLAN = json.loads("""{plan}""")


def work(units):
    x = 1
    for _ in range(int(units * {unit})):
        x = x * 3 % 1000003


began = time.process_time()
torch.manual_seed(0)
work(PLAN["start"])
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
train = DataLoader(TensorDataset(torch.randn({length} * 4, 4)), batch_size=4, shuffle=True)
valid = DataLoader(TensorDataset(torch.randn(4, 4)), batch_size=4)
costs = iter(PLAN["steps"])
first = time.process_time()
for epoch in range({passes}):
    net.train()
    for (x,) in train:
        loss = net(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        work(next(costs))
        optimizer.step()
    work(PLAN["after"])
    net.eval()
    with torch.no_grad():
        for (x,) in valid:
            net(x)
            work(PLAN["evaluation"])
print(time.process_time() - began, time.process_time() - first)
'''


@dataclass(frozen=True)
class Plan:
    """Units of work of one script."""

    steps: tuple[float, ...] = (2.0,) * STEPS
    start: float = 0.0
    after: float = 0.0
    evaluation: float = 2.0

    def text(self) -> str:
        plan = {name: getattr(self, name) for name in ("steps", "start", "after", "evaluation")}
        return SCRIPT.format(plan=json.dumps(plan), unit=UNIT, length=LENGTH, passes=PASSES)


def even(units: float) -> tuple[float, ...]:
    return (units,) * STEPS


def by_step(*units: float) -> tuple[float, ...]:
    """These by turns."""
    return tuple(units[i % len(units)] for i in range(STEPS))


def by_pass(*units: float) -> tuple[float, ...]:
    """The last for all passes that follow."""
    return tuple(units[min(i // LENGTH, len(units) - 1)] for i in range(STEPS))


LENGTHS = tuple(1.0 + (i * 7919 % 13) / 4 for i in range(STEPS))  # sentences of any length
STALL = (1.0,) * 9 + (11.0,)
CASES: dict[str, tuple[Plan, Plan]] = {
    "equal": (Plan(), Plan()),
    "half the work": (Plan(even(4)), Plan(even(2))),
    "a fifth less": (Plan(even(2.5)), Plan(even(2))),
    "a twentieth less": (Plan(even(4.2)), Plan(even(4))),
    "a quarter more": (Plan(even(2)), Plan(even(2.5))),
    "long and short steps by turns": (Plan(by_step(1, 5)), Plan(by_step(1, 2))),
    "sentences of any length": (Plan(LENGTHS), Plan(tuple(x / 1.5 for x in LENGTHS))),
    "sentences of any length, only the long ones": (
        Plan(LENGTHS),
        Plan(tuple(min(x, 2.0) for x in LENGTHS)),
    ),
    "a stall every ten steps, new": (Plan(even(2)), Plan(by_step(*(1.7,) * 9, 12))),
    "a stall every ten steps, gone": (Plan(by_step(*(2.0,) * 9, 12)), Plan(even(2))),
    "a stall every ten steps in both": (Plan(by_step(*STALL)), Plan(by_step(*(0.5,) * 9, 11))),
    "a stall every seven steps, half as long": (
        Plan(by_step(*(1.5,) * 6, 15)),
        Plan(by_step(*(1.5,) * 6, 7)),
    ),
    "a log after each pass, gone": (Plan(after=20), Plan()),
    "a file after each pass, new": (Plan(), Plan(after=20)),
    "first pass fills a cache": (Plan(even(3)), Plan(by_pass(4, 1))),
    "first pass slow in the original": (Plan(by_pass(6, 2)), Plan(even(2))),
    "faster from the second pass on": (Plan(even(3)), Plan(by_pass(3, 1.5))),
    "slower in the last pass": (Plan(even(2)), Plan(by_pass(2, 2, 2, 2, 2, 6))),
    "each pass slower than the one before": (Plan(by_pass(1, 2, 3, 4, 5, 6)), Plan(even(2))),
    "evaluation alone faster": (Plan(evaluation=30), Plan(evaluation=10)),
    "evaluation alone slower": (Plan(evaluation=10), Plan(evaluation=30)),
    "a start that is paid back": (Plan(even(3)), Plan(even(1), start=100)),
    "a start that is not paid back": (Plan(even(2.4)), Plan(even(2), start=200)),
    "a long start in both": (Plan(even(3), start=200), Plan(even(2), start=200)),
    "a slow first step": (Plan(even(3)), Plan((60.0, *even(1.5)[1:]))),
}


def measured(before: Plan, after: Plan, budget: float) -> tuple[Speed, Series, tuple[float, float]]:
    """With the seconds after which a first estimate was told, and after which the last."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scripts"
        folder.mkdir()
        programs = []
        for arm, plan in ((ORIGINAL, before), (REWRITTEN, after)):
            (folder / f"{arm}.py").write_text(plan.text())
            programs.append(Program(arm, folder / f"{arm}.py"))
        made = scratch.make([folder], parent=Path(name))
        runner = ForkRunner(Setup(cwd=folder, threads=1, limit=120), made)
        told: list[float] = []

        def tell(line: str) -> None:
            if "so far" in line:
                told.append(time.monotonic() - series.began)

        wanted = Wanted("exact", steps=0, budget=budget)
        series = Series(runner, programs[0], programs[1], wanted, tell)
        series.measure()
        told.append(time.monotonic() - series.began)
        made.close()
    assert series.speed is not None
    return series.speed, series, (told[0], told[-1])


def false_claim(verdict: SpeedVerdict, truth: float) -> bool:
    """The verdict says the opposite of what is true, or something where there is nothing."""
    if verdict is SpeedVerdict.FASTER:
        return truth <= 1.0
    if verdict is SpeedVerdict.SLOWER:
        return truth >= 1.0
    return verdict is SpeedVerdict.SAME and not 1 / 1.06 < truth < 1.06


def holds(found: Ratio | None, truth: float) -> bool:
    return found is not None and found.low <= truth <= found.high


def clocked(before: Plan, after: Plan) -> tuple[list[float], list[float]]:
    """CPU seconds of both, whole scripts and from the first step on: medians of runs by turns."""
    times: list[list[list[float]]] = [[], []]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "scripts"
        folder.mkdir()
        made = scratch.make([folder], parent=Path(name))
        runner = ForkRunner(Setup(cwd=folder, threads=1, limit=120), made)
        for place, plan in [*enumerate((before, after))] * CLOCKED:
            script = folder / f"{place}.py"
            program = Program(ORIGINAL, script, {script: plan.text().encode()})
            run = runner.run(program, seed=0, shift=0, detail=Detail(), steps=0)
            times[place].append([float(word) for word in run.stdout.split()])
        made.close()
    whole, steps = ([median(column) for column in zip(*some, strict=True)] for some in times)
    return [whole[0], steps[0]], [whole[1], steps[1]]


def whole_truth(series: Series, whole: Sequence[float]) -> float:
    """``whole``: CPU seconds of both scripts. What lies outside of them took as much longer than
    its CPU time as the original's own part did.
    """
    runs = [run for run in series.runs if run.ok]
    inside = [
        r.moments.ended - r.moments.script_started
        for run in runs
        for r in run.records
        if run.arm == ORIGINAL
    ]
    outside = [
        run.seconds - (r.moments.ended - r.moments.script_started)
        for run in runs
        for r in run.records
    ]
    start = median(outside) * whole[0] / median(inside)
    return (start + whole[0]) / (start + whole[1])


def shown(found: Ratio | None) -> str:
    return "" if found is None else f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each case")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/verify-evidence.md"
    )
    args = parser.parse_args(arguments)
    rows, good, whole, false = [], 0, 0, 0
    loads = []
    cases = {name: pair for name, pair in CASES.items() if args.only in name}
    for name, (before, after) in cases.items():
        speed, series, (first, last) = measured(before, after, args.budget)
        loads.append(os.getloadavg()[0])
        whole_times, times = clocked(before, after)
        truth, all_of_it = times[0] / times[1], whole_truth(series, whole_times)
        good += holds(speed.ratio, truth)
        whole += holds(speed.whole, all_of_it)
        false += false_claim(speed.verdict, truth)
        rows.append(
            f"| {name} | {truth:.2f} | {speed.verdict.name} {shown(speed.ratio)} | {'yes' if holds(speed.ratio, truth) else '**no**'} "
            f"| {all_of_it:.2f} | {shown(speed.whole)} | {'yes' if holds(speed.whole, all_of_it) else '**no**'} | {speed.ratio.pairs} "
            f"| {first:.0f} s | {last:.0f} s |"
        )
        print(rows[-1], flush=True)
    table = [
        f"{date.today().isoformat()}, CPU, 1 thread, torch {version('torch')}, {args.budget:.0f} s for each case, load {min(loads):.1f} to "
        f"{max(loads):.1f} on {os.cpu_count()} cores: of {len(rows)} intervals {good} hold the truth, of those of whole runs {whole}; "
        f"{false} false verdicts.",
        "",
        "| case | truth | verify says | holds it | truth of whole runs | verify says | holds it | pairs | first estimate | last |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    if args.write:
        put("speed", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
