"""The options that several commands take: which project, which rules, how far, where to."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from autofast.cli.parameters import (
    Named,
    Number,
    Steps,
    Version,
    Workers,
    comma_separated,
    complete_rules,
    debugged,
)
from autofast.config import EFFECTS, PRECISIONS, TARGETS

if TYPE_CHECKING:
    from autofast.commands.output import Mode

    Modes = dict[str, tuple[Mode, str | bool | None]]

F = TypeVar("F", bound=Callable[..., Any])


def input_options(command: F) -> F:
    """What is read, which rules take part and what they may do. All but the first two have their
    key in ``[tool.autofast]``.
    """
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
            callback=comma_separated,
            metavar="RULES",
            shell_complete=complete_rules,
            help="Only these rules and groups.",
        ),
        click.option(
            "--extend-select",
            multiple=True,
            callback=comma_separated,
            metavar="RULES",
            shell_complete=complete_rules,
            help="These rules and groups, too, beside those that are on.",
        ),
        click.option(
            "--ignore",
            multiple=True,
            callback=comma_separated,
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
            callback=debugged,
            help="Show traces of internal errors.",
        ),
    ]
    return _adding(options, command)


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
    where there is none.
    """
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
