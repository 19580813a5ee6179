"""Checkpoints that the script saves, and files that it opens for writing outside its working
folder.
"""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from .core import Data, Probe
from .instead import instead_of
from .walk import walk
from .writing import described

MOST = 100  # names that are kept
MOST_VALUES = 1_000_000_000  # numbers in all checkpoints that are compared
DEPTH = 8


def keys(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """Nested keys joined by ``/``, each with type, dtype and shape."""
    if isinstance(value, type):
        yield name, "type"
    elif hasattr(value, "dtype") and hasattr(value, "shape"):
        yield (
            name,
            f"{type(value).__name__} {str(value.dtype).replace('torch.', '')} {list(value.shape)}",
        )
    elif isinstance(value, dict) and value and depth < DEPTH:
        for key, entry in value.items():
            yield from keys(entry, f"{name}/{key}" if name else str(key), depth + 1)
    elif (
        isinstance(value, (list, tuple))
        and any(hasattr(entry, "shape") or isinstance(entry, (dict, list)) for entry in value)
        and depth < DEPTH
    ):
        for place, entry in enumerate(value):
            yield from keys(entry, f"{name}/{place}" if name else str(place), depth + 1)
    elif isinstance(value, (list, tuple)):
        yield name, f"{type(value).__name__} of {len(value)}"
    else:
        yield name, type(value).__name__


def shown(value: Any) -> Any:
    """Of an object, what its state_dict says; of a long list, its length."""
    if isinstance(value, (type, dict)):
        return value
    if isinstance(value, (list, tuple)) and len(value) > MOST:
        return f"{len(value)} entries"
    return value.state_dict() if callable(getattr(value, "state_dict", None)) else value


def flat(value: Any) -> Iterator[tuple[str, Any]]:
    """Entries with their keys joined by ``/``."""
    return (("/".join(path), entry) for path, entry in walk(value, shown))


class Saves:
    """``outside`` holds paths in the order in which they were opened (a dictionary, for its
    order).
    """

    def __init__(self, probe: Probe) -> None:
        self.probe = probe
        self.outside: dict[str, None] = {}
        self.inside: dict[str, None] = {}  # written in the working folder
        self.saves: list[Data] = []
        self.kept = 0  # of them, calls of torch.save
        self.printer: Any = None
        self.printed = 0
        self.checkpoints: dict[str, Data] = {}
        self.folder = os.getcwd()
        self.allowed = tuple(
            os.path.realpath(place) + os.sep
            for place in (probe.settings.scratch, tempfile.gettempdir())
            if place
        )
        self.allowed += ("/dev/", "/proc/", "/sys/")
        if probe.settings.scratch:
            sys.addaudithook(self.audit)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int):
                return
            if (
                isinstance(mode, str)
                and any(letter in mode for letter in "wax+")
                or mode is None
                and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            ):
                self.opened(path)
        elif event == "os.rename":
            self.removed(arguments[0], arguments[2])
            self.opened(arguments[1])
            self.copied(arguments[0], arguments[1])
        elif event == "shutil.copyfile":
            self.copied(arguments[0], arguments[1])
        elif event in ("os.remove", "shutil.rmtree"):
            self.removed(arguments[0], arguments[1] if len(arguments) > 1 else None)
        elif event == "os.truncate" and not isinstance(arguments[0], int):
            self.opened(arguments[0])

    def guarded(self, where: str) -> bool:
        """In a folder of the user's, and no cache or setting (a hidden name)."""
        for folder in self.probe.settings.guard:
            inside = where[len(folder) :] if where.startswith(folder + os.sep) else ""
            if inside and os.sep + "." not in inside:
                return True
        return False

    def ours(self, where: str) -> bool:
        """Made by this run or an earlier one."""
        return where in self.probe.settings.made or where in self.outside

    def removed(self, path: Any, folder: Any) -> None:
        """``folder``: the open folder that ``path`` is in, if any (dir_fd). A link is removed
        itself, not what it leads to.
        """
        try:
            name = os.fsdecode(path)
            if isinstance(folder, int) and folder >= 0 and not os.path.isabs(name):
                name = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)
            name = os.path.abspath(name)
            where = os.path.join(os.path.realpath(os.path.dirname(name)), os.path.basename(name))
        except (TypeError, ValueError, OSError):
            return
        if where.startswith(self.allowed) or not os.path.lexists(where) or not self.guarded(where):
            return
        files = (
            [os.path.join(top, file) for top, _, names in os.walk(where) for file in names]
            if os.path.isdir(where)
            else [where]
        )
        if not all(map(self.ours, files)):
            raise PermissionError(
                errno.EPERM,
                "kept from removing what is outside of the copies made for autofast verify",
                where,
            )

    def opened(self, path: Any) -> None:
        try:
            where = os.path.realpath(os.fsdecode(path))
        except (TypeError, ValueError, OSError):
            return
        if (
            not where.startswith(self.allowed)
            and os.path.isfile(where)
            and self.guarded(where)
            and not self.ours(where)
        ):
            raise PermissionError(
                errno.EPERM,
                "kept from writing over a file outside of the copies made for autofast verify",
                where,
            )
        if self.probe.settings.state and len(self.inside) < MOST and self.within(where):
            self.inside[where] = None
        if (
            len(self.outside) < MOST
            and not where.startswith(self.allowed)
            and not where.endswith(
                (".pyc", *(self.probe.settings.out + end for end in (".tmp", ".trains")))
            )
        ):
            if os.sep + "__pycache__" + os.sep not in where:  # Python's own, under a temporary name
                self.outside[where] = None

    def within(self, where: str) -> bool:
        """A text that the run writes where it works, no byte code and nothing of the probe's."""
        folder = os.path.realpath(self.folder) + os.sep
        return where.startswith((folder, self.probe.settings.scratch + os.sep)) and where.endswith(
            (".csv", ".tsv", ".json", ".jsonl", ".txt", ".log", ".yaml", ".yml")
        )

    def torch(self) -> None:
        """torch.save opens its file in C++, of which no audit hook hears."""
        import torch

        @instead_of("save", torch, torch.serialization)
        def save(original: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
            path = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
            if isinstance(path, (str, os.PathLike)) and self.probe.settings.scratch:
                self.opened(path)
            original(obj, f, *args, **kwargs)
            # As Lightning does, which then writes the bytes by fsspec.
            if isinstance(f, io.BytesIO):
                path = f"buffer {len(self.checkpoints)}"
            elif not isinstance(path, (str, os.PathLike)):
                return
            if self.probe.settings.state and self.probe.ours:
                try:
                    self.checkpoint(obj, f, os.fspath(path))
                except Exception as error:  # what holds entries in a way of its own
                    self.probe.note(f"checkpoints not recorded: {described(error)}")

    def values(self, obj: Any) -> Data:
        """What was saved, by value: tensors as prints, numbers and words as they are; of all saves
        together no more than MOST_VALUES.
        """
        import torch

        from .prints import Printer

        self.printer = self.printer or Printer()
        tensors, plain = {}, {}
        for name, entry in flat(obj):
            if isinstance(entry, torch.Tensor):
                self.printed += entry.numel()
                if self.printed > MOST_VALUES:
                    self.probe.note("checkpoints are large: not all were compared by value")
                    break
                try:
                    tensors[name] = self.printer(entry)
                except Exception as error:  # of layouts and devices without numbers to read
                    kind = type(error).__name__
                    self.probe.note(f"tensors that cannot be read were not compared ({kind})")
            elif entry is None or isinstance(entry, (bool, int, float, str)):
                plain[name] = repr(entry)
        return {"tensors": tensors, "plain": plain}

    def named(self, path: Any) -> str:
        return os.path.relpath(os.path.realpath(os.fsdecode(path)), os.path.realpath(self.folder))

    def copied(self, source: Any, target: Any) -> None:
        """A checkpoint gets another name, or its folder does: what was saved there last is saved
        under the new name as well.
        """
        try:
            old, new = self.named(source), self.named(target)
        except (TypeError, ValueError, OSError):
            return
        last = {one["path"]: one for one in self.saves}
        for name, entry in list(self.checkpoints.items()):
            if name == old or name.startswith(old + os.sep):
                path = new + name[len(old) :]
                self.checkpoints[path] = {**entry, "path": path}
                if name in last:
                    self.saves.append({**last[name], "path": path})

    def checkpoint(self, obj: Any, file: Any, path: str) -> None:
        import torch

        buffer = io.BytesIO(file.getvalue()) if isinstance(file, io.BytesIO) else None
        name = path if buffer else self.named(path)
        entry: Data = {"path": name, "keys": dict(keys(obj)), "loads": True, "error": ""}
        self.checkpoints[name] = entry  # the last one under this name
        if self.kept < MOST:
            self.kept += 1
            self.saves.append({"path": name, "step": self.probe.steps, **self.values(obj)})
        try:
            if hasattr(file, "flush"):
                file.flush()
            torch.load(buffer or path)
        except Exception as error:
            entry["loads"], entry["error"] = (
                False,
                re.sub(r"\x1b\[[0-9;]*m", "", described(error)),
            )  # torch prints this one in bold
