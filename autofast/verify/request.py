"""What the user of ``autofast verify`` typed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from autofast.config import Config


@dataclass(frozen=True)
class Request:
    """What the user typed.

    Attributes:
        script, rewritten: paths; without the second, the first is rewritten to a temporary one.
        arguments: of the script.
        launch: a launcher's command line.
        launch_rewritten: that of the second script, where it has its own.
        cwd: run in this folder itself instead of in copies.
        links: large things that are linked instead of copied.
        scratch: where the copies are made, where the system's temporary folder will not do (other
            nodes cannot see it).
        limit: seconds after which one run is ended.
        resume_from: the checkpoint of the script's from which all runs go on.
        facts: see what the original does at which line.
        effect: by which the tests are chosen when the second script is not autofast's.
    """

    script: Path
    rewritten: Path | None
    root: Path
    config: Config
    arguments: tuple[str, ...] = ()
    steps: int | None = None
    budget: float = 900.0
    seed: int = 0
    seeds: int = 12
    margin: float = 0.02
    launch: str = ""
    launch_rewritten: str = ""
    python: str = sys.executable
    cwd: Path | None = None
    links: tuple[Path, ...] = ()
    scratch: Path | None = None
    threads: int = 0
    limit: float = 0.0
    resume_from: Path | None = None
    by_rule: bool = False
    facts: bool = False
    target: str | None = None
    effect: str | None = None
