"""Whether the script reads the checkpoint from which it is to go on, what that says of the place,
and what gets a state.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .core import Data, Probe
from .instead import instead_of
from .walk import walk

MOST = 20  # numbers that are kept


class Resumes:
    """Looks until the first optimizer step."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.path = os.path.realpath(probe.settings.resume)
        self.found: Data = {"read": False, "numbers": {}, "models": 0, "optimizers": 0}
        sys.addaudithook(self.audit)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and self.meant(arguments[0]):
            self.found["read"] = True

    def meant(self, path: Any) -> bool:
        """The checkpoint, or a file of the folder that it is; before the first step."""
        if self.probe.steps or not isinstance(path, (str, bytes, os.PathLike)):
            return False
        try:
            where = os.path.realpath(os.fsdecode(path))
        except (TypeError, ValueError, OSError):
            return False
        return where == self.path or where.startswith(self.path + os.sep)

    def torch(self) -> None:
        """torch.load may open its file in C++, of which no audit hook hears."""
        import torch

        @instead_of("load", torch, torch.serialization)
        def load(original: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            held = original(f, *args, **kwargs)
            if self.meant(f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)):
                self.found["read"] = True
                self.look(held)
            return held

        self.count(torch.nn.Module, "models")
        self.count(torch.optim.Optimizer, "optimizers")

    def look(self, held: Any) -> None:
        """Whole numbers at the top, and how many steps optimizers have made."""
        import torch

        numbers, steps = self.found["numbers"], 0
        for path, value in walk(held):
            if path[-1:] == ("step",) and "state" in path:
                if isinstance(value, (int, float)) or torch.is_tensor(value) and value.numel() == 1:
                    steps = max(steps, int(value))
            elif type(value) is int and len(path) <= 2 and len(numbers) < MOST:
                numbers["/".join(path)] = value
        if steps:
            numbers["optimizer steps"] = steps

    def count(self, kind: Any, name: str) -> None:
        @instead_of("load_state_dict", kind)
        def load_state_dict(original: Any, this: Any, *args: Any, **kwargs: Any) -> Any:
            self.found[name] += not self.probe.steps
            return original(this, *args, **kwargs)
