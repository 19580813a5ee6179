"""Whether rewrites that claim to leave all numbers as they are do so.

    python -m benchmarks.ways [CLAIM ...] [--way WORD] [--quick] [--show]

For each claim that such rules rest on, there is one small script for each way of going against it
that we could think of. Each is rewritten up to ``exact`` (as it comes; with all that is not worth
its lines; without gpu-data and with two workers) and run before and after, by torch on the CPU.
Both must show the same to the last bit. Exit code 1 where one does not. ``--quick`` makes only the
second of these rewrites, ``--show`` prints what was written where the two differ. The table of the
end is that of docs/soundness.md. About 20 minutes on two cores.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch

from autofast.commands import rewriting
from autofast.config import Config
from autofast.edit import running
from autofast.rule import Effect
from benchmarks import one_tree
from benchmarks.ways.all_claims import CLAIMS
from benchmarks.ways.running import run

CONFIGS = {
    "as it comes": Config(effect=Effect.EXACT),
    "everything": Config(effect=Effect.EXACT, exhaustive=True),
    "with workers": Config(effect=Effect.EXACT, exhaustive=True, ignore=("gpu-data",), workers=2),
    "copies": Config(
        effect=Effect.EXACT, exhaustive=True, ignore=("gpu-data", "batched-dataset", "num-workers")
    ),
    "forced workers": Config(
        effect=Effect.EXACT,
        exhaustive=True,
        ignore=("gpu-data", "batched-dataset"),
        extend_select=("num-workers", "persistent-workers"),
        workers=2,
    ),
    "fused": Config(effect=Effect.ROUNDING, exhaustive=True, select=("fused-optimizer",)),
    "halves": Config(
        effect=Effect.ROUNDING,
        exhaustive=True,
        select=("autocast", "grad-scaler", "unscale-before-clip"),
    ),
    "kept workers": Config(effect=Effect.SAMPLING, exhaustive=True, select=("persistent-workers",)),
    "on request": Config(
        effect=Effect.EXACT,
        exhaustive=True,
        ignore=("gpu-data", "batched-dataset"),
        extend_select=("cuda-prefetch",),
        workers=2,
    ),
}
run_once = cache(run)


def raised(_rule: object, _script: object, error: Exception) -> None:
    """A rule that raises is only left out at a user's."""
    raise error


def rewritten(text: str, config: Config) -> tuple[str, str]:
    """What becomes of a script, and by which rules."""
    with tempfile.TemporaryDirectory() as folder:
        entry = Path(folder).resolve() / "train.py"
        entry.write_text(text)
        done = rewriting.rewrite(entry, entry.parent, config)
        rules = {r.rule for r in done.records if r.status == "fix"}
        return next(iter(done.texts.values()), text), " ".join(sorted(rules))


NUMBER = re.compile(r"-?\d+\.\d*(?:e[-+]?\d+)?|-?\d+e[-+]?\d+|nan|inf")
DIGEST = re.compile(r"^.*(=[0-9a-f]{12}\b|state= param_groups=).*$", re.MULTILINE)


def alike(before: str, after: str, digits: float) -> bool:
    """Whether both print the same, but for numbers that are near each other."""
    if not digits:
        return before == after
    before, after = DIGEST.sub("", before), DIGEST.sub("", after)
    pairs = zip(NUMBER.findall(before), NUMBER.findall(after), strict=False)
    near = all(
        a == b or abs(float(a) - float(b)) <= digits * max(1, abs(float(a))) for a, b in pairs
    )
    return near and NUMBER.sub("0", before) == NUMBER.sub("0", after)


def judged(
    text: str, show: bool, configs: Iterable[str], cuda: bool = False, digits: float = 0.0
) -> tuple[str, str]:
    """What comes of a script: same, untouched, other, fails or broken; and what to say."""
    before, error = run_once(text, cuda)
    if error:
        return "broken", error
    seen = {text}
    for name in configs:
        try:
            new, rules = rewritten(text, CONFIGS[name])
        except Exception as raised:
            return "fails", f"{name}: {type(raised).__name__}: {raised}"
        if new in seen:
            continue
        seen.add(new)
        after, error = run_once(new, cuda)
        if error or not alike(before, after, digits):
            said = f"{name}, {rules}" + (f": {error}" if error else "")
            if show:
                changed = difflib.unified_diff(text.splitlines(), new.splitlines(), lineterm="")
                shown = difflib.ndiff(before.splitlines(), after.splitlines())
                said += "\n" + "\n".join((*changed, "--", *shown))
            return ("fails" if error else "other"), said
    return ("same" if len(seen) > 1 else "untouched"), ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("claims", nargs="*")
    parser.add_argument("--way", default="")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    one_tree()
    running.rule_failed = raised  # type: ignore[assignment]
    rows, wrong = [], 0
    for claim in CLAIMS:
        if args.claims and claim.name not in args.claims:
            continue
        configs = [
            c
            for c in claim.configs
            if not args.quick
            or c in ("copies", "everything", "forced workers", "kept workers", "fused", "halves")
        ]
        began, outcomes = time.time(), Counter[str]()
        for way in claim.ways:
            if args.way not in way:
                continue
            what, said = judged(
                claim.text(way), args.show, configs, args.cuda or claim.cuda, claim.digits
            )
            outcomes[what] += 1
            if said:
                print(f"{claim.name}, {way}: {what}, {said}", flush=True)
        wrong += outcomes["other"] + outcomes["fails"] + outcomes["broken"]
        counts = [outcomes[w] for w in ("same", "untouched", "other", "fails")]
        rows.append(f"| {claim.name} | {claim.rules} | {' | '.join(map(str, counts))} |")
        print(rows[-1], f"{time.time() - began:.0f} s", outcomes["broken"] or "", flush=True)
    print(f"torch {torch.__version__}", *rows, sep="\n")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
