"""Rewrites whose effect on a CPU is known, one of them harmful: what does ``autofast verify`` say?

    python -m benchmarks.verify_effects [--budget 240] [--write]

Takes about two minutes for each of five; leave the machine alone meanwhile. ``--write`` puts the
table into docs/verify-evidence.md.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path

from autofast.config import Config
from autofast.report.verify_text import sentence
from autofast.verify.command import verify
from autofast.verify.request import Request
from autofast.verify.result import SpeedVerdict
from benchmarks.pages import put

HERE = Path(__file__).parent / "effects"


@dataclass(frozen=True)
class Effect:
    """``edits`` make the second script; ``expected`` is what others measured."""

    name: str
    script: str
    kind: str
    edits: tuple[tuple[str, str], ...]
    expected: SpeedVerdict


EFFECTS = [
    Effect("fused AdamW, 81 small layers", "mlp", "rounding", (("lr=1e-4)", "lr=1e-4, fused=True)"),), SpeedVerdict.FASTER),
    Effect(
        "bf16 autocast and channels_last, small CNN", "cnn", "rounding",
        (
            ("nn.Linear(64, 10),\n)\n", "nn.Linear(64, 10),\n).to(memory_format=torch.channels_last)\n"),
            ("        loss = criterion(model(images[start : start + 16]), labels[start : start + 16])\n",
             '        with torch.autocast("cpu", dtype=torch.bfloat16):\n'
             "            batch = images[start : start + 16].to(memory_format=torch.channels_last)\n"
             "            loss = criterion(model(batch), labels[start : start + 16])\n"),
        ), SpeedVerdict.FASTER,
    ),
    Effect(
        "batches taken out of memory at once", "table", "sampling",
        (
            ("import DataLoader, TensorDataset", "import BatchSampler, DataLoader, RandomSampler, TensorDataset"),
            ("DataLoader(data, batch_size=128, shuffle=True)", "DataLoader(data, sampler=BatchSampler(RandomSampler(data), 128, False), batch_size=None)"),
        ),
        SpeedVerdict.FASTER,
    ),
    Effect(
        "two persistent workers, items of 2 ms", "slow", "sampling",
        (("shuffle=True)", "shuffle=True, num_workers=2, persistent_workers=True)"),), SpeedVerdict.FASTER,
    ),
    Effect("harm: two workers, rows in memory", "table", "sampling", (("shuffle=True)", "shuffle=True, num_workers=2)"),), SpeedVerdict.SLOWER),
]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=240.0, help="seconds for each")
    parser.add_argument("--only", default="", help="those whose name has this in it")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/verify-evidence.md"
    )
    args = parser.parse_args()
    rows, wrong = [], 0
    for effect in (effect for effect in EFFECTS if args.only in effect.name):
        with tempfile.TemporaryDirectory() as folder:
            first, second = Path(folder) / "train.py", Path(folder) / "train_fast.py"
            text = (HERE / f"{effect.script}.py").read_text()
            first.write_text(text)
            for old, new in effect.edits:
                assert text.count(old) == 1, old
                text = text.replace(old, new)
            second.write_text(text)
            request = Request(
                first,
                second,
                Path(folder),
                Config(target="cpu"),
                effect=effect.kind,
                budget=args.budget,
                cwd=None,
                threads=1,
            )
            result = verify(request, lambda line: print(f"  {line}", file=sys.stderr))
        assert result.speed is not None and result.parity is not None
        wrong += result.speed.verdict is not effect.expected
        print(effect.name, sentence(result), sep=": ", flush=True)
        speed = result.speed
        ratio = f"{speed.ratio.value:.2f} ({speed.ratio.low:.2f} to {speed.ratio.high:.2f})"
        rows.append(
            f"| {effect.name} | {speed.verdict.name} | {ratio} | {speed.ratio.pairs} | {result.parity.verdict.name} | {result.parity.summary} |"
        )
    table = [
        f"{date.today().isoformat()}, CPU, 1 thread, torch {version('torch')}.",
        "",
        "| rewrite | speed | time before ÷ after (95 %) | pairs | training | because |",
        "| --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    if args.write:
        put("effects", table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
