"""Runs a script as ``torchrun --nproc-per-node=N`` runs it, on the CPU with gloo, and records what
every rank did.

The ranks are forks (``tests.zygote``); each finds the environment that torchrun sets (a server of
the store outside the ranks included) and all share one scratch copy of the script's folder. As
under torchrun, the first rank that fails ends the others. The collectives that the script asks for
are noted: ranks that differ in them are not ``ok``, as their numbers would be wrong by chance only.
``real`` is torchrun itself.

    world = torchrun(Job(folder), 2)
    assert world.ok, world.errors
    world.ranks[0].losses, world.ranks[1].stdout
    world.written[1], world.files["model.pt"], world.samples[0]
"""

from __future__ import annotations

import atexit
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
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.harness import Job, Run, compilers, lay_out, read_run
from tests.zygote import QUIET, ZYGOTE, Child

ABORTED = "terminate called without an active exception"
LIMIT = 60.0  # a run of some seconds that takes this long hangs
GRACE = 2.0  # seconds between SIGTERM and SIGKILL


@dataclass
class World:
    """What the ranks of one run did; lists are by rank.

    Attributes:
        codes: exit codes; negative for a rank that was ended by a signal.
        hung: the run was over its limit of time.
        files: what lies in the folder at the end, as in :class:`Run`.
        written: the files and folders that a rank made or opened for writing, by name.
        samples: for each pass over a loader, the sum of all values of each sample that the rank
            took.
        left_open: there is still a process group at the end.
        collectives: those that the script asked for itself (not DDP), with the shapes they were
            given.
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
        return (
            fine
            and not self.hung
            and all(asked == self.collectives[0] for asked in self.collectives)
        )

    @property
    def errors(self) -> str:
        """All that went wrong, for the message of an assertion."""
        lines = ["over the limit of time"] if self.hung else []
        if any(asked != self.collectives[0] for asked in self.collectives):
            lines.append(f"the ranks asked for different collectives: {self.collectives}")
        for number, (rank, code) in enumerate(zip(self.ranks, self.codes, strict=True)):
            lines.append(
                f"rank {number}: exit code {code}, {rank.error or 'no error'}\n{rank.traceback}{rank.stderr[-1500:]}"
            )
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
            len(o) == len(first)
            and all(np.array_equal(p, q, equal_nan=True) for p, q in zip(first, o, strict=True))
            for o in others
        )

    def taken(self, number: int) -> Counter[float]:
        """How often each sample was taken in the pass ``number`` over a loader, by all ranks
        together.
        """
        return Counter(round(value, 5) for rank in self.samples for value in rank[number])


# ----------------------------------------------------------------------------------------- the runs
_WORLDS: dict[str, World] = {}


def torchrun(job: Job, ranks: int = 2) -> World:
    """The outcome of ``torchrun --nproc-per-node=RANKS`` on a script; ``job.then`` is not looked
    at.
    """
    job = replace(job, limit=min(job.limit, LIMIT), then=None)
    key = f"{job.key()} {ranks}"
    if key not in _WORLDS:
        with tempfile.TemporaryDirectory(prefix="autofast-ranks-") as scratch:
            _WORLDS[key] = _outcome(job, ranks, Path(scratch))
    return _WORLDS[key]


def _outcome(job: Job, ranks: int, scratch: Path) -> World:
    from tests.recording import written  # it imports torch

    work = scratch / "work"
    lay_out(job, work)
    before = {path for path in work.rglob("*") if path.is_file()}
    places = [scratch / f"run{number}" for number in range(ranks)]
    with store(scratch) as port:
        children = [_start(job, number, place, ranks, port) for number, place in enumerate(places)]
        hung = finish(children, job.limit)
    codes = [child.wait() for child in children]
    runs = [
        read_run(place, "ended by the others" if code < 0 else "no record")
        for place, code in zip(places, codes, strict=True)
    ]
    extras = [_extra(place / "extra", str(work)) for place in places]
    return World(
        runs,
        codes,
        hung,
        written(work, before),
        [e["written"] for e in extras],
        [e["samples"] for e in extras],
        [e["open"] for e in extras],
        [e["collectives"] for e in extras],
    )


@contextmanager
def store(scratch: Path) -> Iterator[str]:
    """The port of a server of the store in a process of its own, as the agent of torchrun has one:
    no port is guessed.
    """
    ours, theirs = os.pipe()
    server = ZYGOTE.start(
        "tests.rank:store",
        [],
        cwd=scratch,
        environment=QUIET,
        stdout=theirs,
        stderr=scratch / "store",
    )
    try:
        with open(ours) as port:
            yield port.readline().strip()
    finally:
        server.end()


def of_rank(rank: int, ranks: int, port: str) -> dict[str, str]:
    """What torchrun puts into the environment of a process."""
    world = str(ranks)
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0", "ROLE_RANK": str(rank), "ROLE_NAME": "default",
        "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world, "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "none", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip


def _start(job: Job, rank: int, place: Path, ranks: int, port: str) -> Child:
    place.mkdir()
    environment = {**QUIET, **of_rank(rank, ranks, port)}
    outputs = {"stdout": place / "stdout", "stderr": place / "stderr"}
    return ZYGOTE.start(
        "tests.rank:record", [job.message(), place], cwd=place, environment=environment,
        modules=compilers(place.parent / "work"), **outputs,
    )  # fmt: skip


def finish(ranks: list[Child], limit: float) -> bool:
    """Wait for the end of all; the first that fails ends the others, and so does the limit of time,
    of which it is told here.
    """
    deadline = time.monotonic() + limit
    left, hung = ranks, False
    while left and not hung:
        ended = select.select(left, [], [], max(0.0, deadline - time.monotonic()))[0]
        left, hung = [rank for rank in left if rank not in ended], not ended
        if any(rank.wait() for rank in ended):
            break
    for rank in left:
        rank.signal(signal.SIGTERM)
    for rank in left:
        with suppress(subprocess.TimeoutExpired):
            rank.wait(GRACE)
    for rank in ranks:
        rank.end()
    return hung


def _extra(path: Path, work: str) -> dict[str, Any]:
    nothing: dict[str, Any] = {"written": [], "samples": [], "open": False, "collectives": []}
    found = pickle.loads(path.read_bytes()) if path.exists() else nothing
    names = [os.path.relpath(n, os.path.realpath(work)) for n in found["written"]]
    return {**found, "written": sorted({n for n in names if not n.startswith("..")})}


def real(job: Job, ranks: int = 2, again: int = 3) -> subprocess.CompletedProcess[str]:
    """torchrun itself: many seconds. The script is not watched.

    gloo's threads now and then abort a process that ends well (std::terminate at the very end, seen
    on a busy machine): that run is made again.
    """
    env = {**QUIET, "GLOO_SOCKET_IFNAME": "lo"}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        job.entry,
        *job.args,
    ]
    with tempfile.TemporaryDirectory(prefix="autofast-ranks-") as scratch:
        lay_out(job, Path(scratch) / "work")
        done = subprocess.run(
            command,
            cwd=Path(scratch) / "work",
            env=env,
            capture_output=True,
            text=True,
            timeout=job.limit,
            check=False,
        )
    return (
        real(job, ranks, again - 1)
        if again and done.returncode and ABORTED in done.stderr
        else done
    )


@cache
def same_order(ranks: int, seed: int = 0, first: int = 0) -> str:
    """A file for ``Job.before``: one process then takes shuffled samples in the order that
    ``ranks`` processes take them together.

    That is the order of ``DistributedSampler(seed=seed)`` in the epochs ``first``, ``first + 1``,
    ..., padded as it pads.
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
