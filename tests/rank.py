"""What a rank is watched for beyond its record (``tests.recording``), and the server of the store:
in forked processes.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import dataloader

from tests import recording, zygote

COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier", "broadcast", "broadcast_object_list", "gather",
    "gather_object", "reduce", "reduce_scatter", "scatter", "scatter_object_list",
)  # fmt: skip


def store() -> int:
    """Serves until it is ended."""
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(server.port, flush=True)
    signal.pause()
    return 0


def record(job: Mapping[str, Any], place: str) -> int:
    """Run the script and leave ``record`` and ``extra`` in ``place``; 1 if it ended with an
    error.
    """
    faulthandler.register(signal.SIGTERM, chain=True)  # where a rank hangs
    written: list[str] = []
    samples: list[list[float]] = []
    collectives: list[str] = []
    _watch(written, samples)
    _listen(collectives)
    code = recording.record(job, place, files=False)  # another rank may be writing them
    extra = {
        "written": written,
        "samples": samples,
        "open": dist.is_initialized(),
        "collectives": collectives,
    }
    (Path(place) / "extra").write_bytes(pickle.dumps(extra))
    return code


def program(*arguments: str) -> int:
    """A rank that is not watched."""
    _listen([])
    return zygote.program(*arguments)


def _watch(written: list[str], samples: list[list[float]]) -> None:
    """Note what this rank writes, and the samples that it takes."""

    def note(path: Any) -> None:
        if isinstance(path, (str, bytes, os.PathLike)):
            written.append(os.path.realpath(os.fsdecode(path)))

    def heard(event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = args
            if (
                any(c in mode for c in "wax+")
                if mode
                else flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            ):
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
            parts = [
                t.detach().double().flatten(1).sum(1) if t.dim() > 1 else t.detach().double()
                for t in recording.tensors(batch)
            ]
            sizes = {len(part) for part in parts if part.dim()}
            if len(sizes) == 1:
                passes[id(this)][1].extend(
                    torch.stack([part for part in parts if part.dim()]).sum(0).tolist()
                )
        return batch

    loader.__iter__, fetching.__next__ = __iter__, __next__


listening: list[Any] = []


def _listen(collectives: list[str]) -> None:
    """Note the collectives that the script asks for."""

    def noted(name: str, real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            collectives.append(
                f"{name}{[list(a.shape) if isinstance(a, torch.Tensor) else type(a).__name__ for a in given]}"
            )
            return real(*args, **kwargs)

        return call

    for name in COLLECTIVES:
        real = getattr(dist, name)
        setattr(dist, name, noted(name, real))
    module: Any = dist
    leave = module.destroy_process_group
    kept: list[Any] = []

    def destroy_process_group(*args: Any, **kwargs: Any) -> None:
        """The group's threads may wait for Python while Python waits for them, where a function
        that held it ends: in forked ranks only.
        """
        kept.append(module.distributed_c10d._get_default_group())
        leave(*args, **kwargs)
        listening.append(kept)

    module.destroy_process_group = destroy_process_group
