"""Numbers that the run gives to TensorBoard (record.Record.scalars): by ``add_scalar`` and
``add_scalars`` of a SummaryWriter.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .core import Probe

MODULES = ("torch.utils.tensorboard", "tensorboardX")
MOST = 20_000


def kept(value: Any) -> Any:
    """A number, or a copy of a tensor on a device, as reading it would wait; None for what is
    neither.
    """
    from . import training

    if type(value).__module__.partition(".")[0] == "torch":
        return training.kept(value)
    try:
        return None if isinstance(value, (str, bytes)) else float(value)
    except Exception:
        return None


class Scalars:
    """``found``: name, step (None where none was given), value."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.found: list[tuple[str, Any, Any]] = []

    def arrived(self, name: str) -> None:
        """Wraps the methods of the class that this module gives."""
        try:
            writer: Any = sys.modules[name].SummaryWriter  # type: ignore[attr-defined,unused-ignore]
            for method, add in (("add_scalar", self.single), ("add_scalars", self.several)):
                if hasattr(writer, method):
                    setattr(writer, method, self.wrapped(getattr(writer, method), add))
        except Exception as error:
            self.probe.note(f"what {name} is given not recorded: {error}")

    def wrapped(self, original: Any, add: Callable[..., None]) -> Any:
        @functools.wraps(original)
        def method(writer: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                add(*args, **kwargs)
            except Exception as error:  # a call that fails by itself, too
                self.probe.note(f"numbers for TensorBoard not recorded: {type(error).__name__}")
            return original(writer, *args, **kwargs)

        return method

    def single(
        self, tag: str, scalar_value: Any, global_step: Any = None, *_: Any, **__: Any
    ) -> None:
        value = kept(scalar_value)
        if len(self.found) < MOST and value is not None:
            step = None if global_step is None else int(global_step)
            self.found.append((str(tag), step, value))

    def several(
        self, main_tag: str, tag_scalar_dict: Any, global_step: Any = None, *_: Any, **__: Any
    ) -> None:
        for tag, value in tag_scalar_dict.items():
            self.single(f"{main_tag}/{tag}", value, global_step)
