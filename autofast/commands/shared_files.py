"""Scripts that share a file: what is changed there for one of them must be right for all that run
it.

``check`` compares what it found from the scripts that it reads anyway
(:func:`autofast.commands.outcome.agreed_records`). What is to be written is held against all
scripts of the project that import the file.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autofast.commands.discover import Entries, excluded
from autofast.commands.planning import chosen, plan_by, read
from autofast.config import Config
from autofast.edit.edits import TEXTS, Edit
from autofast.edit.merge import anchors, file_of
from autofast.edit.plan import Plan
from autofast.model.limits import MOST_SIBLINGS, WORK
from autofast.model.script import Script
from autofast.model.source import BadInput, Endless, Source, line_of, shown_path, source_of
from autofast.report.progress import Tell
from autofast.rule import Effect, Finding

Place = tuple[str, Path, int, int]  # a rule, and where it found something
Change = tuple[Path, int, tuple[object, ...]]  # a file, a line, and what is written there


class Sibling:
    """Another script that runs the same files: what it says of a place, asked rule by rule."""

    def __init__(self, script: Script, config: Config):
        self._script, self._config = script, config
        self._answers: dict[str, _Answers] = {}

    @cached_property
    def _lines(self) -> frozenset[tuple[Path, int]]:
        at = self._script.at
        return frozenset(
            (source_of(node).path, node.lineno)
            for node in self._script.nodes
            if isinstance(node, ast.expr) and node in at
        )

    def against(self, finding: Finding, written: frozenset[Path]) -> str:
        """Why a fix is not right for this script; empty where it is, or where the script never
        comes to the place. Of what this script needs besides, only what stands in the files that
        are ``written`` may be."""
        shared = [
            change
            for edit in finding.edits
            if not self._gets_the_same(edit) and self._runs(edit) and (change := _change(edit))
        ]
        if not shared and not self._comes_to(finding.node):
            return ""
        rule = finding.rule
        if rule not in self._answers:
            self._answers[rule] = _Answers.of(_asked(rule, self._script, self._config))
        name, known, place = self._script.entry.rel, self._answers[rule], _place(rule, finding)
        if place in known.small:
            return ""
        if all(change in known.whole for change in shared) and (shared or place in known.fixes):
            ours = set(map(_change, finding.edits))
            also = {c for change in shared for c in known.whole[change]} - ours
            also |= {c for s in shared for c in known.needed[s] if c[0] not in written}
            if not also:
                return ""
            path, line, _ = min(also, key=lambda change: change[:2])
            return (
                f"{name} runs this, too, and {shown_path(path)}:{line} would have to change with it"
            )
        if place in known.fixes:
            return f"{name} runs this, too, and needs another change"
        if why := known.reasons.get(place):
            return f"{name} runs this, too, where it is refused: {why}"
        return f"{name} runs this, too, and it is not known whether it may be changed there"

    def _gets_the_same(self, edit: Edit) -> bool:
        return edit.alike(self._script) if callable(edit.alike) else edit.alike

    def _runs(self, edit: Edit) -> bool:
        return any(map(self._comes_to, anchors(edit)))

    def _comes_to(self, node: ast.AST) -> bool:
        path, first = source_of(node).path, line_of(node)
        here = range(first, (getattr(node, "end_lineno", None) or first) + 1)
        return any((path, line) in self._lines for line in here)


@dataclass(frozen=True)
class _Unread:
    """Another script that is too large to be read."""

    why: str

    def against(self, finding: Finding, written: frozenset[Path]) -> str:
        """Nothing is known of what it runs."""
        return f"another script that shares this file could not be read: {self.why}"


@dataclass(frozen=True)
class _Answers:
    """What would be changed, and why not.

    Attributes:
        fixes, small: places that are changed, or would be if it were worth their lines.
        whole: what is written together with a change, by the same fix.
        needed: what is written by others, without which it would compute something else. (What only
            makes it faster may be missing.)
    """

    fixes: frozenset[Place]
    small: frozenset[Place]
    whole: Mapping[Change, set[Change]]
    needed: Mapping[Change, set[Change]]
    reasons: Mapping[Place, str]

    @classmethod
    def of(cls, plan: Plan) -> _Answers:
        by_key = defaultdict[object, list[Finding]](list)
        for finding in plan.fixes:
            by_key[finding.rule, finding.key].append(finding)
        changing = {r.name for r in plan.rules if r.effect > Effect.EXACT}
        whole = defaultdict[Change, set[Change]](set)
        needed = defaultdict[Change, set[Change]](set)
        for finding in plan.fixes:
            mine = set(map(_change, finding.edits))
            others = list(finding.needs)
            for need in others:  # and what these need
                others += [n for f in by_key[need] for n in f.needs if n not in others]
            also = [f for need in others for f in by_key[need] if f.rule in changing]
            for change in mine:
                whole[change] |= mine
                needed[change] |= {_change(e) for f in also for e in f.edits}
        reasons: dict[Place, str] = {}
        for finding in plan.findings:
            if why := finding.refusal or finding.advice:
                reasons.setdefault(_place(finding.rule, finding), why)
        places = {
            status: frozenset(_place(f.rule, f) for f in plan.findings if f.status == status)
            for status in ("fix", "small")
        }
        return cls(places["fix"], places["small"], whole, needed, reasons)


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
        tell: Tell | None = None,
    ):
        self._tell = tell
        self._root, self._config, self._overlay = root, config, overlay or {}
        self._entries = Entries(root, overlay)
        self._known: dict[object, Sibling | _Unread | None] = {}
        self._others: dict[Path, list[Path]] = {}

    def against(self, script: Script, finding: Finding) -> str:
        """Why a fix is not right for another script that runs the file; empty where it is."""
        files = dict.fromkeys([source_of(finding.node), *map(file_of, finding.edits)])
        others = dict.fromkeys(o for file in files for o in self._others_of(file, script))
        every = (self._of(other, script) for other in others)
        written = frozenset(source.path for source in script.sources)
        with WORK.apart():
            said = (known.against(finding, written) for known in every if known)
            return next(filter(None, said), "")

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
        """What another script says of the texts as they stand in ``script``; None where it cannot
        be run either."""
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
    line, column = line_of(node), getattr(node, "col_offset", 0)
    return rule, source_of(node).path, line, column


def _change(edit: Edit) -> Change:
    """What an edit writes, as far as two readings of a file can be compared."""
    nodes = anchors(edit)
    told = (
        type(edit).__name__,
        *((node.lineno, node.col_offset) for node in nodes),
        *(text for name in TEXTS if isinstance(text := getattr(edit, name, None), str)),
    )
    return file_of(edit).path, nodes[0].lineno if nodes else 1, told
