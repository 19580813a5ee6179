"""What options and arguments may be, and how the shell completes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from autofast.config import AUTO, is_version
from autofast.faults import debug

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class Steps(click.IntRange):
    """A number, or ``auto``: None."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return None if value == "auto" else super().convert(value, param, ctx)


class Workers(click.IntRange):
    """A number, or ``auto``."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return AUTO if value in ("auto", AUTO) else super().convert(value, param, ctx)


class Number(click.FloatRange):
    """A number in a range; ``nan`` is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if number != number:
            self.fail(f"{value!r} is no number.", param, ctx)
        return number


class Version(click.types.StringParamType):
    """``2.4``"""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not is_version(value):
            self.fail(f"{value!r} is no version; write one as 2.4.", param, ctx)
        return value


class Named(click.types.StringParamType):
    """A file or folder: an empty name, as of an unset variable of a shell, is a mistake."""

    def __init__(self, instead: str = "give a path, or leave the option out."):
        self.instead = instead

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not value:
            self.fail(f"names nothing; {self.instead}", param, ctx)
        return value


def comma_separated(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    names = tuple(name for value in values for part in value.split(",") if (name := part.strip()))
    if values and not names and param.name != "ignore":
        raise click.BadParameter("names no rule; leave it out, or give names of `autofast rules`.")
    return names


def debugged(ctx: click.Context, param: click.Parameter, on: bool) -> None:
    debug(on)


def complete_files(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The shell completes names of files by itself."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_rules(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of rules, and of groups where an option takes them, behind the last comma."""
    from click.shell_completion import CompletionItem

    from autofast.registry import ALL, all_rules, groups

    known = {rule.name: rule.summary for rule in all_rules().values()}
    before, comma, last = incomplete.rpartition(",")
    if isinstance(param, click.Option):
        known |= {name: f"group: {', '.join(rules)}" for name, rules in groups().items()}
        known[ALL] = "also what is off by default"
    else:
        before, comma, last = "", "", incomplete
    return [
        CompletionItem(f"{before}{comma}{name}", help=told)
        for name, told in sorted(known.items())
        if name.startswith(last)
    ]
