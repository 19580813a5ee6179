"""Every rule has its card, and the words of rules follow docs/writing-rules.md."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autofast import registry
from autofast.commands.planning import plan, read
from autofast.config import Config
from autofast.model.script import Script
from autofast.rule import Effect, Finding, Rule

ROOT = Path(__file__).resolve().parent.parent
RULES = registry.all_rules()
HEADINGS = [
    "What it does",
    "Why it is faster",
    "When it applies",
    "When it refuses",
    "Effect",
    "Example",
    "References",
]
NAMES = {"Accelerate", "Lightning", "Python"}
EFFECTS = ("exact", "rounding", "sampling", "recipe")

every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))


def sections(card: str) -> dict[str, str]:
    """Heading -> text below it; fenced lines are no headings."""
    found: dict[str, list[str]] = {}
    fenced, here = False, ""
    for line in card.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and line.startswith("## "):
            here = line[3:].strip()
            assert here not in found, f"two headings '{here}'"
            found[here] = []
        elif here:
            found[here].append(line)
    return {heading: "\n".join(lines).strip() for heading, lines in found.items()}


@every_rule
def test_card(rule: Rule) -> None:
    card = registry.card(rule.name)
    title, blank, summary = card.splitlines()[:3]
    assert title == f"# {rule.name}"
    assert blank == "" and summary == rule.summary, (
        "the card's summary is the first line of the rule's docstring"
    )
    parts = sections(card)
    assert list(parts) == HEADINGS
    assert all(parts.values()), f"empty: {[heading for heading, text in parts.items() if not text]}"
    named = {word for word in EFFECTS if re.search(rf"\b{word}\b", parts["Effect"])}
    assert rule.effect.name.lower() in named, "the section Effect names the rule's effect"
    assert parts["Example"].count("```diff\n") == 1, (
        "the example is a diff, which tests/test_card_examples.py executes"
    )
    assert parts["References"].startswith("- ")


@every_rule
def test_names_and_summary(rule: Rule) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", rule.name)
    assert rule.find.__module__ == "autofast.rules." + rule.name.replace("-", "_"), (
        "a rule stands in the module of its name"
    )
    assert rule.summary[0].isupper() and rule.summary.endswith("."), "the summary is a sentence"
    assert len(rule.summary) <= 100
    assert all(re.fullmatch(r"[a-z][a-z-]*", group) and group not in RULES for group in rule.groups)


def said() -> Iterator[tuple[Script, Finding]]:
    """What the rules say about the fixtures."""
    for path in sorted((ROOT / "fixtures").glob("*/train.py")):
        script = read(path, path.parent)
        for finding in plan(script, Config(select=(registry.ALL,), effect=Effect.RECIPE)).findings:
            yield script, finding


def in_style(text: str, script: Script) -> bool:
    """One line, no full stop, lower case at the start unless it starts with a name from the code or
    one that is written so.
    """
    first = re.split(r"[\s.,:'(]", text.lstrip("`'"))[0]
    lower = (
        first[:1].islower()
        or not first[1:].islower()
        or any(first in source.names for source in script.sources)
    )
    return bool(text) and "\n" not in text and not text.endswith(".") and (lower or first in NAMES)


def test_words() -> None:
    wrong = set()
    for script, finding in said():
        for kind in ("message", "refusal", "advice"):
            text = getattr(finding, kind)
            if (text or kind == "message") and not in_style(text, script):
                wrong.add(f"{finding.rule} ({kind}) on {script.entry.rel}: {text!r}")
    assert not wrong, "\n".join(sorted(wrong))


def test_every_module_registers_a_rule() -> None:
    modules = {p.stem for p in (ROOT / "rules").glob("*.py") if not p.stem.startswith("_")}
    assert modules == {name.replace("-", "_") for name in RULES}
    assert {p.stem for p in (ROOT / "rules").glob("*.md")} == modules


def test_readme_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "readme.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
