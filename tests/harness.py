"""Runs a training script, original or rewritten, and records what it did.

A run happens in a fork (``tests.zygote``) and a scratch copy of the script's folder, with one
thread, fixed seeds, a fixed hash seed
and a time limit, and is remembered: the same text with the same arguments runs once per test
session.

    run = HARNESS.run(Job(Path("fixtures/gan"), args=("--epochs", "1")))
    run.losses, run.steps, run.stdout, run.error
    assert not compare(before, after, Effect.ROUNDING)

What is recorded (``tests.recording``): every value on which ``backward`` was called (before loss
scaling), the number of optimizer steps, the parameters of each optimizer before its first and after
its last step, the batches and samples taken from each loader, stdout, warnings, the files written
(checkpoints with their contents) and the exception, if there was one.

``Job(fake_cuda_amp=True)`` executes on the CPU the mixed-precision path that a rewritten script
takes on a GPU without bf16: every ``autocast`` is enabled with fp16 and every ``GradScaler`` is a
real, enabled one for the CPU, whatever ``enabled=`` they were given (an ``autocast`` that spells
out ``enabled=False`` stays off: it is an island of full precision, and one that spells out
``dtype=torch.bfloat16`` gets that). So casting, scaling, unscaling, skipping and scaler state
really run, and ``normalize`` gives fp32, as on CUDA. What this cannot show: operators that autocast
treats differently on CUDA (``binary_cross_entropy`` is an error there and a cast on the CPU), code
that asks ``torch.is_autocast_enabled`` or a tensor's ``is_cuda``, and speed. The scaler starts at
256, not 65536, so that the first steps are not skipped for overflow and both runs can be compared
step by step. oneDNN is off, as it has no recurrent layers in fp16: gradients in full precision,
too, differ in the last bit from those of a run that is not faked.

A script that compiles its model does so with the backend ``aot_eager``: Dynamo and AOTAutograd
really take the model apart, so whatever they cannot do shows, but no kernels are made, which would
take minutes. With ``mode="reduce-overhead"``, what a compiled graph gave is overwritten by its next
run, outputs and gradients alike, as CUDA graphs do: a script that still needs them trains
differently.

``Job(cpus=4)`` is the number of CPUs the script believes it may use, so that worker processes are
started on small machines too.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import os
import pickle
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.zygote import QUIET, ZYGOTE

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
STANDINS = (
    Path(__file__).resolve().parent / "standins"
)  # of frameworks that no test needs to be installed
HAVE_TORCH = (
    importlib.util.find_spec("torch") is not None
)  # without importing it: that is the zygote's business
# What Python or torch say about the version of Python wherever workers are forked (3.12 and later)
# or anything is compiled (3.13.0), whoever asks for it.
OF_PYTHON = re.compile(
    r"^DeprecationWarning: This process \(pid=\d+\) is multi-threaded, use of fork|^RuntimeWarning: Guards may run slower on Python 3"
)
# These take as long again as torch itself: only for scripts that compile.
COMPILERS = (
    "torch._dynamo.backends.debugging",
    "torch._functorch.aot_autograd",
    "torch._inductor.compile_fx",
)
SKIP = shutil.ignore_patterns("__pycache__", "*.pyc", "fixture.toml")


# -------------------------------------------------------------------------------------- what to run
@dataclass(frozen=True)
class Job:
    """One run of ``entry`` in a copy of ``folder``, with ``files`` (relative path -> content)
    written over the copy.

    Attributes:
        then: the arguments of a second run in the same folder (resuming from what the first one
            saved).
        cwd: the working directory, in the copy.
        path: folders of the copy that are put on ``PYTHONPATH``.
        stop_after: end the script after that many optimizer steps, as if it had ended by itself.
        before: a Python file that is run first.
        start_method: how processes are started, where that is not the platform's way.
        cpus, fake_cuda_amp: see the module.
    """

    folder: Path
    entry: str = "train.py"
    args: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    then: tuple[str, ...] | None = None
    cwd: str = "."
    stop_after: int = 0
    seed: int = 0
    limit: float = 120.0
    cpus: int = 4
    fake_cuda_amp: bool = False
    path: tuple[str, ...] = ()
    before: str = ""
    start_method: str = ""

    def message(self) -> dict[str, Any]:
        """For ``tests.recording.record``."""
        return asdict(replace(self, files={}))

    def key(self) -> str:
        """A digest of everything that decides the outcome."""
        digest = hashlib.sha256(
            repr(
                (self.entry, self.args, self.then, self.cwd, self.stop_after, self.seed, self.cpus)
            ).encode()
        )
        digest.update(
            repr((self.fake_cuda_amp, self.path, self.before, self.start_method)).encode()
        )
        for name, content in sorted(_contents(self.folder, self.files).items()):
            digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()


@dataclass
class Run:
    """What one run did. Arrays are NumPy arrays; bf16 and fp16 values are given as float32."""

    losses: list[float] = field(default_factory=list)
    steps: int = 0
    skipped: int = 0  # optimizer steps that a GradScaler left out
    start: list[list[Any]] = field(
        default_factory=list
    )  # per optimizer: the parameters before its first step ...
    params: list[list[Any]] = field(default_factory=list)  # ... and at the end
    loads: list[list[float]] = field(
        default_factory=list
    )  # per iteration over a loader: [batches, samples, sum of all values]
    stdout: str = ""
    stderr: str = ""
    warnings: list[str] = field(default_factory=list)
    files: dict[str, Any] = field(
        default_factory=dict
    )  # name -> text, or {key: value} of a checkpoint, or None
    error: str = ""
    traceback: str = ""
    seconds: float = 0.0
    then: Run | None = None

    @property
    def ok(self) -> bool:
        return not self.error and (self.then is None or self.then.ok)


def _contents(folder: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    found = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.name != "fixture.toml"
    }
    return {**found, **files}


# ----------------------------------------------------------------------------------------- the runs
class Harness:
    """Keeps every outcome."""

    def __init__(self, parallel: int | None = None):
        self.parallel = parallel or min(2, os.cpu_count() or 1)
        self._runs: dict[str, Run] = {}

    def run(self, job: Job) -> Run:
        """The outcome of ``job``."""
        return self.run_many([job])[0]

    def run_many(self, jobs: Iterable[Job]) -> list[Run]:
        """The outcomes of ``jobs``, in order, several at a time; equal jobs run once."""
        jobs = list(jobs)
        keys = [job.key() for job in jobs]
        todo = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._runs}
        with ThreadPoolExecutor(self.parallel) as pool:
            self._runs.update(zip(todo, pool.map(_outcome, todo.values()), strict=True))
        return [self._runs[key] for key in keys]


def _outcome(job: Job) -> Run:
    with tempfile.TemporaryDirectory(prefix="autofast-run-") as scratch:
        lay_out(job, Path(scratch) / "work")
        run, recorded = _executed(job, Path(scratch) / "run0")
        if job.then is not None and recorded:
            run.then, _ = _executed(replace(job, args=job.then), Path(scratch) / "run1")
    return run


def _executed(job: Job, place: Path) -> tuple[Run, bool]:
    """One run, and whether it came to its record."""
    place.mkdir()
    code = ZYGOTE.run(
        "tests.recording:record", [job.message(), place], limit=job.limit, cwd=place, environment=QUIET,
        stdout=place / "stdout", stderr=place / "stderr", modules=compilers(place.parent / "work"),
    )  # fmt: skip
    end = f"more than {job.limit:g} s" if code is None else f"the process ended with status {code}"
    return read_run(place, end), (place / "record").exists()


def compilers(folder: Path) -> tuple[str, ...]:
    """What the scripts in a folder should find imported."""
    compiles = any(b".compile(" in path.read_bytes() for path in folder.rglob("*.py"))
    return COMPILERS if compiles else ()


def lay_out(job: Job, target: Path) -> None:
    """The scratch copy of the job's folder."""
    shutil.copytree(job.folder, target, ignore=SKIP)
    for name, content in job.files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)


def read_run(place: Path, end: str) -> Run:
    """What a run left in ``place``; ``end`` tells how it ended if that is no record."""
    record = place / "record"
    run = Run(**pickle.loads(record.read_bytes())) if record.exists() else Run(error=end)
    scratch = str(place.parent / "work")  # scripts like to show where they are
    run.stdout = (place / "stdout").read_text(errors="replace").replace(scratch, "")
    run.files = {
        name: content.replace(scratch, "") if isinstance(content, str) else content
        for name, content in run.files.items()
    }
    run.stderr = (place / "stderr").read_text(errors="replace")
    return run


HARNESS = Harness()


# ---------------------------------------------------------------------------------------- comparing
@dataclass(frozen=True)
class Tolerance:
    """How far two runs may be apart.

    Attributes:
        loss: relative difference of every loss (and of numbers that the script prints or writes),
            to a floor of 1.
        update: what the optimizers changed in the parameters: norm of the difference over the norm
            of the change.
        count: relative difference of printed numbers that are no losses: shares and counts of
            correct predictions (plus one).
    """

    loss: float = 1e-4
    update: float = 1e-2
    count: float = 0.0


ROUNDING = Tolerance()  # the last digits: fused kernels, memory formats, sums in another order
HALF = Tolerance(
    loss=0.03, update=0.15, count=0.1
)  # 8 or 11 bits of mantissa in the matrix products
SAMPLING = Tolerance(loss=0.5, count=0.5)  # other random draws: a band around the mean


def compare(
    before: Run,
    after: Run,
    effect: int,
    tolerance: Tolerance | None = None,
    *,
    same_samples: bool = True,
    ignore: str = "",
) -> list[str]:
    """What differs more than ``effect`` allows, one line each; empty means the two runs trained the
    same.

    ``effect`` is an ``autofast.rule.Effect`` (0 exact, 1 rounding, 2 sampling). ``same_samples``
    says that items are not random, so that each pass over a loader has to bring the same values in
    whatever order. ``ignore`` is a regular expression for what may differ in stdout (times).
    """
    exact, rounding = effect <= 0, effect == 1
    tolerance = tolerance or (ROUNDING if rounding else SAMPLING)
    found: list[str] = []
    if before.error != after.error:
        return [
            f"ends with {after.error or 'no error'}, before with {before.error or 'no error'}\n{after.traceback}{after.stderr[-2000:]}"
        ]
    if fresh := sorted(
        w for w in set(after.warnings) - set(before.warnings) if not OF_PYTHON.search(w)
    ):
        found.append(f"new warnings: {fresh}")
    if before.steps + before.skipped != after.steps + after.skipped:
        found.append(
            f"{after.steps} optimizer steps and {after.skipped} skipped, before {before.steps} and {before.skipped}"
        )
    found += _losses(before.losses, after.losses, effect, tolerance)
    if exact or rounding:
        found += _updates(before, after, exact, tolerance)
    found += _loads(before.loads, after.loads, exact, same_samples)
    printed = [re.sub(ignore, "", run.stdout) if ignore else run.stdout for run in (before, after)]
    found += [f"stdout: {line}" for line in _texts(*printed, effect, tolerance)]
    found += _files(before.files, after.files, effect, tolerance)
    if before.then is not None and after.then is not None:
        tolerance = replace(
            tolerance, update=math.inf
        )  # they start from what the first runs have left
        again = compare(
            before.then, after.then, effect, tolerance, same_samples=same_samples, ignore=ignore
        )
        found += [f"resumed: {line}" for line in again]
    return found


def _losses(
    before: list[float], after: list[float], effect: int, tolerance: Tolerance
) -> list[str]:
    if len(before) != len(after):
        return [f"{len(after)} backward calls, before {len(before)}"]
    if effect <= 0:
        return [
            f"loss {i}: {b!r} became {a!r}"
            for i, (b, a) in enumerate(zip(before, after, strict=True))
            if not _same(b, a)
        ][:3]
    if effect == 1:
        apart = [
            (i, b, a)
            for i, (b, a) in enumerate(zip(before, after, strict=True))
            if not _close(b, a, tolerance.loss)
        ]
        return [
            f"loss {i}: {b:.8g} became {a:.8g} (tolerance {tolerance.loss:g})"
            for i, b, a in apart[:3]
        ]
    if bad := [
        a for b, a in zip(before, after, strict=True) if math.isfinite(b) and not math.isfinite(a)
    ]:
        return [f"{len(bad)} losses are not finite"]
    middle_before, middle_after = _mean(before), _mean(after)
    spread = max(map(abs, before), default=0.0)
    if before and abs(middle_before - middle_after) > tolerance.loss * max(
        abs(middle_before), spread, 1e-6
    ):
        return [
            f"the mean loss {middle_before:.6g} became {middle_after:.6g} (band {tolerance.loss:g})"
        ]
    return []


def _updates(before: Run, after: Run, exact: bool, tolerance: Tolerance) -> list[str]:
    import numpy as np

    shapes = (
        [[p.shape for p in group] for group in before.params],
        [[p.shape for p in group] for group in after.params],
    )
    if shapes[0] != shapes[1]:
        return [f"the optimizers hold other parameters: {shapes[1]}, before {shapes[0]}"]
    found = []
    for i, (start, p, q) in enumerate(zip(before.start, before.params, after.params, strict=True)):
        if exact:
            if differ := [
                j
                for j, (a, b) in enumerate(zip(p, q, strict=True))
                if not np.array_equal(a, b, equal_nan=True)
            ]:
                found.append(
                    f"optimizer {i}: {len(differ)} of {len(p)} parameters differ at the end"
                )
            continue
        flat = [
            np.concatenate([part for t in group for part in _reals(t)]) for group in (start, p, q)
        ]
        moved, apart = np.linalg.norm(flat[1] - flat[0]), np.linalg.norm(flat[2] - flat[1])
        if not apart <= tolerance.update * moved + 1e-9 * np.linalg.norm(flat[1]):
            found.append(
                f"optimizer {i}: what training changed differs by {apart / max(moved, 1e-30):.2g} (tolerance {tolerance.update:g})"
            )
    return found


def _reals(values: Any) -> list[Any]:
    parts = [values.real, values.imag] if values.dtype.kind == "c" else [values]
    return [part.ravel().astype("float64") for part in parts]


def _loads(
    before: list[list[float]], after: list[list[float]], exact: bool, same_samples: bool
) -> list[str]:
    counts_before, counts_after = [load[:2] for load in before], [load[:2] for load in after]
    if counts_before != counts_after:
        return [f"loaders gave [batches, samples] {counts_after}, before {counts_before}"]
    if not same_samples:
        return []
    apart = [
        (b[2], a[2])
        for b, a in zip(before, after, strict=True)
        if not _close(b[2], a[2], 1e-12 if exact else 1e-5)
    ]
    return [
        f"a pass over a loader gave other samples: their sum {b:.8g} became {a:.8g}"
        for b, a in apart[:1]
    ]


def _texts(before: str, after: str, effect: int, tolerance: Tolerance) -> Iterator[str]:
    if effect <= 0 and before == after:
        return
    lines = before.splitlines(), after.splitlines()
    if len(lines[0]) != len(lines[1]):
        yield f"{len(lines[1])} lines, before {len(lines[0])}: {after[-300:]!r}"
        return
    for b, a in zip(*lines, strict=True):
        if effect <= 0:
            fine = a == b
        else:
            fine = NUMBER.sub("#", a) == NUMBER.sub("#", b) and all(
                effect >= 2 or _printed(x, y, tolerance)
                for x, y in zip(NUMBER.findall(b), NUMBER.findall(a), strict=True)
            )
        if not fine:
            yield f"{b!r} became {a!r}"
            return


def _printed(before: str, after: str, tolerance: Tolerance) -> bool:
    x, y = float(before), float(after)
    if before.lstrip("+-").isdigit() and after.lstrip("+-").isdigit():
        return abs(x - y) <= 1 + tolerance.count * max(abs(x), abs(y)) if x != y else True
    digits = max(len(text.partition(".")[2].partition("e")[0]) for text in (before, after))
    return _close(x, y, tolerance.loss) or abs(x - y) <= 10.0**-digits + tolerance.count * max(
        abs(x), abs(y)
    )


def _files(
    before: Mapping[str, Any], after: Mapping[str, Any], effect: int, tolerance: Tolerance
) -> list[str]:
    if sorted(before) != sorted(after):
        return [f"files written: {sorted(after)}, before {sorted(before)}"]
    found: list[str] = []
    for name, old in before.items():
        new = after[name]
        if type(old) is not type(new):
            found.append(
                f"{name}: was readable as {type(old).__name__}, now as {type(new).__name__}"
            )
        elif isinstance(old, str):
            found += [f"{name}: {line}" for line in _texts(old, new, effect, tolerance)]
        elif isinstance(old, dict):
            found += [f"{name}: {line}" for line in _checkpoints(old, new, effect, tolerance)]
    return found


def _checkpoints(
    before: Mapping[str, Any], after: Mapping[str, Any], effect: int, tolerance: Tolerance
) -> list[str]:
    import numpy as np

    found = [f"lost {key}" for key in before if key not in after]
    found += [
        f"has a new key {key}" for key in after if key not in before and "scaler" not in key.lower()
    ]
    for key in before:
        if key not in after or key.endswith("fused"):
            continue
        old, new = before[key], after[key]
        if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
            if old.shape != new.shape or old.dtype != new.dtype:
                found.append(f"{key}: {old.dtype}{old.shape} became {new.dtype}{new.shape}")
            elif effect <= 0 and not np.array_equal(old, new, equal_nan=True):
                found.append(f"{key}: other values")
        elif type(old) is not type(new):
            found.append(f"{key}: {old!r} became {new!r}")
        elif isinstance(old, float):
            if not (
                effect >= 2
                or (_same(old, new) if effect <= 0 else _printed(repr(old), repr(new), tolerance))
            ):
                found.append(f"{key}: {old!r} became {new!r}")
        elif old != new and not (effect >= 1 and isinstance(old, (bytes, list, tuple))):
            found.append(f"{key}: {old!r} became {new!r}")
    return found[:5]


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _close(a: float, b: float, tolerance: float) -> bool:
    if not (math.isfinite(a) and math.isfinite(b)):
        return _same(a, b)
    return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))


def _mean(values: list[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / max(1, len(finite))
