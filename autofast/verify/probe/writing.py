"""Makes the record of the log: the only place that reads values from devices."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from . import surroundings
from .core import Data, Probe

VERSION = 1


def plain(value: Any) -> Any:
    """Tensors as numbers. NaN where the device has no answer any more (after a failed kernel, every
    read fails).
    """
    if isinstance(value, (tuple, list)):
        return [plain(entry) for entry in value]
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    if value is None or isinstance(value, (str, int, float)):
        return value
    try:
        return float(value)
    except Exception:
        return float("nan")


class Writer:
    """``parts`` are functions that add to the record, registered by whatever was installed."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.parts: list[Callable[[], Data]] = []
        self.done = False
        probe.write = self

    def __call__(self, ending: str, exit_code: int = 0, error: str = "", trace: str = "") -> None:
        probe = self.probe
        if self.done or not probe.ours or not probe.settings.out:
            return
        trained = probe.steps or probe.backwards
        # Of a process that starts others, and of these, those that train have the records, or one
        # that fails before any is written.
        if probe.has_ranks and not trained and (not error or os.path.exists(probe.settings.out)):
            return
        self.done = True
        # Hooks called by what follows, or by exit functions of the script's, must not add to it.
        events, probe.events = probe.events, []
        if probe.stopping and ending != "error":
            ending, exit_code = "steps", 0
        probe.moments.setdefault("ended", probe.clock())
        record: Data = {
            "version": VERSION,
            "rank": probe.rank,
            "world_size": probe.world,
            "ending": ending,
            "exit_code": exit_code,
            "error": error,
            "traceback": trace,
            "backwards": probe.backwards,
            "optimizers": probe.optimizers,
            "moments": {name: moment - probe.born for name, moment in probe.moments.items()},
            "compiling": surroundings.compiling(),
            "peak_memory": surroundings.peak_memory(),
            "peak_memory_children": probe.children or surroundings.children_memory(),
        }
        for part in self.parts:
            try:
                record.update(part())
            except Exception as failure:
                probe.note(f"not recorded: {type(failure).__name__}: {failure}")
        record["events"] = [
            [kind, round(start - probe.born, 7), round(end - probe.born, 7), *plain(rest)]
            for kind, start, end, *rest in events
        ]
        record["environment"] = surroundings.asked(surroundings.environment) or {}
        record["notes"] = probe.notes
        probe.stopped.set()
        temporary = probe.settings.out + ".tmp"
        with open(temporary, "w") as file:
            file.write(json.dumps(record))  # at once: many times faster than by pieces
        os.replace(temporary, probe.settings.out)


def described(error: BaseException) -> str:
    """One line."""
    text = str(error).strip()
    return type(error).__name__ + (": " + text.splitlines()[0] if text else "")
