"""The project that a command works in, and its defaults in ``[tool.autofast]``."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from autofast.cli.group import Given
from autofast.cli.options import Steps
from autofast.config import Config, find_root, load, settings
from autofast.model.disk import resolved_path
from autofast.model.several import all_of
from autofast.model.source import BadInput
from autofast.nearest import hint

STDIN = "-"
# Options that mean nothing without another one.
ON_REQUEST = {"keep_batch": "accumulate", "sync_batchnorm": "ddp"}
# Those that are in the configuration as they are given.
PLAIN = (
    *"precision torch workers compile accumulate ddp min_gain exhaustive facts".split(),
    *ON_REQUEST,
)
# Those that are settings of the project, and no arguments of a command's own.
SETTINGS = frozenset(("root", "select", "extend_select", "ignore", *PLAIN))
# Those that stand in [tool.autofast] itself, as several commands have them.
_ELSEWHERE = (
    *("select", "extend-select", "ignore", "effect", "target", "force-exclude"),
    *(name.replace("_", "-") for name in PLAIN),
)


class ProjectCommand(click.Command):
    """A command whose options have their defaults in ``[tool.autofast.NAME]`` of the project."""

    def invoke(self, ctx: click.Context) -> Any:

        near = [Path(p) for p in _paths(ctx) if p != STDIN] or [Path.cwd()]
        if not all(os.path.exists(path) for path in near):
            return super().invoke(ctx)  # which says so
        found = settings(root_of(ctx.params.get("root"), *near))
        own = {
            max(p.opts, key=len).lstrip("-"): p for p in self.params if isinstance(p, click.Option)
        }
        for key in ("root", "stdin-filename", "debug", *_ELSEWHERE):
            own.pop(key, None)
        for key, value in found.commands.get(str(self.name), {}).items():
            where = f"{found.place(f'{self.name}.{key}')}: '{key}' in [tool.autofast.{self.name}]"
            if key in _ELSEWHERE:
                raise BadInput(
                    f"{where} is an option of several commands; write it in [tool.autofast]"
                )
            if key not in own:
                raise BadInput(f"{where} is no option; {hint(key, own, _known(own))}")
            taken = _taken(own[key], ctx, value, where)
            name = str(own[key].name)
            if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT:
                ctx.params[name] = taken
        return super().invoke(ctx)


def _taken(option: click.Option, ctx: click.Context, value: Any, where: str) -> Any:
    """What a value of the file means to an option; raises :class:`BadInput` where that is nothing:
    ``"no"`` is no false, and 3 no name."""
    kind: type | tuple[type, ...] = str
    if option.is_flag:
        wanted, kind = "true or false", bool
    elif option.multiple:
        wanted, kind = "a list of strings", list
    elif isinstance(option.type, click.Choice):
        wanted = "one of " + ", ".join(f'"{choice}"' for choice in option.type.choices)
    elif isinstance(option.type, (click.IntRange, click.FloatRange, click.types.IntParamType)):
        wanted, kind = "a number", (int, float)
    else:
        wanted = "a string"
    fits = isinstance(value, kind) and isinstance(value, bool) is option.is_flag
    if option.multiple:
        fits = fits and all_of(value, str)
    try:
        if fits or (isinstance(option.type, Steps) and value == "auto"):
            return option.type_cast_value(ctx, value)
    except click.BadParameter as error:
        if not isinstance(option.type, click.Choice):
            raise BadInput(f"{where}: {error.message.rstrip('.')}; write another one") from None
    raise BadInput(f"{where} is {value!r}; write {wanted}")


def _paths(ctx: click.Context) -> tuple[str, ...]:
    """The files and folders that a command is given."""
    place = re.sub(r"(:cell \d+)?:\d+$", "", ctx.params.get("place") or "") or None  # FILE:LINE
    named = ctx.params.get("paths") or (
        ctx.params.get("entry") or ctx.params.get("script") or place,
    )
    return tuple(str(path) for path in named if path is not None)


def _known(options: Iterable[str]) -> str:
    return f"options are {', '.join(sorted(options))}"


def entry_of(name: str, stdin_filename: Path | None) -> tuple[Path, bytes | None]:
    """The script to read, and its text where that comes from standard input."""
    if name != STDIN:
        return Path(name), None
    if sys.stdin is None:
        raise BadInput("standard input is closed; give the name of a script")
    return stdin_filename or Path("-"), sys.stdin.buffer.read()


def root_of(given: Path | None, *near: Path) -> Path:
    """The project's folder: as given, else the git root, else the folder of what is looked at (what
    is common to several)."""
    if given is None:
        return Path(os.path.commonpath([find_root(path) for path in near]))
    if not os.path.isdir(given):
        raise BadInput(f"{given}: is no folder; give the project's folder as --root")
    root = given.resolve()
    for path in near:
        if resolved_path(path) != root and root not in resolved_path(path).parents:
            raise BadInput(f"{path}: is outside of --root {given}; give a folder that holds it")
    return root


def configured(root: Path, given: Given) -> Config:
    """The project's configuration with the options of the command line over it."""

    from autofast.rule import Effect

    config = load(root)
    plain = ("target", "force_exclude", *PLAIN)
    changes = {key: given[key] for key in plain if given.get(key) is not None}
    if given["effect"] is not None:
        changes["effect"] = Effect[given["effect"].upper()]
    # Asked for by name just now: this outdoes what the project's file leaves out.
    if given["select"]:
        changes.update(select=given["select"], ignore=given["ignore"])
    else:
        changes["ignore"] = (*config.ignore, *given["ignore"])
    changes["extend_select"] = (
        *(() if given["select"] else config.extend_select),
        *given["extend_select"],
    )
    config = replace(config, **changes)
    if names := [*given["select"], *given["extend_select"], *given["ignore"]]:
        from autofast.registry import check_names

        check_names(names)
    for name, other in ON_REQUEST.items():
        if getattr(config, name) and not getattr(config, other):
            option = name.replace("_", "-")
            said = f"--{option} means nothing without --{other}; give both"
            if given.get(name) is None:
                place = settings(root).place(option)
                said = f"{place}: '{option}' means nothing without '{other}'; write both"
            raise BadInput(said)
    return config
