"""``check --watch``: looks again whenever a file has changed that the last look depended on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from autofast.commands.checking import Checked, Request

PAUSE = 0.4  # seconds between two looks at the times of files
Stamps = dict[Path, object]


def pause() -> None:
    """Wait a moment."""
    time.sleep(PAUSE)


def watched(request: Request, result: Checked | None) -> list[Path]:
    """What a look depends on: the files that were read, the paths that were named, the folders of
    all of them, where files may appear, and the configuration."""
    files = {request.root / rel for rel in (result.files if result else ())}
    files.update(path.resolve() for path in request.paths)
    folders = {path.parent for path in files} | {path for path in files if path.is_dir()}
    return sorted(files | folders | {request.root / "pyproject.toml"})


def stamps(paths: Iterable[Path]) -> Stamps:
    """Two equal ones mean that nothing has changed."""
    return {path: stamp_of(path) for path in paths}


def stamp_of(path: Path) -> object:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def watch(look: Callable[[], list[Path]]) -> None:
    """Call ``look``, which says what it depended on, and again after each change, until the user
    ends it."""
    before: Stamps = {}
    try:
        while True:
            early = stamps(before)  # what changes while it is read counts as a change
            paths = look()
            before = {**stamps(paths), **{p: early[p] for p in paths if p in early}}
            while stamps(paths) == before:
                pause()
    except KeyboardInterrupt:
        return
