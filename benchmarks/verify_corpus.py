"""Public training scripts, unmodified, verified against what autofast makes of them for a CPU.

    python -m benchmarks.verify_corpus --mirror DIR [--only mnist,vae] [--budget 240] [--write]
    [--pages DIR]

DIR holds the repositories as for ``tests.corpus_run``, which also lays out the generated data.
Leave the machine alone meanwhile. Needed besides torch: torchvision (tests/torchvision_shim.py says
which builds will do), Pillow, six.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path

from autofast.config import Config
from autofast.report import verify_html, verify_json
from autofast.report.verify_text import sentence
from autofast.verify.command import verify
from autofast.verify.request import Request
from benchmarks.pages import put
from tests.corpus_run import SHIM, SUBJECTS, lay_out, repository


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument(
        "--only",
        type=lambda names: names.split(","),
        default=[subject.name for subject in SUBJECTS],
    )
    parser.add_argument("--budget", type=float, default=240.0, help="seconds for each")
    parser.add_argument(
        "--write", action="store_true", help="put the table into docs/verify-evidence.md"
    )
    parser.add_argument(
        "--pages", type=Path, help="write the page and the figures of each into this folder"
    )
    args = parser.parse_args()
    if args.pages:
        args.pages = args.pages.resolve()
        args.pages.mkdir(parents=True, exist_ok=True)
    rows = []
    for subject in (subject for subject in SUBJECTS if subject.name in args.only):
        git = repository(args.mirror, subject)
        if git is None:
            print(f"{subject.name}: {subject.repo} is not in {args.mirror}", file=sys.stderr)
            return 2
        with tempfile.TemporaryDirectory() as scratch:
            root = (Path(scratch) / subject.name).resolve()
            lay_out(git, subject.commit, root)
            subject.data(root)
            paths = [str(root / path) for path in subject.path]
            if subject.torchvision:
                (Path(scratch) / "shim").mkdir()
                shutil.copy(SHIM, Path(scratch) / "shim" / "sitecustomize.py")
                paths.append(str(Path(scratch) / "shim"))
            os.environ["PYTHONPATH"] = os.pathsep.join(paths)
            os.chdir(root / subject.folder)
            request = Request(
                root / subject.entry, None, root, replace(Config(), target="cpu"), arguments=tuple(subject.args.split()), budget=args.budget,
                threads=1, target="cpu",
            )  # fmt: skip
            result = verify(request, lambda line: print(f"  {line}", file=sys.stderr))
            os.chdir("/")
        print(subject.name, sentence(result), sep=": ", flush=True)
        if args.pages:
            (args.pages / f"{subject.name}.html").write_text(
                verify_html.page(result, date=date.today().isoformat())
            )
            (args.pages / f"{subject.name}.json").write_text(verify_json.text(result))
        speed, parity = result.speed, result.parity
        timed = "not measured"
        if speed is not None:
            timed = f"{speed.verdict.name} {speed.ratio.value:.2f} ({speed.ratio.low:.2f} to {speed.ratio.high:.2f}), {speed.ratio.pairs} pairs"
        same = "not tested" if parity is None else f"{parity.verdict.name}: {parity.summary}"
        rows.append(
            f"| {subject.name} | {', '.join(result.rules)} | {result.steps or 'all'} | {timed} | {same} |"
        )
    table = [
        f"{date.today().isoformat()}, CPU, 1 thread, torch {version('torch')}, {args.budget:.0f} s each.",
        "",
        "| script | rules | steps | time before ÷ after (95 %) | training |",
        "| --- | --- | --- | --- | --- |",
        *rows,
    ]
    if args.write:
        put("corpus", table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
