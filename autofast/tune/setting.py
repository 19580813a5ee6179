"""What can be measured: a set of rules, with the values of their options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """Rules that are applied together; ``values`` are options that are not at their default, as
    ``("precision", "fp16")``.
    """

    rules: frozenset[str] = frozenset()
    values: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        words = sorted(self.rules) or ["original"]
        return ", ".join([*words, *(f"--{option} {value}" for option, value in self.values)])

    def __bool__(self) -> bool:
        return bool(self.rules)

    def with_(self, other: Setting) -> Setting:
        """Both; where both have a value for an option, that of ``other``."""
        values = dict(self.values) | dict(other.values)
        return Setting(self.rules | other.rules, tuple(sorted(values.items())))

    def without(self, rules: Iterable[str]) -> Setting:
        """Those of the other rules."""
        return Setting(self.rules - frozenset(rules), self.values)


ORIGINAL = Setting()


@dataclass(frozen=True)
class Unit:
    """The smallest setting in which a rule (with a value of an option) does something: with those
    rules that it needs.
    """

    rule: str
    setting: Setting

    @property
    def name(self) -> str:
        return " ".join([self.rule, *(f"--{o} {v}" for o, v in self.setting.values)])

    @property
    def needed(self) -> tuple[str, ...]:
        """The other rules that it does nothing without."""
        return tuple(sorted(self.setting.rules - {self.rule}))
