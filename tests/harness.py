"""Runs a training script, original or rewritten, and records what it did.

Importing torch takes seconds and a fixture trains for a tenth of one, so one *zygote* process imports torch once and forks a child
for every run. A run happens in a scratch copy of the script's folder, with one thread, fixed seeds, a fixed hash seed and a time
limit, and is remembered: the same text with the same arguments runs once per test session.

    run = HARNESS.run(Job(Path("fixtures/gan"), args=("--epochs", "1")))
    run.losses, run.steps, run.stdout, run.error
    assert not compare(before, after, Effect.ROUNDING)

What is recorded: every value on which ``backward`` was called (before loss scaling), the number of optimizer steps, the parameters of
each optimizer before its first and after its last step, the batches and samples taken from each loader, stdout, warnings, the files
written (checkpoints with their contents) and the exception, if there was one.

``Job(fake_cuda_amp=True)`` executes on the CPU the mixed-precision path that a rewritten script takes on a GPU without bf16: every
``autocast`` is enabled with fp16 and every ``GradScaler`` is a real, enabled one for the CPU, whatever ``enabled=`` they were given
(an ``autocast`` that spells out ``enabled=False`` stays off: it is an island of full precision, and one that spells out
``dtype=torch.bfloat16`` gets that). So casting, scaling, unscaling, skipping and scaler state really run. What this cannot show: operators that autocast treats differently on CUDA (``binary_cross_entropy`` is an error
there and a cast on the CPU), code that asks ``torch.is_autocast_enabled`` or a tensor's ``is_cuda``, and speed. The scaler starts at 256,
not 65536, so that the first steps are not skipped for overflow and both runs can be compared step by step. oneDNN is off, as it has no
recurrent layers in fp16: gradients in full precision, too, differ in the last bit from those of a run that is not faked.

A script that compiles its model does so with the backend ``aot_eager``: Dynamo and AOTAutograd really take the model apart, so whatever they
cannot do shows, but no kernels are made, which would take minutes.

``Job(cpus=4)`` is the number of CPUs the script believes it may use, so that worker processes are started on small machines too.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import hashlib
import importlib.util
import json
import math
import multiprocessing
import os
import pickle
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\b(?:nan|inf)\b")
STANDINS = Path(__file__).resolve().parent / "standins"  # of frameworks that no test needs to be installed
HAVE_TORCH = importlib.util.find_spec("torch") is not None  # without importing it: that is the zygote's business
# What Python or torch say about the version of Python wherever workers are forked (3.12 and later) or anything is compiled (3.13.0), whoever asks for it.
OF_PYTHON = re.compile(
    r"^DeprecationWarning: This process \(pid=\d+\) is multi-threaded, use of fork|^RuntimeWarning: Guards may run slower on Python 3"
)
SKIP = shutil.ignore_patterns("__pycache__", "*.pyc", "fixture.toml")


# ------------------------------------------------------------------------------------------------------------ what to run
@dataclass(frozen=True)
class Job:
    """One run of ``entry`` in a copy of ``folder``, with ``files`` (relative path -> content) written over the copy.

    Attributes:
        then: the arguments of a second run in the same folder (resuming from what the first one saved).
        cwd: the working directory, in the copy. path: folders of the copy that are put on ``PYTHONPATH``.
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

    def key(self) -> str:
        """A digest of everything that decides the outcome."""
        digest = hashlib.sha256(repr((self.entry, self.args, self.then, self.cwd, self.stop_after, self.seed, self.cpus)).encode())
        digest.update(repr((self.fake_cuda_amp, self.path, self.before, self.start_method)).encode())
        for name, content in sorted(_contents(self.folder, self.files).items()):
            digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()


@dataclass
class Run:
    """What one run did. Arrays are NumPy arrays; bf16 and fp16 values are given as float32."""

    losses: list[float] = field(default_factory=list)
    steps: int = 0
    skipped: int = 0  # optimizer steps that a GradScaler left out
    start: list[list[Any]] = field(default_factory=list)  # per optimizer: the parameters before its first step ...
    params: list[list[Any]] = field(default_factory=list)  # ... and at the end
    loads: list[list[float]] = field(default_factory=list)  # per iteration over a loader: [batches, samples, sum of all values]
    stdout: str = ""
    stderr: str = ""
    warnings: list[str] = field(default_factory=list)
    files: dict[str, Any] = field(default_factory=dict)  # name -> text, or {key: value} of a checkpoint, or None
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


# ------------------------------------------------------------------------------------------------------------ the client
class Harness:
    """Starts the zygote at the first run and keeps every outcome."""

    def __init__(self, parallel: int | None = None):
        self.parallel = parallel or min(2, os.cpu_count() or 1)
        self._runs: dict[str, Run] = {}
        self._zygote: subprocess.Popen[str] | None = None

    def run(self, job: Job) -> Run:
        """The outcome of ``job``."""
        return self.run_many([job])[0]

    def run_many(self, jobs: Iterable[Job]) -> list[Run]:
        """The outcomes of ``jobs``, in order, several at a time; equal jobs run once."""
        jobs = list(jobs)
        keys = [job.key() for job in jobs]
        todo = {key: job for key, job in zip(keys, jobs, strict=True) if key not in self._runs}
        if todo:
            with tempfile.TemporaryDirectory(prefix="autofast-run-") as scratch:
                self._execute(todo, Path(scratch))
        return [self._runs[key] for key in keys]

    def close(self) -> None:
        if self._zygote is not None and self._zygote.stdin is not None:
            self._zygote.stdin.close()
            self._zygote.wait()
            self._zygote = None

    def _execute(self, todo: Mapping[str, Job], scratch: Path) -> None:
        zygote = self._zygote or self._start()
        assert zygote.stdin is not None and zygote.stdout is not None
        places = {}
        for key, job in todo.items():
            place = scratch / key[:16]
            shutil.copytree(job.folder, place / "work", ignore=SKIP)
            for name, content in job.files.items():
                target = place / "work" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            places[key] = place
            compiles = any(b".compile(" in path.read_bytes() for path in (place / "work").rglob("*.py"))
            message = {**asdict(replace(job, folder=place, files={})), "key": key, "compiles": compiles}
            zygote.stdin.write(json.dumps(message, default=str) + "\n")
        zygote.stdin.write(json.dumps({"go": True, "parallel": self.parallel}) + "\n")
        zygote.stdin.flush()
        for _ in todo:
            line = zygote.stdout.readline()
            if not line:
                raise RuntimeError("the process that runs the scripts has died")
            key = json.loads(line)["key"]
            runs = [_read_run(path) for path in sorted(places[key].glob("run*"))]
            if len(runs) == 2:
                runs[0].then = runs[1]
            self._runs[key] = runs[0]

    def _start(self) -> subprocess.Popen[str]:
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        env = {**os.environ, **one, "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, str(Path(__file__).resolve()), "serve"]
        self._zygote = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        atexit.register(self.close)
        return self._zygote


def _read_run(place: Path) -> Run:
    record = place / "record"
    if record.exists():
        run: Run = Run(**pickle.loads(record.read_bytes()))
    else:
        run = Run(error=(place / "end").read_text())
    scratch = str(place.parent / "work")  # scripts like to show where they are
    run.stdout = (place / "stdout").read_text(errors="replace").replace(scratch, "")
    run.files = {name: content.replace(scratch, "") if isinstance(content, str) else content for name, content in run.files.items()}
    run.stderr = (place / "stderr").read_text(errors="replace")
    return run


HARNESS = Harness()


# ------------------------------------------------------------------------------------------------------------ comparing
@dataclass(frozen=True)
class Tolerance:
    """How far two runs may be apart.

    Attributes:
        loss: relative difference of every loss (and of numbers that the script prints or writes), to a floor of 1.
        update: what the optimizers changed in the parameters: norm of the difference over the norm of the change.
        count: relative difference of printed numbers that are no losses: shares and counts of correct predictions (plus one).
    """

    loss: float = 1e-4
    update: float = 1e-2
    count: float = 0.0


ROUNDING = Tolerance()  # the last digits: fused kernels, memory formats, sums in another order
HALF = Tolerance(loss=0.03, update=0.15, count=0.1)  # 8 or 11 bits of mantissa in the matrix products
SAMPLING = Tolerance(loss=0.5, count=0.5)  # other random draws: a band around the mean


def compare(
    before: Run, after: Run, effect: int, tolerance: Tolerance | None = None, *, same_samples: bool = True, ignore: str = ""
) -> list[str]:
    """What differs more than ``effect`` allows, one line each; empty means the two runs trained the same.

    ``effect`` is an ``autofast.rule.Effect`` (0 exact, 1 rounding, 2 sampling). ``same_samples`` says that items are not random, so
    that each pass over a loader has to bring the same values in whatever order. ``ignore`` is a regular expression for what may differ in
    stdout (times).
    """
    exact, rounding = effect <= 0, effect == 1
    tolerance = tolerance or (ROUNDING if rounding else SAMPLING)
    found: list[str] = []
    if before.error != after.error:
        return [f"ends with {after.error or 'no error'}, before with {before.error or 'no error'}\n{after.traceback}{after.stderr[-2000:]}"]
    if fresh := sorted(w for w in set(after.warnings) - set(before.warnings) if not OF_PYTHON.search(w)):
        found.append(f"new warnings: {fresh}")
    if before.steps + before.skipped != after.steps + after.skipped:
        found.append(f"{after.steps} optimizer steps and {after.skipped} skipped, before {before.steps} and {before.skipped}")
    found += _losses(before.losses, after.losses, effect, tolerance)
    if exact or rounding:
        found += _updates(before, after, exact, tolerance)
    found += _loads(before.loads, after.loads, exact, same_samples)
    printed = [re.sub(ignore, "", run.stdout) if ignore else run.stdout for run in (before, after)]
    found += [f"stdout: {line}" for line in _texts(*printed, effect, tolerance)]
    found += _files(before.files, after.files, effect, tolerance)
    if before.then is not None and after.then is not None:
        tolerance = replace(tolerance, update=math.inf)  # they start from what the first runs have left
        again = compare(before.then, after.then, effect, tolerance, same_samples=same_samples, ignore=ignore)
        found += [f"resumed: {line}" for line in again]
    return found


def _losses(before: list[float], after: list[float], effect: int, tolerance: Tolerance) -> list[str]:
    if len(before) != len(after):
        return [f"{len(after)} backward calls, before {len(before)}"]
    if effect <= 0:
        return [f"loss {i}: {b!r} became {a!r}" for i, (b, a) in enumerate(zip(before, after, strict=True)) if not _same(b, a)][:3]
    if effect == 1:
        apart = [(i, b, a) for i, (b, a) in enumerate(zip(before, after, strict=True)) if not _close(b, a, tolerance.loss)]
        return [f"loss {i}: {b:.8g} became {a:.8g} (tolerance {tolerance.loss:g})" for i, b, a in apart[:3]]
    if bad := [a for b, a in zip(before, after, strict=True) if math.isfinite(b) and not math.isfinite(a)]:
        return [f"{len(bad)} losses are not finite"]
    middle_before, middle_after = _mean(before), _mean(after)
    spread = max(map(abs, before), default=0.0)
    if before and abs(middle_before - middle_after) > tolerance.loss * max(abs(middle_before), spread, 1e-6):
        return [f"the mean loss {middle_before:.6g} became {middle_after:.6g} (band {tolerance.loss:g})"]
    return []


def _updates(before: Run, after: Run, exact: bool, tolerance: Tolerance) -> list[str]:
    import numpy as np

    shapes = [[p.shape for p in group] for group in before.params], [[p.shape for p in group] for group in after.params]
    if shapes[0] != shapes[1]:
        return [f"the optimizers hold other parameters: {shapes[1]}, before {shapes[0]}"]
    found = []
    for i, (start, p, q) in enumerate(zip(before.start, before.params, after.params, strict=True)):
        if exact:
            if differ := [j for j, (a, b) in enumerate(zip(p, q, strict=True)) if not np.array_equal(a, b, equal_nan=True)]:
                found.append(f"optimizer {i}: {len(differ)} of {len(p)} parameters differ at the end")
            continue
        flat = [np.concatenate([part for t in group for part in _reals(t)]) for group in (start, p, q)]
        moved, apart = np.linalg.norm(flat[1] - flat[0]), np.linalg.norm(flat[2] - flat[1])
        if not apart <= tolerance.update * moved + 1e-9 * np.linalg.norm(flat[1]):
            found.append(
                f"optimizer {i}: what training changed differs by {apart / max(moved, 1e-30):.2g} (tolerance {tolerance.update:g})"
            )
    return found


def _reals(values: Any) -> list[Any]:
    parts = [values.real, values.imag] if values.dtype.kind == "c" else [values]
    return [part.ravel().astype("float64") for part in parts]


def _loads(before: list[list[float]], after: list[list[float]], exact: bool, same_samples: bool) -> list[str]:
    counts_before, counts_after = [load[:2] for load in before], [load[:2] for load in after]
    if counts_before != counts_after:
        return [f"loaders gave [batches, samples] {counts_after}, before {counts_before}"]
    if not same_samples:
        return []
    apart = [(b[2], a[2]) for b, a in zip(before, after, strict=True) if not _close(b[2], a[2], 1e-12 if exact else 1e-5)]
    return [f"a pass over a loader gave other samples: their sum {b:.8g} became {a:.8g}" for b, a in apart[:1]]


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
                effect >= 2 or _printed(x, y, tolerance) for x, y in zip(NUMBER.findall(b), NUMBER.findall(a), strict=True)
            )
        if not fine:
            yield f"{b!r} became {a!r}"
            return


def _printed(before: str, after: str, tolerance: Tolerance) -> bool:
    x, y = float(before), float(after)
    if before.lstrip("+-").isdigit() and after.lstrip("+-").isdigit():
        return abs(x - y) <= 1 + tolerance.count * max(abs(x), abs(y)) if x != y else True
    digits = max(len(text.partition(".")[2].partition("e")[0]) for text in (before, after))
    return _close(x, y, tolerance.loss) or abs(x - y) <= 10.0**-digits + tolerance.count * max(abs(x), abs(y))


def _files(before: Mapping[str, Any], after: Mapping[str, Any], effect: int, tolerance: Tolerance) -> list[str]:
    if sorted(before) != sorted(after):
        return [f"files written: {sorted(after)}, before {sorted(before)}"]
    found: list[str] = []
    for name, old in before.items():
        new = after[name]
        if type(old) is not type(new):
            found.append(f"{name}: was readable as {type(old).__name__}, now as {type(new).__name__}")
        elif isinstance(old, str):
            found += [f"{name}: {line}" for line in _texts(old, new, effect, tolerance)]
        elif isinstance(old, dict):
            found += [f"{name}: {line}" for line in _checkpoints(old, new, effect, tolerance)]
    return found


def _checkpoints(before: Mapping[str, Any], after: Mapping[str, Any], effect: int, tolerance: Tolerance) -> list[str]:
    import numpy as np

    found = [f"lost {key}" for key in before if key not in after]
    found += [f"has a new key {key}" for key in after if key not in before and "scaler" not in key.lower()]
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
            if not (effect >= 2 or (_same(old, new) if effect <= 0 else _printed(repr(old), repr(new), tolerance))):
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


# ------------------------------------------------------------------------------------------------------------ the zygote
def serve() -> None:
    """Import torch, then fork a child per job. Nothing is computed here: a process that has started OpenMP cannot be forked."""
    import numpy  # noqa: F401
    import torch
    import torch._dynamo
    import torch.nn.functional
    import torch.optim.lr_scheduler
    import torch.optim.swa_utils
    import torch.utils.data

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    gc.freeze()  # pages with torch's objects stay shared
    jobs: list[dict[str, Any]] = []
    for line in sys.stdin:
        message = json.loads(line)
        if not message.get("go"):
            jobs.append(message)
            continue
        if any(job["compiles"] for job in jobs):  # these take as long again as torch itself
            import torch._dynamo.backends.debugging
            import torch._functorch.aot_autograd
            import torch._inductor.compile_fx  # noqa: F401
        for key in _fork_all(jobs, message["parallel"]):
            answers.write(json.dumps({"key": key}) + "\n")
            answers.flush()
        jobs = []


def _fork_all(jobs: list[dict[str, Any]], parallel: int) -> Iterator[str]:
    """Run ``jobs``, at most ``parallel`` at a time; a child that is over its limit is killed with all its workers."""
    waiting, running = list(reversed(jobs)), {}
    while waiting or running:
        while waiting and len(running) < parallel:
            job = waiting.pop()
            fd, pid = _fork(job)
            running[fd] = (pid, time.monotonic() + job["limit"], job)
        soonest = min(deadline for _, deadline, _ in running.values())
        ready, _, _ = select.select(list(running), [], [], max(0.0, soonest - time.monotonic()))
        for fd in [fd for fd, (_, deadline, _) in running.items() if fd in ready or deadline <= time.monotonic()]:
            pid, _, job = running.pop(fd)
            late = fd not in ready
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL) if late else None
            os.close(fd)
            status = os.waitpid(pid, 0)[1]
            end = f"more than {job['limit']:g} s" if late else f"the process ended with status {os.waitstatus_to_exitcode(status)}"
            (_place(job) / "end").write_text(end)
            if job["then"] is not None and (_place(job) / "record").exists():
                waiting.append({**job, "args": job["then"], "then": None, "number": 1})
            else:
                yield job["key"]


def _place(job: dict[str, Any]) -> Path:
    return Path(job["folder"]) / f"run{job.get('number', 0)}"


def _fork(job: dict[str, Any]) -> tuple[int, int]:
    _place(job).mkdir()
    ours, theirs = os.pipe()  # closed by the end of the child and of its workers
    pid = os.fork()
    if pid:
        os.close(theirs)
        return ours, pid
    try:
        os.close(ours)
        os.setpgid(0, 0)
        _child(job)
        os.write(theirs, b".")
    finally:
        os._exit(0)


class Stop(BaseException):
    """Ends the script from inside ``optimizer.step()``; not an Exception, so that ``except Exception`` lets it through."""


def _child(job: dict[str, Any]) -> None:
    """In the forked process: run the script and leave the record in the job's folder."""
    import random
    import runpy
    import traceback
    import warnings

    import numpy as np
    import torch

    folder, place = Path(job["folder"]) / "work", _place(job)
    for fd, name in ((1, "stdout"), (2, "stderr")):
        target = os.open(place / name, os.O_WRONLY | os.O_CREAT, 0o644)
        os.dup2(target, fd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.chdir(folder / job["cwd"])
    entry = os.path.relpath(folder / job["entry"])
    sys.argv = [entry, *job["args"]]
    sys.path[0:1] = [str((folder / job["entry"]).parent), *(str(folder / name) for name in job["path"]), str(STANDINS)]
    if job["before"]:
        runpy.run_path(job["before"])
    _pretend_cpus(job["cpus"])
    if job["start_method"]:
        multiprocessing.set_start_method(job["start_method"])
        multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # where spawned processes look for the script
    random.seed(job["seed"])
    np.random.seed(job["seed"])
    torch.manual_seed(job["seed"])
    probe = Probe(job["stop_after"])
    probe.install()
    if job["fake_cuda_amp"]:
        _fake_cuda_amp()
    _compile_without_kernels()
    existing = {path for path in folder.rglob("*") if path.is_file()}
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        warnings.simplefilter("ignore", ResourceWarning)  # as Python does
        try:
            runpy.run_path(entry, run_name="__main__")
        except Stop:
            pass
        except SystemExit as end:
            probe.error = "" if end.code in (None, 0) else f"SystemExit: {end.code}"
        except BaseException as error:
            probe.error, probe.traceback = f"{type(error).__name__}: {error}", traceback.format_exc()
        atexit._run_exitfuncs()
    record = {
        **probe.record(),
        "seconds": time.perf_counter() - started,
        "warnings": [f"{w.category.__name__}: {w.message}" for w in caught],
        "files": {p.relative_to(folder).as_posix(): _content(p) for p in sorted(folder.rglob("*")) if p.is_file() and p not in existing},
    }
    sys.stdout.flush()
    sys.stderr.flush()
    unfinished = place / "record.part"
    unfinished.write_bytes(pickle.dumps(record))
    unfinished.rename(place / "record")


class Probe:
    """Watches a script from outside: no trace function and no change of its source."""

    def __init__(self, stop_after: int = 0):
        self.stop_after = stop_after
        self.pid = os.getpid()
        self.losses: list[Any] = []
        self.steps = self.skipped = 0
        self.optimizers: dict[int, Any] = {}
        self.start: list[list[Any]] = []
        self.loads: list[list[float]] = []
        self.unscaled: dict[int, Any] = {}  # id of a scaled loss -> (it, the loss)
        self.error = self.traceback = ""

    def install(self) -> None:
        import torch
        from torch.optim import optimizer
        from torch.utils.data import dataloader

        optimizer.register_optimizer_step_pre_hook(lambda opt, args, kwargs: self._before_step(opt))
        optimizer.register_optimizer_step_post_hook(lambda opt, args, kwargs: self._after_step())
        real_backward = torch.autograd.backward

        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            for tensor in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
                loss = self.unscaled.pop(id(tensor), (None, tensor))[1].detach()
                self.losses.append(loss.clone() if loss.numel() == 1 else loss.sum())
            return real_backward(tensors, *args, **kwargs)

        torch.autograd.backward = backward
        scaler = torch.amp.GradScaler
        real_scale, real_step = scaler.scale, scaler.step

        def scale(this: Any, outputs: Any) -> Any:
            scaled = real_scale(this, outputs)
            if isinstance(scaled, torch.Tensor):
                self.unscaled[id(scaled)] = (scaled, outputs.detach())
            return scaled

        def step(this: Any, opt: Any, *args: Any, **kwargs: Any) -> Any:
            steps = self.steps
            result = real_step(this, opt, *args, **kwargs)
            self.skipped += self.steps == steps
            return result

        scaler.scale, scaler.step = scale, step
        passes: dict[int, tuple[Any, list[float]]] = {}
        real_iter, real_next = dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__

        def __iter__(this: Any) -> Any:
            iterator = real_iter(this)
            load = [0, 0, 0.0]
            if os.getpid() == self.pid:
                self.loads.append(load)
                passes[id(iterator)] = (iterator, load)
            return iterator

        def __next__(this: Any) -> Any:
            batch = real_next(this)
            if id(this) in passes:
                load = passes[id(this)][1]
                size, total = _measure(batch)
                load[:] = [load[0] + 1, load[1] + size, load[2] + total]
            return batch

        dataloader.DataLoader.__iter__, dataloader._BaseDataLoaderIter.__next__ = __iter__, __next__

    def _before_step(self, opt: Any) -> None:
        if id(opt) not in self.optimizers:
            self.optimizers[id(opt)] = opt
            self.start.append(_parameters(opt))

    def _after_step(self) -> None:
        self.steps += 1
        if self.steps == self.stop_after:
            raise Stop

    def record(self) -> dict[str, Any]:
        return {
            "losses": [float(loss) for loss in self.losses],
            "steps": self.steps,
            "skipped": self.skipped,
            "start": self.start,
            "params": [_parameters(opt) for opt in self.optimizers.values()],
            "loads": self.loads,
            "error": self.error,
            "traceback": self.traceback,
        }


def _parameters(opt: Any) -> list[Any]:
    return [_array(p) for group in opt.param_groups for p in group["params"]]


def _array(tensor: Any) -> Any:
    import torch

    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return tensor.contiguous().numpy().copy()


def _measure(batch: Any) -> tuple[int, float]:
    """The number of samples in a batch, and the sum of all its values."""
    import torch

    parts = list(_tensors(batch))
    total = sum(float(t.detach().to(torch.float64).sum()) for t in parts if not t.is_complex())
    return (parts[0].shape[0] if parts and parts[0].dim() else len(parts)), total


def _tensors(batch: Any) -> Iterator[Any]:
    import torch

    if isinstance(batch, torch.Tensor):
        yield batch
    elif isinstance(batch, Mapping):
        for value in batch.values():
            yield from _tensors(value)
    elif isinstance(batch, (list, tuple)):
        for value in batch:
            yield from _tensors(value)


def _content(path: Path) -> Any:
    """The text of a file, the flattened contents of a checkpoint, or None for anything else."""
    import torch

    if path.suffix in (".pt", ".pth", ".ckpt", ".tar"):
        return dict(_flat("", torch.load(path, weights_only=False, map_location="cpu")))
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.nn.Module):
        value = {"class": type(value).__name__, **value.state_dict()}
    if isinstance(value, torch.Tensor):
        yield name, _array(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), item)
    elif isinstance(value, (list, tuple)) and value:
        for i, item in enumerate(value):
            yield from _flat(f"{name}[{i}]", item)
    elif value is None or isinstance(value, (bool, int, float, str, bytes, list, tuple)):
        yield name, value
    else:
        yield name, repr(type(value))


def _pretend_cpus(count: int) -> None:
    os.cpu_count = lambda: count
    if hasattr(os, "sched_getaffinity"):
        os.sched_getaffinity = lambda pid: set(range(count))
    if hasattr(os, "process_cpu_count"):
        os.process_cpu_count = lambda: count


def _compile_without_kernels() -> None:
    import torch

    real = torch.compile

    def compile_(model: Any = None, **kwargs: Any) -> Any:
        return real(model, **{"backend": "aot_eager", **kwargs})

    torch.compile = compile_


def _fake_cuda_amp() -> None:
    """See the module's docstring."""
    import linecache

    import torch

    torch.backends.mkldnn.set_flags(False)  # it has no recurrent layers in fp16; the plain kernels have
    autocast, scaler = torch.amp.autocast_mode.autocast, torch.amp.GradScaler
    real_autocast, real_scaler = autocast.__init__, scaler.__init__

    def autocast_init(this: Any, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> None:
        caller = sys._getframe(1)
        while caller.f_back is not None and os.sep + "torch" + os.sep in caller.f_code.co_filename:
            caller = caller.f_back  # torch.cuda.amp.autocast calls this one
        line = " ".join(linecache.getline(caller.f_code.co_filename, caller.f_lineno + n).strip() for n in range(3))
        kind = torch.bfloat16 if "torch.bfloat16" in line.split(":")[0] else torch.float16
        real_autocast(this, "cpu", dtype=kind, enabled="enabled=False" not in line, cache_enabled=cache_enabled)

    def scaler_init(this: Any, device: str = "cuda", init_scale: float = 2.0**16, *args: Any, **kwargs: Any) -> None:
        real_scaler(this, "cpu", 2.0**8 if init_scale == 2.0**16 else init_scale, *args[:3], **{**kwargs, "enabled": True})

    autocast.__init__, scaler.__init__ = autocast_init, scaler_init


if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    serve()
