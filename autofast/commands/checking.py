"""``check``: the findings of many scripts, each place once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autofast.commands import rewriting
from autofast.commands.discover import scripts
from autofast.commands.entries import Entries
from autofast.config import Config
from autofast.depth import deeply
from autofast.edit.ignores import UnusedIgnore
from autofast.edit.postcheck import PostConditionError
from autofast.faults import internal
from autofast.model.script import Script
from autofast.model.source import BadInput, shown_path
from autofast.report.record import Record, merged
from autofast.rule import Effect


@dataclass(frozen=True)
class Request:
    """What is looked at: ``paths`` of files and folders, and the texts of ``stdin``. ``imported``: the files that are named
    are the scripts that are started, as for ``rewrite``, and findings in what they import are wanted, too."""

    paths: Sequence[Path]
    root: Path
    config: Config
    stdin: Mapping[Path, bytes | None] = field(default_factory=dict)
    imported: bool = False

    def within(self, file: Path) -> bool:
        """Whether what is found in ``file`` (a real path) is wanted."""
        named = [path.resolve() for path in (*self.paths, *self.stdin)]
        return self.imported or any(file == path or path in file.parents for path in named)


@dataclass
class Checked:
    """What was found in ``files`` (relative to the root).

    Attributes:
        errors, warnings, notes: lines for standard error.
        elsewhere: what was found in files that nobody named, which is not in ``records``.
    """

    files: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    elsewhere: list[Record] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def found(self) -> bool:
        """Whether there is anything to do."""
        return any(record.status in ("fix", "advice") for record in self.records)


Entry = tuple[Path, "bytes | None"]


def entries(request: Request) -> tuple[list[Entry], list[str]]:
    """The scripts to read, and what is to be said about them."""
    config, graph = request.config, Entries(request.root)
    found: dict[Path, Path] = {}
    notes: list[str] = []
    for file in scripts(request.paths, request.root, config.exclude, config.force_exclude):
        entry = file if request.imported and file in request.paths else graph.of(file)
        found[entry.resolve()] = entry
        if entry != file:
            notes.append(f"{shown_path(file.resolve())}: read as a part of {shown_path(entry)}")
    return [*((path, None) for path in found.values()), *request.stdin.items()], notes


@deeply
def check(request: Request) -> Checked:
    """Look at every script that is named or found. One that cannot be read does not hide the others."""
    result = Checked()
    todo, result.notes = entries(request)
    records: list[Record] = []
    files: set[str] = set()
    idle: list[str] = []
    ignores = _UnusedIgnores()

    def look(entry: Path, raw: bytes | None) -> None:
        script = rewriting.read(entry, request.root, raw, request.config)
        files.update(source.rel for source in script.sources)
        plan = rewriting.plan(script, request.config)
        if rewriting.trains_nothing(script, plan):
            idle.append(shown_path(script.entry.path))
        records.extend(rewriting.findings(plan))
        ignores.seen(script, plan.unused_ignores)
        result.warnings += [left.warning for left in plan.left_out]
        # Whoever goes as far as that wants to know what there is.
        if request.config.effect is Effect.RECIPE and not request.config.select:
            requested, more = rewriting.on_request(script, plan, request.config)
            records.extend(requested)
            result.warnings += more

    for entry, raw in todo:
        guarded(entry, lambda entry=entry, raw=raw: look(entry, raw), result.errors)  # type: ignore[misc]
    result.warnings += [
        str(unused) for unused in ignores.of_all() if request.within(unused.source.path)
    ]
    if idle and len(idle) == len(todo) and not result.errors:
        result.notes.append(_idle(idle))
    elif not todo:
        names = [str(path) for path in request.paths]
        where = ", ".join(names) if len(names) < 4 else f"{len(names)} paths"
        result.notes.append(f"no training script found in {where}")
    result.errors = list(dict.fromkeys(result.errors))  # scripts share files
    result.warnings = list(dict.fromkeys(result.warnings))
    result.files = sorted(files)
    for record in merged(records):
        (result.records if request.within(record.file) else result.elsewhere).append(record)
    return result


def guarded(entry: Path, work: Callable[[], None], errors: list[str]) -> None:
    """Do ``work`` for one script; what goes wrong with it is one line of ``errors`` and hides nothing of others."""
    try:
        work()
    except BadInput as error:
        errors.append(str(error))
    except PostConditionError as error:
        errors.append(f"{shown_path(entry.resolve())}: left as it is: {error}")
    except Exception as error:
        errors.append(f"{shown_path(entry.resolve())}: {internal(error)}")


def _idle(files: list[str]) -> str:
    where = files[0] if len(files) == 1 else f"{len(files)} files"
    return f"{where}: no training loop found; give the script that trains"


class _UnusedIgnores:
    """A comment in a file that several scripts share is unused where none of them needs it."""

    def __init__(self) -> None:
        self._all: dict[tuple[Path, int], list[UnusedIgnore]] = {}
        self._readers: dict[Path, int] = {}

    def seen(self, script: Script, unused: Iterable[UnusedIgnore]) -> None:
        """What one script has no use for."""
        for source in script.sources:
            self._readers[source.path] = self._readers.get(source.path, 0) + 1
        for one in unused:
            self._all.setdefault((one.source.path, one.line), []).append(one)

    def of_all(self) -> Iterable[UnusedIgnore]:
        """What no script has a use for."""
        for (path, _), found in self._all.items():
            names = set(found[0].names).intersection(*(one.names for one in found))
            if len(found) == self._readers[path] and (names or not found[0].names):
                yield UnusedIgnore(found[0].source, found[0].line, tuple(sorted(names)))
