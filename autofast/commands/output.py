"""Where a rewrite goes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autofast.commands.committing import refuse_notebooks
from autofast.commands.files import Output, write_all
from autofast.commands.rewriting import Rewritten
from autofast.model.disk import resolved_path
from autofast.model.source import BadInput
from autofast.report import diff
from autofast.report.style import Style

STDOUT = "-"
Mode = Literal["diff", "file", "folder", "in-place", "patch", "patches", "commits"]


@dataclass(frozen=True)
class Destination:
    """What the user wants to have: ``path`` belongs to ``file``, ``folder``, ``patch`` and
    ``patches``; ``keep``: what is rewritten in place, as it was.
    """

    mode: Mode = "diff"
    path: str = STDOUT
    force: bool = False
    keep: bool = True

    @property
    def alone(self) -> bool:
        """Only the entry is written, so only the entry may change."""
        return self.mode == "file"


@dataclass(frozen=True)
class Delivery:
    """``product`` is for standard output; ``written`` are the files; ``kept`` is the folder with
    the script as it was.

    ``commits`` were made on top of the commit ``start``.
    """

    product: bytes = b""
    written: Sequence[Path] = ()
    kept: Path | None = None
    commits: Sequence[str] = ()
    start: str = ""


def deliver(result: Rewritten, to: Destination, style: Style) -> Delivery:
    """Write what is to be written; ``style`` is that of standard output. Raises ``BadInput``, and
    then nothing was written.
    """
    if to.mode == "diff":
        return Delivery(diff.shown(result.diffs(), style).encode("utf-8", "backslashreplace"))
    if to.mode == "file":
        return _file(result, to)
    if to.mode == "folder":
        return _folder(result, to)
    if to.mode == "patch":
        return _patch(result, to)
    if to.mode == "patches":
        from autofast.commands.committing import write_patches

        return Delivery(written=write_patches(result, Path(to.path), force=to.force))
    if to.mode == "commits":
        from autofast.commands.committing import commit

        made, start = commit(result)
        return Delivery(commits=made, start=start)
    kept = _kept(result) if result.texts and to.keep else None
    write_all(
        [Output(source.path, result.bytes_of(source), was=source.raw) for source in result.texts]
    )
    return Delivery(written=[source.path for source in result.texts], kept=kept)


def _kept(result: Rewritten) -> Path | None:
    """A temporary folder with all files of the script as they are now, to be verified against; None
    where none can be made.
    """
    with suppress(OSError, BadInput):
        folder = Path(tempfile.mkdtemp(prefix="autofast-before-"))
        sources = result.script.sources
        if all(result.root.resolve() in source.path.parents for source in sources):
            outputs = [Output(folder / s.rel, s.raw, like=s.path) for s in sources]
            write_all(outputs, parents=True)
            return folder
        folder.rmdir()
    return None


def _file(result: Rewritten, to: Destination) -> Delivery:
    entry = result.script.entry
    data = result.bytes_of(entry)
    if to.path == STDOUT:
        return Delivery(data)
    path = Path(to.path)
    if resolved_path(path) == entry.path:
        raise BadInput(f"{path}: is the script itself; rewrite it with --in-place")
    write_all([Output(path, data, like=entry.path)], force=to.force)
    return Delivery(written=[path])


def _folder(result: Rewritten, to: Destination) -> Delivery:
    """All files of the script, changed or not, so that what is in the folder runs together."""
    folder = Path(to.path)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder; give another name")
    outputs = [
        Output(folder / source.rel, result.bytes_of(source), like=source.path)
        for source in result.script.sources
    ]
    originals = {source.path for source in result.script.sources}
    for output in outputs:
        if resolved_path(output.path) in originals:
            raise BadInput(f"{output.path}: is the script itself; rewrite it with --in-place")
    write_all(outputs, force=to.force, parents=True)
    return Delivery(written=[output.path for output in outputs])


def _patch(result: Rewritten, to: Destination) -> Delivery:
    """The changes for ``git apply``: no file where there are none, as git calls an empty patch
    corrupt.
    """
    refuse_notebooks(result)
    data = diff.patch(result.diffs())
    if to.path == STDOUT:
        return Delivery(data)
    path = Path(to.path)
    if any(resolved_path(path) == source.path for source in result.script.sources):
        raise BadInput(f"{path}: is a file of the script; name another one for the patch")
    if not data:
        return Delivery()
    write_all([Output(path, data)], force=to.force)
    return Delivery(written=[path])
