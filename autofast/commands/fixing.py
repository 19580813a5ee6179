"""``check --fix`` and ``--diff``: what all the scripts together become. Written are all files or
none.

What each finding of a script would change, for reports that carry that along.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autofast.commands.checking import Request, entries, guarded
from autofast.commands.exclusions import without_comments
from autofast.commands.files import Output, write_all
from autofast.commands.outcome import Outcome, Unused, unused_by_all
from autofast.commands.rewriting import Rewritten, rewrite
from autofast.commands.shared_files import Agreement
from autofast.depth import deeply
from autofast.edit.attribution import meets
from autofast.edit.hunks import changes, lines_of
from autofast.edit.plan import Plan
from autofast.model.several import grouped
from autofast.model.source import Source, shown_path
from autofast.registry import all_rules
from autofast.report.diff import Change, FileDiff
from autofast.report.record import Record, merged
from autofast.report.sarif import Fix

Fixes = dict[tuple[object, ...], Fix]


def of_request(request: Request) -> Fixes:
    """The fixes of all findings that a check reports. A script that cannot be rewritten has none,
    which hides nothing of others."""
    found: Fixes = {}

    others = Agreement(request.root, request.config)

    def take(entry: Path, raw: bytes | None) -> None:
        done = rewrite(
            entry, request.root, request.config, raw=raw, within=request.within, others=others
        )
        found.update(fixes(done))

    for entry, raw in entries(request)[0]:
        guarded(entry, lambda entry=entry, raw=raw: take(entry, raw), [])  # type: ignore[misc]
    return found


def fixes(done: Rewritten) -> Fixes:
    """The fix of each record: that of its rule and of those that it needs, as a rule's places are
    made to fit each other."""
    plan, found = done.plan.first, Fixes()
    for rule in sorted(plan.applied):
        wanted = _closed(plan, {rule})
        part = plan.subset(wanted)
        files = list(_files(part))
        if not files or any(source.is_notebook for source, _, _ in files):
            continue
        fix = Fix(rule, tuple(sorted(wanted - {rule})), files)
        effect = all_rules()[rule].effect
        for finding in plan.fixes:
            if finding.rule == rule:
                found[Record.of(finding, effect).place] = fix
    return found


def _closed(plan: Plan, rules: set[str]) -> set[str]:
    """``rules`` and those that they need."""
    while True:
        needed = {
            str(need[0])
            for f in plan.fixes
            if f.rule in rules
            for need in f.needs
            if isinstance(need, tuple)
        }
        if needed <= rules:
            return rules
        rules = rules | needed


def _files(plan: Plan) -> Iterable[tuple[Source, str, list[Change]]]:
    texts = plan.texts()
    changes = grouped(
        (hunk.source, Change(hunk.old, hunk.new, hunk.rules)) for hunk in plan.hunks()
    )
    for source, found in changes.items():
        yield source, texts[source], found


@dataclass
class Fixed:
    """What becomes of the files that are named.

    Attributes:
        diffs: the changes, one for each file.
        records: the fixes in them.
        errors, warnings: lines for standard error.
    """

    diffs: list[FileDiff] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def write(self) -> Sequence[Path]:
        """Write all files or none; raises ``BadInput`` where it is none."""
        write_all(
            [
                Output(file.source.path, file.source.encode(file.text), was=file.source.raw)
                for file in self.diffs
            ]
        )
        return [file.source.path for file in self.diffs]


@deeply
def fix(request: Request, tell: Callable[[int, int, str], None] | None = None) -> Fixed:
    """Rewrite every script that is named or found, in memory. ``tell`` is called as by
    :func:`autofast.commands.checking.check`, and with what else is read for a script.

    Scripts that share a file must make the same of it: one that would make something else of it
    than those before is left out.
    """
    result = Fixed()
    made: dict[Path, tuple[str, Path]] = {}  # by the script that it is made for
    read: dict[Path, Source] = {}
    outcomes: list[Outcome] = []  # as far as comments are concerned
    todo, _ = entries(request)
    place = [0]
    say = None if tell is None else (lambda name: tell(place[0], len(todo), name))
    others = Agreement(request.root, request.config, tell=say)

    def take(entry: Path, raw: bytes | None) -> None:
        done = rewrite(
            entry,
            request.root,
            request.config,
            raw=raw,
            within=request.within,
            others=others,
            tell=say,
        )
        result.warnings += done.warnings
        read.update((source.path, source) for source in done.script.sources)
        paths = {source.rel: source.path for source in done.script.sources}
        outcomes.append(Outcome(paths, [], [Unused.of(one) for one in done.unused], [], False))
        for source in done.script.sources:
            text, other = made.get(source.path, (None, entry))
            if text is not None and text != done.texts.get(source, source.text):
                ours, theirs, file = map(_shown, (entry, other, source.path))
                result.warnings.append(
                    f"{ours}: left for another run, as it would not make of {file} what {theirs} makes of it"
                )
                return
        _add(result, done, made, entry)

    for place[0], (entry, raw) in enumerate(todo):
        guarded(entry, lambda entry=entry, raw=raw: take(entry, raw), result.errors)  # type: ignore[misc]
    if not result.errors:  # else a comment may be needed by what could not be read
        _tidy(result, request, read, outcomes)
    result.errors = list(dict.fromkeys(result.errors))
    result.warnings = list(dict.fromkeys(result.warnings))
    result.records = merged(result.records)
    return result


def _add(result: Fixed, done: Rewritten, made: dict[Path, tuple[str, Path]], entry: Path) -> None:
    for file in done.diffs():
        if file.source.path not in made:
            result.diffs.append(file)
    result.records += [record for record in done.records if record.status == "fix"]
    made.update({source.path: (text, entry) for source, text in done.texts.items()})


def _tidy(
    result: Fixed, request: Request, read: dict[Path, Source], outcomes: list[Outcome]
) -> None:
    """Take out the comments that no script needs."""
    idle: dict[Path, dict[int, tuple[str, ...]]] = {}
    for one in unused_by_all(outcomes):
        if request.within(one.file) and one.file.suffix == ".py":
            idle.setdefault(one.file, {})[one.line] = one.names
    files = {file.source.path: file for file in result.diffs}
    for path, lines in idle.items():
        source = read[path]
        file = files.get(path, FileDiff(source, source.text, ()))
        text = without_comments(file.source, file.text, lines)
        if text != file.text:
            files[path] = _after(file, text)
    result.diffs = list(files.values())


def _after(file: FileDiff, text: str) -> FileDiff:
    """The change of a file that ends in another text, with the names of its rules."""
    found = []
    for change in changes(lines_of(file.source.text), lines_of(text)):
        of = [c.rules for c in file.changes if meets(c.old, change)]
        found.append(Change(change.old, change.new, sum(of, ()) or ("unused comment",)))
    return FileDiff(file.source, text, found)


def _shown(path: Path) -> str:
    return shown_path(path.resolve())
