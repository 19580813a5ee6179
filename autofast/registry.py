"""Finds the rules, and chooses among them by name or group."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from autofast.model.source import BadInput
from autofast.nearest import hint
from autofast.rule import REGISTRY, Rule

ALL = "all"  # as a group: also the rules that are off unless asked for


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by name, in alphabetical order."""
    for module in _modules():
        importlib.import_module(f"autofast.rules.{module}")
    return dict(sorted(REGISTRY.items()))


def groups() -> dict[str, tuple[str, ...]]:
    """Group -> names of its rules."""
    found: dict[str, tuple[str, ...]] = {}
    for rule in all_rules().values():
        for group in rule.groups:
            found[group] = (*found.get(group, ()), rule.name)
    return dict(sorted(found.items()))


def select(
    names: Iterable[str] = (), ignore: Iterable[str] = (), given: Iterable[str] = ()
) -> list[Rule]:
    """The rules of ``names`` (none given: those that are on by default) and those that the options ``given`` ask for, without those of ``ignore``.

    ``names`` and ``ignore`` take rule names and groups; :class:`BadInput` suggests what was probably meant.
    """
    rules = all_rules()
    wanted = _expand(names) or {name for name, rule in rules.items() if rule.default}
    wanted |= {name for name, rule in rules.items() if rule.is_asked_by(given)}
    unwanted = _expand(ignore)
    chosen = [rule for name, rule in rules.items() if name in wanted and name not in unwanted]
    if not chosen:
        raise BadInput(
            "no rule is left: all that --select (or `select` in pyproject.toml) names is ignored; leave out one of the two"
        )
    return chosen


def card(name: str) -> str:
    """The card of a rule: the Markdown file beside its module."""
    rule = all_rules().get(name)
    if rule is None:
        raise BadInput(_unknown(name, known=list(all_rules())))
    stem = rule.find.__module__.rpartition(".")[2]
    return files("autofast.rules").joinpath(f"{stem}.md").read_text(encoding="utf-8")


def card_section(name: str) -> str:
    """The first section of a card, without its heading: what the rule does."""
    _, _, rest = card(name).partition("\n## ")
    return rest.partition("\n## ")[0].partition("\n")[2].strip()


def _modules() -> list[str]:
    package = importlib.import_module("autofast.rules")
    return sorted(
        m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")
    )


def _expand(names: Iterable[str]) -> set[str]:
    rules, by_group = all_rules(), groups()
    found: set[str] = set()
    for name in names:
        if name in rules:
            found.add(name)
        elif name in by_group:
            found.update(by_group[name])
        elif name == ALL:
            found.update(rules)
        else:
            raise BadInput(_unknown(name, known=[*rules, *by_group, ALL]))
    return found


def check_names(names: Iterable[str], where: str = "") -> None:
    """Raises :class:`BadInput`, which begins with ``where``, unless all of ``names`` are rules or groups."""
    known = [*all_rules(), *groups(), ALL]
    for name in names:
        if name not in known:
            raise BadInput(where + _unknown(name, known))


def expanded(names: Iterable[str]) -> frozenset[str]:
    """The rules of ``names``, which are rules and groups."""
    return frozenset(_expand(names))


def _unknown(name: str, known: list[str]) -> str:
    return (
        f"there is no rule called '{name}'; {hint(name, known, '`autofast rules` lists them all')}"
    )
