"""One rewrite, from the entry script to new texts that have been read again. Nothing is written
here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path

from autofast.commands.discover import untrained_hint
from autofast.commands.exclusions import with_exclusions
from autofast.commands.informing import said_of
from autofast.commands.planning import (
    Overlay,
    chosen,
    findings,
    plan_by,
    read,
    texts_of,
    trains_nothing,
)
from autofast.commands.shared_files import Agreement
from autofast.commands.torch_note import torch_note
from autofast.config import Config
from autofast.depth import deeply
from autofast.edit.amend import Amendment, Key, key_of
from autofast.edit.edits import Edit
from autofast.edit.ignores import UnusedIgnore
from autofast.edit.passes import Passes, fixed_point
from autofast.edit.plan import Plan
from autofast.edit.recovery import what_stands
from autofast.heap import growing
from autofast.model.disk import resolved_path
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import Source, line_of, shown_path, source_of
from autofast.read import read_script
from autofast.report.diff import Change, FileDiff
from autofast.report.progress import Tell
from autofast.report.record import Record
from autofast.rule import Find, Finding, Options

_FRAMEWORKS = {
    "accelerate": "Accelerate",
    "hf-trainer": "the Hugging Face Trainer",
    "lightning": "Lightning",
}


@dataclass(frozen=True)
class Rewritten:
    """What becomes of a script.

    Attributes:
        texts: new text of each file that changes.
        records: all findings of the plan; those with status ``fix`` are in ``texts``.
        elsewhere: fixes that are not in ``texts``, because they change other files than the one
            that is written.
        unused: comments that keep nothing away.
        notes: what the user should know besides.
        warnings: one line for each rule that is left out by a mistake of ours.
        stdin: the entry came from standard input.
    """

    script: Script
    root: Path
    config: Config
    plan: Passes
    texts: dict[Source, str]
    records: list[Record]
    elsewhere: list[Record]
    unused: Sequence[UnusedIgnore]
    notes: list[str]
    warnings: list[str]
    stdin: bool

    def bytes_of(self, source: Source) -> bytes:
        """What is to stand in ``source``."""
        return source.encode(self.texts[source]) if source in self.texts else source.raw

    def diffs(self) -> list[FileDiff]:
        changes = grouped(
            (hunk.source, Change(hunk.old, hunk.new, hunk.rules)) for hunk in self.plan.hunks()
        )
        return [FileDiff(source, self.texts[source], found) for source, found in changes.items()]


@deeply
@growing()
def rewrite(
    entry: Path,
    root: Path,
    config: Config,
    *,
    raw: bytes | None = None,
    overlay: Overlay | None = None,
    alone: bool = False,
    within: Callable[[Path], bool] | None = None,
    unwanted: Callable[[Iterable[Finding]], Iterable[Key]] | None = None,
    others: Agreement | None = None,
    tell: Tell | None = None,
) -> Rewritten:
    """Rewrite the script at ``entry``; with ``alone`` only the entry itself may change, or only the
    files that are ``within``. What would then be done by half is left out whole. ``unwanted`` is
    asked which fixes are not to be made; what only follows from others is not made then. ``others``
    knows the scripts that share files with this one, where it is not the first of the project to be
    rewritten. ``tell`` is called with what is being read: that may take long.

    A rule that raises, or whose changes do not stand up to being read again, is left out, and the
    others are composed without it. Raises ``BadInput`` for what the user must mend and
    ``PostConditionError`` where that helps nothing.
    """
    tell = tell or (lambda _: None)
    tell(shown_path(resolved_path(entry)))
    script = read(entry, root, raw, config, overlay)
    rules = chosen(config)
    against = None
    if not alone:
        others = others or Agreement(root, config, overlay, tell)
        against = others.against
    whole = narrow = plan_by(script, config, rules).held(against)
    if alone:
        within = script.entry.path.__eq__
    beyond = partial(_reaches_beyond, within) if within is not None else None
    narrowed = beyond is not None and any(map(beyond, whole.fixes))
    if beyond is not None and narrowed:
        kept = [replace(rule, find=_without(beyond, rule.find)) for rule in rules]
        narrow = plan_by(script, config, kept).held(against)

    latest = [script]

    def reread(new: Mapping[Source, str]) -> Script:
        texts = texts_of(entry, raw, overlay)
        texts |= {source.path: source.encode(text) for source, text in new.items()}
        tell(f"{shown_path(resolved_path(entry))}, rewritten")
        again = read_script(entry, root, overlay=texts, before=latest[0].sources)
        latest[0] = with_exclusions(again, config)
        return again

    passes = fixed_point(narrow, reread)
    if unwanted is not None:
        passes = Passes((_wanted(passes.first, reread, unwanted),), reread)
    if beyond is not None:
        passes = passes.while_true(lambda f: not beyond(f))
    if narrowed and passes.first.left_out:
        whole = whole.subset(rule.name for rule in passes.rules)
    nothing = trains_nothing(script, whole)
    done = findings(passes)
    places = {record.place for record in done if record.status == "fix"}
    if narrowed:
        elsewhere = [r for r in findings(whole) if r.status == "fix" and r.place not in places]
    else:
        elsewhere = []
    withheld = {record.place for record in elsewhere}
    return Rewritten(
        script=script,
        root=root,
        config=config,
        plan=passes,
        texts=passes.texts(),
        records=[record for record in done if record.place not in withheld],
        elsewhere=elsewhere,
        unused=whole.unused_ignores,
        notes=[
            *([untrained_hint(script.entry.path)] * nothing),
            *script.notes,
            *said_of(script, config),
            *_loops_elsewhere(script),
            *torch_note(script, passes),
            *map(str, whole.unused_ignores),
        ],
        warnings=[left.warning for plan in passes.plans for left in plan.left_out],
        stdin=raw is not None,
    )


def _without(beyond: Callable[[Finding], bool], find: Find) -> Find:
    """``find`` without what is ``beyond`` the files that may change: half of such a finding would
    be worse than none of it."""

    def narrowed(script: Script, options: Options) -> Iterator[Finding]:
        for finding in find(script, options):
            if not beyond(finding):
                yield finding

    return narrowed


def _wanted(
    plan: Plan,
    reread: Callable[[Mapping[Source, str]], Script],
    unwanted: Callable[[Iterable[Finding]], Iterable[Key]],
) -> Plan:
    """The plan without the fixes that are not wanted; where another comes in the place of one, that
    is asked about, too."""
    refused: dict[Key, Amendment] = {}
    seen: set[Key] = set()
    left = plan
    while new := [f for f in left.fixes if key_of(f) not in seen]:
        seen.update(map(key_of, new))
        refused |= {key: Amendment("not wanted") for key in unwanted(new)}
        left, _ = what_stands(plan.amended(refused), reread, settled=False)
    return left


def _reaches_beyond(within: Callable[[Path], bool], finding: Finding) -> bool:
    """Whether ``finding`` changes another file than those that may change. Paths are compared: the
    same file is read again for the post-conditions."""
    return any(not within(file.path) for edit in finding.edits for file in _touched(edit))


def _touched(edit: Edit) -> Iterator[Source]:
    for place in fields(edit):
        value = getattr(edit, place.name)
        if isinstance(value, Source):
            yield value
        elif hasattr(value, "_af_source"):
            yield source_of(value)


def _loops_elsewhere(script: Script) -> Iterator[str]:
    """Says so where the script's training loop is a framework's."""
    if not script.steps:
        for name, node in script.frameworks.items():
            place = source_of(node).place(line_of(node))
            yield f"{place}: {_FRAMEWORKS.get(name, name)} has the training loop, and options of its own for it"
