"""Runs the rules over a script. One that raises takes none of the others down."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from autofast import faults
from autofast.edit.merge import file_of, holes_of
from autofast.model.events import CallFrame, inside
from autofast.model.limits import RULE, RULES, WORK, TooLarge
from autofast.model.source import BadInput, Told, at, function_of, line_of, source_of
from autofast.rule import Find, Finding, Options, Rule

if TYPE_CHECKING:
    from autofast.model.script import Script

PLACES = ("node", "loop")  # attributes of the model that hold the node a thing stands at


@dataclass(frozen=True, eq=False)
class LeftOut:
    """A rule that was to take part in a plan and does not, by a mistake of ours.

    Attributes:
        why: one line.
        findings: what it had to say, nothing of which is applied.
        error: what the rule raised, where it did.
    """

    rule: str
    why: str
    findings: tuple[Finding, ...]
    error: Exception | None = None

    @property
    def warning(self) -> str:
        """What the user should know, on one line; ``--debug`` lets the trace follow."""
        if self.error is None:
            return f"{self.rule} is {self.why}; {faults.REPORT}"
        node = self.findings[0].node
        source = source_of(node)
        place = source.place(line_of(node))
        return f"{place}: {self.why}; the other rules go on{faults.trace(self.error)}"


def seen_by(rule: Rule, rules: Iterable[Rule], options: Options) -> Options:
    """The options of a rule, with what is decided by itself and the rules that it uses, as far as
    they take part; of others it knows nothing.
    """
    mine = frozenset({rule.name, *rule.uses})
    decisions = frozenset(r.decides for r in rules if r.decides is not None and r.name in mine)
    return replace(
        options,
        decisions=decisions,
        requested=rule.name in (options.named if rule.default else options.asked),
        selected=options.selected & mine,
        asked=options.asked & mine,
        named=options.named & mine,
    )


@dataclass(frozen=True)
class _Asked:
    """What a rule finds; a script keeps it, as plans are made many times, of ever other rules."""

    find: Find
    options: Options

    def __call__(self, script: Script) -> list[Finding]:
        return list(self.find(script, self.options))


def run(
    rules: Sequence[Rule], script: Script, options: Options
) -> tuple[list[tuple[Rule, Finding]], list[LeftOut]]:
    """All that the rules find, and those that raised, of which nothing counts."""
    found: list[tuple[Rule, Finding]] = []
    failed: list[LeftOut] = []
    with WORK.at_most(RULES):
        for rule in rules:
            try:
                with WORK.at_most(RULE):
                    mine = script.analysis(_Asked(rule.find, seen_by(rule, rules, options)))
                mine = [_in_the_project(script, finding) for finding in mine]
                found += [(rule, _of_this_torch(script, finding)) for finding in mine]
            except BadInput:
                raise
            except TooLarge as error:
                failed.append(too_large(rule, script, error))
            except Exception as error:
                failed.append(rule_failed(rule, script, error))
    return found, failed


def too_large(rule: Rule, script: Script, error: TooLarge) -> LeftOut:
    """``rule`` is left out, as it would have taken too long."""
    script.forget()
    why = f"too large to follow: {rule.name} would take more than {RULE:,} steps here, or all rules more than {RULES:,}"
    finding = Finding(_at_work(script, error), "this rule broke off", refusal=why, rule=rule.name)
    return LeftOut(rule.name, f"left out: {why}", (finding,))


def _of_this_torch(script: Script, finding: Finding) -> Finding:
    """No fix where the program has put something else in the place of a part of torch: all that
    rules know is of torch itself.
    """
    if script.replaced is None or not finding.edits:
        return finding
    node = script.replaced.node
    names = {o.data.get("name", "a part of torch") for o in script.replaced}
    why = f"`{min(names)}` is replaced at {source_of(node).place(line_of(node))}"
    return replace(finding, edits=(), refusal=f"{why}: what torch does then is not known")


def _in_the_project(script: Script, finding: Finding) -> Finding:
    """No fix that would change what is told of a library; what is said of a place there is said of
    the call that leads to it. Raises for an edit that cannot be carried out."""
    if any(None in holes_of(e).values() for e in finding.edits):
        raise TypeError(f"an edit of {at(finding.node)} quotes nothing")
    told = next((s for e in finding.edits if isinstance(s := file_of(e), Told)), None)
    if told is not None:
        why = f"{told.rel} would have to do something else"
        finding = replace(finding, edits=(), refusal=why)
    if isinstance(source_of(finding.node), Told):
        finding = replace(finding, node=_called_from(script, finding.node))
    return finding


def _called_from(script: Script, node: ast.AST) -> ast.AST:
    """The call of the project by which it comes to a place of a library; the entry itself where
    that is not known."""
    home = function_of(node)
    stacks = (o.stack for _, s in script.log.each() for o in s if inside(o.stack, home))
    calls = (
        f.node
        for stack in stacks
        for f in reversed(stack)
        if isinstance(f, CallFrame) and not isinstance(source_of(f.node), Told)
    )
    return next(calls, script.entry.tree)


def rule_failed(rule: Rule, script: Script, error: Exception) -> LeftOut:
    """``rule`` is left out because of ``error``; its only finding stands where it was at work."""
    script.forget()
    why = f"internal error ({faults.described(error)}) in rule {rule.name}, please report"
    finding = Finding(_at_work(script, error), "this rule broke off", refusal=why, rule=rule.name)
    return LeftOut(rule.name, why, (finding,), error)


def _at_work(script: Script, error: Exception) -> ast.AST:
    """The node that the innermost function was looking at when it raised; the entry itself where
    that is not known.
    """
    frames = [frame for frame, _ in traceback.walk_tb(faults.origin(error).__traceback__)]
    for frame in reversed(frames):
        for value in frame.f_locals.values():
            for node in (value, *(getattr(value, "__dict__", {}).get(name) for name in PLACES)):
                if (
                    isinstance(node, (ast.stmt, ast.expr))
                    and getattr(node, "_af_source", None) in script.sources
                ):
                    return node
    return script.entry.tree
