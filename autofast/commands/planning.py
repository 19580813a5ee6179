"""A script, read as the configuration says, and what rules would do to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from autofast.commands.discover import is_marimo
from autofast.commands.exclusions import with_exclusions
from autofast.commands.informing import with_facts
from autofast.config import Config
from autofast.edit.passes import Passes
from autofast.edit.plan import Plan
from autofast.edit.running import run
from autofast.heap import growing
from autofast.model.script import Script
from autofast.model.source import Source
from autofast.read import read_script
from autofast.registry import ALL, all_rules, select
from autofast.report.record import Record, merged
from autofast.rule import Options, Rule

_DEFAULT = Config()
Overlay = Mapping[Path, bytes]  # unsaved texts, by the real paths of their files


def read(
    entry: Path,
    root: Path,
    raw: bytes | None = None,
    config: Config = _DEFAULT,
    overlay: Overlay | None = None,
    before: Iterable[Source] = (),
) -> Script:
    """The script at ``entry``; ``raw`` is its text where that does not come from the file,
    ``overlay`` that of any file. Files that still are as in ``before`` are not parsed again."""
    texts = texts_of(entry, raw, overlay)
    with growing():
        found = read_script(entry, root, overlay=texts, before=before)
        return with_facts(with_exclusions(found, config), config)


def texts_of(entry: Path, raw: bytes | None, overlay: Overlay | None) -> dict[Path, bytes]:
    """What stands in files in the place of what is on the disk."""
    return {**(overlay or {}), **({} if raw is None else {entry.resolve(): raw})}


def plan(script: Script, config: Config) -> Plan:
    """What the configured rules would do to ``script``."""
    return plan_by(script, config, chosen(config))


def chosen(config: Config) -> list[Rule]:
    return select(config.select, config.ignore, config.given, config.extend_select)


def on_request(script: Script, plan: Plan, config: Config) -> tuple[list[Record], list[str]]:
    """What options that are not given would do besides, each with the option, and warnings about
    them; nothing is applied.

    Rules that have no option of their own and relieve nothing are left out: they change the
    training without making a step faster.
    """
    every = [
        rule
        for rule in select([ALL], config.ignore)
        if rule.default or rule.option or rule.relieves
    ]
    rules = {rule.name: rule for rule in every if rule not in plan.rules}
    if not rules:
        return [], []
    plans = [plan_by(script, config, every)]
    done = {f.rule for f in plans[0].fixes}
    # What has nothing to do where another is asked for as well (images on one GPU, and several
    # processes) is asked alone.
    alone = [x for x in rules.values() if x.name not in done and _would_do(x, script, config)]
    if alone:
        plans.append(plan_by(script, config, [r for r in every if r.default] + alone))
    records = (
        Record.of(f, rules[f.rule].effect) for p in plans for f in p.fixes if f.rule in rules
    )
    warnings = [x.warning for p in plans for x in p.left_out if x.rule in rules]
    return merged(
        replace(record, message=f"{record.message} (on request: {rules[record.rule].request})")
        for record in records
    ), list(dict.fromkeys(warnings))


def _would_do(rule: Rule, script: Script, config: Config) -> bool:
    """Whether a rule would change anything if it were the only one."""
    found, _ = run([rule], script, options_of(config, [rule]))
    return any(finding.edits for _, finding in found)


def findings(plan: Plan | Passes) -> list[Record]:
    """All findings of a plan but those that a comment in the script keeps away."""
    rules = all_rules()
    return merged(
        Record.of(finding, rules[finding.rule].effect)
        for finding in plan.findings
        if not finding.ignored
    )


def trains_nothing(script: Script, plan: Plan) -> bool:
    """Nothing in ``script`` is any business of ours. Scripts whose loop is inside a framework have
    none of their own, and are."""
    return is_marimo(script.entry.raw) or not (script.steps or script.frameworks or plan.findings)


def options_of(config: Config, rules: list[Rule]) -> Options:
    """What the configuration says to these rules."""
    return Options(
        precision=config.precision,
        target=config.target,
        selected=frozenset(rule.name for rule in rules),
        asked=frozenset(
            r.name
            for r in rules
            if not r.default and (r.name in config.named or r.is_asked_by(config.given))
        ),
        accumulate=config.accumulate,
        workers=max(0, config.workers),
        any_workers=config.workers != 0,
        keep_batch=config.keep_batch,
        sync_batchnorm=config.sync_batchnorm,
        named=_named(config, rules),
        min_gain=config.least_gain,
        effect=config.effect,
    )


def _named(config: Config, rules: list[Rule]) -> frozenset[str]:
    """The rules that the user named, by themselves or by a group, and those that do what a
    precision was named for."""
    named = {
        r.name
        for r in rules
        if r.name in config.named or config.named & set(r.groups) or r.is_asked_by(config.given)
    }
    if config.precision != "auto":
        named |= {r.name for r in rules if r.lowers_precision}
    return frozenset(named)


def plan_by(script: Script, config: Config, rules: list[Rule]) -> Plan:
    options = options_of(config, rules)
    with growing():
        return Plan.make(script, options, rules, config.effect, config.line_length)
