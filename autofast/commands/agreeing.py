"""Scripts that share a file: what is changed there for one of them must be right for all that run it.

``check`` compares what it found from the scripts that it reads anyway (:func:`autofast.commands.outcome.agreed`). What is to be written is
held against all scripts of the project that import the file.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from autofast.commands.discover import excluded
from autofast.commands.entries import Entries
from autofast.commands.planning import chosen, plan_by, read
from autofast.config import Config
from autofast.edit.edits import TEXTS
from autofast.edit.merge import anchors, file_of
from autofast.edit.plan import Plan
from autofast.model.limits import MOST_SIBLINGS, WORK
from autofast.model.script import Script
from autofast.model.source import BadInput, Endless, Source, shown_path, source_of
from autofast.rule import Finding, Options, Rule

Place = tuple[str, Path, int, int]  # a rule, and where it found something
Change = tuple[object, ...]


class Sibling:
    """Another script that runs the same files: what it says of a place, asked rule by rule."""

    def __init__(self, script: Script, config: Config):
        self._script, self._config = script, config
        self._answers: dict[str, _Answers] = {}

    @cached_property
    def _lines(self) -> frozenset[tuple[Path, int]]:
        """The lines that it runs."""
        at = self._script.at
        return frozenset(
            (source_of(node).path, node.lineno)
            for node in self._script.nodes
            if isinstance(node, ast.expr) and id(node) in at
        )

    def against(self, rule: str, finding: Finding) -> str:
        """Why a fix is not right for this script; empty where it is, or where the script never comes to the place."""
        node, path = finding.node, source_of(finding.node).path
        first = getattr(node, "lineno", 1)
        here = range(first, (getattr(node, "end_lineno", None) or first) + 1)
        if not any((path, line) in self._lines for line in here):
            return ""
        if rule not in self._answers:
            self._answers[rule] = _Answers.of(_asked(rule, self._script, self._config))
        name, known, place = self._script.entry.rel, self._answers[rule], _place(rule, finding)
        if made := known.changes.get(place):
            same = any(not change or change == _changes(finding) for change in made)
            return "" if same else f"{name} runs this, too, and needs another change"
        if why := known.reasons.get(place):
            return f"{name} runs this, too, where it is refused: {why}"
        return f"{name} runs this, too, and it is not known whether it may be changed there"


@dataclass(frozen=True)
class _Unread:
    """Another script that is too large to be read."""

    why: str

    def against(self, rule: str, finding: Finding) -> str:
        """Nothing is known of what it runs."""
        return f"another script that shares this file could not be read: {self.why}"


@dataclass(frozen=True)
class _Answers:
    """What would be changed, by place, and why not."""

    changes: Mapping[Place, list[frozenset[Change]]]
    reasons: Mapping[Place, str]

    @classmethod
    def of(cls, plan: Plan) -> _Answers:
        """What a plan says."""
        changes: dict[Place, list[frozenset[Change]]] = {}
        reasons: dict[Place, str] = {}
        for finding in plan.findings:
            if finding.status in ("fix", "small"):
                changes.setdefault(_place(finding.rule, finding), []).append(_changes(finding))
            elif why := finding.refusal or finding.advice:
                reasons.setdefault(_place(finding.rule, finding), why)
        return cls(changes, reasons)


def _asked(rule: str, script: Script, config: Config) -> Plan:
    """A plan of one rule and those that it counts on: the others have no say in what it finds."""
    rules = {r.name: r for r in chosen(config)}
    names = {rule, *(r.name for r in rules.values() if "modernize" in r.groups)}  # see `renews`
    todo = list(names)
    while todo:
        used = set(rules[todo.pop()].uses) & rules.keys() - names
        names |= used
        todo += used
    return plan_by(script, config, [r for name, r in rules.items() if name in names])


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
        self._known: dict[object, Sibling | _Unread | None] = {}
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
        with WORK.apart():
            return next((w for known in every if known and (w := known.against(rule, finding))), "")

    def _others_of(self, source: Source, script: Script) -> list[Path]:
        """The scripts that are started and import a file, but for the one that is rewritten."""
        if source.path not in self._others:
            users = self._entries.users(source.path)
            left = excluded(users, self._root, self._config.exclude)
            self._others[source.path] = [path for path in users if path not in left][
                : MOST_SIBLINGS + 1
            ]
        mine = {script.entry.path}
        return [path for path in self._others[source.path] if path not in mine][:MOST_SIBLINGS]

    def _of(self, other: Path, script: Script) -> Sibling | _Unread | None:
        """What another script says of the texts as they stand in ``script``; None where it cannot be run either."""
        texts = {**self._overlay, **script.analysis(_Unsaved).texts}
        key = other, tuple(sorted((str(path), hash(raw)) for path, raw in texts.items()))
        if key not in self._known:
            if self._tell is not None:
                self._tell(f"{shown_path(other.resolve())}, which shares files with it")
            try:
                again = read(other, self._root, None, self._config, texts, script.sources)
                self._known[key] = Sibling(again, self._config)
            except Endless as why:
                self._known[key] = _Unread(str(why))
            except BadInput:
                self._known[key] = None
        return self._known[key]


class _Unsaved:
    """The files of a script that read otherwise than on the disk."""

    def __init__(self, script: Script):
        self.texts = {s.path: s.raw for s in script.sources if s.raw != _on_disk(s.path)}


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
