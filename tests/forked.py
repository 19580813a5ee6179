"""Runs of ``autofast verify`` that start in a fork (``tests.zygote``): a third of the time, for
tests only.

Everything else is the real thing: the same probe, in the same copies of the folder. Tests of what a
fork cannot show use ``Runner``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from autofast.verify.running.runs import Process, Runner
from tests.zygote import PROGRAM, ZYGOTE


class ForkRunner(Runner):
    def _start(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str], outputs: Path
    ) -> Process:
        return ZYGOTE.start(
            PROGRAM,
            command[1:],
            cwd=cwd,
            environment=environment,
            stdout=outputs / "stdout",
            stderr=outputs / "stderr",
        )
