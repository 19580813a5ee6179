"""What is asked of the probe: JSON in one environment variable."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

VARIABLE = "AUTOFAST_PROBE"


class Settings(NamedTuple):
    """See autofast/verify/record.py (Detail) for the last seven.

    out: where to write; ``%r`` becomes the rank. steps: optimizer steps after which to end; 0 for
    all. seconds: soft limit from the first step's end on; 0 for none. samples: that an iteration
    over a DataLoader gives at most; 0 for all. seed: for all generators before the script starts;
    None leaves them. shift: added, times a prime, to seeds that the script sets. scratch: the
    working folder outside of
    which no file should be written. guard: folders of the user's in which no file that exists may
    be written to, but for those in made:
    earlier runs made them. resume: the checkpoint from which the script is to go on.
    """

    out: str = ""
    steps: int = 0
    seconds: float = 0.0
    seed: int | None = None
    shift: int = 0
    samples: int = 0
    scratch: str = ""
    guard: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    resume: str = ""
    gradients: bool = False
    batches: bool = False
    state: bool = False
    double: bool = False
    perturb: float = 0.0
    facts: bool = False
    common: bool = False
    driven: int = 0

    @property
    def detailed(self) -> bool:
        """Some numbers are compared, so this run is not timed: slow ways of looking are fine, and
        random draws must agree.
        """
        return self.gradients or self.batches or self.state or self.double or self.perturb != 0


def rank() -> int:
    value = os.environ.get("RANK", "0")
    return int(value) if value.isdigit() else 0


def world() -> int:
    value = os.environ.get("WORLD_SIZE", "1")
    return int(value) if value.isdigit() else 1


def read(place: int | None = None) -> Settings:
    """From the environment; ``place`` is the rank of a process that the script started itself.

    Unknown names are an error: a misspelt setting would silently not be recorded."""
    given: dict[str, Any] = json.loads(os.environ.get(VARIABLE, "{}"))
    given.update(given.pop("detail", None) or {})
    settings = Settings(**given)
    scratch = os.path.realpath(settings.scratch) if settings.scratch else ""
    guard = tuple(os.path.realpath(folder) for folder in settings.guard)
    return settings._replace(
        out=settings.out.replace("%r", str(rank() if place is None else place)),
        scratch=scratch,
        guard=guard,
    )
