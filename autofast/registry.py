"""Finds the rules, and chooses among them by name or group."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Collection, Iterable
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from autofast.faults import described
from autofast.model.names import first_part
from autofast.model.source import BadInput
from autofast.nearest import hint
from autofast.rule import REGISTRY, Rule

if TYPE_CHECKING:
    from importlib.abc import Traversable
    from importlib.metadata import EntryPoint

GROUP = "autofast.rules"  # of entry points: modules with rules of other packages
ALL = "all"  # as a group: also the rules that are off unless asked for


@cache
def all_rules() -> dict[str, Rule]:
    """Every rule by name, in alphabetical order; raises :class:`BadInput` for a package whose rules
    cannot be taken.
    """
    for module in _modules():
        importlib.import_module(f"autofast.rules.{module}")
    for point in sorted(_entry_points(), key=lambda p: (p.name, p.value)):
        _take(point)
    return dict(sorted(REGISTRY.items()))


def _entry_points() -> Iterable[EntryPoint]:
    """What other packages declare."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def has_other_rules() -> bool:
    """Whether rules of other packages take part."""
    return any(package_of(rule) != "autofast" for rule in all_rules().values())


def _take(point: EntryPoint) -> None:
    """Import the rules of another package: a module of rules, or a package with a module for each.

    All of them or none: what went wrong is one line that names the package.
    """
    before = dict(REGISTRY)
    try:
        _import_all(point)
        _check_new(point, before)
    except BadInput:
        _forget(point, before)
        raise
    except Exception as error:
        _forget(point, before)
        raise BadInput(
            f"{_who(point)}: its rules cannot be loaded ({described(error)}); mend or uninstall it"
        ) from None


def _import_all(point: EntryPoint) -> None:
    module = importlib.import_module(point.module)
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        if not found.name.startswith("_"):
            importlib.import_module(f"{point.module}.{found.name}")


def _check_new(point: EntryPoint, before: dict[str, Rule]) -> None:
    who = _who(point)
    own = [name for name, rule in REGISTRY.items() if before.get(name) is not rule]
    if not own:
        raise BadInput(f"{who}: has no rule; mark one with @autofast.rule.rule, or uninstall it")
    for name in own:
        if other := before.get(name):
            whose = package_of(other)
            raise BadInput(
                f"{who}: its rule '{name}' has the name of a rule of {whose}; rename or uninstall it"
            )
        if name in {group for rule in before.values() for group in rule.groups} or name == ALL:
            raise BadInput(
                f"{who}: its rule '{name}' has the name of a group; rename or uninstall it"
            )
        if clash := (set(before) | {ALL}).intersection(REGISTRY[name].groups):
            raise BadInput(
                f"{who}: the group '{min(clash)}' of its rule '{name}' has the name of a rule; rename or uninstall it"
            )
        if not _card_file(REGISTRY[name]).is_file():
            raise BadInput(
                f"{who}: its rule '{name}' has no card; put {_card_file(REGISTRY[name]).name} beside its module"
            )


def _forget(point: EntryPoint, before: dict[str, Rule]) -> None:
    """As if the package had not been imported, so that another try says the same again."""
    REGISTRY.clear()
    REGISTRY.update(before)
    for name in [n for n in sys.modules if f"{n}.".startswith(f"{point.module}.")]:
        del sys.modules[name]


def _who(point: EntryPoint) -> str:
    """The package that declares an entry point, as pip calls it."""
    return point.dist.name if point.dist is not None else point.value


def groups() -> dict[str, tuple[str, ...]]:
    """Group -> names of its rules."""
    found: dict[str, tuple[str, ...]] = {}
    for rule in all_rules().values():
        for group in rule.groups:
            found[group] = (*found.get(group, ()), rule.name)
    return dict(sorted(found.items()))


def select(
    names: Collection[str] = (),
    ignore: Iterable[str] = (),
    given: Iterable[str] = (),
    extend: Iterable[str] = (),
) -> list[Rule]:
    """The rules of ``names`` (none given: those that are on by default, and what is told where
    nobody asks) and ``extend``, and what the options ``given`` ask for, without ``ignore``.

    ``names``, ``extend`` and ``ignore`` take rule names and groups; :class:`BadInput` suggests what
    was probably meant.
    """
    rules = all_rules()
    wanted = _expand(names) or {name for name, rule in rules.items() if rule.default}
    wanted |= _expand(extend) | {name for name, rule in rules.items() if rule.is_asked_by(given)}
    unwanted = _expand(ignore)
    chosen = [rule for name, rule in rules.items() if name in wanted and name not in unwanted]
    if chosen and not names:
        told = (rule for name, rule in rules.items() if rule.told and name not in wanted | unwanted)
        chosen += [rule.in_advice() for rule in told]
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
    return _card_file(rule).read_text(encoding="utf-8")


def _card_file(rule: Rule) -> Traversable:
    """The Markdown file with the name of the rule's module, beside it."""
    package, _, stem = rule.find.__module__.rpartition(".")
    return files(package).joinpath(f"{stem}.md")


def package_of(rule: Rule) -> str:
    """The package that a rule comes from: ``autofast``, or another one."""
    return first_part(rule.find.__module__)


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
    """Raises :class:`BadInput`, which begins with ``where``, unless all of ``names`` are rules or
    groups.
    """
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
