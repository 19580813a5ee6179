"""Runs well-known training scripts on generated data, before and after rewriting, and compares what
they trained.

    python -m tests.corpus_run --mirror DIR [--only mnist,vae] [--keep DIR]

DIR holds a git repository for each project, bare or not, as ``OWNER+NAME/repo``. Each script is
laid out at a fixed commit with a few kilobytes of data of the right form, rewritten as ``autofast
rewrite --in-place`` would do (for a GPU and for the CPU, up to each effect), and both are run for a
few steps on the CPU. The rules of sameness are those of ``tests.harness.compare``: bit for bit up
to ``exact``, a tolerance up to ``rounding``, a band up to ``sampling``. Exit code 1 where one is
not the same.

Needed besides torch: torchvision (``tests/torchvision_shim.py`` says which builds will do), Pillow,
six.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.registry import select
from autofast.rule import Effect, Options
from tests.fixture import strongest
from tests.harness import HALF, HARNESS, ROUNDING, SAMPLING, Job, Run, Tolerance, compare

SHIM = Path(__file__).with_name("torchvision_shim.py")


# -------------------------------------------------------------------------------------- the scripts
@dataclass(frozen=True)
class Subject:
    """A public training script and how it is run here.

    Attributes:
        entry: the script in its repository; it is run in its own folder.
        data: writes what the script reads, below the repository's folder.
        path: folders of the repository on ``PYTHONPATH``.
        clocks: what is printed about time or drawn at random, as a regular expression.
        half, rounding: how far apart the two may be.
    """

    name: str
    repo: str
    commit: str
    entry: str
    args: str
    data: Callable[[Path], None]
    path: tuple[str, ...] = ()
    torchvision: bool = True
    stop_after: int = 0
    random_items: bool = False
    clocks: str = ""
    half: Tolerance = HALF
    rounding: Tolerance = ROUNDING

    @property
    def folder(self) -> str:
        return Path(self.entry).parent.as_posix()


def digits(folder: Path, train: int = 320, test: int = 128) -> None:
    """MNIST's four files, with a bright bar whose row tells the digit."""
    folder.mkdir(parents=True)
    random = np.random.RandomState(0)
    for name, count in (("train", train), ("t10k", test)):
        labels = random.randint(0, 10, count).astype(np.uint8)
        images = random.randint(0, 60, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label + 3 : 2 * label + 7, 5:23] = 250
        (folder / f"{name}-images-idx3-ubyte").write_bytes(
            struct.pack(">4i", 2051, count, 28, 28) + images.tobytes()
        )
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(
            struct.pack(">2i", 2049, count) + labels.tobytes()
        )


def digits_and_results(folder: Path) -> None:
    digits(folder / "data/MNIST/raw")
    (folder / "vae/results").mkdir()


def pictures(folder: Path, count: int, width: int, height: int, first: int = 0) -> None:
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.RandomState(first)
    for i in range(first, first + count):
        coarse = random.randint(0, 255, (height // 16 + 1, width // 16 + 1, 3)).astype(np.uint8)
        Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(
            folder / f"{i:06d}.jpg"
        )


def words(folder: Path) -> None:
    folder.mkdir(parents=True)
    random = np.random.RandomState(0)
    for name, lines in (("train", 60), ("valid", 20), ("test", 20)):
        text = "\n".join(" ".join(f"w{w}" for w in random.zipf(1.5, 14) % 40) for _ in range(lines))
        (folder / f"{name}.txt").write_text(text + "\n")


def tokens(folder: Path) -> None:
    folder.mkdir(parents=True)
    steps = np.arange(4000) % 23 * 7 % 50
    for name in ("train", "val"):
        steps.astype(np.uint16).tofile(folder / f"{name}.bin")


def faces(folder: Path) -> None:
    """Pictures and their attributes; the first 2000 lines are the test split, of which no picture
    is opened.
    """
    names = ["Black_Hair", "Blond_Hair", "Brown_Hair", "Male", "Young"]
    random = np.random.RandomState(0)
    pictures(folder / "images", 16, 96, 112, first=1)
    rows = [
        f"{i % 16 + 1:06d}.jpg " + " ".join(str(v) for v in random.choice([-1, 1], len(names)))
        for i in range(2016)
    ]
    (folder / "attributes.txt").write_text(
        "\n".join([str(len(rows)), " ".join(names), *rows]) + "\n"
    )


def quotes(folder: Path) -> None:
    (folder / "projects/chargpt/input.txt").write_text(
        "O God, O God! How weary, stale, flat and unprofitable. " * 60
    )


def photographs(folder: Path) -> None:
    for name in ("train", "test"):
        pictures(folder / "super_resolution/dataset/BSDS300/images" / name, 6, 320, 288)


EXAMPLES = ("pytorch/examples", "77f55b912142e11fcfdf5b530231fb9c52f181e8")
SUBJECTS = [
    Subject(
        "mnist", *EXAMPLES, "mnist/main.py", "--epochs 2 --no-accel --batch-size 32 --log-interval 4 --save-model",
        data=lambda folder: digits(folder / "data/MNIST/raw"),
    ),
    Subject(
        "vae", *EXAMPLES, "vae/main.py", "--epochs 2 --batch-size 32",
        data=digits_and_results,
    ),
    Subject(
        "wgan_gp", "eriklindernoren/PyTorch-GAN", "36d3c77e5ff20ebe0aeefd322326a134a279b93e", "implementations/wgan_gp/wgan_gp.py",
        "--n_epochs 1 --batch_size 32", data=lambda folder: digits(folder / "data/mnist/MNIST/raw"),
    ),
    Subject(
        "nanoGPT", "karpathy/nanoGPT", "3adf61e154c3fe3fca428ad6bc3818b27a3b8291", "train.py",
        "--dataset=syn --device=cpu --compile=False --dtype=float32 --eval_iters=2 --eval_interval=4 --block_size=32 --batch_size=4 "
        "--n_layer=2 --n_head=2 --n_embd=32 --max_iters=10 --gradient_accumulation_steps=2 --warmup_iters=2 --learning_rate=0.01 "
        "--always_save_checkpoint=True",
        data=lambda folder: tokens(folder / "data/syn"), torchvision=False, clocks=r"time [\d.]+ms, mfu -?[\d.]+%",
    ),
    Subject(
        "minGPT", "karpathy/minGPT", "37baab71b9abea1b76ab957409a1cc2fbfba8a26", "projects/chargpt/chargpt.py",
        "--trainer.max_iters=8 --trainer.num_workers=0 --model.model_type=gpt-nano --trainer.batch_size=4",
        data=quotes, path=(".",), torchvision=False, clocks=r"(?s)iter_dt [\d.]+ms|O God, O God!.*?(?=saving model|iter_dt|$)",
    ),
    Subject(
        "word_language_model", *EXAMPLES, "word_language_model/main.py",
        "--data words --epochs 2 --emsize 24 --nhid 24 --batch_size 8 --bptt 12 --log-interval 3 --use-optimizer --lr 0.02 "
        "--dropout 0",  # masks are drawn otherwise in another precision
        data=lambda folder: words(folder / "word_language_model/words"), torchvision=False, clocks=r"ms/batch +[\d.]+|time: +[\d.]+s",
    ),
    Subject(
        "super_resolution", *EXAMPLES, "super_resolution/main.py",
        "--upscale_factor 3 --batchSize 2 --testBatchSize 3 --nEpochs 2 --threads 0", data=photographs,
    ),
    Subject(
        "stargan", "yunjey/stargan", "94dd002e93a2863d9b987a937b85925b80f7a19f", "main.py",
        "--mode train --dataset CelebA --celeba_image_dir faces/images --attr_path faces/attributes.txt --image_size 32 --g_conv_dim 8 "
        "--d_conv_dim 8 --g_repeat_num 1 --d_repeat_num 3 --batch_size 4 --num_iters 6 --n_critic 2 --use_tensorboard False "
        "--num_workers 0 --log_step 2 --sample_step 1000 --model_save_step 6",
        data=lambda folder: faces(folder / "faces"), random_items=True, clocks=r"Elapsed \[[\d:.]+\]",
        # Adam makes steps of full size from gradients that are zero but for rounding (label
        # channels are constant, InstanceNorm removes
        # them): a relative change of 1e-6 of the parameters alone changes the generator's third
        # gradient by 9 %.
        rounding=replace(ROUNDING, loss=2e-3, update=1.5), half=replace(HALF, update=1.5),
    ),
]  # fmt: skip


# --------------------------------------------------------------------------------------- laying out
def repository(mirror: Path, subject: Subject) -> Path | None:
    """The git directory of the subject's repository, where the mirror has it."""
    place = mirror / subject.repo.replace("/", "+") / "repo"
    return next((path for path in (place / ".git", place) if (path / "objects").is_dir()), None)


def lay_out(git: Path, commit: str, into: Path) -> None:
    """The Python files of a commit, one by one: a copy that lacks large blobs cannot be checked out
    as a whole.
    """

    def output(*command: str | bytes) -> bytes:
        return subprocess.run(
            ["git", "--git-dir", git, *command], capture_output=True, check=True
        ).stdout

    listing = output("ls-tree", "-r", "-z", commit)
    for line in filter(None, listing.split(b"\0")):
        meta, name = line.split(b"\t", 1)
        path = into / name.decode()
        if path.suffix == ".py":
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(output("cat-file", "blob", meta.split()[2]))


# ------------------------------------------------------------------------------------------ running
@dataclass(frozen=True)
class Outcome:
    """One rewrite of one script, compared with the original."""

    subject: Subject
    target: str
    effect: Effect
    fake: bool
    applied: frozenset[str]
    before: Run
    after: Run
    differences: list[str]


def outcomes(subject: Subject, git: Path, folder: Path) -> Iterator[Outcome]:
    """Lay ``subject`` out in ``folder``, rewrite it in every way, run all of them."""
    lay_out(git, subject.commit, folder)
    subject.data(folder)
    script = read_script(folder / subject.entry, folder)
    rules = select()
    original = Job(
        folder, entry=subject.entry, args=tuple(subject.args.split()), cwd=subject.folder, path=subject.path, stop_after=subject.stop_after,
        before=str(SHIM) if subject.torchvision else "", limit=300.0,
    )  # fmt: skip
    ways = [
        (target, effect, False)
        for target in ("cuda", "cpu")
        for effect in (Effect.EXACT, Effect.ROUNDING, Effect.SAMPLING)
    ]
    for target, effect, fake in [*ways, ("cuda", Effect.ROUNDING, True)]:
        plan = Plan.make(
            script, Options(target=target, selected=frozenset(r.name for r in rules)), rules, effect
        )
        assert not plan.left_out, plan.left_out[0].warning
        plan.check(
            lambda texts: read_script(
                folder / subject.entry,
                folder,
                overlay={s.path: s.encode(t) for s, t in texts.items()},
            )
        )
        files = {source.rel: source.encode(text) for source, text in plan.texts().items()}
        before, after = HARNESS.run_many(
            [
                replace(original, fake_cuda_amp=fake),
                replace(original, files=files, fake_cuda_amp=fake),
            ]
        )
        reached = strongest(plan)
        half = fake or (target == "cpu" and plan.applied & {"autocast", "grad-scaler"})
        tolerance = (
            SAMPLING if reached >= Effect.SAMPLING else subject.half if half else subject.rounding
        )
        differences = compare(
            before,
            after,
            reached,
            tolerance,
            same_samples=not subject.random_items,
            ignore=subject.clocks,
        )
        if not before.ok or not before.losses:
            differences = [f"the original does not train: {before.error}\n{before.traceback}"]
        yield Outcome(subject, target, effect, fake, plan.applied, before, after, differences)


def row(outcome: Outcome) -> str:
    way = f"{outcome.target}, fp16 faked" if outcome.fake else outcome.target
    before, after = outcome.before.losses, outcome.after.losses
    apart = max((abs(a - b) for a, b in zip(before, after, strict=False)), default=0.0)
    last = f"{before[-1]:.5f} -> {after[-1]:.5f}" if before and after else "no losses"
    verdict = "same" if not outcome.differences else "DIFFERENT"
    return (
        f"{outcome.subject.name:20} {way:17} {outcome.effect.name.lower():9} {len(outcome.applied):2} rules {outcome.after.steps:3} steps "
        f"last loss {last:24} apart {apart:8.1e} {outcome.before.seconds:5.1f} s -> {outcome.after.seconds:5.1f} s  {verdict}"
    )


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
    parser.add_argument("--keep", type=Path, help="lay the scripts out here and leave them")
    args = parser.parse_args()
    same = True
    for subject in [subject for subject in SUBJECTS if subject.name in args.only]:
        git = repository(args.mirror, subject)
        if git is None:
            print(f"{subject.name:20} skipped: {subject.repo} is not in {args.mirror}")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            for outcome in outcomes(subject, git, (args.keep or Path(scratch)) / subject.name):
                print(row(outcome), flush=True)
                print(f"    {', '.join(sorted(outcome.applied)) or 'nothing applied'}")
                print(
                    "".join(f"    ! {line}\n" for line in outcome.differences), end="", flush=True
                )
                same = same and not outcome.differences
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
