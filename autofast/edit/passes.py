"""A rewrite that is carried on until another one would find nothing more: what one rule writes may
be what another waits for.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import takewhile

from autofast.edit.amend import key_of
from autofast.edit.attribution import meets
from autofast.edit.hunks import Hunk, changes, lines_of, old_lines
from autofast.edit.plan import Plan, PostConditionError, Reread
from autofast.edit.recovery import what_stands
from autofast.model.script import Script
from autofast.model.source import Source, line_of, source_of
from autofast.rule import Finding, Rule

MOST = 4  # a rewrite that has not come to an end then never does


@dataclass(frozen=True, eq=False)
class Passes:
    """Plans one after the other, each for what the one before wrote; to others, one plan for the
    script as it was.
    """

    plans: tuple[Plan, ...]
    reread: Reread

    @property
    def first(self) -> Plan:
        return self.plans[0]

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.first.rules

    @property
    def script(self) -> Script:
        return self.first.script

    @property
    def applied(self) -> frozenset[str]:
        """The names of the rules that change something."""
        return frozenset().union(*(plan.applied for plan in self.plans))

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the first plan, and in the place of what it refused, what a later one does; all
        at nodes of the script as it was.
        """
        found = {key_of(f): f for f in self.first.findings}
        for number, plan in enumerate(self.plans[1:], 1):
            for finding in self._back(number, plan, found.values()):
                found[key_of(finding)] = finding
        return tuple(found.values())

    def texts(self) -> dict[Source, str]:
        """The new text of each file that changes."""
        return merged(self.plans)

    def hunks(self) -> list[Hunk]:
        """All changes from the first text to the last, each with the rules it comes from."""
        if len(self.plans) == 1:
            return self.first.hunks()
        return [hunk for source, text in self.texts().items() for hunk in self._of(source, text)]

    def subset(self, rules: Iterable[str]) -> Passes:
        """What becomes of the script with some of the rules."""
        return fixed_point(self.first.subset(rules), self.reread)

    def while_true(self, wanted: Callable[[Finding], bool]) -> Passes:
        """The plans up to the first with a fix that is not wanted; the first plan in any case."""
        fine = list(takewhile(lambda p: all(map(wanted, p.fixes)), self.plans[1:]))
        return Passes((self.first, *fine), self.reread)

    # ------------------------------------------------------------------------ from later plans back
    def _of(self, source: Source, text: str) -> Iterator[Hunk]:
        old, new = lines_of(source.text), lines_of(text)
        known = [
            (n, h)
            for n, p in enumerate(self.plans)
            for h in p.hunks()
            if h.source.path == source.path
        ]
        for change in changes(old, new):
            mine = [h for n, h in known if meets(self._origin(source, n, h.old), change)]
            lines = (
                *(f"-{line.rstrip()}" for line in old[slice(*change.old)]),
                *(f"+{line.rstrip()}" for line in new[slice(*change.new)]),
            )
            owners = frozenset().union(*(h.owners for h in mine))
            findings = tuple(dict.fromkeys(f for h in mine for f in h.findings))
            yield Hunk(source, change.old, change.new, lines, owners or self.applied, findings)

    def _origin(self, source: Source, number: int, span: tuple[int, int]) -> tuple[int, int]:
        """The lines of the first text behind those of the text that this plan was made for."""
        for plan in reversed(self.plans[:number]):
            hunks = [h for h in plan.hunks() if h.source.path == source.path]
            first, last = old_lines(hunks, span[0]), old_lines(hunks, max(span[0], span[1] - 1))
            span = min(first[0], last[0]), max(first[1], last[1])
        return span

    def _back(self, number: int, plan: Plan, before: Collection[Finding]) -> Iterator[Finding]:
        """The fixes of a later plan: at the nodes where the same was refused, or else at statements
        of the script as it was.
        """
        sources = {s.path: s for s in self.script.sources}
        taken: set[object] = set()
        for finding in plan.fixes:
            source = sources.get(source_of(finding.node).path)
            if source is None:
                continue
            line = line_of(finding.node) - 1
            first, end = self._origin(source, number, (line, line + 1))
            refused = (
                f.node
                for f in before
                if (f.rule, f.message) == (finding.rule, finding.message)
                and not f.edits
                and source_of(f.node) is source
                and first <= line_of(f.node) - 1 < max(end, first + 1)
                and f.node not in taken
            )
            node = next(refused, None) or _statement_at(source, first + 1)
            taken.add(node)
            yield replace(finding, node=node)


def fixed_point(plan: Plan, reread: Reread) -> Passes:
    """What stands of ``plan``, and of the plans for what comes of it, until one finds nothing;
    raises :class:`PostConditionError`.
    """
    here, again = what_stands(plan, reread, settled=False)
    plans = [here]
    while again is not None and again.fixes:
        if len(plans) == MOST:
            culprit = min(f.rule for f in again.fixes)
            why = f"left out: {culprit} finds more in its own output again and again"
            return fixed_point(plans[0].without(culprit, why), reread)

        def onward(new: Mapping[Source, str]) -> Script:
            return reread(merged(plans, new))

        try:
            following, again = what_stands(again, onward, settled=False)
        except PostConditionError:
            break  # what came before stands
        if not following.texts():
            break
        plans.append(following)
    return Passes(tuple(plans), reread)


def merged(plans: Sequence[Plan], *more: Mapping[Source, str]) -> dict[Source, str]:
    """The last text of each file, by the sources of the first plan."""
    sources = {source.path: source for source in plans[0].script.sources}
    texts = [plan.texts() for plan in plans]
    return {sources.get(s.path, s): text for new in (*texts, *more) for s, text in new.items()}


def _statement_at(source: Source, line: int) -> ast.AST:
    """The statement that a line stands in, or the last one before it."""
    before = [n for n in source.nodes if isinstance(n, ast.stmt) and n.lineno <= max(line, 1)]
    return max(before, key=lambda n: (n.lineno, n.col_offset), default=source.tree)
