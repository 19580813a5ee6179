"""Writing files so that nothing is ever lost: everything is written beside its target first, then
renamed over it."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from autofast.model.disk import resolved_path
from autofast.model.source import BadInput


@dataclass(frozen=True)
class Output:
    """``data`` is to stand in ``path``.

    Attributes:
        like: the file whose permissions a new file gets.
        was: the contents that an existing target must still have (it is being edited); None for a
            target that is new.
    """

    path: Path
    data: bytes
    like: Path | None = None
    was: bytes | None = None


def write_all(outputs: Sequence[Output], *, force: bool = False, parents: bool = False) -> None:
    """Write all of ``outputs`` or none; raises :class:`BadInput` for a target that is not written.

    An existing file that is not being edited is only replaced with ``force``; missing folders are
    only made with ``parents``.
    """
    staged: list[tuple[Path, Path]] = []
    backups: dict[Path, Path] = {}
    done: list[Path] = []
    lost: list[Path] = []
    path: Path | None = None
    try:
        targets = [(_checked(output, force, parents), output) for output in outputs]
        for path, output in targets:
            staged.append((_stage(path, output), path))
        for _, path in staged if len(staged) > 1 else ():
            if path.exists():
                backups[path] = _backup(path)
        with _held():
            try:
                for temporary, path in staged:
                    os.replace(temporary, path)
                    done.append(path)
            except OSError:
                lost = _undone(done, backups)
                raise
    except OSError as error:
        place = error.filename2 or path or error.filename or "the target"
        what = "nothing was changed"
        if lost:
            kept = ", ".join(str(backups.pop(target)) for target in lost if target in backups)
            what = f"what stood in {', '.join(map(str, lost))} is in {kept or 'no file'}"
        raise BadInput(f"{place}: cannot be written ({error.strerror}); {what}") from None
    finally:
        for leftover in (*(temporary for temporary, _ in staged), *backups.values()):
            with suppress(OSError):
                leftover.unlink(missing_ok=True)


def _undone(done: Sequence[Path], backups: Mapping[Path, Path]) -> list[Path]:
    """Take back what was put in place; those for which that fails."""
    lost = []
    for target in reversed(done):
        try:
            os.replace(backups[target], target) if target in backups else target.unlink()
        except OSError:
            lost.append(target)
    return lost


@contextmanager
def _held() -> Iterator[None]:
    """Let Ctrl-C and a friendly kill wait: between two renames there would be half a change."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    friendly = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, friendly)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _checked(output: Output, force: bool, parents: bool) -> Path:
    """The real place to write to (a link is followed, not replaced)."""
    path = output.path
    if path.is_dir():
        raise BadInput(f"{path}: is a directory; give a file, or use --output-dir")
    target = resolved_path(path)
    if target.is_symlink():
        raise BadInput(f"{path}: a link to itself; mend the link, or give another name")
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: is not a regular file; use `-` for standard output")
    if target.exists():
        if output.was is None and not force:
            raise BadInput(f"{path}: exists; replace it with --force, or give another name")
        if not target.stat().st_mode & (
            stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
        ) or not os.access(target, os.W_OK):
            raise BadInput(
                f"{path}: is read-only; make it writable, or write elsewhere with -o FILE"
            )
        if output.was is not None and target.read_bytes() != output.was:
            raise BadInput(f"{path}: was changed by someone else meanwhile; run the command again")
    elif parents:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInput(
                f"{target.parent}: cannot be made ({error.strerror}); give another folder"
            ) from None
    elif not target.parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.parent}; make it first")
    return target


def _stage(target: Path, output: Output) -> Path:
    """A temporary file with the contents and permissions of the output, in the folder of its
    target."""
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name}.", suffix=".autofast", dir=target.parent
    )
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(output.data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(_mode(target, output.like))
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _mode(target: Path, like: Path | None) -> int:
    for model in (target, like):
        if model is not None and model.is_file():
            return stat.S_IMODE(model.stat().st_mode) | stat.S_IWUSR
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _backup(target: Path) -> Path:
    """A copy of what stands at ``target``, until all outputs are in place."""
    handle, name = tempfile.mkstemp(
        prefix=f".{target.name}.", suffix=".autofast-old", dir=target.parent
    )
    os.close(handle)
    backup = Path(name)
    try:
        backup.write_bytes(target.read_bytes())
        backup.chmod(stat.S_IMODE(target.stat().st_mode))
    except BaseException:
        backup.unlink(missing_ok=True)
        raise
    return backup
