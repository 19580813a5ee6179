"""``autofast verify`` and ``autofast tune``: the commands that run scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autofast.cli.group import Fault, Given, cli, out, say
from autofast.cli.options import (
    PATH,
    chosen,
    file,
    flag,
    folder,
    input_options,
    output_options,
    run_options,
)
from autofast.cli.project import SETTINGS, ProjectCommand, configured, root_of
from autofast.model.several import not_none
from autofast.report.progress import Tell

if TYPE_CHECKING:
    from autofast.verify.request import Request


class _WithScriptArguments(ProjectCommand):
    """What stands behind ``--`` belongs to the script."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS]"]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, behind = (
            (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        )
        rest = super().parse_args(ctx, own)
        ctx.params["arguments"] = tuple(behind)
        return rest


@cli.command("verify", cls=_WithScriptArguments)
@click.argument("script", type=PATH)
@click.argument("rewritten", type=PATH, required=False)
@run_options
@flag("--by-rule", help="Also measure what each rule contributes.")
@file("--facts", "facts_file", help="Write what SCRIPT was seen to do, for `rewrite --facts`.")
@flag("-v", "--verbose", help="Print every check and figure, not only what decides.")
@flag("--github", help="Print Markdown for a pull request in place of text.")
@click.option(
    "--resume-from",
    type=PATH,
    metavar="CKPT",
    help="Compare a late part of the training: both scripts go on from their checkpoint CKPT.",
)
@click.option(
    "--launch-rewritten",
    default="",
    metavar="COMMAND",
    help="Launcher of the rewritten script alone, as after --ddp.",
)
@folder("--cwd", help="Run in DIR itself, not in copies of the project.")
@input_options
def verify_command(
    script: Path,
    rewritten: Path | None,
    json_file: str | None,
    html_file: str | None,
    facts_file: str | None,
    github: bool,
    verbose: bool,
    force: bool,
    **given: Any,
) -> None:
    """Measure whether a rewrite is faster and trains the same.

    Runs SCRIPT and REWRITTEN side by side with their ARGUMENTS, in copies of the project, and
    compares their times and what they train. Without REWRITTEN, SCRIPT is rewritten to a temporary
    one first, for the hardware that is found. --effect says how far that rewrite may go, or, for a
    second script that autofast did not write, how far the two may differ.

    Exit code: 0 as fast or faster and the same training, 1 otherwise, 2 no run could be made.
    """
    from autofast.report.verify_output import Wish, deliver
    from autofast.verify.command import verify

    wish = Wish(
        json_file,
        html_file,
        github,
        force,
        tuple(not_none((script, rewritten))),
        facts_file,
    )
    wish.check()
    asked = _request(script, rewritten, given, facts_file is not None)
    with _telling(script) as tell:
        result = verify(asked, tell)
    product, notes = deliver(result, wish, sys.stdout, verbose)
    out(product)
    for line in notes:
        click.echo(line, err=True)
    raise click.exceptions.Exit(0 if result.passed else 1)


@cli.command("tune", cls=_WithScriptArguments)
@click.argument("script", type=PATH)
@output_options
@run_options
@flag("-q", "--quiet", help="Only what is asked for, warnings and errors.")
@input_options
def tune_command(
    script: Path,
    output: str | None,
    output_dir: str | None,
    in_place: bool,
    diff: bool,
    patch: str | None,
    json_file: str | None,
    html_file: str | None,
    force: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Keep the fixes that pay on this machine.

    Rewrites SCRIPT, measures rule by rule and in combination, in copies of the project and with the
    script's ARGUMENTS, and keeps what makes it faster here and trains the same. Where nothing pays,
    the script stays as it is.

    Exit code: 0 done, 2 no run could be made or nothing could be written, 130 ended by Ctrl-C: the
    best so far was written.
    """
    from autofast.commands.output import Destination
    from autofast.report import tune_output
    from autofast.report.verify_output import Wish
    from autofast.tune.command import tune

    _, mode, path = chosen(output, output_dir, in_place, diff, patch)
    to = Destination(mode, path, force)
    wish = Wish(json_file, html_file, False, force, (script,))
    tune_output.check(to, wish)
    asked = _request(script, None, given)
    with _telling(script, asked.budget) as tell:
        tuned, kept = tune(asked, tell, alone=to.alone)
    product, said, written = tune_output.deliver(tuned, kept, to, wish, sys.stdout, sys.stderr)
    if not quiet:
        click.echo(said, err=True, nl=False, color=True)
    say([], tuned.warnings)
    for line in written:
        click.echo(line, err=True)
    out(product)
    raise click.exceptions.Exit(130 if tuned.found.by_user else 0)


def _request(script: Path, rewritten: Path | None, given: Given, facts: bool = False) -> Request:
    from autofast.verify.request import Request

    root = root_of(given["root"], script)
    options = {name: value for name, value in given.items() if name not in SETTINGS}
    return Request(script, rewritten, root, configured(root, given), facts=facts, **options)


@contextmanager
def _telling(script: Path, budget: float = 0.0) -> Iterator[Tell]:
    """Shows how far the runs have come; where none could be made, what the script said, and one
    line about it."""
    from autofast.report.progress import progress
    from autofast.verify.command import explain
    from autofast.verify.series import NoRun

    with progress(budget) as tell:
        try:
            yield tell
        except NoRun as error:
            if error.run.stderr.strip():
                click.echo(error.run.stderr.rstrip(), err=True)
            raise Fault(f"{script}: {explain(error)}") from None
