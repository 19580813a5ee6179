"""Reads a file: a Python script or a Jupyter notebook."""

from __future__ import annotations

import os
from pathlib import Path

from autofast.model import disk
from autofast.model.notebook import Notebook
from autofast.model.source import BadInput, Source

NO_FILE = "is no regular file; give a script, or `-` for standard input"


def read_source(path: Path, root: Path, before: Source | None = None) -> Source:
    """Read ``path``, which may still be what it was ``before``; raises :class:`BadInput` with one
    clear line where it is no readable Python 3.
    """
    rel = path.as_posix()
    if os.path.islink(path) and not os.path.exists(path):
        raise BadInput(f"{rel}: {broken_link(path)}; mend the link, or give another script")
    if os.path.isdir(path):
        raise BadInput(f"{rel}: is a directory; give the training script in it")
    if os.path.exists(path) and not disk.is_file(path):
        raise BadInput(f"{rel}: {NO_FILE}")
    try:
        raw = disk.read(path)
    except FileNotFoundError:
        raise BadInput(f"{rel}: no such file; give the training script") from None
    except OSError as error:
        raise BadInput(f"{rel}: cannot be read ({error.strerror})") from None
    return open_source(path.resolve(), _relative(path, root), raw, before)


def broken_link(path: Path) -> str:
    """What is wrong with a link that leads nowhere."""
    try:
        path.stat()
    except FileNotFoundError:
        pass
    except OSError:
        return "a link to itself"
    return f"a link to {os.readlink(path)}, which does not exist"


def open_source(path: Path, rel: str, raw: bytes, before: Source | None = None) -> Source:
    """The source of a Python file or a Jupyter notebook; what has no name (standard input) is known
    by its first character.
    """
    if before is not None and (before.rel, before.raw) == (rel, raw):
        return before
    if path.suffix == ".ipynb" or (path.name == "-" and raw.lstrip()[:1] == b"{"):
        return Notebook(path, rel, raw)
    return Source(path, rel, raw)


def _relative(path: Path, root: Path) -> str:
    try:
        return path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        return path.as_posix()
