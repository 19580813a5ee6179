"""Runs a script as ``torchrun --nproc-per-node=N`` runs it, on the CPU with gloo, and records what every rank did.

One process imports torch and forks the ranks of a job, which costs a tenth of N fresh interpreters; each rank finds the environment that
torchrun sets (a server of the store outside the ranks included) and all share one scratch copy of the script's folder. As under torchrun, the
first rank that fails ends the others. The collectives that the script asks for are noted: ranks that differ in them are not ``ok``, as
their numbers would be wrong by chance only. ``real`` is torchrun itself.

    world = torchrun(Job(folder), 2)
    assert world.ok, world.errors
    world.ranks[0].losses, world.ranks[1].stdout, world.written[1], world.files["model.pt"], world.samples[0]
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests import harness
from tests.harness import SKIP, Job, Run

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "reduce", "reduce_scatter", "scatter", "scatter_object_list",
)  # fmt: skip
ABORTED = "terminate called without an active exception"
LIMIT = 60.0  # a run of some seconds that takes this long hangs


@dataclass
class World:
    """What the ranks of one run did; lists are by rank.

    Attributes:
        codes: exit codes; negative for a rank that was ended by a signal.
        hung: the run was over its limit of time.
        files: what lies in the folder at the end, as in :class:`Run`.
        written: the files and folders that a rank made or opened for writing, by name.
        samples: for each pass over a loader, the sum of all values of each sample that the rank took.
        left_open: there is still a process group at the end.
        collectives: those that the script asked for itself (not DDP), with the shapes they were given.
    """

    ranks: list[Run]
    codes: list[int]
    hung: bool = False
    files: dict[str, Any] = field(default_factory=dict)
    written: list[list[str]] = field(default_factory=list)
    samples: list[list[list[float]]] = field(default_factory=list)
    left_open: list[bool] = field(default_factory=list)
    collectives: list[list[str]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        fine = all(code == 0 for code in self.codes) and all(not r.error for r in self.ranks)
        return fine and not self.hung and all(asked == self.collectives[0] for asked in self.collectives)

    @property
    def errors(self) -> str:
        """All that went wrong, for the message of an assertion."""
        lines = ["over the limit of time"] if self.hung else []
        if any(asked != self.collectives[0] for asked in self.collectives):
            lines.append(f"the ranks asked for different collectives: {self.collectives}")
        for number, (rank, code) in enumerate(zip(self.ranks, self.codes, strict=True)):
            lines.append(f"rank {number}: exit code {code}, {rank.error or 'no error'}\n{rank.traceback}{rank.stderr[-1500:]}")
        return "\n".join(lines)

    @property
    def losses(self) -> list[float]:
        """The mean over ranks of each loss on which ``backward`` was called."""
        return [sum(each) / len(each) for each in zip(*(r.losses for r in self.ranks), strict=True)]

    @property
    def equal(self) -> bool:
        """Whether all ranks end with the same parameters, bit for bit."""
        import numpy as np

        first, *others = [[p for group in rank.params for p in group] for rank in self.ranks]
        return all(
            len(o) == len(first) and all(np.array_equal(p, q, equal_nan=True) for p, q in zip(first, o, strict=True)) for o in others
        )

    def taken(self, number: int) -> Counter[float]:
        """How often each sample was taken in the pass ``number`` over a loader, by all ranks together."""
        return Counter(round(value, 5) for rank in self.samples for value in rank[number])


# ------------------------------------------------------------------------------------------------ the client
class _Ranks:
    """Starts the process that forks at the first run, and keeps every outcome."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None
        self._runs: dict[str, World] = {}

    def run(self, job: Job, ranks: int) -> World:
        key = f"{job.key()} {ranks}"
        if key not in self._runs:
            with tempfile.TemporaryDirectory(prefix="autofast-ranks-") as scratch:
                self._runs[key] = self._execute(job, ranks, Path(scratch))
        return self._runs[key]

    def _execute(self, job: Job, ranks: int, place: Path) -> World:
        server = self._server or self._start()
        assert server.stdin is not None and server.stdout is not None
        _copy(job, place / "work")
        before = {path for path in (place / "work").rglob("*") if path.is_file()}
        message = {**asdict(replace(job, folder=place, files={})), "ranks": ranks}
        server.stdin.write(json.dumps(message, default=str) + "\n")
        server.stdin.flush()
        line = server.stdout.readline()
        if not line:
            raise RuntimeError("the process that runs the ranks has died")
        answer = json.loads(line)
        for number in range(ranks):
            (place / f"run{number}" / "end").write_text("ended by the others" if answer["codes"][number] < 0 else "no record")
        runs = [harness._read_run(place / f"run{number}") for number in range(ranks)]
        extras = [_extra(place / f"run{number}" / "extra", str(place / "work")) for number in range(ranks)]
        files = {
            p.relative_to(place / "work").as_posix(): harness._content(p)
            for p in sorted((place / "work").rglob("*"))
            if p.is_file() and p not in before
        }
        for run in runs:
            run.files = {}  # which of the ranks wrote a file is told by ``written``
        return World(
            runs,
            answer["codes"],
            answer["hung"],
            files,
            [e["written"] for e in extras],
            [e["samples"] for e in extras],
            [e["open"] for e in extras],
            [e["collectives"] for e in extras],
        )

    def _start(self) -> subprocess.Popen[str]:
        one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        env = {**os.environ, **one, "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
        root = str(Path(__file__).resolve().parent.parent)
        env["PYTHONPATH"] = os.pathsep.join(p for p in (root, env.get("PYTHONPATH")) if p)
        command = [sys.executable, "-m", "tests.torchrun", "serve"]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        atexit.register(self.close)
        return self._server

    def close(self) -> None:
        if self._server is not None and self._server.stdin is not None:
            self._server.stdin.close()
            self._server.wait()
            self._server = None


def _copy(job: Job, target: Path) -> None:
    shutil.copytree(job.folder, target, ignore=SKIP)
    for name, content in job.files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)


def _extra(path: Path, work: str) -> dict[str, Any]:
    found: dict[str, Any] = (
        pickle.loads(path.read_bytes()) if path.exists() else {"written": [], "samples": [], "open": False, "collectives": []}
    )
    names = [os.path.relpath(n, os.path.realpath(work)) for n in found["written"]]
    return {**found, "written": sorted({n for n in names if not n.startswith("..")})}


_RANKS = _Ranks()


def torchrun(job: Job, ranks: int = 2) -> World:
    """The outcome of ``torchrun --nproc-per-node=RANKS`` on a script; ``job.then`` is not looked at."""
    return _RANKS.run(replace(job, limit=min(job.limit, LIMIT), then=None), ranks)


def real(job: Job, ranks: int = 2, again: int = 3) -> subprocess.CompletedProcess[str]:
    """torchrun itself: many seconds. The script is not watched.

    gloo's threads now and then abort a process that ends well (std::terminate at the very end, seen on a busy machine): that run is made again.
    """
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    env = {**os.environ, **one, "CUDA_VISIBLE_DEVICES": "", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", job.entry, *job.args]
    with tempfile.TemporaryDirectory(prefix="autofast-ranks-") as scratch:
        _copy(job, Path(scratch) / "work")
        done = subprocess.run(command, cwd=Path(scratch) / "work", env=env, capture_output=True, text=True, timeout=job.limit, check=False)
    return real(job, ranks, again - 1) if again and done.returncode and ABORTED in done.stderr else done


@cache
def same_order(ranks: int, seed: int = 0, first: int = 0) -> str:
    """A file for ``Job.before``: one process then takes shuffled samples in the order that ``ranks`` processes take them together.

    That is the order of ``DistributedSampler(seed=seed)`` in the epochs ``first``, ``first + 1``, ..., padded as it pads.
    """
    text = f"""
        import torch
        from torch.utils.data import RandomSampler

        def __iter__(self):
            self.passes = getattr(self, "passes", {first} - 1) + 1
            order = torch.randperm(len(self.data_source), generator=torch.Generator().manual_seed({seed} + self.passes)).tolist()
            return iter(order + order[: -len(order) % {ranks}])

        RandomSampler.__iter__ = __iter__
    """
    folder = Path(tempfile.mkdtemp(prefix="autofast-order-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "order.py").write_text(re.sub(r"(?m)^ {8}", "", text))
    return str(folder / "order.py")


# ------------------------------------------------------------------------------------------------ the process that forks
def serve() -> None:
    """Import torch, then fork the ranks of each job. Nothing is computed here."""
    import gc

    import numpy  # noqa: F401
    import torch
    import torch._dynamo
    import torch.distributed
    import torch.nn.functional
    import torch.nn.parallel
    import torch.optim.lr_scheduler
    import torch.optim.swa_utils
    import torch.utils.data.distributed  # noqa: F401

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    gc.freeze()
    for line in sys.stdin:
        answers.write(json.dumps(_launch(json.loads(line))) + "\n")
        answers.flush()


def _launch(job: dict[str, Any]) -> dict[str, Any]:
    store, port = _store()
    pids = [_fork(job, rank, port) for rank in range(job["ranks"])]
    codes: dict[int, int] = {}
    deadline, hung = time.monotonic() + job["limit"], False
    ended: float | None = None  # when the others were asked to end
    while len(codes) < len(pids):
        for rank, pid in enumerate(pids):
            if rank not in codes:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[rank] = os.waitstatus_to_exitcode(status)
        now = time.monotonic()
        hung = hung or now > deadline
        left = [pid for rank, pid in enumerate(pids) if rank not in codes]
        if left and (hung or any(codes.values())) and ended is None:
            ended = now
            for pid in left:
                os.killpg(pid, signal.SIGTERM)
        elif left and ended is not None and now > ended + 2:
            for pid in left:
                os.killpg(pid, signal.SIGKILL)
        time.sleep(0.002)
    os.kill(store, signal.SIGKILL)
    os.waitpid(store, 0)
    return {"codes": [codes[rank] for rank in range(len(pids))], "hung": hung}


def _store() -> tuple[int, int]:
    """A process with the server of the store, as the agent of torchrun has one: no port is guessed."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        import torch.distributed

        dist: Any = torch.distributed
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        os.write(theirs, str(server.port).encode())
        os.close(theirs)
        signal.pause()
    os.close(theirs)
    port = int(os.read(ours, 16))
    os.close(ours)
    return pid, port


def _fork(job: dict[str, Any], rank: int, port: int) -> int:
    place = Path(job["folder"]) / f"run{rank}"
    place.mkdir()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        world = str(job["ranks"])
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), GROUP_RANK="0", ROLE_RANK=str(rank), ROLE_NAME="default",
            WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, GROUP_WORLD_SIZE="1", ROLE_WORLD_SIZE=world,
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0",
            TORCHELASTIC_MAX_RESTARTS="0", TORCHELASTIC_RUN_ID="none", GLOO_SOCKET_IFNAME="lo",
        )  # fmt: skip
        code = _rank({**job, "number": rank, "then": None}, place)
    finally:
        os._exit(code)


def _rank(job: dict[str, Any], place: Path) -> int:
    """In the forked process: run the script; the harness leaves its record, this what ranks are asked for beyond it."""
    import faulthandler

    import torch.distributed as dist

    stderr = os.open(place / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    faulthandler.register(signal.SIGTERM, stderr, chain=True)  # where a rank hangs
    written: list[str] = []
    samples: list[list[float]] = []
    collectives: list[str] = []
    _watch(written, samples)
    _listen(collectives)
    harness._content = lambda path: None  # another rank may be writing it
    harness._child(job)
    record = {"written": written, "samples": samples, "open": dist.is_initialized(), "collectives": collectives}
    (place / "extra").write_bytes(pickle.dumps(record))
    return 1 if pickle.loads((place / "record").read_bytes())["error"] else 0


def _watch(written: list[str], samples: list[list[float]]) -> None:
    """Note what this rank writes, and the samples that it takes."""
    import torch
    from torch.utils.data import dataloader

    def note(path: Any) -> None:
        if isinstance(path, (str, bytes, os.PathLike)):
            written.append(os.path.realpath(os.fsdecode(path)))

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            if any(c in mode for c in "wax+") if mode else flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                note(path)
        elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate"):
            note(args[0])
        elif event in ("os.rename", "os.link", "os.symlink"):
            note(args[1])

    files: Any = torch.serialization
    writer = files._open_zipfile_writer

    def opened(name: Any) -> Any:
        note(name)  # it opens files outside Python
        return writer(name)

    files._open_zipfile_writer = opened
    sys.addaudithook(heard)
    passes: dict[int, tuple[Any, list[float]]] = {}
    pid = os.getpid()
    loader: Any = dataloader.DataLoader
    fetching: Any = dataloader._BaseDataLoaderIter
    real_iter, real_next = loader.__iter__, fetching.__next__

    def __iter__(this: Any) -> Any:
        iterator = real_iter(this)
        if os.getpid() == pid:
            samples.append([])
            passes[id(iterator)] = iterator, samples[-1]
        return iterator

    def __next__(this: Any) -> Any:
        batch = real_next(this)
        if id(this) in passes:
            parts = [t.detach().double().flatten(1).sum(1) if t.dim() > 1 else t.detach().double() for t in harness._tensors(batch)]
            sizes = {len(part) for part in parts if part.dim()}
            if len(sizes) == 1:
                passes[id(this)][1].extend(torch.stack([part for part in parts if part.dim()]).sum(0).tolist())
        return batch

    loader.__iter__, fetching.__next__ = __iter__, __next__


listening: list[Any] = []


def _listen(collectives: list[str]) -> None:
    """Note the collectives that the script asks for."""
    import torch.distributed as dist
    from torch import Tensor

    def noted(name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            collectives.append(f"{name}{[list(a.shape) if isinstance(a, Tensor) else type(a).__name__ for a in given]}")
            return real(*args, **kwargs)

        return call

    for name in COLLECTIVES:
        real = getattr(dist, name)
        setattr(dist, name, noted(name, real))
    module: Any = dist
    leave = module.destroy_process_group
    kept: list[Any] = []

    def destroy_process_group(*args: Any, **kwargs: Any) -> None:
        """The group's threads may wait for Python while Python waits for them, where a function that held it ends: in forked ranks only."""
        kept.append(module.distributed_c10d._get_default_group())
        leave(*args, **kwargs)
        listening.append(kept)

    module.destroy_process_group = destroy_process_group


if __name__ == "__main__" and sys.argv[1:] == ["serve"]:
    serve()
