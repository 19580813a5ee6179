"""Runs scripts of tests/verify_scripts/ with the probe, or without it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

from autofast.verify.evidence.record import Detail, Record
from autofast.verify.running.steps import read_record
from tests.torchrun import finish, of_rank, store
from tests.zygote import PROGRAM, ZYGOTE

ROOT = Path(__file__).parent.parent
PROBE = ROOT / "autofast" / "verify" / "probe"
SCRIPTS = Path(__file__).parent / "verify_scripts"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
LIMIT = 1200.0  # of what hangs: load does not come near it


@dataclass(frozen=True)
class Ran:
    code: int
    stdout: str
    stderr: str
    records: tuple[Record, ...] = ()

    @property
    def record(self) -> Record:
        assert self.records, self.stderr
        return self.records[0]

    @property
    def printed(self) -> list[float]:
        """The losses that the script itself printed."""
        return [float(value) for value in re.findall(r"^loss (\S+)", self.stdout, re.M)]


def options(folder: Path, **given: object) -> str:
    detail = given.pop("detail", Detail())
    assert isinstance(detail, Detail)
    return json.dumps(
        {
            "out": str(folder / "record-%r.json"),
            "seed": 1,
            "scratch": str(folder),
            "detail": asdict(detail),
            **given,
        }
    )


def environment(folder: Path, **given: object) -> dict[str, str]:
    return {**os.environ, **ENVIRONMENT, "AUTOFAST_PROBE": options(folder, **given)}


def command(script: str, *arguments: str, probe: bool) -> list[str]:
    path = str(SCRIPTS / script) if (SCRIPTS / script).exists() else script
    return [str(PROBE), path, *arguments] if probe else [path, *arguments]


def records(folder: Path) -> tuple[Record, ...]:
    return tuple(read_record(path) for path in sorted(folder.glob("record-*.json")))


def run(folder: Path, script: str, *arguments: str, probe: bool = True, **given: object) -> Ran:
    """In a fork of a process that has torch."""
    for old in folder.glob("record-*.json"):
        old.unlink()
    code = ZYGOTE.run(
        PROGRAM, command(script, *arguments, probe=probe), limit=LIMIT, cwd=folder, environment=environment(folder, **given),
        stdout=folder / "stdout", stderr=folder / "stderr",
    )  # fmt: skip
    assert code is not None, f"more than {LIMIT:g} s"
    return Ran(
        code, (folder / "stdout").read_text(), (folder / "stderr").read_text(), records(folder)
    )


def fresh(folder: Path, words: list[str], **given: object) -> Ran:
    """In a process of its own, ``words`` being its whole command line."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=environment(folder, **given),
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    return Ran(done.returncode, done.stdout, done.stderr, records(folder))


def ranks(folder: Path, script: str, *arguments: str, **given: object) -> Ran:
    """In two forks, which find what torchrun would have given to them."""
    words = [str(PROBE / "__main__.py"), str(SCRIPTS / script), *arguments]
    with store(folder) as port:
        started = [
            ZYGOTE.start(
                "tests.rank:program",
                words,
                cwd=folder,
                environment={**environment(folder, **given), **of_rank(number, 2, port)},
                stdout=folder / f"stdout{number}",
                stderr=folder / f"stderr{number}",
            )
            for number in range(2)
        ]
        finish(started, LIMIT)
    out, err = (
        "".join((folder / f"{name}{number}").read_text() for number in range(2))
        for name in ("stdout", "stderr")
    )
    code = next((code for rank in started if (code := rank.wait())), 0)
    return Ran(code, out, err, records(folder))
