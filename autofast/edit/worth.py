"""Which fixes are worth their lines: decided here alone, by what each is expected to gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autofast.edit.running import LeftOut, rule_failed, too_large
from autofast.model.limits import RULE, WORK, TooLarge
from autofast.model.source import BadInput, source_of
from autofast.rule import Finding, Gain, Options, Rule

if TYPE_CHECKING:
    from autofast.model.script import Script


def judged(
    script: Script, findings: Sequence[Finding], rules: Sequence[Rule], options: Options
) -> tuple[list[Finding], list[LeftOut]]:
    """The findings, each fix with what it is expected to gain; those that gain too little, and
    those that need them, without edits.

    Besides, the rules whose question raised: nothing of theirs is done.
    """
    by_name = {rule.name: rule for rule in rules}
    failed = dict[str, LeftOut]()
    found = tuple(replace(f, asks=f.asks or by_name[f.rule].asks) for f in findings)
    whole = found
    while True:
        done = _followed(
            [_asked(script, f, found, by_name[f.rule], options, failed) for f in found]
        )
        if sum(bool(f.edits) for f in done) == sum(bool(f.edits) for f in found):
            return _followed(_joined(done, whole)), list(failed.values())
        found = tuple(done)  # what is left as it is decides what the others gain


def _asked(
    script: Script,
    finding: Finding,
    findings: tuple[Finding, ...],
    rule: Rule,
    options: Options,
    failed: dict[str, LeftOut],
) -> Finding:
    """The finding with what it is expected to gain, beside all others."""
    ask = finding.asks
    if finding.status != "fix" or ask is None or rule.name in failed:
        return finding
    try:
        with WORK.at_most(RULE):
            gain = ask(script, options, finding, findings)
    except BadInput:
        raise
    except TooLarge as error:
        failed[rule.name] = too_large(rule, script, error)
        return finding
    except Exception as error:
        failed[rule.name] = rule_failed(rule, script, error)
        return finding
    finding = replace(finding, gain=gain)
    if gain is None or not gain.is_below(options.min_gain) or rule.name in options.named:
        return finding
    if gain.slower and not gain.measured:
        return replace(finding, edits=(), refusal=f"it would be slower: {gain.reason}")
    return _without_edits(finding)


def _joined(done: Sequence[Finding], whole: Sequence[Finding]) -> list[Finding]:
    """The findings, those that join others of their rule in their file as they were."""
    written = {(f.rule, source_of(f.node)) for f in done if f.edits}
    return [
        replace(before, gain=now.gain)
        if not now.worth
        and now.gain is not None
        and now.gain.joins
        and (now.rule, source_of(now.node)) in written
        else now
        for now, before in zip(done, whole, strict=True)
    ]


def _is_slower(finding: Finding) -> bool:
    return bool(finding.refusal and finding.gain is not None and finding.gain.slower)


def _without_edits(finding: Finding) -> Finding:
    return replace(finding, edits=(), refusal="", advice="", worth=False)


def _followed(findings: list[Finding]) -> list[Finding]:
    """What needs a fix that is not worth its lines is not worth them either."""
    while True:
        fixed = {(f.rule, f.key) for f in findings if f.edits}
        small = {(f.rule, f.key): f.gain for f in findings if not f.worth or _is_slower(f)}
        missing = {need for need in small if need not in fixed}
        late = {
            n: next(need for need in f.needs if need in missing)
            for n, f in enumerate(findings)
            if f.edits and missing.intersection(f.needs)
        }
        if not late:
            return findings
        for n, need in late.items():
            because = small[need]
            reason = f"goes with {need[0]}" + (f": {because.reason}" if because else "")
            gain = Gain(0.0, reason, joins=because is not None and because.joins)
            findings[n] = _without_edits(replace(findings[n], gain=gain))
