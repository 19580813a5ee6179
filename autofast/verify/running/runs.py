"""One run of one script in a fresh process: command, environment, time limit, and an end that
leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from autofast.model.opening import open_source
from autofast.model.several import any_in
from autofast.model.source import BadInput
from autofast.verify.evidence.record import Detail, Record, Run, Words
from autofast.verify.probe import packages
from autofast.verify.running.scratch import Scratch
from autofast.verify.running.steps import read_record

PROBE = Path(__file__).parents[1] / "probe"
OUTPUT_LIMIT = 20_000_000  # characters of stdout that are compared
STDERR_LIMIT = 20_000
LOG_LIMIT = 2_000_000  # of stderr; a longer one is not compared
_GRACE = 5.0  # seconds between SIGTERM and SIGKILL

# Launchers that start the Python interpreter themselves and want a script; any other is given an
# interpreter.
_SCRIPT_LAUNCHERS = tuple(
    """torchrun accelerate deepspeed torch.distributed.run torch.distributed.launch
    accelerate.commands.launch""".split()
)
# Started by module where possible, so that --python decides which environment is used and no script
# folder need be on PATH.
_AS_MODULE = {
    "torchrun": ["-m", "torch.distributed.run"],
    "accelerate launch": ["-m", "accelerate.commands.launch"],
}


@dataclass(frozen=True)
class Program:
    """One of the two scripts, or a subset of the rewrite.

    Attributes:
        arm: its name in reports and records.
        path: the script, where the user has it.
        overlay: new contents of the user's files for this program.
        launch: words of a launcher of its own, in place of the one of all.
    """

    arm: str
    path: Path
    overlay: Mapping[Path, bytes] = field(default_factory=dict)
    launch: Words = ()

    @classmethod
    def of(cls, arm: str, path: Path, overlay: Mapping[Path, bytes] | None = None) -> Program:
        """The program that ``path`` is; of a notebook, a script of its cells from the first to the
        last, beside it.
        """
        new = dict(overlay or {})
        if path.suffix != ".ipynb":
            return cls(arm, path, new)
        raw = new.pop(path) if path in new else path.read_bytes()
        text = open_source(path, path.name, raw).text
        script = path.with_suffix(".py")
        if script.exists():
            script = path.with_name(f"{path.stem}_notebook.py")
        return cls(arm, script, {**new, script: text.encode()})


@dataclass(frozen=True)
class Setup:
    """What all runs have in common.

    Attributes:
        arguments: of the script.
        cwd: its working folder, where the user has it.
        launch: words of the launcher's command, empty for none.
        limit: seconds after which a run is ended; 0 for no limit.
        cached: the interpreter's packages lie there with their byte code.
        resume: the checkpoint from which the scripts go on, where they are to: its path as the user
            has it.
    """

    python: str = sys.executable
    arguments: Words = ()
    cwd: Path = field(default_factory=Path.cwd)
    launch: Words = ()
    threads: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    limit: float = 0.0
    cached: bool = False
    resume: Path | None = None


class OutOfTime(Exception):
    """A run was ended since the time for everything was used up. ``run`` has what it had done by
    then.
    """

    def __init__(self, run: Run):
        super().__init__("the time budget is used up")
        self.run = run


class Process(Protocol):
    """The part of ``subprocess.Popen`` that a runner needs; the process leads a group of its
    own.
    """

    pid: int

    def wait(self, timeout: float | None = None) -> int: ...


class Runner:
    """Makes runs, one at a time."""

    def __init__(self, setup: Setup, scratch: Scratch):
        self.setup = setup
        self.scratch = scratch
        self._process: Process | None = None
        # Files that earlier runs made outside of the copies: later ones may write them again.
        self._outside: set[str] = set()

    def command(self, program: Program) -> list[str]:
        """The words of the command line, without the folders of the run."""
        setup = self.setup
        script = os.path.relpath(self.scratch.there(program.path), self.scratch.there(setup.cwd))
        launch = list(program.launch or setup.launch)
        probe, needs_python = [str(PROBE)], True
        if launch:
            name = " ".join([Path(launch[0]).name, *launch[1:2]])
            module = next(
                (
                    words
                    for known, words in _AS_MODULE.items()
                    if name == known or name.split()[0] == known
                ),
                None,
            )
            if module is not None:
                launch = [setup.python, *module, *launch[len(known_words(name)) :]]
            last = Path(launch[-1]).name
            needs_python = not re.fullmatch(r"python[\d.]*", last) and not any_in(
                launch, _SCRIPT_LAUNCHERS
            )
            probe = [str(PROBE / "__main__.py")]
        python = [setup.python] if needs_python else []
        return [*launch, *python, *probe, script, *setup.arguments]

    def shown(self, program: Program) -> str:
        """The command as the user would type it."""
        script = [os.path.relpath(program.path, self.setup.cwd)]
        package = packages.of(str(program.path), str(self.setup.cwd))[1]
        if package:
            script = ["-m", f"{package}.{program.path.stem}"]
        start = program.launch or self.setup.launch or ("python",)
        return shlex.join([*start, *script, *self.setup.arguments])

    def run(
        self,
        program: Program,
        *,
        seed: int,
        shift: int,
        detail: Detail,
        steps: int,
        seconds: float = 0.0,
        samples: int = 0,
        deadline: float = math.inf,
    ) -> Run:
        """One run in a fresh process. Raises ``OutOfTime`` where it does not end before the
        deadline.

        Args:
            seed: random generators start from it.
            shift: 0, or a number that changes the seeds which the script sets itself.
            steps: optimizer steps after which the run ends (0: the script's own end).
            seconds: end at the first step after that long.
            samples: that an iteration over a DataLoader gives at most (0: all).
            deadline: of ``time.monotonic()``.
        """
        scratch, setup = self.scratch, self.setup
        scratch.reset(program.overlay)
        outputs = scratch.folder / "run"
        shutil.rmtree(outputs, ignore_errors=True)
        outputs.mkdir()
        cwd = scratch.there(setup.cwd)
        options = {
            "out": str(outputs / "record-%r.json"),
            "steps": steps,
            "seconds": seconds,
            "samples": samples,
            "seed": seed,
            "shift": shift,
            "scratch": str(cwd if scratch.in_place else scratch.folder),
            "guard": [
                str(
                    tree.source.parent
                    if tree.source.parent != tree.source.parent.parent
                    else tree.source
                )
                for tree in scratch.trees
            ],
            "made": sorted(self._outside),
            "resume": str(scratch.there(setup.resume)) if setup.resume else "",
            "detail": asdict(detail),
        }
        environment = {**os.environ, **self._environment(), "AUTOFAST_PROBE": json.dumps(options)}
        waited = _waiting_for_cpu()
        start = time.perf_counter()
        self._process = self._start(self.command(program), cwd, environment, outputs)
        timed_out = False
        left = max(0.0, deadline - time.monotonic())
        limit = min(setup.limit or math.inf, left)
        try:
            code = self._process.wait(None if math.isinf(limit) else limit)
        except subprocess.TimeoutExpired:
            timed_out = True
            code = self._end()
        except BaseException:
            self._end()
            raise
        finally:
            self._end_group()
        elapsed = time.perf_counter() - start
        records = _records(outputs)
        self._outside.update(path for record in records for path in record.wrote_outside)
        run = Run(
            arm=program.arm,
            seed=shift,
            detail=detail,
            records=records,
            exit_code=code,
            seconds=elapsed,
            stdout=_text(outputs / "stdout")[:OUTPUT_LIMIT],
            stderr=_text(outputs / "stderr")[-STDERR_LIMIT:],
            pressure=_share(waited, _waiting_for_cpu(), elapsed),
            timed_out=timed_out,
            samples=samples,
            resume=setup.resume.name if setup.resume else "",
            log=_log(outputs / "stderr"),
            files=_files(records, cwd),
            script=(str(program.path), _source(program.path, program.overlay)),
            changed={
                str(path): (_source(path), text.decode("utf-8", "replace"))
                for path, text in program.overlay.items()
                if path.exists()
            },
        )
        if timed_out and limit == left:
            raise OutOfTime(run)
        return run

    def _start(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], outputs: Path
    ) -> Process:
        with open(outputs / "stdout", "wb") as out, open(outputs / "stderr", "wb") as err:
            try:
                return subprocess.Popen(
                    command,
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            except OSError as error:
                raise BadInput(
                    f"{command[0]}: cannot be started ({error.strerror}); see --python and --launch"
                ) from None

    def _environment(self) -> dict[str, str]:
        """Equal for all runs: threads, hash seed, no windows, no uploads, temporary files and byte
        code in the scratch folder.
        """
        given = {
            "PYTHONHASHSEED": "0",
            "MPLBACKEND": "Agg",
            "WANDB_MODE": "offline",
            # None is written beside the sources; where that of torch is there, it is used, else it
            # is kept for the runs that follow.
            **(
                {"PYTHONDONTWRITEBYTECODE": "1"}
                if self.setup.cached
                else {"PYTHONPYCACHEPREFIX": str(self.scratch.folder / "pyc")}
            ),
        }
        fixed = {name: value for name, value in given.items() if name not in os.environ}
        if "PYTHONPYCACHEPREFIX" in fixed:
            # Images of containers often set this; then every run would compile all of torch's
            # Python again.
            fixed["PYTHONDONTWRITEBYTECODE"] = ""
        fixed["TMPDIR"] = str(self.scratch.temporary)
        if self.setup.threads:
            fixed.update(
                OMP_NUM_THREADS=str(self.setup.threads), MKL_NUM_THREADS=str(self.setup.threads)
            )
        paths = [
            str(self.scratch.there(Path(path).resolve()))
            for path in os.environ.get("PYTHONPATH", "").split(os.pathsep)
            if path
        ]
        if paths:
            fixed["PYTHONPATH"] = os.pathsep.join(paths)
        return {**fixed, **self.setup.environment}

    def _end(self) -> int:
        """Ask the run to end, then make it; its exit code."""
        process = self._process
        assert process is not None
        self._signal(signal.SIGTERM)
        try:
            return process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            return process.wait()

    def _end_group(self) -> None:
        """Nothing that the run started outlives it, also what has left its group (torchrun starts
        every rank in a session of its own).
        """
        self._signal(signal.SIGKILL)
        self._process = None
        # As it stands in AUTOFAST_PROBE.
        mark = json.dumps(str(self.scratch.folder / "run"))[1:-1].encode()
        # One that is being ended may start another; one that waits for a device cannot be ended.
        for _ in range(100):
            found = _processes(mark)
            if not found:
                return
            for process in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.01)

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)


def known_words(name: str) -> list[str]:
    """The words of a launcher that is started as a module: ``accelerate launch`` are two,
    ``torchrun`` is one.
    """
    return name.split()[:2] if name in _AS_MODULE else name.split()[:1]


def _processes(mark: bytes) -> list[int]:
    """Living processes that were started with ``mark`` in their environment (Linux: man 5 proc;
    none elsewhere).
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*/environ"):
        # Not ours, or gone; that of one that only waits to be asked for its exit code is empty.
        with contextlib.suppress(OSError):
            if int(entry.parent.name) != os.getpid() and mark in entry.read_bytes():
                found.append(int(entry.parent.name))
    return found


def _records(folder: Path) -> tuple[Record, ...]:
    found = []
    for path in sorted(folder.glob("record-*.json")):
        with contextlib.suppress(ValueError, OSError):  # a process that was killed while it wrote
            found.append(read_record(path))
    return tuple(sorted(found, key=lambda record: record.rank))


def _source(path: Path, overlay: Mapping[Path, bytes] | None = None) -> str:
    """The text of a program's file; empty where there is none (a folder, a new file)."""
    given = (overlay or {}).get(path)
    if given is not None:
        return given.decode("utf-8", "replace")
    return _text(path) if path.is_file() else ""


def _files(records: Sequence[Record], cwd: Path) -> dict[str, str]:
    """Texts that the run has written, by their path from the working folder."""
    found: dict[str, str] = {}
    for name in sorted({path for record in records for path in record.written}):
        with contextlib.suppress(OSError):
            path = Path(name)
            if path.is_file() and path.stat().st_size <= OUTPUT_LIMIT:
                found[os.path.relpath(path, os.path.realpath(cwd))] = _text(path)
    return found


def _log(path: Path) -> str:
    if path.stat().st_size > LOG_LIMIT:
        return ""
    # A carriage return stays one: what a progress bar shows after it replaces what stood before.
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        return file.read()


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _waiting_for_cpu() -> float | None:
    """Seconds since boot in which some process waited for a CPU; None where the system does not say
    (Linux: man 5 proc_pressure).
    """
    try:
        found = re.search(
            r"^some .*total=(\d+)", Path("/proc/pressure/cpu").read_text(), re.MULTILINE
        )
    except OSError:
        return None
    return int(found[1]) / 1e6 if found else None


def _share(before: float | None, after: float | None, elapsed: float) -> float | None:
    return (
        None
        if before is None or after is None or elapsed <= 0
        else 100.0 * (after - before) / elapsed
    )


_ASK = """
import importlib.util, json, os, platform, sys
import torch
cached = importlib.util.cache_from_source(os.path.join(os.path.dirname(torch.__file__), "_dynamo", "__init__.py"))
kind = "cuda" if torch.cuda.is_available() else "mps" if getattr(torch.backends, "mps", None) and torch.backends.mps.is_available() else "cpu"
print(json.dumps({"python": platform.python_version(), "torch": torch.__version__, "device": kind,
                  "gpu": torch.cuda.get_device_name(0) if kind == "cuda" else "", "executable": sys.executable,
                  "cached": "yes" if os.path.exists(cached) else ""}))
"""


def last_line(stderr: str) -> str:
    """What a process that failed said last."""
    return (stderr.strip().splitlines() or ["no message"])[-1]


def ask(python: str) -> dict[str, str]:
    """What the interpreter that trains has: version of Python and torch, kind of device ("cuda",
    "mps" or "cpu"), name of the GPU.
    """
    try:
        done = subprocess.run(
            [python, "-c", _ASK], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise BadInput(
            f"{python}: cannot be started ({error.strerror}); name the interpreter that trains with --python"
        ) from None
    if done.returncode:
        last = last_line(done.stderr)
        raise BadInput(
            f"{python}: cannot import torch ({last}); name the interpreter that has your packages with --python"
        )
    found: dict[str, str] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
