"""Scripts that share a file: what is changed there for one of them must be right for all that run it.

``check`` compares what it found from the scripts that it reads anyway (:func:`autofast.commands.outcome.agreed`). What is to be written is
held against all scripts of the project that import the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from autofast.commands.discover import excluded
from autofast.commands.entries import Entries
from autofast.commands.planning import plan, read
from autofast.config import Config
from autofast.edit.edits import TEXTS
from autofast.edit.merge import anchors, file_of
from autofast.edit.plan import Plan
from autofast.model.script import Script
from autofast.model.source import BadInput, Source, shown_path, source_of
from autofast.rule import Finding, Options, Rule

MOST = 12  # scripts that are read besides: the nearest
Place = tuple[str, Path, int, int]  # a rule, and where it found something
Change = tuple[object, ...]


@dataclass(frozen=True)
class Known:
    """What another script has to say; its syntax trees are not kept.

    Attributes:
        name: as it is shown. lines: those that it runs.
        changes: what would be changed for it, by place. reasons: why not.
    """

    name: str
    lines: frozenset[tuple[Path, int]]
    changes: Mapping[Place, list[frozenset[Change]]]
    reasons: Mapping[Place, str]

    @classmethod
    def of(cls, plan: Plan) -> Known:
        """What a plan for the other script says."""
        script = plan.script
        changes: dict[Place, list[frozenset[Change]]] = {}
        reasons: dict[Place, str] = {}
        for finding in plan.findings:
            if finding.status in ("fix", "small"):
                changes.setdefault(_place(finding.rule, finding), []).append(_changes(finding))
            elif why := finding.refusal or finding.advice:
                reasons.setdefault(_place(finding.rule, finding), why)
        lines = frozenset(
            (source_of(node).path, line)
            for node in script.nodes
            if id(node) in script.at and (line := getattr(node, "lineno", 0))
        )
        return cls(script.entry.rel, lines, changes, reasons)

    def against(self, rule: str, finding: Finding) -> str:
        """Why a fix is not right for this script; empty where it is, or where the script never comes to the place."""
        node, path = finding.node, source_of(finding.node).path
        first = getattr(node, "lineno", 1)
        here = range(first, (getattr(node, "end_lineno", None) or first) + 1)
        place = _place(rule, finding)
        if made := self.changes.get(place):
            same = any(not change or change == _changes(finding) for change in made)
            return "" if same else f"{self.name} runs this, too, and needs another change"
        if why := self.reasons.get(place):
            return f"{self.name} runs this, too, where it is refused: {why}"
        if any((path, line) in self.lines for line in here):
            return (
                f"{self.name} runs this, too, and it is not known whether it may be changed there"
            )
        return ""


class Agreement:
    """The other scripts of a project. It may serve many rewrites: each of them is read once."""

    def __init__(
        self,
        root: Path,
        config: Config,
        overlay: Mapping[Path, bytes] | None = None,
        tell: Callable[[str], None] | None = None,
    ):
        self._tell = tell
        self._root, self._config, self._overlay = root, config, overlay or {}
        self._entries = Entries(root, overlay)
        self._known: dict[object, Known | None] = {}
        self._others: dict[Path, list[Path]] = {}

    def held(self, rule: Rule) -> Rule:
        """The rule, whose fixes in files that others run are refused where one of these is against it."""

        def find(script: Script, options: Options) -> Iterator[Finding]:
            for finding in rule.find(script, options):
                why = self._against(script, rule.name, finding) if finding.edits else ""
                yield replace(finding, edits=(), refusal=why) if why else finding

        return replace(rule, find=find)

    def _against(self, script: Script, rule: str, finding: Finding) -> str:
        others = self._others_of(source_of(finding.node), script)
        every = (self._of(other, script) for other in others)
        return next((why for known in every if known and (why := known.against(rule, finding))), "")

    def _others_of(self, source: Source, script: Script) -> list[Path]:
        """The scripts that are started and import a file, but for the one that is rewritten."""
        if source.path not in self._others:
            users = self._entries.users(source.path)
            left = excluded(users, self._root, self._config.exclude)
            self._others[source.path] = [path for path in users if path not in left][: MOST + 1]
        mine = {script.entry.path}
        return [path for path in self._others[source.path] if path not in mine][:MOST]

    def _of(self, other: Path, script: Script) -> Known | None:
        """What another script says of the texts as they stand in ``script``; None where it cannot be run either."""
        texts = {s.path: s.raw for s in script.sources if s.raw != _on_disk(s.path)}
        texts = {**self._overlay, **texts}
        key = other, tuple(sorted((str(path), hash(raw)) for path, raw in texts.items()))
        if key not in self._known:
            if self._tell is not None:
                self._tell(f"{shown_path(other.resolve())}, which shares files with it")
            try:
                again = read(other, self._root, None, self._config, texts)
                self._known[key] = Known.of(plan(again, self._config))
            except BadInput:
                self._known[key] = None
        return self._known[key]


def _on_disk(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _place(rule: str, finding: Finding) -> Place:
    node = finding.node
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return rule, source_of(node).path, line, column


def _changes(finding: Finding) -> frozenset[Change]:
    """What a fix writes into the file of its place, as far as two readings of the file can be compared."""
    path = source_of(finding.node).path
    return frozenset(
        (
            type(edit).__name__,
            *((node.lineno, node.col_offset) for node in anchors(edit)),
            *(text for name in TEXTS if isinstance(text := getattr(edit, name, None), str)),
        )
        for edit in finding.edits
        if file_of(edit).path == path
    )
