"""The options that several commands take: which project, which rules, how far, where to.

What options and arguments may be, and how the shell completes them.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autofast.config import AUTO, EFFECTS, PRECISIONS, TARGETS, is_version
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


INSTALLED = "installed"


class Version(click.types.StringParamType):
    """``2.4``, or ``installed``: that of the torch beside autofast, which is not imported."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == INSTALLED and not (value := _installed_torch()):
            self.fail(
                "no torch is installed beside autofast; write its version as 2.4.", param, ctx
            )
        if not is_version(value):
            self.fail(f"{value!r} is no version; write one as 2.4, or {INSTALLED}.", param, ctx)
        return value


def _installed_torch() -> str:
    """``2.13.0`` of ``2.13.0+cu130``; empty where there is none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        found = re.match(r"\d+\.\d+(\.\d+)?", version("torch"))
    except PackageNotFoundError:
        return ""
    return found[0] if found else ""


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


if TYPE_CHECKING:
    from autofast.commands.output import Mode

    Modes = dict[str, tuple[Mode, str | bool | None]]

F = TypeVar("F", bound=Callable[..., Any])


PATH = click.Path(path_type=Path)
rules = partial(
    click.option,
    multiple=True,
    callback=comma_separated,
    metavar="RULES",
    shell_complete=complete_rules,
)
flag = partial(click.option, is_flag=True)
also = partial(flag, default=None)  # not given is not the same as no: the project may say yes
folder = partial(click.option, type=PATH, metavar="DIR")
file = partial(click.option, type=Named(), metavar="FILE")


def interpreter(given: str) -> str:
    """A path as it is seen from the current folder, since runs are made in another; links stay, as
    an environment is told by them. A name is looked for as a shell does."""
    return os.path.abspath(given) if os.path.dirname(given) else given


def input_options(command: F) -> F:
    """What is read, which rules take part and what they may do. All but the first and the last have
    their key in ``[tool.autofast]``."""
    options = [
        folder("--root", help="Folder of the project.  [default: the git root]"),
        rules("--select", help="Only these rules and groups, comma-separated."),
        rules("--extend-select", help="These rules and groups, too, beside those that are on."),
        rules("--ignore", help="None of these rules and groups."),
        click.option(
            "--effect",
            type=click.Choice(EFFECTS),
            help="How far a rewrite may go.  [default: sampling]",
        ),
        click.option(
            "--precision",
            type=click.Choice(PRECISIONS),
            help="The 16 bits that autocast computes in.  [default: auto]",
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
            help=f"The torch that the script will run with, or `{INSTALLED}`: the one beside autofast.  "
            "[default: what the project says]",
        ),
        click.option(
            "--workers",
            type=Workers(1),
            metavar="N|auto",
            help="Worker processes of each loader, also where the script has 0, 1 or 2. "
            "auto: as many as there are cores.",
        ),
        also("--compile", help="Also compile the model, which pays back in long runs."),
        click.option(
            "--accumulate",
            type=click.IntRange(2),
            metavar="N",
            help="Also take an optimizer step every N batches only.",
        ),
        also("--keep-batch", help="With --accumulate: make batches N times smaller."),
        also("--ddp", help="Also train on several processes, started by torchrun."),
        also("--sync-batchnorm", help="With --ddp: BatchNorm over all processes."),
        click.option(
            "--min-gain",
            type=Number(0, 100),
            metavar="PERCENT",
            help="Leave out what is expected to save less of the training's time.  [default: 1]",
        ),
        also("--exhaustive", help="Leave out nothing, however little it gains."),
        flag(
            "--debug",
            expose_value=False,
            callback=debugged,
            help="Show the traces of internal errors.",
        ),
    ]
    return _adding(options, command)


def _adding(options: Sequence[Callable[[F], F]], command: F) -> F:
    for option in reversed(options):
        command = option(command)
    return command


def stdin_option(command: F) -> F:
    """Of the commands that read `-`."""
    told = "The file that standard input stands for."
    return click.option("--stdin-filename", type=PATH, metavar="FILE", help=told)(command)


def facts_option(command: F) -> F:
    """What was measured; ``verify`` writes it instead."""
    told = "Decide by what was measured: a file that `verify --facts` wrote."
    return click.option("--facts", type=PATH, metavar="FILE", help=told)(command)


def output_options(command: F) -> F:
    """Where a rewritten script goes."""
    options = [
        file("-o", "--output", help="Write the rewritten script to FILE (`-`: standard output)."),
        file("--output-dir", metavar="DIR", help="Write all files of the script below DIR."),
        flag("--in-place", help="Rewrite the files themselves."),
        flag("--diff", help="Show the changes; this is also what happens without any of these."),
        file("--patch", help="Write the changes to FILE for `git apply` (`-`: standard output)."),
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
        file("--json", "json_file", help="Write all figures to FILE (`-`: standard output)."),
        file("--report", "html_file", help="Write a page with plots to FILE."),
        flag("--force", help="Replace files that exist."),
        click.option(
            "--launch",
            default="",
            metavar="COMMAND",
            help='Launcher of the scripts, as "torchrun --nproc-per-node=2" or '
            '"srun --gres=gpu:1".',
        ),
        click.option(
            "--python",
            default=sys.executable,
            callback=lambda context, option, value: interpreter(value),
            metavar="EXE",
            help="The interpreter that has your packages.  [default: this one]",
        ),
        click.option(
            "--link",
            "links",
            multiple=True,
            type=PATH,
            metavar="PATH",
            help="Link PATH into the copies of the project: data that the scripts only read.",
        ),
        folder("--scratch", help="Make the copies in DIR.  [default: the temporary folder]"),
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
            help="End a run after S seconds.  [default: by the length of the first run]",
        ),
        click.option(
            "--seed",
            type=int,
            default=0,
            metavar="N",
            help="First seed of the random generators.  [default: 0]",
        ),
        click.option(
            "--seeds",
            type=click.IntRange(4),
            default=12,
            metavar="N",
            help="Try so many seeds at most.  [default: 12]",
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


def chosen(
    output: str | None,
    output_dir: str | None,
    in_place: bool,
    diff: bool,
    patch: str | None,
    more: Modes | None = None,
    without: Mode = "diff",
) -> tuple[str, Mode, str]:
    """Where the script goes: the option that says so, what it means, and its path; ``without``
    where there is none."""
    modes: Modes = {
        "-o": ("file", output),
        "--output-dir": ("folder", output_dir),
        "--in-place": ("in-place", in_place),
        "--diff": ("diff", diff),
        "--patch": ("patch", patch),
        **(more or {}),
    }
    given = [(option, mode, value) for option, (mode, value) in modes.items() if value]
    if len(given) > 1:
        raise click.UsageError(f"{given[0][0]} and {given[1][0]} exclude each other: choose one.")
    option, mode, value = given[0] if given else ("", without, "-")
    return option, mode, value if isinstance(value, str) else "-"
