"""What each finding of a script would change, for reports that carry that along."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from autofast.commands.agreeing import Agreement
from autofast.commands.checking import Request, entries, guarded
from autofast.commands.rewriting import Rewritten, rewrite
from autofast.edit.plan import Plan
from autofast.model.source import Source
from autofast.registry import all_rules
from autofast.report.diff import Change
from autofast.report.record import Record
from autofast.report.sarif import Fix


def of_request(request: Request) -> dict[tuple[object, ...], Fix]:
    """The fixes of all findings that a check reports. A script that cannot be rewritten has none,
    which hides nothing of others.
    """
    found: dict[tuple[object, ...], Fix] = {}

    others = Agreement(request.root, request.config)

    def take(entry: Path, raw: bytes | None) -> None:
        done = rewrite(
            entry, request.root, request.config, raw=raw, within=request.within, others=others
        )
        found.update(fixes(done))

    for entry, raw in entries(request)[0]:
        guarded(entry, lambda entry=entry, raw=raw: take(entry, raw), [])  # type: ignore[misc]
    return found


def fixes(done: Rewritten) -> dict[tuple[object, ...], Fix]:
    """The fix of each record: that of its rule and of those that it needs, as a rule's places are
    made to fit each other.
    """
    plan, found = done.plan.first, dict[tuple[object, ...], Fix]()
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
    changes: dict[Source, list[Change]] = {}
    for hunk in plan.hunks():
        changes.setdefault(hunk.source, []).append(Change(hunk.old, hunk.new, hunk.rules))
    for source, found in changes.items():
        yield source, texts[source], found
