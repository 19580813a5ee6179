"""What reading a script asks of the disk, in one place, so that the questions can be noted: what
was found out about a script (:mod:`autofast.commands.cache`) holds for as long as the answers to
all of them stay the same."""

from __future__ import annotations

import fnmatch
import glob
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from autofast.model.several import wordset

# Folders that hold other people's code or no code at all.
NEVER = wordset("__pycache__ __pypackages__ build dist env node_modules site-packages venv")
MOST = 5_000  # files of a project that are looked at

Question = tuple[str, ...]  # its kind, a path, and perhaps a pattern
_NOTED: ContextVar[dict[Question, str] | None] = ContextVar("noted", default=None)


@contextmanager
def noting() -> Iterator[dict[Question, str]]:
    """All questions of what runs within, with their answers as :func:`answer` gives them."""
    noted: dict[Question, str] = {}
    token = _NOTED.set(noted)
    try:
        yield noted
    finally:
        _NOTED.reset(token)


def answer(question: Question) -> str:
    """The answer of now, as a word that is another one for every other answer."""
    kind, path, *pattern = question
    noted: dict[Question, str] = {}
    token = _NOTED.set(noted)  # thousands of times, so without `noting`
    try:
        QUESTIONS[kind](Path(path), *pattern)
    except OSError:
        pass  # that is an answer, too
    finally:
        _NOTED.reset(token)
    return noted.get(question, "")


def read(path: Path | str) -> bytes:
    """The bytes of a file; raises :class:`OSError`."""
    try:
        with open(path, "rb") as file:
            raw = file.read()
    except OSError as error:
        _note("read", path, f"{type(error).__name__}")
        raise
    _note("read", path, hashlib.sha256(raw).hexdigest())
    return raw


def text(path: Path, encoding: str = "utf-8", errors: str = "replace") -> str:
    """The text of a file, with ``\\n`` line ends; raises :class:`OSError` and
    :class:`ValueError`.
    """
    return read(path).decode(encoding, errors).replace("\r\n", "\n").replace("\r", "\n")


def is_small(path: Path | str, most: int | str) -> bool:
    """Whether a file has at most so many bytes; raises :class:`OSError`."""
    return _note("small", path, os.stat(path).st_size <= int(most), str(most))


def is_file(path: Path | str) -> bool:
    return _note("file", path, os.path.isfile(path))


def is_folder(path: Path | str) -> bool:
    return _note("folder", path, os.path.isdir(path))


def matching(folder: Path, pattern: str) -> list[Path]:
    """The files in a folder that fit a pattern, in order: no pipes, which would have us wait."""
    *above, last = pattern.split("/")
    if glob.has_magic("/".join(above)):
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
    else:  # nearly always, and a tenth of the time
        here = folder.joinpath(*above)
        try:
            names = fnmatch.filter(os.listdir(here), last)
        except OSError:
            names = []
        found = sorted(here / name for name in names if os.path.isfile(here / name))
    _note("matching", folder, _of_all(found), pattern)
    return found


def python_below(folder: Path) -> list[Path]:
    """The scripts, modules and notebooks of a project; not all of them where they are too many."""
    found: list[Path] = []
    for here, _, names in _folders(folder):
        ours = (Path(here) / n for n in sorted(names) if n.endswith((".py", ".ipynb")))
        found += [path for path in ours if path.is_file()]  # no pipes, no links to nowhere
        if len(found) > MOST:
            break
    _note("below", folder, _of_all(found))
    return found


def _folders(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """The folders of a project, each with its folders and files, without other people's code."""
    for here, below, names in os.walk(folder):
        below[:] = sorted(d for d in below if d not in NEVER and not d.startswith("."))
        yield here, below, names


def links_below(folder: Path) -> list[Path]:
    """The folders of a project that are links, by whose names its modules are imported, too."""
    found = (Path(here, name) for here, below, _ in _folders(folder) for name in below)
    links = [path for path in found if path.is_symlink()]
    _note("links", folder, _of_all(links))
    return links


def _of_all(paths: Iterable[Path]) -> str:
    return hashlib.sha256("\0".join(map(str, paths)).encode("utf-8", "surrogateescape")).hexdigest()


def _note(kind: str, path: Path | str, found: str | bool, *pattern: str) -> bool:
    noted = _NOTED.get()
    if noted is not None:
        noted.setdefault((kind, str(path), *pattern), str(found))
    return found is True


QUESTIONS: dict[str, Callable[..., Any]] = {
    "read": read, "small": is_small, "file": is_file, "folder": is_folder,
    "matching": matching, "below": python_below, "links": links_below,
}  # fmt: skip


def resolved_path(path: Path) -> Path:
    """The path without links; of a link to itself as far as it goes (``Path.resolve`` raises there
    before Python 3.13).
    """
    return Path(os.path.realpath(path))
