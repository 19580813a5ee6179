"""Runs that start in a fork of one process which has imported torch: that import takes seconds, a
run a tenth of one.

    options = {"cwd": folder, "stdout": folder / "out", "stderr": folder / "err"}
    code = ZYGOTE.run(PROGRAM, ["train.py", "--epochs", "1"], limit=60, environment={}, **options)
    child = ZYGOTE.start("tests.recording:record", [job], **options)

A run is a call of ``module:function`` with arguments that JSON can write, in a process that leads a
session of its own; the function returns the exit code. ``PROGRAM`` is what ``python ARGUMENTS...``
does. What a fork cannot show is what a fresh process does differently: CUDA, the hash seed, workers
that look at how the process was started.

All runs of a process of pytest share one zygote. It computes nothing: a process that has started
OpenMP cannot be forked.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = "tests.zygote:program"
ROOT = Path(__file__).resolve().parent.parent
PROBE = ROOT / "autofast" / "verify" / "probe"
MADV_COLLAPSE = 25  # madvise(2)
# Seconds of CPU after which a program is ended: one that never ends is, and load ends none.
CPU_SECONDS = 1200
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
QUIET = {
    **os.environ,
    **ONE_THREAD,
    "PYTHONHASHSEED": "0",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONDONTWRITEBYTECODE": "1",
}
# The second is imported by the first optimizer that is made, and takes as long as torch itself.
IMPORTED = (
    "torch torch._dynamo torch.distributed torch.optim.swa_utils torch.utils.data.distributed numpy"
)


# ------------------------------------------------------------------------------------- in the tests
class Child:
    """A run: the part of ``subprocess.Popen`` that is needed. ``select`` finds it readable when it
    has ended.
    """

    def __init__(self, answers: int):
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self.pid = self._number()
        self._code: int | None = None

    def _number(self) -> int:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("the process that forks the runs has died")
        return int(line)

    def fileno(self) -> int:
        return self._answers.fileno()

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if not select.select([self], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("run", timeout or 0)
            self._code = self._number()
            self._answers.close()
        return self._code

    def signal(self, number: int) -> None:
        """To the run and all that it has started in its session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def end(self) -> None:
        self.signal(signal.SIGKILL)
        self.wait()


class Zygote:
    """Started at the first run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: socket.socket | None = None

    def start(
        self,
        call: str,
        arguments: Sequence[Any],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        stdout: Path | int,
        stderr: Path | int,
        modules: Sequence[str] = (),
    ) -> Child:
        """A run that has begun. The process that forks imports ``modules`` before, and that of the
        call; a file descriptor that is given is closed here.
        """
        request = {
            "call": call,
            "arguments": arguments,
            "cwd": str(cwd),
            "environment": dict(environment),
            "modules": modules,
        }
        text = json.dumps(request, default=str).encode()
        ours, theirs = os.pipe()
        with (
            open(theirs, "wb") as answers,
            open(stdout, "wb") as out,
            open(stderr, "wb") as err,
            self._lock,
        ):
            requests = self._requests or self._begin()
            socket.send_fds(
                requests,
                [len(text).to_bytes(4, "big")],
                [answers.fileno(), out.fileno(), err.fileno()],
            )
            requests.sendall(text)
        return Child(ours)

    def run(
        self, call: str, arguments: Sequence[Any], *, limit: float, **options: Any
    ) -> int | None:
        """The exit code, or None of a run that took longer than ``limit`` seconds; nothing that it
        started in its session is left.
        """
        child = self.start(call, arguments, **options)
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            child.end()

    def _begin(self) -> socket.socket:
        self._requests, theirs = socket.socketpair()
        with theirs:
            command = [
                sys.executable,
                "-c",
                f"from tests.zygote import serve; serve({theirs.fileno()})",
            ]
            process = subprocess.Popen(
                command, cwd=ROOT, env=QUIET, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()], start_new_session=True,
            )  # fmt: skip
        atexit.register(process.wait)
        atexit.register(self._requests.close)  # done first
        return self._requests


ZYGOTE = Zygote()


# ------------------------------------------------------------------------ in the process that forks
def serve(fd: int) -> None:
    """Fork for every request, until the tests have ended."""
    sys.path[0] = str(ROOT)
    for name in IMPORTED.split():
        importlib.import_module(name)
    with contextlib.suppress(ImportError):  # by the first step of an optimizer, from torch 2.13 on
        importlib.import_module("torch.profiler._cupti_monitor")
    # Modules of the probe, which the interpreter of a run would compile each time.
    probe = runpy.run_path(str(PROBE / "__main__.py"))["module"]
    for path in sorted(PROBE.glob("[a-z]*.py")):
        probe(path.stem)
    _in_large_pages()
    requests, answers = socket.socket(fileno=fd), {}
    ended, wakeup = os.pipe()  # readable when a run has ended
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    while True:
        ready = select.select([requests, ended], [], [])[0]
        if ended in ready:
            os.read(ended, 512)
            _reap(answers)
        if requests in ready:
            length, given, _, _ = socket.recv_fds(requests, 4, 3)
            if not length:
                break
            request = json.loads(requests.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
            for name in (request["call"].partition(":")[0], *request["modules"]):
                importlib.import_module(name)
            gc.freeze()  # pages with torch's objects stay shared,
            for of_torch in weakref.finalize._registry:  # type: ignore[attr-defined]
                of_torch.atexit = False  # also at the end: taking them apart takes as long as a run
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (fd, ended, wakeup, *answers.values()):
                    os.close(other)
                _child(request, *given)
            answers[pid], *outputs = given
            for output in outputs:
                os.close(output)
    for pid in answers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _in_large_pages() -> None:
    """Put the memory that forks share into large pages, where the kernel can (Linux 6.1): a fork
    and its end take a third of the time then, as there are few pages to count.
    """
    with contextlib.suppress(OSError, AttributeError), open("/proc/self/maps") as maps:
        advise = ctypes.CDLL(None).madvise
        for fields in map(str.split, maps.readlines()):
            if "w" in fields[1] and (len(fields) < 6 or fields[5] == "[heap]"):
                start, end = (int(place, 16) for place in fields[0].split("-"))
                advise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)


def _reap(answers: dict[int, int]) -> None:
    for pid in list(answers):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            with contextlib.suppress(BrokenPipeError), open(answers.pop(pid), "wb") as answer:
                answer.write(b"%d\n" % os.waitstatus_to_exitcode(status))


def _child(request: dict[str, Any], answer: int, stdout: int, stderr: int) -> None:
    """In the forked process: becomes one that was started for the call, makes it, and ends."""
    code = 1
    try:
        os.setsid()
        with open(answer, "wb") as pid:
            pid.write(b"%d\n" % os.getpid())
        for ours, theirs in ((stdout, 1), (stderr, 2)):
            os.dup2(ours, theirs)
            os.close(ours)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None  # asked for anew
        module, _, name = request["call"].partition(":")
        del sys.modules["tests"]  # a script may have a package of this name
        code = getattr(sys.modules[module], name)(*request["arguments"])
        sys.__stdout__.flush()  # the script may have put another in its place
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def program(*arguments: str) -> int:
    """What ``python ARGUMENTS...`` does, less the half second in which an interpreter takes all
    modules apart.
    """
    import torch

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    sys.argv[:] = arguments
    if os.path.isdir(arguments[0]):
        del sys.path[0]  # it has a __main__, and run_path adds it
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
    code, interrupted = 0, False
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        if end.code is not None and not isinstance(end.code, int):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code, interrupted = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if interrupted:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    return code & 0xFF
