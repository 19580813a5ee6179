"""A copy of the user's folders for the runs, so that no run touches a checkpoint or a log of the
user's, or finds one of another run.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autofast.model.several import any_in, wordset
from autofast.model.source import BadInput

SIZE_LIMIT = 2 * 2**30  # bytes; more is not copied for every run without being asked
FILE_LIMIT = 50_000
_LEFT_OUT = wordset(
    ".git .hg .svn __pycache__ node_modules .tox .nox .mypy_cache .ruff_cache .pytest_cache"
)

Stamp = tuple[int, int]  # size and time of change in nanoseconds


@dataclass(frozen=True)
class Tree:
    """A folder of the user's and its copy."""

    source: Path
    copy: Path


@dataclass
class Scratch:
    """The copies. Paths inside of a copied folder keep their place, also relative to each other;
    what lies beside a copied folder is reachable by a link, so that ``../data`` is found.

    Attributes:
        folder: everything that belongs to the runs: ``tree0/...``, records and outputs.
        temporary: the temporary folder of the runs. Its path is short wherever the copies are:
            worker processes talk through sockets in it, whose paths have at most 107 characters
            (man 7 unix); with a longer one they hang.
        trees: what is copied.
        placed: files that are put into the copies besides, by the path of the user's that they get.
        in_place: nothing is copied: the runs happen in the user's own folder, on request.
    """

    folder: Path
    trees: list[Tree]
    links: tuple[Path, ...] = ()
    in_place: bool = False
    temporary: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="af-")))
    placed: dict[Path, Path] = field(default_factory=dict)
    _stamps: dict[Path, Stamp] = field(default_factory=dict)

    def there(self, path: Path) -> Path:
        """Where ``path`` is during a run."""
        for tree in self.trees:
            if path == tree.source or tree.source in path.parents:
                return tree.copy / path.relative_to(tree.source)
        return path

    def reset(self, overlay: Mapping[Path, bytes]) -> None:
        """Make the copies as the user's folders were at the start, with ``overlay`` (path of the
        user's -> content) written over them.
        """
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir()
        if self.in_place:
            return
        for tree in self.trees:
            self._restore(tree)
        for path, content in overlay.items():
            self._cleared(path).write_bytes(content)
        for path, source in self.placed.items():
            shutil.copy2(source, self._cleared(path))

    def _cleared(self, path: Path) -> Path:
        """The place of a user's path in the copies, for a file of other content."""
        copy = self.there(path)
        if copy == path:
            raise BadInput(
                f"{path}: is outside of the folders that are copied; give a --root that holds it"
            )
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.unlink(missing_ok=True)  # a link must not lead what is written to the user's file
        self._stamps.pop(copy, None)  # is copied afresh before the next run
        return copy

    def _restore(self, tree: Tree) -> None:
        wanted: set[Path] = set()
        for source in _files(tree.source, self.links):
            copy = tree.copy / source.relative_to(tree.source)
            wanted.add(copy)
            if source in self.links or source.is_symlink():
                if not copy.is_symlink():
                    _remove(copy)
                    copy.parent.mkdir(parents=True, exist_ok=True)
                    copy.symlink_to(source if source in self.links else _target(source, tree))
                continue
            if source.is_dir():
                copy.mkdir(parents=True, exist_ok=True)
                continue
            if copy.is_symlink() or copy not in self._stamps or self._stamps[copy] != _stamp(copy):
                _remove(copy)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
                self._stamps[copy] = _stamp(copy) or (0, 0)
        for copy in [path for path in _files(tree.copy, (), everything=True) if path not in wanted]:
            _remove(copy)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.rmtree(self.temporary, ignore_errors=True)


def _target(source: Path, tree: Tree) -> str:
    """What a link of the user's leads to: a relative one that stays in the tree is kept, any other
    is made absolute.
    """
    target = os.readlink(source)
    inside = (source.parent / target).resolve()
    return target if not os.path.isabs(target) and tree.source in inside.parents else str(inside)


def _stamp(path: Path) -> Stamp | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _files(folder: Path, links: tuple[Path, ...], everything: bool = False) -> Iterator[Path]:
    """All files, links and folders below ``folder``, a folder before what it holds; what is in
    ``links`` is not entered.
    """
    with os.scandir(folder) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        path = Path(entry.path)
        if not everything and _left_out(entry, path):
            continue
        if entry.is_symlink() or entry.is_file() or entry.is_dir():  # no sockets, pipes, devices
            yield path
        if entry.is_dir(follow_symlinks=False) and path not in links:
            with contextlib.suppress(PermissionError):
                yield from _files(path, links, everything)


def _left_out(entry: os.DirEntry[str], path: Path) -> bool:
    if not entry.is_dir(follow_symlinks=False):
        return False
    return (
        entry.name in _LEFT_OUT
        or entry.name.startswith(".autofast-")
        or (path / "pyvenv.cfg").exists()
    )


def make(
    folders: Iterable[Path], links: tuple[Path, ...] = (), parent: Path | None = None
) -> Scratch:
    """Copies of ``folders`` (absolute), below ``parent`` (default: the system's temporary folder).

    Args:
        links: files and folders that are not copied but linked, because they are large and the
            scripts only read them.

    Raises ``BadInput`` where the folders are too large to copy for every run.
    """
    tops = _outermost(folders)
    for link in links:
        if not link.exists():
            raise BadInput(
                f"{link}: does not exist; --link names a file or folder of the project that the scripts only read"
            )
    for top in tops:
        _check_size(top, links)
    folder = Path(tempfile.mkdtemp(prefix="autofast-verify-", dir=parent)).resolve()
    trees = []
    for number, top in enumerate(tops):
        around = folder / f"tree{number}"
        copy = around / (top.name or "root")
        copy.mkdir(parents=True)
        if top.parent != top:
            for beside in top.parent.iterdir():
                if beside != top and beside != folder and beside.name != folder.name:
                    with contextlib.suppress(OSError):
                        (around / beside.name).symlink_to(beside)
        trees.append(Tree(top, copy))
    return Scratch(folder, trees, links)


def in_place(parent: Path | None = None) -> Scratch:
    """No copies: only a folder for records and outputs."""
    folder = Path(tempfile.mkdtemp(prefix="autofast-verify-", dir=parent)).resolve()
    return Scratch(folder, [], in_place=True)


def _outermost(folders: Iterable[Path]) -> list[Path]:
    found = sorted({folder.resolve() for folder in folders}, key=lambda folder: len(folder.parts))
    return [folder for i, folder in enumerate(found) if not any_in(found[:i], folder.parents)]


def _check_size(top: Path, links: tuple[Path, ...]) -> None:
    size = count = 0
    largest: dict[Path, tuple[float, float]] = {}
    for path in _files(top, links):
        if path.is_symlink() or path.is_dir() or path in links:
            continue
        here = path.lstat().st_size
        size, count = size + here, count + 1
        first = top / path.relative_to(top).parts[0]
        sizes, counts = largest.get(first, (0.0, 0.0))
        largest[first] = sizes + here / SIZE_LIMIT, counts + 1 / FILE_LIMIT
        if count > FILE_LIMIT or size > SIZE_LIMIT:
            heaviest = max(largest, key=lambda one: max(largest[one]))
            raise BadInput(
                f"{top}: holds more than {SIZE_LIMIT // 2**30} GB or {FILE_LIMIT:,} files, too much to copy for every run; "
                f"link what the scripts only read (--link {os.path.relpath(heaviest)}), name the project's folder with --root and start in it, "
                "or run in a folder that may be written to with --cwd DIR"
            )
