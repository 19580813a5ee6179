"""From the paths of the command line to the scripts to look at.

Which script is started to run a file: what a file does is known from there, not from the file
alone.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from autofast.model.disk import MOST, NEVER
from autofast.model.several import any_in, wordset
from autofast.model.source import BadInput

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

    # patterns, and the way from their folder to the one that is looked at: `src/models/`
    Spec = tuple[GitIgnoreSpec, str]

NOTHING = "no training loop found; give the script that trains"
_BACKWARD = re.compile(rb"\.backward\(|\bTrainer\b")
_PART = re.compile(rb"\bDataLoader\(|\boptim\.[A-Z]|\boptim(?:izer(?:_\w+)?)? *=[^=]")
_MARIMO = re.compile(rb"^app = (?:marimo|mo)\.App\(", re.MULTILINE)
_TORCH = re.compile(
    rb"(?:^\s*|\")(?:import|from)\s+torch\b", re.MULTILINE
)  # in notebooks, in quotes
_TESTS = re.compile(rb"^[ \t]*(?:async[ \t]+)?def[ \t]+test|^class[ \t]+\w*Test", re.MULTILINE)
_TEST_FOLDERS = wordset("test tests")
ENTRIES = (".py", ".ipynb")  # what may be started


def looks_like_training(raw: bytes) -> bool:
    """Whether a file is worth reading as an entry: a cheap look at its text, wrong in the direction
    of reading too much."""
    return bool(_BACKWARD.search(raw) or (b".step(" in raw and _TORCH.search(raw)))


def has_part_in_training(raw: bytes) -> bool:
    """Whether a file has something of its own for a training that others run, by its text."""
    return _PART.search(raw) is not None


def is_marimo(raw: bytes) -> bool:
    """Whether a Python file is a notebook of marimo, which calls its cells by itself and writes the
    file anew."""
    return b"marimo" in raw and _MARIMO.search(raw) is not None


def is_test(path: Path, raw: bytes) -> bool:
    """Whether a file of a project is one of its tests, which train nothing that anyone waits for;
    ``path`` is relative to what is searched."""
    named = path.stem.startswith("test_") or path.stem.endswith("_test") or path.stem == "conftest"
    return in_tests(path) or (named and bool(_TESTS.search(raw)))


def in_tests(path: Path) -> bool:
    """Whether a path leads through a folder of tests."""
    return bool(_TEST_FOLDERS & set(path.parts[:-1]))


def untrained_hint(path: Path) -> str:
    """What to do about a file in which nothing trains."""
    if is_marimo(raw_of(path)):
        return (
            "a marimo notebook, whose cells are not followed; "
            "`marimo export script` makes a script of it"
        )
    return NOTHING


def raw_of(path: Path) -> bytes:
    """What a file holds; nothing where it cannot be read."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def scripts(
    paths: Iterable[Path],
    root: Path,
    exclude: Iterable[str] = (),
    force: bool = False,
    tests: list[Path] | None = None,
) -> Iterator[Path]:
    """The files to read: those given by name, and in folders those that look like training scripts
    or notebooks.

    A file given by name is read whatever .gitignore says, and whatever ``exclude`` says but with
    ``force``. Tests are read where they are given by name, or a folder of tests is; others are
    added to ``tests``.
    """
    seen: set[Path] = set()
    exclude = list(exclude)
    for path in paths:
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            pass  # told below
        except OSError as error:  # in a folder that may not be looked into, a name that is too long
            if not os.path.islink(path):
                raise BadInput(f"{path}: cannot be read ({error.strerror})") from None
        if path.is_dir():
            found: Iterable[Path] = _training(path, root, exclude, [] if tests is None else tests)
        elif path.exists() and not path.is_file():
            from autofast.model.opening import NO_FILE

            raise BadInput(f"{path}: {NO_FILE}")
        elif path.exists():
            found = [] if force and excluded([path], root, exclude) else [path]
        elif path.is_symlink():
            from autofast.model.opening import broken_link

            raise BadInput(f"{path}: {broken_link(path)}; mend the link, or give another script")
        else:
            raise BadInput(
                f"{path}: no such file or folder; give a script, or a folder that holds some"
            )
        for file in found:
            if (real := file.resolve()) not in seen:
                seen.add(real)
                yield file


def python_files(root: Path) -> list[Path]:
    """The Python files of a project but those that .gitignore names; not all of them where they are
    too many."""
    return list(islice(_walk(root, root, [], (".py",)), MOST))


def _training(folder: Path, root: Path, exclude: list[str], tests: list[Path]) -> Iterator[Path]:
    """The files below a folder that look like training, but for tests."""
    real, top = folder.resolve(), root.resolve()
    wanted = top in real.parents and in_tests(real.relative_to(top) / "_")
    for path in _walk(folder, root, exclude, ENTRIES):
        raw = raw_of(path)
        if looks_like_training(raw):
            if not wanted and is_test(path.relative_to(folder), raw):
                tests.append(path)
            else:
                yield path


def excluded(paths: Iterable[Path], root: Path, exclude: Iterable[str]) -> set[Path]:
    """Those of ``paths`` that ``exclude`` names, or a folder that they are in."""
    from pathspec import GitIgnoreSpec

    spec, top = GitIgnoreSpec.from_lines(exclude), root.resolve()
    real = {path: path.resolve() for path in paths}
    return {
        path
        for path, file in real.items()
        if top in file.parents and spec.match_file(file.relative_to(top).as_posix())
    }


def _walk(folder: Path, root: Path, exclude: list[str], kinds: tuple[str, ...]) -> Iterator[Path]:
    """The files below a folder whose names end in one of ``kinds``."""
    real, top = folder.resolve(), root.resolve()
    specs: list[Spec] = []
    for parent in reversed(real.parents):
        if parent == top or top in parent.parents:
            specs += _ignored_by(parent, f"{real.relative_to(parent).as_posix()}/")
    if real == top:
        way = ""
    elif top in real.parents:
        way = f"{real.relative_to(top).as_posix()}/"
    else:
        way = None
    yield from _below(folder, specs, [] if way is None else _spec(exclude, way), kinds)


def _below(
    folder: Path, specs: list[Spec], exclude: list[Spec], kinds: tuple[str, ...]
) -> Iterator[Path]:
    specs = specs + _ignored_by(folder, "")
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return  # a folder we may not look into holds nothing for us
    folders = []
    for entry in entries:
        name = entry.name
        if entry.is_dir(follow_symlinks=False):  # a link may lead back to where we are
            hidden = name in NEVER or name.startswith(".")
            if not (hidden or _matches(exclude, f"{name}/") or _matches(specs, f"{name}/")):
                folders.append(name)
        elif (
            os.path.splitext(name)[1] in kinds
            and os.path.isfile(entry.path)
            and not (_matches(exclude, name) or _matches(specs, name))
        ):
            yield folder / name
    for name in folders:
        yield from _below(folder / name, _entered(specs, name), _entered(exclude, name), kinds)


def _entered(specs: list[Spec], name: str) -> list[Spec]:
    return [(spec, f"{way}{name}/") for spec, way in specs]


def _ignored_by(folder: Path, way: str) -> list[Spec]:
    try:
        lines = (folder / ".gitignore").read_text("utf-8", "replace").splitlines()
    except OSError:
        return []
    return _spec(lines, way)


def _spec(lines: list[str], way: str) -> list[Spec]:
    if not lines:
        return []
    from pathspec import GitIgnoreSpec

    return [(GitIgnoreSpec.from_lines(lines), way)]


def _matches(specs: list[Spec], name: str) -> bool:
    """The innermost .gitignore that says anything decides, as in git."""
    for spec, way in reversed(specs):
        verdict = spec.check_file(way + name).include
        if verdict is not None:
            return bool(verdict)
    return False


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
        if (
            file.suffix != ".py"
            or self.root not in real.parents
            or _GUARD.search(self._raw(real)) is not None
        ):
            return file
        found = filter(self._may_be_started, self._above(real))
        return min(found, key=self._preference, default=file)

    def users(self, file: Path) -> list[Path]:
        """The scripts that are started and import a file, directly or not, but for tests; the
        nearest first."""
        return [path for path in self._above(file) if self._may_be_started(path)]

    def beside(self, file: Path) -> list[Path]:
        """The scripts that run ``file``, too, with a part of their own in its training: a loader,
        an optimizer."""
        users = self.users(file.resolve())
        return [path for path in users if has_part_in_training(self._raw(path))]

    def _raw(self, path: Path) -> bytes:
        return self._overlay[path] if path in self._overlay else raw_of(path)

    def _preference(self, path: Path) -> tuple[bool, bool]:
        named = any_in(("train", "main"), path.stem)
        return not looks_like_training(self._raw(path)), not named

    def _may_be_started(self, file: Path) -> bool:
        """Whether it says so, or nobody imports it; a package by its `__init__.py` is imported, if
        only by its users."""
        top = file.name != "__init__.py" and not self._importers.get(file)
        return _GUARD.search(self._raw(file)) is not None or top

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
