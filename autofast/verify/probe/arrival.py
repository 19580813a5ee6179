"""Calls back when a module has just been imported for the first time.

The probe does not import torch before the script does: variables such as OMP_NUM_THREADS or
PYTORCH_CUDA_ALLOC_CONF that a script sets at its top are read when torch's libraries are loaded,
and would otherwise come too late.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class Arrival(importlib.abc.MetaPathFinder):
    def __init__(self, callbacks: dict[str, Callable[[], None]]) -> None:
        self.waiting = dict(callbacks)
        for name in list(self.waiting):
            if name in sys.modules:  # a sitecustomize of the user's may have imported it
                self.waiting.pop(name)()
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # Popped first, as the search below comes here again.
        callback = self.waiting.pop(name, None)
        if callback is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.waiting[name] = callback  # not installed, or not yet on the path
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # an attribute of this one loader, see below
            execute(module)
            callback()

        loader.exec_module = exec_module
        return spec
