"""What an editor asks: what is found in the files that are open, saved or not, and what a fix would
change.

Nothing of the protocol is known here. Everything runs in one thread, one question after the other.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autofast.commands import planning, rewriting
from autofast.commands.discover import Entries, scripts
from autofast.commands.watching import stamp_of
from autofast.config import Config, find_root, load
from autofast.depth import deeply
from autofast.edit.amend import Key, key_of
from autofast.faults import PostConditionError, internal
from autofast.model.disk import NEVER
from autofast.model.source import BadInput, shown_path
from autofast.registry import all_rules
from autofast.report.diff import FileDiff
from autofast.report.record import Record
from autofast.rule import Finding

Place = tuple[object, ...]


@dataclass(frozen=True)
class Analysis:
    """What is known of one script.

    Attributes:
        records: all findings, in all files of the script.
        error: why there are none: one line.
        stamps: the contents of the files that were read, by real path.
    """

    entry: Path
    root: Path
    config: Config
    records: tuple[Record, ...] = ()
    error: str = ""
    stamps: Mapping[Path, object] = field(default_factory=dict)

    def of(self, file: Path) -> list[Record]:
        """What was found in ``file``, a real path."""
        return [record for record in self.records if record.file == file]


@dataclass(frozen=True)
class Wish:
    """What is to be changed: the findings at ``place``, all of ``rule``, or else all that stand in
    ``file`` alone."""

    file: Path
    place: Place = ()
    rule: str = ""


@dataclass(frozen=True)
class Change:
    """What becomes of files, and why nothing does."""

    diffs: tuple[FileDiff, ...] = ()
    why: str = ""


class Session:
    """The open files and what is known of their scripts. Files are named by their real paths."""

    def __init__(self) -> None:
        self.texts: dict[Path, bytes] = {}
        self._known: dict[Path, Analysis] = {}  # by entry
        self._entries: dict[Path, Entries] = {}  # by root

    def forget(self) -> None:
        """Files may have come, gone or changed on the disk."""
        self._known.clear()
        self._entries.clear()

    def put(self, file: Path, text: str) -> None:
        self.texts[file] = _encoded(text)
        if not any(file in known.stamps for known in self._known.values()):
            self._known.clear()  # it may have been left out of a script as it could not be read

    def close(self, file: Path) -> None:
        """The file is what it is on the disk."""
        self.texts.pop(file, None)

    def analysis(self, file: Path) -> Analysis | None:
        """What is known of the script that ``file`` is a part of; None where it is none of our
        business. Raises nothing."""
        if file.suffix != ".py" or NEVER & set(file.parts):
            return None
        root = find_root(file)
        try:
            config = load(root)
            if file.exists() and not list(scripts([file], root, config.exclude, force=True)):
                return None
            entry = self._entry(file, root)
        except BadInput as error:
            return Analysis(file, root, Config(), error=str(error))
        except Exception as error:
            return Analysis(file, root, Config(), error=f"{shown_path(file)}: {internal(error)}")
        known = self._known.get(entry)
        if known is None or known.config != config or not self._holds(known):
            known = self._known[entry] = self._look(entry, root, config)
        return known

    def change(self, wish: Wish) -> Change:
        """What ``wish`` comes to, with the texts as they are now. Raises nothing."""
        known = self.analysis(wish.file)
        if known is None or known.error:
            return Change(why=known.error if known else "this file is left out")
        try:
            return self._change(known, wish)
        except (BadInput, PostConditionError) as error:
            return Change(why=f"left as it is: {error}")
        except Exception as error:
            return Change(why=f"{shown_path(wish.file)}: {internal(error)}")

    # -------------------------------------------------------------------------------------- reading
    def _entry(self, file: Path, root: Path) -> Path:
        if root not in self._entries:
            self._entries[root] = Entries(root, self.texts)
        return self._entries[root].of(file).resolve()

    @deeply
    def _look(self, entry: Path, root: Path, config: Config) -> Analysis:
        stamps = {entry: self._stamp(entry)}
        try:
            script = planning.read(entry, root, None, config, dict(self.texts))
            stamps |= {source.path: self._stamp(source.path) for source in script.sources}
            records = tuple(planning.findings(planning.plan(script, config)))
        except BadInput as error:
            return Analysis(entry, root, config, error=str(error), stamps=stamps)
        except Exception as error:
            why = f"{shown_path(entry)}: {internal(error)}"
            return Analysis(entry, root, config, error=why, stamps=stamps)
        return Analysis(entry, root, config, records, stamps=stamps)

    def _holds(self, known: Analysis) -> bool:
        return all(self._stamp(file) == stamp for file, stamp in known.stamps.items())

    def _stamp(self, file: Path) -> object:
        """Two equal ones mean the same contents."""
        return self.texts[file] if file in self.texts else stamp_of(file)

    # ------------------------------------------------------------------------------------- changing
    def _change(self, known: Analysis, wish: Wish) -> Change:
        within: Callable[[Path], bool] | None = None
        unwanted: Callable[[Iterable[Finding]], list[Key]] | None = None
        if wish.place or wish.rule:
            unwanted = _all_but(wish)
        else:
            within = wish.file.__eq__
        done = rewriting.rewrite(
            known.entry,
            known.root,
            known.config,
            overlay=dict(self.texts),
            within=within,
            unwanted=unwanted,
        )
        if diffs := tuple(done.diffs()):
            return Change(diffs)
        return Change(why=_reason(done.records, wish))


def _all_but(wish: Wish) -> Callable[[Iterable[Finding]], list[Key]]:
    """Says of fixes which are not wanted: all but those of ``wish`` and those that they need."""
    effects = {name: rule.effect for name, rule in all_rules().items()}

    def unwanted(fixes: Iterable[Finding]) -> list[Key]:
        fixes = list(fixes)
        kept = [f for f in fixes if _is_meant(Record.of(f, effects[f.rule]), wish)]
        todo = list(kept)
        while todo:
            needs = todo.pop().needs
            needed = [f for f in fixes if (f.rule, f.key) in needs and f not in kept]
            kept += needed
            todo += needed
        return [key_of(f) for f in fixes if f not in kept]

    return unwanted


def _is_meant(record: Record, wish: Wish) -> bool:
    return record.place == wish.place if wish.place else record.rule == wish.rule


def _reason(records: Iterable[Record], wish: Wish) -> str:
    meant = (r for r in records if _is_meant(r, wish)) if wish.place or wish.rule else ()
    reasons = dict.fromkeys(r.reason for r in meant if r.reason)
    return f"left as it is: {'; '.join(reasons)}" if reasons else "nothing to change"


def _encoded(text: str) -> bytes:
    """The bytes that a file with this text would have, whose first lines may name an encoding."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(raw).readline)
        return text.encode(encoding)
    except (SyntaxError, LookupError, UnicodeError):
        return raw
