"""Runs of ``autofast verify`` that start in a fork of a process which has imported torch: a third of the time, for tests only.

Everything else is the real thing: the same probe, started as a program, in the same copies of the folder. What it cannot show is what a
fresh process does differently (CUDA, spawned workers that look at how the process was started); those tests use ``Runner`` itself.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from autofast.verify.runs import Process, Runner, Setup
from autofast.verify.scratch import Scratch

_ZYGOTE = """
import json, os, runpy, sys, tempfile
import torch, numpy
import torch.utils.data, torch.optim, torch._dynamo  # the last is imported by the first optimizer that is made, in a second
for line in sys.stdin:
    job = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        for number, path in ((1, job["stdout"]), (2, job["stderr"])):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.clear()
        os.environ.update(job["environment"])
        tempfile.tempdir = None
        os.chdir(job["cwd"])
        torch.set_num_threads(int(job["environment"].get("OMP_NUM_THREADS", "1")))
        program, *sys.argv = job["command"]
        sys.path[0] = sys.argv[0]
        code = 0
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        except BaseException:
            import traceback
            traceback.print_exc()
            code = 1
        import threading
        threading._shutdown()
        import multiprocessing.util
        multiprocessing.util._exit_function()
        import atexit
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class _Child:
    """The part of ``subprocess.Popen`` that a runner needs."""

    def __init__(self, pid: int, answers: IO[str]):
        self.pid = pid
        self._answers = answers
        self._code: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if self._code is None:
            if timeout is not None and not select.select([self._answers], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("script", timeout)
            self._code = int(self._answers.readline())
        return self._code


class ForkRunner(Runner):
    def __init__(self, setup: Setup, scratch: Scratch):
        super().__init__(setup, scratch)
        self._zygote = subprocess.Popen([sys.executable, "-c", _ZYGOTE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _start(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], outputs: Path) -> Process:
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        job = {"command": list(command), "cwd": str(cwd), "environment": dict(environment)}
        job.update(stdout=str(outputs / "stdout"), stderr=str(outputs / "stderr"))
        self._zygote.stdin.write(json.dumps(job) + "\n")
        self._zygote.stdin.flush()
        return _Child(int(self._zygote.stdout.readline()), self._zygote.stdout)

    def close(self) -> None:
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait()
