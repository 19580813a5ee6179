"""Ten workloads as users write them, rewritten by autofast, and the same tuned by hand: what a step
asks of a GPU, and how long it takes.

    python -m benchmarks.speed [NAME...]
        counts, exactly and without a GPU (benchmarks/counting.py); always with --tiny
    python -m benchmarks.speed --measure [--tiny] [NAME...]
        measures instead, in interleaved fresh processes (benchmarks/pace.py)

``--target`` is what is measured: the GPU where there is one, else the CPU, which implies
``--tiny``. ``--json FILE`` writes the figures, ``--write`` puts the tables into docs/benchmarks.md.
Progress stands on standard error.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from autofast.commands import planning
from autofast.config import Config
from benchmarks.pages import put

HERE = Path(__file__).parent
WORKLOADS = HERE / "workloads"
PAGE = HERE.parent / "docs" / "benchmarks.md"
NAMES = ("mnist", "cifar", "resnet50", "gpt2", "unet", "dcgan", "rows", "lstm", "vae", "vit")
FIGURES = ("operators", "bytes", "waits")
Figures = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--measure", action="store_true", help="seconds per step instead of counts")
    parser.add_argument("--tiny", action="store_true", help="measure the small sizes")
    parser.add_argument("--target", choices=("cpu", "cuda"), help="what is measured")
    parser.add_argument("--compile", action="store_true", help="also measure with --compile")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each script, in turn")
    parser.add_argument("--steps", type=int, help="of each run; by default 12 if tiny, else 100")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    parser.add_argument("--write", action="store_true", help="put the tables into the page")
    args = parser.parse_args()
    if unknown := set(args.names) - set(NAMES):
        parser.error(f"no workload {', '.join(sorted(unknown))}")
    names = args.names or list(NAMES)
    machine = _machine()
    args.target = args.target or ("cuda" if machine["gpu"] else "cpu")
    args.tiny = args.tiny or args.target == "cpu"
    found: Figures = {"machine": machine, "counts": {}, "times": {}}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            if args.measure:
                found["times"][name] = measure(name, Path(folder), args)
            else:
                found["counts"][name] = count(name, Path(folder))
    if args.measure:
        tables = {"times": times_table(found["times"], machine, args)}
    else:
        tables = {"counts": counts_table(found["counts"])}
    for key, table in tables.items():
        print("\n".join(table), end="\n\n")
        if args.write:
            put(key, table, PAGE)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


# -------------------------------------------------------------------------------------- the scripts
def rewritten(name: str, **options: Any) -> str:
    """The text that autofast makes of a workload."""
    path = WORKLOADS / name / "train.py"
    config = Config(**options)
    script = planning.read(path, path.parent, None, config)
    return planning.plan(script, config).texts().get(script.entry, script.entry.text)


def laid_out(name: str, folder: Path, target: str, with_compile: bool = False) -> dict[str, Path]:
    """The scripts that are compared, each in a file, in one folder where they also find the data
    that they made.
    """
    place = folder / name
    place.mkdir(exist_ok=True)
    texts = {
        "as written": (WORKLOADS / name / "train.py").read_text(),
        "autofast": rewritten(name, target=target),
        "expert": (WORKLOADS / name / "expert.py").read_text(),
    }
    if with_compile:
        texts["autofast --compile"] = rewritten(name, target=target, compile=True)
    for arm, text in texts.items():
        (place / f"{arm}.py").write_text(text)
    return {arm: place / f"{arm}.py" for arm in texts}


def _child(words: Sequence[object], folder: Path) -> Figures:
    done = subprocess.run(
        [sys.executable, *map(str, words)], cwd=folder, capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{words}:\n{done.stderr[-4000:]}")
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ------------------------------------------------------------------------------------------- counts
def count(name: str, folder: Path, steps: int = 6) -> dict[str, Figures]:
    """What a step of each script asks of a GPU, with ``--tiny``."""
    found = {}
    for arm, script in laid_out(name, folder, "cuda").items():
        _say(f"{name}: counting {arm}")
        found[arm] = _child([HERE / "counting.py", steps, script, "--tiny"], folder / name)
    return found


def counts_table(counts: dict[str, dict[str, Figures]]) -> list[str]:
    """One row for each workload; in each column the script as written, autofast's, the expert's."""
    lines = [
        "| workload | operators per step | bytes to the device per step | bytes before | waits per step |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, arms in counts.items():
        columns = (
            " → ".join(f"{arm[figure]:,.0f}" for arm in arms.values())
            for figure in ("operators", "bytes", "once", "waits")
        )
        lines.append(f"| {name} | {' | '.join(columns)} |")
    return lines


# -------------------------------------------------------------------------------------------- times
def measure(name: str, folder: Path, args: argparse.Namespace) -> dict[str, Figures]:
    """The fastest run of each script, which other load disturbed least; the order turns from round
    to round.
    """
    scripts = list(laid_out(name, folder, args.target, args.compile).items())
    warm_up, steps = (4, args.steps or 12) if args.tiny else (20, args.steps or 100)
    runs: dict[str, list[Figures]] = {arm: [] for arm, _ in scripts}
    for number in range(args.rounds):
        turn = number % len(scripts)
        for arm, script in scripts[turn:] + scripts[:turn]:
            _say(f"{name}: round {number + 1} of {args.rounds}, {arm}")
            words = [HERE / "pace.py", warm_up, steps, script, *["--tiny"] * args.tiny]
            runs[arm].append(_child(words, folder / name))
    return {arm: min(found, key=lambda run: run["step"]) for arm, found in runs.items()}


def times_table(times: dict[str, dict[str, Figures]], machine: Figures, args: Any) -> list[str]:
    """Milliseconds per step, how many times as fast as the script as written, and the share of the
    expert's speed.
    """
    arms = list(next(iter(times.values())))
    ours = [arm for arm in arms if arm.startswith("autofast")]
    heads = [f"{arm}, ms" for arm in arms]
    heads += [f"{arm}: × as written" for arm in arms[1:]] + [f"{arm} ÷ expert" for arm in ours]
    device = machine["gpu"] if args.target == "cuda" else machine["cpu"]
    lines = [
        f"{date.today().isoformat()}, {device}, torch {machine['torch']}, `--target {args.target}`{', `--tiny`' * args.tiny}, "
        f"the fastest of {args.rounds} runs each.",
        "",
        f"| workload | {' | '.join(heads)} | start, s | memory, MB |",
        "| --- |" + " --- |" * (len(heads) + 2),
    ]
    columns: list[list[float]] = []
    for name, found in times.items():
        step = {arm: found[arm]["step"] for arm in arms}
        ratios = [step["as written"] / step[arm] for arm in arms[1:]]
        ratios += [step["expert"] / step[arm] for arm in ours]
        columns.append(ratios)
        cells = [f"{1000 * step[arm]:.1f}" for arm in arms] + [f"{r:.2f}" for r in ratios]
        for figure, form in (("start", ".1f"), ("memory", ".0f")):
            cells.append(" → ".join(format(found[arm][figure], form) for arm in arms))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    means = [
        f"{math.exp(statistics.fmean(map(math.log, c))):.2f}" for c in zip(*columns, strict=True)
    ]
    lines.append(f"| geometric mean | {'| ' * len(arms)}{' | '.join(means)} | | |")
    return lines


def _machine() -> Figures:
    import torch

    return {
        "cpu": _cpu(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "",
        "torch": torch.__version__,
        "date": date.today().isoformat(),
    }


def _cpu() -> str:
    try:
        names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
        return f"{names[0]}, {len(names)} cores"
    except (OSError, IndexError):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
