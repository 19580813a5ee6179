"""``check``: the findings of many scripts, each place once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from autofast.commands.cache import Cache, folder
from autofast.commands.discover import NOTHING, Entries, excluded, scripts, untrained_hint
from autofast.commands.informing import stale_facts
from autofast.commands.outcome import Outcome, Unused, agreed_records, unused_by_all
from autofast.commands.parallel import in_processes
from autofast.config import Config
from autofast.depth import deeply
from autofast.faults import PostConditionError, internal
from autofast.heap import growing
from autofast.model import disk
from autofast.model.several import one
from autofast.model.source import BadInput, shown_path
from autofast.report.record import Record, merged
from autofast.rule import Effect


@dataclass(frozen=True)
class Request:
    """What is looked at: ``paths`` of files and folders, and the texts of ``stdin``. ``imported``:
    the files that are named are the scripts that are started, as for ``rewrite``, and findings in
    what they import are wanted, too. ``cache``: what was found out before may be taken where it
    still holds."""

    paths: Sequence[Path]
    root: Path
    config: Config
    stdin: Mapping[Path, bytes | None] = field(default_factory=dict)
    imported: bool = False
    cache: bool = True

    def within(self, file: Path) -> bool:
        """Whether what is found in ``file`` (a real path) is wanted."""
        return self.imported or not self._named.isdisjoint((file, *file.parents))

    @cached_property
    def _named(self) -> frozenset[Path]:
        return frozenset(path.resolve() for path in (*self.paths, *self.stdin))


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
    """The scripts to read, and what is to be said about them. For a file that is named, one script
    that is started to run it is enough; for what is found in folders, all that have a part in it.
    """
    config, graph = request.config, Entries(request.root)
    found: dict[Path, Path] = {}
    users: dict[Path, list[Path]] = {}
    tests: list[Path] = []
    listed = scripts(request.paths, request.root, config.exclude, config.force_exclude, tests)
    for file in listed:
        named = file in request.paths
        entry = file if request.imported and named else graph.of(file)
        others = [] if named else [path for path in graph.beside(file) if request.within(path)]
        left_out = excluded(others, request.root, config.exclude)
        users[file] = [entry, *(path for path in others if path not in left_out)]
        for user in users[file]:
            found.setdefault(user.resolve(), user)
    notes = []
    for file, parts in users.items():
        if parts[0] != file:
            rest = [path for path in parts[1:] if path != parts[0].resolve()]
            more = shown_path(rest[0]) if len(rest) == 1 else f"{len(rest)} more"
            also = f" and {more}" if rest else ""
            notes.append(
                f"{shown_path(file.resolve())}: read as a part of {shown_path(parts[0])}{also}"
            )
    if tests:
        some = shown_path(tests[0].resolve()) + (f" and {len(tests) - 1} more" if tests[1:] else "")
        notes.append(f"tests are left out unless they are named: {some}")
    return [*((path, None) for path in found.values()), *request.stdin.items()], notes


@deeply
def check(request: Request, tell: Callable[[int, int, str], None] | None = None) -> Checked:
    """Look at every script that is named or found, many in several processes. One that cannot be
    read does not hide the others. ``tell`` is called with how many are done, how many there are,
    and the name of the next."""
    result = Checked()
    todo, result.notes = entries(request)
    cache = Cache(request.root, request.config, folder() if request.cache else None)
    known = {at: cache.find(entry) for at, (entry, raw) in enumerate(todo) if raw is None}
    new = [at for at in range(len(todo)) if known.get(at) is None]

    def look(at: int) -> tuple[Outcome | None, list[str]]:
        found: list[Outcome] = []
        errors: list[str] = []
        guarded(todo[at][0], lambda: found.append(_look(request, cache, *todo[at])), errors)
        return (found[0] if found else None), errors

    def told(at: int) -> None:
        if tell is not None:
            name = shown_path(todo[new[at]][0].resolve())
            tell(len(todo) - len(new) + at, len(todo), name)

    for at, (outcome, errors) in zip(new, in_processes(look, new, told), strict=True):
        known[at] = outcome
        result.errors += errors
    outcomes = {
        shown_path(entry.resolve()): outcome
        for at, (entry, _) in enumerate(todo)
        if (outcome := known[at]) is not None
    }
    found = outcomes.values()
    result.warnings = [warning for outcome in found for warning in outcome.warnings]
    result.warnings += [
        str(unused) for unused in unused_by_all(found) if request.within(unused.file)
    ]
    nothing = [name for name, outcome in outcomes.items() if outcome.idle]
    if nothing and len(nothing) == len(todo) and not result.errors:
        where = one(nothing, f"{len(nothing)} files")
        said = {untrained_hint(path) for path, _ in todo}
        result.notes.append(f"{where}: {one(said, NOTHING)}")
    elif not todo:
        names = [str(path) for path in request.paths]
        where = ", ".join(names) if len(names) < 4 else f"{len(names)} paths"
        paths, config = request.paths, request.config
        if config.force_exclude and excluded(paths, request.root, config.exclude) == set(paths):
            result.notes.append(f"left out by `exclude`: {where}")
        else:
            result.notes.append(f"no training script found in {where}")
    result.errors = list(dict.fromkeys(result.errors))  # scripts share files
    result.warnings = list(dict.fromkeys(result.warnings))
    result.files = sorted({rel for outcome in found for rel in outcome.files})
    for record in merged(agreed_records(outcomes)):
        (result.records if request.within(record.file) else result.elsewhere).append(record)
    return result


@growing()
def _look(request: Request, cache: Cache, entry: Path, raw: bytes | None) -> Outcome:
    """Read one script, and keep what was found out where nothing but files had a part in it."""
    # With the reader and all rules, which a known outcome does not need.
    from autofast.commands import planning
    from autofast.registry import has_other_rules

    with disk.noting() as asked:
        script = planning.read(entry, request.root, raw, request.config)
        plan = planning.plan(script, request.config)
        records = planning.findings(plan)
        warnings = [left.warning for left in plan.left_out]
        warnings += stale_facts(script, request.config)
        # Whoever goes as far as that wants to know what there is.
        if request.config.effect is Effect.RECIPE and not request.config.select:
            requested, more = planning.on_request(script, plan, request.config)
            records.extend(requested)
            warnings += more
    outcome = Outcome(
        files={source.rel: source.path for source in script.sources},
        records=records,
        unused=[Unused.of(unused) for unused in plan.unused_ignores],
        warnings=warnings,
        idle=planning.trains_nothing(script, plan),
    )
    if raw is None and not warnings and not has_other_rules():
        cache.keep(entry, asked, outcome)
    return outcome


def guarded(entry: Path, work: Callable[[], None], errors: list[str]) -> None:
    """Do ``work`` for one script; what goes wrong with it is one line of ``errors`` and hides
    nothing of others."""
    try:
        work()
    except BadInput as error:
        errors.append(str(error))
    except PostConditionError as error:
        errors.append(f"{shown_path(entry.resolve())}: left as it is: {error}")
    except Exception as error:
        errors.append(f"{shown_path(entry.resolve())}: {internal(error)}")
