"""What ``check`` found out about scripts, kept from one run to the next.

An outcome is kept with all that was asked of the disk on the way to it (:mod:`autofast.model.disk`)
and holds as long as every answer is the same; under another name for another version of autofast,
other options, another project or another working directory, which paths are shown from. Whatever
goes wrong with the cache, the script is read as if there were none.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import time
from collections.abc import Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

from autofast import __version__
from autofast.commands.outcome import Outcome
from autofast.config import Config
from autofast.model import disk

FOLDER, OFF = "AUTOFAST_CACHE_DIR", "AUTOFAST_NO_CACHE"  # environment variables
UNUSED = 30 * 24 * 3600  # seconds after which an outcome that nobody asked for goes
VERSION = 1  # of the format


def folder() -> Path | None:
    """Where outcomes are kept: in the user's folder for caches; None where nothing is to be
    kept."""
    if os.environ.get(OFF):
        return None
    if given := os.environ.get(FOLDER):
        return Path(given)
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "autofast/Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "autofast"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "autofast"


class Cache:
    """The outcomes for one project and one configuration."""

    def __init__(self, root: Path, config: Config, folder: Path | None):
        self._folder = folder
        self._about = [VERSION, __version__, str(root.resolve()), repr(config)]
        self._answers: dict[disk.Question, str] = {}  # scripts of a project share most questions

    def find(self, entry: Path) -> Outcome | None:
        """What was found out about a script, where that still holds."""
        if self._folder is None:
            return None
        path = self._path(entry)
        try:
            known = json.loads(path.read_bytes())
            if all(self._answer(tuple(question)) == said for *question, said in known["asked"]):
                outcome = Outcome.from_data(known["outcome"])
                os.utime(path)
                return outcome
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            pass  # nobody has kept it, or not whole
        return None

    def keep(self, entry: Path, asked: Mapping[disk.Question, str], outcome: Outcome) -> None:
        """Keep an outcome. It is there at once and whole, so that others may read and write
        meanwhile."""
        if self._folder is None:
            return
        import tempfile

        known = {
            "asked": [[*question, said] for question, said in asked.items()],
            "outcome": outcome.as_data(),
        }
        try:
            first = not self._folder.is_dir()
            self._folder.mkdir(parents=True, exist_ok=True)
            if first:
                (self._folder / ".gitignore").write_text("*\n", encoding="utf-8")
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
                    json.dump(known, file, default=str)
                os.replace(name, self._path(entry))
            except BaseException:
                os.unlink(name)
                raise
            self._sweep()
        except (OSError, ValueError):
            pass  # a folder or disk that takes nothing

    def _answer(self, question: disk.Question) -> str:
        if question not in self._answers:
            self._answers[question] = disk.answer(question)
        return self._answers[question]

    def _path(self, entry: Path) -> Path:
        assert self._folder is not None
        named = _digest([self._about, self._program, os.getcwd(), str(entry), str(entry.resolve())])
        return self._folder / f"{named[:40]}.json"

    @cached_property
    def _program(self) -> str:
        """The interpreter, autofast's own files, and the folders in which packages with rules are
        installed."""
        package = Path(__file__).parents[1]
        rules = find_spec("autofast.rules")
        folders = [package, *(rules and rules.submodule_search_locations or ())]
        found = ((at, n) for f in folders for at, _, names in os.walk(f) for n in names)
        files = sorted({os.path.join(at, n) for at, n in found if n.endswith(".py")})
        installed = [p for p in sys.path if p.endswith(("site-packages", "dist-packages"))]
        return _digest([sys.version, [[str(p), *_stamp(p)] for p in (*files, *installed)]])

    def _sweep(self) -> None:
        """Drop what nobody has asked for in a month, at most once a day."""
        assert self._folder is not None
        marker, now = self._folder / "swept", time.time()
        if marker.exists() and now - marker.stat().st_mtime < UNUSED / 30:
            return
        marker.touch()
        for path in (*self._folder.glob("*.json"), *self._folder.glob("*.part")):
            if now - path.stat().st_mtime > UNUSED:
                path.unlink(missing_ok=True)


def _digest(things: list[object]) -> str:
    return hashlib.sha256(json.dumps(things).encode("utf-8", "surrogateescape")).hexdigest()


def _stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_mtime_ns, 0 if stat.S_ISDIR(status.st_mode) else status.st_size
