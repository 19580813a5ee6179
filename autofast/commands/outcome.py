"""What ``check`` finds out about one script: plain data, which can be kept
(:mod:`autofast.commands.cache`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofast.report.record import Record
from autofast.rule import Gain

if TYPE_CHECKING:
    from autofast.edit.ignores import UnusedIgnore


_DONE = ("fix", "small")


@dataclass(frozen=True)
class Unused:
    """An ``# autofast: ignore`` that one script has no use for: the file, the line, the idle names
    in it, and how it is told."""

    file: Path
    line: int
    names: tuple[str, ...]
    place: str
    kind: str

    @classmethod
    def of(cls, found: UnusedIgnore) -> Unused:
        """The same without its source."""
        place = found.source.place(found.line)
        return cls(found.source.path, found.line, found.names, place, found.kind)

    def __str__(self) -> str:
        names = f"[{', '.join(self.names)}]" if self.names else ""
        return f"{self.place}: unused `# autofast: {self.kind}{names}`"


@dataclass(frozen=True)
class Outcome:
    """Of one script.

    Attributes:
        files: relative path -> path of what was read.
        idle: it trains nothing.
        unused: of comments in these files.
    """

    files: dict[str, Path]
    records: list[Record]
    unused: list[Unused]
    warnings: list[str]
    idle: bool

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Outcome:
        """The reverse of :meth:`as_data`; raises where these are no such data."""
        return cls(
            {rel: Path(path) for rel, path in data["files"].items()},
            [_record(one) for one in data["records"]],
            [
                Unused(**{**one, "file": Path(one["file"]), "names": tuple(one["names"])})
                for one in data["unused"]
            ],
            list(data["warnings"]),
            bool(data["idle"]),
        )


def _record(data: dict[str, Any]) -> Record:
    gain, cell = data["gain"], data["cell"]
    return Record(
        **{
            **data,
            "file": Path(data["file"]),
            "gain": gain and Gain(**gain),
            "cell": cell and (int(cell[0]), int(cell[1])),
        }
    )


def agreed_records(outcomes: Mapping[str, Outcome]) -> Iterator[Record]:
    """The records of all scripts, which are given by their names. What one of them must keep as it
    is is no fix for the others."""
    against: dict[object, tuple[str, str]] = {}
    for name, outcome in outcomes.items():
        done = {record.place for record in outcome.records if record.status in _DONE}
        for record in outcome.records:
            if record.status not in _DONE and record.place not in done:
                against.setdefault(record.place, (name, record.reason))
    for outcome in outcomes.values():
        for record in outcome.records:
            if record.status in _DONE and (other := against.get(record.place)):
                why = f"{other[0]} runs this, too, where it is refused: {other[1]}"
                record = replace(record, status="refused", reason=why, gain=None)
            yield record


def unused_by_all(outcomes: Iterable[Outcome]) -> Iterator[Unused]:
    """A comment in a file that several scripts share is unused where none of them needs it."""
    found: dict[tuple[Path, int], list[Unused]] = {}
    readers: dict[Path, int] = {}
    for outcome in outcomes:
        for path in outcome.files.values():
            readers[path] = readers.get(path, 0) + 1
        for one in outcome.unused:
            found.setdefault((one.file, one.line), []).append(one)
    for (path, _), several in found.items():
        names = set(several[0].names).intersection(*(one.names for one in several))
        if len(several) == readers[path] and (names or not several[0].names):
            yield replace(several[0], names=tuple(sorted(names)))
