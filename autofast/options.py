"""What several commands take: which project, which rules, how far; and its defaults in ``[tool.autofast]``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autofast.config import AUTO, EFFECTS, PRECISIONS, TARGETS, find_root, is_version
from autofast.faults import debug
from autofast.model.disk import real
from autofast.model.source import BadInput
from autofast.nearest import hint

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from autofast.config import Config

F = TypeVar("F", bound=Callable[..., Any])
STDIN = "-"
# Options that mean nothing without another one.
ON_REQUEST = {"keep_batch": "accumulate", "sync_batchnorm": "ddp"}
# Those that are in the configuration as they are given.
PLAIN = (
    *(
        "precision",
        "torch",
        "workers",
        "compile",
        "accumulate",
        "ddp",
        "min_gain",
        "exhaustive",
        "facts",
    ),
    *ON_REQUEST,
)
# Those that are settings of the project, and no arguments of a command's own.
SETTINGS = frozenset(("root", "select", "extend_select", "ignore", *PLAIN))
# Those that stand in [tool.autofast] itself, as several commands have them.
_ELSEWHERE = (
    *("select", "extend-select", "ignore", "effect", "target", "force-exclude"),
    *(name.replace("_", "-") for name in PLAIN),
)


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


class ProjectCommand(click.Command):
    """A command whose options have their defaults in ``[tool.autofast.NAME]`` of the project."""

    def invoke(self, ctx: click.Context) -> Any:
        from autofast.config import settings

        near = [Path(p) for p in _paths(ctx) if p != STDIN] or [Path.cwd()]
        if not all(path.exists() for path in near):
            return super().invoke(ctx)  # which says so
        found = settings(root_of(ctx.params.get("root"), *near))
        own = {_key(p): p for p in self.params if isinstance(p, click.Option)}
        for key in ("root", "stdin-filename", "debug", *_ELSEWHERE):
            own.pop(key, None)
        for key, value in found.commands.get(str(self.name), {}).items():
            where = f"{found.place(f'{self.name}.{key}')}: '{key}' in [tool.autofast.{self.name}]"
            if key not in own:
                raise BadInput(f"{where} is no option; {hint(key, own, _known(own))}")
            name = str(own[key].name)
            if ctx.get_parameter_source(name) is click.core.ParameterSource.DEFAULT:
                try:
                    ctx.params[name] = own[key].type_cast_value(ctx, value)
                except (click.ClickException, TypeError):
                    raise BadInput(f"{where} is {value!r}, which --{key} does not take") from None
        return super().invoke(ctx)


def _paths(ctx: click.Context) -> tuple[str, ...]:
    """The files and folders that a command is given."""
    named = ctx.params.get("paths") or (ctx.params.get("entry") or ctx.params.get("script"),)
    return tuple(str(path) for path in named if path is not None)


def _key(option: click.Option) -> str:
    return max(option.opts, key=len).lstrip("-")


def _known(options: Iterable[str]) -> str:
    return f"options are {', '.join(sorted(options))}"


def _comma_separated(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    names = tuple(name for value in values for part in value.split(",") if (name := part.strip()))
    if values and not names and param.name != "ignore":
        raise click.BadParameter("names no rule; leave it out, or give names of `autofast rules`.")
    return names


def _debug(ctx: click.Context, param: click.Parameter, on: bool) -> None:
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


def input_options(command: F) -> F:
    """What is read, which rules take part and what they may do. All but the first two have their key in ``[tool.autofast]``."""
    options = [
        click.option(
            "--root",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Folder of the project.  [default: the git root]",
        ),
        click.option(
            "--stdin-filename",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="What standard input is called.",
        ),
        click.option(
            "--select",
            multiple=True,
            callback=_comma_separated,
            metavar="RULES",
            shell_complete=complete_rules,
            help="Only these rules and groups.",
        ),
        click.option(
            "--extend-select",
            multiple=True,
            callback=_comma_separated,
            metavar="RULES",
            shell_complete=complete_rules,
            help="These rules and groups, too, beside those that are on.",
        ),
        click.option(
            "--ignore",
            multiple=True,
            callback=_comma_separated,
            metavar="RULES",
            shell_complete=complete_rules,
            help="None of these rules and groups.",
        ),
        click.option(
            "--effect",
            type=click.Choice(EFFECTS),
            help="How far a rewrite may go.  [default: sampling]",
        ),
        click.option(
            "--precision", type=click.Choice(PRECISIONS), help="Of autocast.  [default: auto]"
        ),
        click.option(
            "--target",
            type=click.Choice(TARGETS),
            help="Hardware that the rewrite is for.  [default: cuda]",
        ),
        click.option(
            "--torch",
            type=Version(),
            metavar="VERSION",
            help="The torch that the script will run with, whatever its project says.",
        ),
        click.option(
            "--workers",
            type=Workers(1),
            metavar="N|auto",
            help="So many for each loader (auto: as there are cores), also where 0, 1 or 2 are written.",
        ),
        click.option(
            "--compile",
            is_flag=True,
            default=None,
            help="Also compile the model: pays back in long runs.",
        ),
        click.option(
            "--accumulate",
            type=click.IntRange(2),
            metavar="N",
            help="Also take an optimizer step every N batches only.",
        ),
        click.option(
            "--keep-batch",
            is_flag=True,
            default=None,
            help="With --accumulate: of batches N times smaller.",
        ),
        click.option(
            "--ddp",
            is_flag=True,
            default=None,
            help="Also train on several processes, started by torchrun.",
        ),
        click.option(
            "--sync-batchnorm",
            is_flag=True,
            default=None,
            help="With --ddp: BatchNorm over all processes.",
        ),
        click.option(
            "--min-gain",
            type=Number(0, 100),
            metavar="PERCENT",
            help="Only what is expected to save this much of the training's time.  [default: 1]",
        ),
        click.option(
            "--exhaustive",
            is_flag=True,
            default=None,
            help="Everything, however little it gains (as --min-gain 0).",
        ),
        click.option(
            "--debug",
            is_flag=True,
            expose_value=False,
            callback=_debug,
            help="Show traces of internal errors.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _adding(options: Sequence[Callable[[F], F]], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def facts_option(command: F) -> F:
    """What was measured; ``verify`` writes it instead."""
    return click.option(
        "--facts",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Decide by what was measured: a file that `verify --facts` wrote.",
    )(command)


def output_options(command: F) -> F:
    """Where a rewritten script goes."""
    options = [
        click.option(
            "-o",
            "--output",
            type=Named(),
            metavar="FILE",
            help="Write the rewritten script to FILE (`-`: standard output).",
        ),
        click.option(
            "--output-dir",
            type=Named(),
            metavar="DIR",
            help="Write all files of the script below DIR.",
        ),
        click.option("--in-place", is_flag=True, help="Rewrite the files themselves."),
        click.option(
            "--diff",
            is_flag=True,
            help="Show the changes; this is also what happens without any of these.",
        ),
        click.option(
            "--patch",
            type=Named(),
            metavar="FILE",
            help="Write the changes to FILE for `git apply` (`-`: standard output).",
        ),
    ]
    return _adding(options, command)


def run_options(command: F) -> F:
    """How scripts are run and measured."""
    options = [
        click.option(
            "--steps",
            type=Steps(0),
            metavar="N",
            help="Optimizer steps of a run (0: all; auto: a few seconds of them).  [default: auto]",
        ),
        click.option(
            "--time-budget",
            "budget",
            type=Number(0),
            default=900.0,
            metavar="S",
            help="Seconds for everything (0: no limit).  [default: 900]",
        ),
        click.option(
            "--json",
            "json_file",
            type=Named(),
            metavar="FILE",
            help="Write all figures to FILE (`-`: standard output).",
        ),
        click.option(
            "--report",
            "html_file",
            type=Named(),
            metavar="FILE",
            help="Write a page with plots to FILE.",
        ),
        click.option("--force", is_flag=True, help="Replace files that exist."),
        click.option(
            "--launch",
            default="",
            metavar="COMMAND",
            help='Start the scripts with it: "torchrun --nproc-per-node=2", "srun --gres=gpu:1".',
        ),
        click.option(
            "--python",
            default=sys.executable,
            metavar="EXE",
            help="The interpreter that has your packages.  [default: this one]",
        ),
        click.option(
            "--link",
            "links",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="PATH",
            help="Do not copy PATH: the scripts only read it.",
        ),
        click.option(
            "--scratch",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Make the copies here.  [default: the temporary folder]",
        ),
        click.option(
            "--threads",
            type=click.IntRange(1),
            metavar="N",
            help="CPU threads of torch.  [default: half the cores without a GPU]",
        ),
        click.option(
            "--limit",
            type=Number(0),
            default=0.0,
            metavar="S",
            help="End a run after S seconds.",
        ),
        click.option(
            "--seed",
            type=int,
            default=0,
            metavar="N",
            help="Random generators start from it.  [default: 0]",
        ),
        click.option(
            "--seeds",
            type=click.IntRange(4),
            default=12,
            metavar="N",
            help="Most seeds that are tried.  [default: 12]",
        ),
        click.option(
            "--margin",
            type=Number(0, min_open=True),
            default=0.02,
            metavar="X",
            help="Share of the loss that counts as no difference.  [default: 0.02]",
        ),
    ]
    return _adding(options, command)


# ------------------------------------------------------------------------------------------------ what is made of them
def entry_of(name: str, stdin_filename: Path | None) -> tuple[Path, bytes | None]:
    """The script to read, and its text where that comes from standard input."""
    if name != STDIN:
        return Path(name), None
    if sys.stdin is None:
        raise BadInput("standard input is closed; give the name of a script")
    return stdin_filename or Path("-"), sys.stdin.buffer.read()


def root_of(given: Path | None, *near: Path) -> Path:
    """The project's folder: as given, else the git root, else the folder of what is looked at (what is common to several)."""
    if given is None:
        return Path(os.path.commonpath([find_root(path) for path in near]))
    if not given.is_dir():
        raise BadInput(f"{given}: is no folder; give the project's folder as --root")
    root = given.resolve()
    for path in near:
        if real(path) != root and root not in real(path).parents:
            raise BadInput(f"{path}: is outside of --root {given}; give a folder that holds it")
    return root


def configured(root: Path, given: dict[str, Any]) -> Config:
    """The project's configuration with the options of the command line over it."""
    from dataclasses import replace

    from autofast.config import load
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
            raise BadInput(f"--{name.replace('_', '-')} means nothing without --{other}; give both")
    return config
