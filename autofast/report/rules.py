"""The rules for people: a table, a card, the table of README.md. Colours and boxes only on a
terminal.
"""

from __future__ import annotations

import io
from typing import IO, Any

from autofast import registry
from autofast.model.names import last_part
from autofast.report.style import for_stream
from autofast.rule import Rule


def table(stream: IO[Any]) -> str:
    """All rules with effect, groups and summary."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    rows = Table(
        "rule",
        "effect",
        "groups",
        "what it does",
        box=box.SIMPLE_HEAD if stream.isatty() else None,
        pad_edge=False,
    )
    for rule in registry.all_rules().values():
        rows.add_row(
            rule.name,
            rule.effect.name.lower(),
            ", ".join(rule.groups),
            rule.summary + asked_by(rule) + _origin(rule),
        )
    out = io.StringIO()
    Console(
        file=out,
        width=None if stream.isatty() else 200,
        force_terminal=for_stream(stream).on,
        highlight=False,
    ).print(rows)
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def asked_by(rule: Rule, quote: str = "") -> str:
    """How to ask for a rule that is off by default."""
    return "" if rule.default else f" (on request: {quote}{rule.request}{quote})"


def _origin(rule: Rule) -> str:
    """Whose it is, where it is none of ours."""
    package = registry.package_of(rule)
    return "" if package == "autofast" else f" (of {package})"


def card(name: str, stream: IO[Any]) -> str:
    """The card of a rule: laid out on a terminal, Markdown in a pipe."""
    text = registry.card(name)
    if not for_stream(stream).on:
        return text
    from rich.console import Console
    from rich.markdown import Markdown

    out = io.StringIO()
    Console(file=out, force_terminal=True).print(Markdown(text))
    return out.getvalue()


def markdown() -> str:
    """The table of README.md."""
    lines = ["| rule | effect | what it does |", "| --- | --- | --- |"]
    for rule in registry.all_rules().values():
        link = f"[`{rule.name}`](rules/{last_part(rule.find.__module__)}.md)"
        summary = rule.summary + asked_by(rule, quote="`")
        lines.append(f"| {link} | {rule.effect.name.lower()} | {summary} |")
    return "\n".join(lines) + "\n"


def json() -> str:
    """All rules, for programs."""
    from json import dumps

    rows = [
        {
            "name": rule.name,
            "effect": rule.effect.name.lower(),
            "groups": list(rule.groups),
            "summary": rule.summary,
            "package": registry.package_of(rule),
            "default": rule.default,
            "on_request": None if rule.default else rule.request,
        }
        for rule in registry.all_rules().values()
    ]
    return dumps(rows, indent=2) + "\n"
