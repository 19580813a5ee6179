"""The distributed form of well-known scripts, really started by torchrun in two processes on the
CPU, with generated data.

    python -m tests.ddp_examples --mirror DIR [--only mnist,vae] [--ranks 2] [--keep DIR]

Each script of pytorch/examples is laid out as ``tests.corpus_run`` does it and rewritten as
``autofast rewrite --ddp`` would. The rewritten script runs once in one process, where it must give
what the original gives bit for bit, and under torchrun; what the first process prints is shown, all
processes must end well, and each line must come once. A script that is refused is shown with the
reason. Exit code 1 where one fails.

torchvision, where it is a CUDA build beside a CPU build of torch, must be importable by itself
(``tests/torchvision_shim.py``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.registry import all_rules
from autofast.rule import Effect, Options
from tests.corpus_run import (
    EXAMPLES,
    SHIM,
    SUBJECTS,
    Subject,
    digits,
    lay_out,
    pictures,
    repository,
)
from tests.harness import HARNESS, SKIP, Job, compare

DDP = all_rules()["ddp"]
RUN = f"import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path({str(SHIM)!r}); runpy.run_path(sys.argv[0], run_name='__main__')"


def folders(folder: Path) -> None:
    for part in ("train", "val"):
        for number in range(2):
            pictures(folder / "images" / part / f"class{number}", 4, 256, 256, first=4 * number)


OTHERS = [
    Subject(
        "dcgan", *EXAMPLES, "dcgan/main.py",
        "--dataset mnist --dataroot digits --workers 0 --batchSize 8 --niter 2 --ngf 8 --ndf 8 --nz 10 --manualSeed 3",
        data=lambda folder: digits(folder / "dcgan/digits/MNIST/raw", 48, 16),
    ),
    Subject("imagenet", *EXAMPLES, "imagenet/main.py", "../images -b 4 -j 0 --epochs 1 --no-accel", data=folders),
]  # fmt: skip
NAMES = ("imagenet", "mnist", "word_language_model", "dcgan", "vae")
EVERY = {s.name: s for s in (*SUBJECTS, *OTHERS) if s.name in NAMES}


@dataclass
class Shown:
    """What came of one script; ``refusal`` where it was left alone."""

    name: str
    refusal: str = ""
    alone: tuple[str, ...] = ()  # how one process differs from the original
    code: int = 0
    out: str = ""
    err: str = ""
    seconds: float = 0.0

    @property
    def fine(self) -> bool:
        return bool(self.refusal) or (not self.alone and self.code == 0)


def show(subject: Subject, git: Path, folder: Path, ranks: int) -> Shown:
    lay_out(git, subject.commit, folder)
    subject.data(folder)
    script = read_script(folder / subject.entry, folder)
    plan = Plan.make(
        script, Options(selected=frozenset({"ddp"}), asked=frozenset({"ddp"})), [DDP], Effect.RECIPE
    )
    if not plan.fixes:
        return Shown(
            subject.name, "; ".join(f.refusal for f in plan.findings) or "nothing is found"
        )
    plan.check(
        lambda texts: read_script(
            folder / subject.entry, folder, overlay={s.path: s.encode(t) for s, t in texts.items()}
        )
    )
    files = {source.rel: source.encode(text) for source, text in plan.texts().items()}
    job = Job(
        folder, entry=subject.entry, args=tuple(subject.args.split()), cwd=subject.folder, path=subject.path,
        before=str(SHIM) if subject.torchvision else "", limit=300.0,
    )  # fmt: skip
    before, after = HARNESS.run_many([job, replace(job, files=files)])
    alone = (
        compare(before, after, Effect.EXACT, ignore=subject.clocks)
        if before.ok
        else [f"the original fails: {before.traceback}"]
    )
    copy = folder.parent / f"{folder.name}_ddp"
    shutil.copytree(folder, copy, ignore=SKIP, dirs_exist_ok=True)
    for name, content in files.items():
        (copy / name).write_bytes(content)
    (copy / "start.py").write_text(RUN)
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        str(copy / "start.py"),
    ]
    run = subprocess.run(
        [*command, Path(subject.entry).name, *subject.args.split()], cwd=copy / subject.folder, env=env, capture_output=True, text=True,
        timeout=600, check=False,
    )  # fmt: skip
    return Shown(subject.name, "", tuple(alone), run.returncode, run.stdout, run.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--only", type=lambda names: names.split(","), default=NAMES)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="lay the scripts out here and leave them")
    args = parser.parse_args()
    fine = True
    for name in args.only:
        git = repository(args.mirror, EVERY[name])
        if git is None:
            print(f"{name:20} skipped: {EVERY[name].repo} is not in {args.mirror}")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            shown = show(EVERY[name], git, (args.keep or Path(scratch)) / name, args.ranks)
        fine &= shown.fine
        if shown.refusal:
            print(f"{name:20} refused: {shown.refusal}")
            continue
        alone = (
            "as the original in one process"
            if not shown.alone
            else "DIFFERENT in one process: " + "; ".join(shown.alone)
        )
        print(f"{name:20} {alone}; torchrun with {args.ranks} processes: exit code {shown.code}")
        print("".join(f"    {line}\n" for line in shown.out.splitlines() if line.strip()), end="")
        if shown.code:
            print(shown.err[-3000:])
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
