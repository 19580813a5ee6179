"""From findings to new texts: what is applied, what is left alone and why, and by which rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from autofast.edit import postcheck, shadowing
from autofast.edit.amend import Amendment, Amendments, Key, amendments, key_of
from autofast.edit.attribution import hunks_of
from autofast.edit.edits import Edit, EditConflict
from autofast.edit.hunks import Hunk, old_line, old_lines
from autofast.edit.ignores import Ignores, UnusedIgnore
from autofast.edit.merge import Pool, file_of
from autofast.edit.postcheck import Amendable
from autofast.edit.running import LeftOut, run
from autofast.edit.worth import judged
from autofast.faults import PostConditionError
from autofast.model.several import grouped
from autofast.model.source import Source, line_of, source_of, statement_of
from autofast.model.torch_age import shown
from autofast.rule import REGISTRY, Effect, Finding, Need, Options, Rule

if TYPE_CHECKING:
    from autofast.edit.compose import Document
    from autofast.model.script import Script

__all__ = ["Hunk", "Plan", "PostConditionError"]

Reread = Callable[[Mapping[Source, str]], "Script"]
Against = Callable[["Script", Finding], str]  # why a fix may not be written; empty where it may


@dataclass(frozen=True, eq=False)
class Plan:
    """What the chosen rules do to a script.

    Attributes:
        rules: those that take part.
        findings: all of them, in the order of the code. Those with status ``fix`` are applied.
        unused_ignores: ``# autofast: ignore`` comments that kept nothing from being changed.
        left_out: rules that were to take part and do not, as they raised or as their changes did
            not stand up.
        amendments: what the second reading, or what is against them, has made of findings.
        against: is asked of each fix that would be written, also in the plans for what comes of it.
    """

    script: Script
    options: Options
    rules: tuple[Rule, ...]
    effect: Effect
    line_length: int | None
    findings: tuple[Finding, ...]
    unused_ignores: tuple[UnusedIgnore, ...]
    left_out: tuple[LeftOut, ...]
    amendments: Amendments
    _edits: Mapping[Edit, frozenset[str]]
    against: Against | None = None

    # --------------------------------------------------------------------------------------- making
    @classmethod
    def make(
        cls,
        script: Script,
        options: Options,
        rules: Iterable[Rule],
        effect: Effect,
        line_length: int | None = None,
    ) -> Plan:
        """The plan of ``rules``, whose order does not matter, for changes up to ``effect``."""
        return cls._make(script, options, rules, effect, line_length, (), {})

    @classmethod
    def _make(
        cls,
        script: Script,
        options: Options,
        rules: Iterable[Rule],
        effect: Effect,
        line_length: int | None,
        left_out: Sequence[LeftOut],
        amended: Amendments,
    ) -> Plan:
        chosen = tuple(sorted(rules, key=lambda r: r.name))
        names = frozenset(rule.name for rule in chosen)
        options = replace(options, selected=names, asked=options.asked - {x.rule for x in left_out})
        ignores, idle = Ignores(), frozenset[str]()
        kept, small = list[Finding](), list[Finding]()
        while True:
            active = [rule for rule in chosen if rule.name not in idle]
            of_active = replace(options, selected=names - idle, asked=options.asked - idle)
            every, failed = run(active, script, of_active)
            if not failed:
                found = _allowed(script, every, options, effect, ignores, amended)
                found, failed = judged(script, found, chosen, of_active)
            if failed:  # the others may have counted on them
                rest = [rule for rule in chosen if rule.name not in {x.rule for x in failed}]
                left = (*left_out, *failed)
                return cls._make(script, options, rest, effect, line_length, left, amended)
            without = _without_effect(active, every, found)
            if not without:
                break
            idle |= without  # nothing of what they decide is done: the others must not count on it
            kept += [f for f in found if f.rule in without]
            small += [f for f in found if not f.worth and f.rule not in without]
        known = {key_of(f) for f in found}
        kept += [f for f in small if key_of(f) not in known]
        settled, pool = _settled(
            sorted(found, key=lambda f: (f.rule not in options.asked, f.rule, *_place(f)))
        )
        return cls(
            script,
            options,
            chosen,
            effect,
            line_length,
            tuple(
                sorted([*settled, *kept, *(f for x in left_out for f in x.findings)], key=_place)
            ),
            tuple(ignores.unused(script.sources, names)),
            tuple(left_out),
            amended,
            {edit: frozenset(who) for edit, who in pool.edits.items()},
        )

    def subset(self, rule_names: Iterable[str]) -> Plan:
        """The plan of some of the rules. The script is not read again."""
        names = frozenset(rule_names)
        left_out = [x for x in self.left_out if x.rule in names]
        return self._of([rule for rule in self.rules if rule.name in names], left_out)

    def without(self, rule: str, why: str) -> Plan:
        """The plan of all rules but one, whose fixes are refused for the reason ``why``."""
        kept = tuple(_refused(f, why) for f in self.findings if f.rule == rule)
        return self._of(
            [r for r in self.rules if r.name != rule], [*self.left_out, LeftOut(rule, why, kept)]
        )

    def amended(self, amendments: Amendments) -> Plan:
        """The plan with some findings refused, or carried out with more edits."""
        return self._of(self.rules, self.left_out, {**self.amendments, **amendments})

    def held(self, against: Against | None) -> Plan:
        """The plan without the fixes that something beyond the script is against."""
        if against is None:
            return self
        why = {key_of(f): against(self.script, f) for f in self.fixes}
        if refused := {key: Amendment(words) for key, words in why.items() if words}:
            return self.amended(refused).held(against)
        return replace(self, against=against)

    def _of(
        self,
        rules: Iterable[Rule],
        left_out: Sequence[LeftOut],
        amended: Amendments | None = None,
    ) -> Plan:
        return self._make(
            self.script,
            self.options,
            rules,
            self.effect,
            self.line_length,
            left_out,
            self.amendments if amended is None else amended,
        ).held(self.against)

    # -------------------------------------------------------------------------------------- results
    @property
    def fixes(self) -> tuple[Finding, ...]:
        """The findings that are applied."""
        return tuple(f for f in self.findings if f.status == "fix")

    @property
    def applied(self) -> frozenset[str]:
        """The names of the rules that change something."""
        return frozenset(f.rule for f in self.fixes)

    def texts(self) -> dict[Source, str]:
        """The new text (with ``\\n`` line ends) of each file that changes."""
        return dict(self._texts)

    def hunks(self) -> list[Hunk]:
        """All changes in order, file by file, each with the rules it comes from."""
        return [hunk for hunks in self._hunks.values() for hunk in hunks]

    def check(self, reread: Reread | None = None, settled: bool = True) -> Plan | None:
        """Raise :class:`PostConditionError` unless the new texts may be written.

        They must compile, use no undefined name, and differ from the old ones only in hunks that
        belong to rules. With ``reread``, which reads the script from texts that replace those of
        some files, the applied rules must find nothing to do in their own output; unless it is to
        be ``settled``, only not the same again. The plan for that output is returned.
        """
        for source, text in self._texts.items():
            postcheck.parses(source, text)
            postcheck.defines_its_names(source, text)
            postcheck.keeps_other_lines(source, text, self._hunks[source])
        if reread is None or not self._texts:
            return None
        new = reread(self.texts())
        if found := amendments(self.script, new, self._hunks, self.amendments):
            raise Amendable(next((a.why for a in found.values() if a.why), "a name"), found)
        again = Plan.make(new, self.options, self.rules, self.effect, self.line_length)
        for broken in again.left_out:
            if broken.rule in self.applied:
                raise PostConditionError(
                    f"{broken.rule} cannot read its own output: {broken.why}", broken.rule
                )
        refused: dict[Key, Amendment] = {}
        spared: set[Key] = set()  # the refusals that are found to be fixes now
        for finding in again.fixes:
            same = self._like(finding)
            if any(f.gain is not None and f.gain.measured and not f.worth for f in same):
                refused[key_of(finding)] = Amendment("measured: not worth its lines")
                continue
            if amended := next((f for f in same if key_of(f) in self.amendments), None):
                refused[key_of(finding)] = Amendment(amended.refusal)
                continue
            before = next((f for f in same if not f.edits and key_of(f) not in spared), None)
            if before is not None:
                spared.add(key_of(before))
            repeats = before is None and any(self._is_at(f, finding) for f in same)
            if finding.rule in self.applied and (settled or repeats):
                where = f"{source_of(finding.node).rel}:{line_of(finding.node)}"
                raise PostConditionError(
                    f"{where}: {finding.rule} would change its own output again: {finding.message}",
                    finding.rule,
                )
        again = again.amended(refused) if refused else again
        return again.held(self.against)

    def _is_at(self, old: Finding, again: Finding) -> bool:
        """Whether two findings of :meth:`_like` are about one statement, and not about two beside
        each other.
        """
        hunks = next(
            (h for s, h in self._hunks.items() if s.path == source_of(again.node).path), []
        )
        stmt = statement_of(old.node)
        line = old_line(hunks, line_of(again.node) - 1) + 1
        return line_of(stmt) <= line <= (stmt.end_lineno or line)

    def _like(self, again: Finding) -> list[Finding]:
        """The findings that say the same of the lines that a finding in the new text comes from."""
        source = next((s for s in self._texts if s.path == source_of(again.node).path), None)
        span = old_lines(self._hunks.get(source, ()) if source else (), line_of(again.node) - 1)
        return [
            f
            for f in self.findings
            if (f.rule, f.message) == (again.rule, again.message)
            and source_of(f.node).path == source_of(again.node).path
            and span[0] <= line_of(f.node) - 1 < max(span[1], span[0] + 1)
        ]

    # ------------------------------------------------------------------------------------ composing
    @cached_property
    def _by_file(self) -> dict[Source, list[Edit]]:
        files = grouped((file_of(edit), edit) for edit in self._edits)
        return dict(sorted(files.items(), key=lambda item: item[0].rel))

    @cached_property
    def _texts(self) -> dict[Source, str]:
        texts = {source: self._composed(source, edits) for source, edits in self._by_file.items()}
        return {source: text for source, text in texts.items() if text != source.text}

    def _composed(self, source: Source, edits: Iterable[Edit]) -> str:
        from autofast.edit.compose import Document  # LibCST is loaded only when a text is made
        from autofast.edit.locate import Unplaceable

        try:
            documents, key = self.script.analysis(_documents), (source, self.line_length)
            if key not in documents:
                documents[key] = Document(*key)
            return documents[key].compose(edits)
        except Unplaceable as error:
            raise PostConditionError(str(error)) from None

    # ---------------------------------------------------------------------------------- attribution
    @cached_property
    def _hunks(self) -> dict[Source, list[Hunk]]:
        return {
            source: hunks_of(source, text, *self._parts(source))
            for source, text in self._texts.items()
        }

    def _parts(
        self, source: Source
    ) -> tuple[dict[Edit, frozenset[str]], tuple[Finding, ...], Callable[[str], str]]:
        """What the attribution of a file goes by: its edits with their owners, the fixes, and the
        text without a rule.
        """
        edits = {edit: self._edits[edit] for edit in self._by_file[source]}
        # An edit that two rules ask for is left out with either, so it belongs to both.
        return (
            edits,
            self.fixes,
            lambda rule: self._composed(source, (e for e, who in edits.items() if rule not in who)),
        )


def _documents(_script: Script) -> dict[tuple[Source, int | None], Document]:
    """Shared by all plans for one script: each file is parsed once."""
    return {}


# --------------------------------------------------------------------------- from findings to fixes
def _allowed(
    script: Script,
    every: Sequence[tuple[Rule, Finding]],
    options: Options,
    effect: Effect,
    ignores: Ignores,
    amended: Amendments,
) -> list[Finding]:
    """The findings of rules, each by itself: ignored, or refused, where the user, the level of
    effect or the text is against it.
    """
    deciding = {
        r.decides: r.name
        for r in (*REGISTRY.values(), *(r for r, _ in every))
        if r.decides is not None
    }
    found = []
    for rule, finding in every:
        finding = ignores.apply(_stamped(finding, rule.name, deciding))
        limit = max(effect, rule.effect) if rule.name in options.asked else effect
        finding = _limited(finding, rule.effect, limit)
        if why := shadowing.against(finding.edits, script):
            finding = _refused(finding, why)
        finding = replace(finding, torch=finding.torch or rule.torch)
        key = key_of(finding)
        found.append(amended[key].of(finding) if key in amended else finding)
    renewing: dict[object, Finding] = {f.node: f for f in found if f.renews and f.edits}
    return [_dated(script, f, renewing) if f.edits else f for f in found]


def _dated(script: Script, fix: Finding, renewing: Mapping[object, Finding]) -> Finding:
    """The fix, with what must be written anew for any torch to run both; refused where that is not
    done, or is not possible.
    """
    assert fix.torch is not None
    needs = []
    shared = {source.path for source in map(file_of, fix.edits) if source is not script.entry}
    for newest in script.torch.in_the_way(fix.torch, shared):
        anew = renewing.get(newest.node)
        if anew is None:
            needed = f"what would be written needs torch {shown(fix.torch)}"
            hint = f" (--torch {shown(fix.torch)}, if that is yours)" * newest.is_said
            return _refused(fix, f"{newest.words}, and {needed}{hint}")
        needs.append((anew.rule, anew.key))
    return replace(fix, needs=(*fix.needs, *needs)) if needs else fix


def _without_effect(
    rules: Iterable[Rule], every: Iterable[tuple[Rule, Finding]], allowed: Iterable[Finding]
) -> frozenset[str]:
    """The rules that decide something others may use, and of whose fixes none is allowed; and those
    that have none, if not on account of one of these, without which they may find more.
    """
    found = {rule.name for rule, f in every if f.edits}
    applied = {f.rule for f in allowed if f.edits}
    without = {r.name: r for r in rules if r.decides is not None and r.name not in applied}
    waits = {name for name, r in without.items() if {*r.uses} & without.keys()}
    return frozenset(without.keys() - (waits - found))


def _stamped(finding: Finding, rule: str, deciding: Mapping[type, str]) -> Finding:
    """The finding of ``rule``, with what it needs as pairs of a rule and a key."""

    def named(need: Need) -> tuple[str, object]:
        decision, key = need if isinstance(need, tuple) else (need, finding.key)
        return (
            rule
            if decision is None
            else decision
            if isinstance(decision, str)
            else deciding[decision]
        ), key

    edits = tuple(replace(edit, rule=rule) for edit in finding.edits)
    return replace(finding, rule=rule, edits=edits, needs=tuple(map(named, finding.needs)))


def _limited(finding: Finding, of_rule: Effect, allowed: Effect) -> Finding:
    effect = of_rule if finding.effect is None else finding.effect
    return (
        _refused(finding, f"needs --effect {effect.name.lower()}") if effect > allowed else finding
    )


def _refused(finding: Finding, why: str) -> Finding:
    return replace(finding, edits=(), refusal=why) if finding.edits else finding


def _settled(findings: Sequence[Finding]) -> tuple[list[Finding], Pool]:
    """The findings, given in order of priority, with those refused that contradict an earlier one
    or lack one they need.
    """
    findings = list(findings)
    while True:
        lacking = _lacking(findings)
        if not lacking:
            pool, late = _pooled(findings)
            if not late:
                return findings, pool
            lacking = late
        findings = [_refused(f, lacking[n]) if n in lacking else f for n, f in enumerate(findings)]


def _lacking(findings: Sequence[Finding]) -> dict[int, str]:
    present = {(f.rule, f.key) for f in findings if f.edits}
    found: dict[int, str] = {}
    for n, f in enumerate(findings):
        lacks = [need for need in f.needs if isinstance(need, tuple) and need not in present]
        if f.edits and lacks:
            rules = dict.fromkeys(str(rule) for rule, _ in lacks if rule != f.rule)
            named = f"needs {' and '.join(rules)} here"
            found[n] = named if rules else "other places of this rule stay as they are"
    return found


def _pooled(findings: Sequence[Finding]) -> tuple[Pool, dict[int, str]]:
    pool, late = Pool(), {}
    for n, finding in enumerate(findings):
        try:
            pool.add(finding.edits)
        except EditConflict as conflict:
            late[n] = str(conflict)
    return pool, late


def _place(finding: Finding) -> tuple[object, ...]:
    node = finding.node
    return (
        source_of(node).rel,
        getattr(node, "lineno", 0),
        getattr(node, "col_offset", 0),
        finding.rule,
        finding.message,
    )
