"""Which script is started to run a file: what a file does is known from there, not from the file
alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path

from autofast.commands.discover import (
    has_part_in_training,
    is_test,
    looks_like_training,
    python_files,
    raw_of,
)

_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)|import[ \t]+([^\n#]+))",
    re.M,
)
# `import_module("models." + name)`, `import_module(f"models.{name}")`
_BY_NAME = re.compile(rb"[\"']([A-Za-z_][\w.]*)\.(?:[\"']|\{|%s)")
_NAME = re.compile(r"[\w.]+")
_GUARD = re.compile(rb"__name__\s*==\s*[\"']__main__[\"']")


class Entries:
    """The imports of a project, by its text alone: nothing is parsed. Files are compared by their
    real paths.

    ``overlay`` has other texts for some files, as an editor has before they are saved.
    """

    def __init__(self, root: Path, overlay: Mapping[Path, bytes] | None = None):
        self.root = root.resolve()
        self._overlay = overlay or {}

    def of(self, file: Path) -> Path:
        """The script that is started to run ``file``: itself where it is one, or where nothing is
        known of others.

        Of several, one that trains is best (by its text, then by its name), then the nearest.
        Reading them all would take too long.
        """
        real = file.resolve()
        if file.suffix != ".py" or self.root not in real.parents or _is_started(self._raw(real)):
            return file
        found = filter(self._may_be_started, self._above(real))
        return min(found, key=self._preference, default=file)

    def users(self, file: Path) -> list[Path]:
        """The scripts that are started and import a file, directly or not, but for tests; the
        nearest first.
        """
        return [path for path in self._above(file) if self._may_be_started(path)]

    def beside(self, file: Path) -> list[Path]:
        """The scripts that run ``file``, too, with a part of their own in its training: a loader,
        an optimizer.
        """
        users = self.users(file.resolve())
        return [path for path in users if has_part_in_training(self._raw(path))]

    def _raw(self, path: Path) -> bytes:
        return self._overlay[path] if path in self._overlay else raw_of(path)

    def _preference(self, path: Path) -> tuple[bool, bool]:
        named = any(word in path.stem for word in ("train", "main"))
        return not looks_like_training(self._raw(path)), not named

    def _may_be_started(self, file: Path) -> bool:
        """Whether it says so, or nobody imports it; a package by its `__init__.py` is imported, if
        only by its users.
        """
        top = file.name != "__init__.py" and not self._importers.get(file)
        return _is_started(self._raw(file)) or top

    def _above(self, file: Path) -> Iterator[Path]:
        """The files that import ``file``, directly or not, but for tests; the nearest first."""
        seen, here = {file}, [file]
        while here:
            here = [p for f in here for p in sorted(self._importers.get(f, ())) if p not in seen]
            here = [p for p in dict.fromkeys(here) if not self._is_test(p)]
            seen.update(here)
            yield from here

    def _is_test(self, path: Path) -> bool:
        return is_test(path.relative_to(self.root), self._raw(path))

    @cached_property
    def _importers(self) -> dict[Path, set[Path]]:
        files = {path.resolve() for path in python_files(self.root)}
        by_name = {path.as_posix(): path for path in files}
        found: dict[Path, set[Path]] = {}
        for file in files:
            for imported in self._imported(file, by_name):
                if imported != file:
                    found.setdefault(imported, set()).add(file)
        return found

    def _imported(self, file: Path, files: Mapping[str, Path]) -> Iterator[Path]:
        folders = [p for p in file.parents if p == self.root or self.root in p.parents]
        anywhere = [p.as_posix() for p in (*folders, self.root / "src", self.root / "lib")]
        for dots, module, names, plain in _IMPORT.findall(self._raw(file)):
            bases = anywhere
            if dots:
                bases = anywhere[len(dots) - 1 : min(len(dots), len(folders))]
            modules = [
                m.split(" as ")[0].strip() for m in plain.decode("utf-8", "replace").split(",")
            ]
            if not plain:
                stem = module.decode("utf-8", "replace")
                of_it = _NAME.findall(names.decode("utf-8", "replace"))
                modules = [stem, *(f"{stem}.{name}".strip(".") for name in of_it)]
            for name in modules:
                yield from _file(name, bases, files)
        if b"import_module(" in self._raw(file) or b"__import__(" in self._raw(file):
            for package in _BY_NAME.findall(self._raw(file)):
                parts = package.decode().split(".")
                home = next((p for f in folders if (p := f.joinpath(*parts)).is_dir()), None)
                yield from (f for f in files.values() if f.parent == home)


def _file(module: str, bases: Iterable[str], files: Mapping[str, Path]) -> Iterator[Path]:
    """The file of a module, from the nearest folder that has it."""
    parts = "/".join(filter(None, module.split(".")))
    for base in bases if parts else ():
        for name in (f"{base}/{parts}.py", f"{base}/{parts}/__init__.py"):
            if name in files:
                yield files[name]
                return


def _is_started(raw: bytes) -> bool:
    return _GUARD.search(raw) is not None
