"""``autofast rewrite``."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autofast import DISTRIBUTION
from autofast.cli.group import Fault, Given, cli, counted, out, say
from autofast.cli.options import (
    Named,
    chosen,
    complete_files,
    facts_option,
    file,
    flag,
    input_options,
    output_options,
    stdin_option,
)
from autofast.cli.project import STDIN, ProjectCommand, configured, entry_of, root_of
from autofast.faults import PostConditionError, internal
from autofast.model.disk import resolved_path
from autofast.model.source import BadInput

if TYPE_CHECKING:
    from autofast.cli.options import Modes
    from autofast.commands.output import Mode
    from autofast.commands.picking import Picker
    from autofast.commands.rewriting import Rewritten


@cli.command("rewrite", cls=ProjectCommand)
@click.argument("entry", type=Named("give a script."), shell_complete=complete_files)
@output_options
@file(
    "--split-patches",
    metavar="DIR",
    help="Write one patch for each rule below DIR, each to be applied on top of the one before.",
)
@flag("--commit", help="Rewrite the files, with one git commit for each rule.")
@flag(
    "-i",
    "--interactive",
    help="Ask about each fix; without another option, those that are wanted are written in place.",
)
@file("--report", help="Also write a page for reviewers: old and new beside each other.")
@flag("--force", help="Replace files that exist.")
@flag("-q", "--quiet", help="Only what is asked for, warnings and errors.")
@stdin_option
@facts_option
@input_options
def rewrite_command(
    entry: str,
    output: str | None,
    output_dir: str | None,
    in_place: bool,
    diff: bool,
    patch: str | None,
    split_patches: str | None,
    commit: bool,
    force: bool,
    **given: Any,
) -> None:
    """Rewrite a training script.

    ENTRY is the script that you start; the files of its project that it imports are read and
    rewritten with it. `-` reads standard input and writes the rewritten script to standard output.

    Exit code: 0 done, also where nothing was to be changed, 2 nothing was written.
    """
    without: Mode = "file" if entry == STDIN else "in-place" if given["interactive"] else "diff"
    more: Modes = {"--split-patches": ("patches", split_patches), "--commit": ("commits", commit)}
    option, mode, path = chosen(output, output_dir, in_place, diff, patch, more, without)
    if entry == STDIN and (in_place or output_dir or split_patches or commit):
        raise click.UsageError(
            f"standard input cannot be rewritten with {option}: leave it out, or use -o, --diff or --patch."
        )
    if entry == STDIN and given["interactive"]:
        raise click.UsageError("the answers come from standard input: give a file, not `-`.")
    _rewrite(entry, mode, path, force, given)


def _rewrite(entry: str, mode: Mode, path: str, force: bool, given: Given) -> None:
    from autofast.commands.output import Destination, deliver
    from autofast.commands.rewriting import rewrite
    from autofast.report.style import for_stream
    from autofast.report.summary import summary

    script, raw = entry_of(entry, given["stdin_filename"])
    root = root_of(given["root"], script)
    to = Destination(mode, path, force, keep=not given["quiet"])
    config = configured(root, given)
    try:
        unwanted = _picker() if given["interactive"] else None
        told = contextlib.nullcontext() if unwanted else counted(given)
        with told as tell:
            named = (lambda name: tell(0, 1, name)) if tell else None
            result = rewrite(
                script, root, config, raw=raw, alone=to.alone, unwanted=unwanted, tell=named
            )
    except (BadInput, PostConditionError):
        raise
    except Exception as error:
        raise Fault(f"{entry}: {internal(error)}") from None
    if given["report"]:
        _report(result, Path(given["report"]), force)
    delivery = deliver(result, to, for_stream(sys.stdout))
    out(delivery.product)
    if given["quiet"]:
        say([], result.warnings)
        return
    click.echo(
        summary(result, to, delivery, for_stream(sys.stderr)), err=True, nl=False, color=True
    )
    if given["report"]:
        click.echo(f"Page for reviewers: {given['report']}", err=True)


def _report(result: Rewritten, path: Path, force: bool) -> None:
    """Write the page of ``--report``: before anything else, as that may already be what it speaks
    of."""
    from autofast.commands.files import Output, write_all

    try:
        from autofast.report.review import page

        text = page(result)
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        raise Fault(f"--report: needs jinja2; pip install '{DISTRIBUTION}[report]'") from None
    if any(resolved_path(path) == source.path for source in result.script.sources):
        raise BadInput(f"{path}: is a file of the script; name another one for the page")
    write_all([Output(path, text.encode(errors="replace"))], force=force)


def _picker() -> Picker:
    """Asks on standard error, as standard output is for what comes of it."""
    from autofast.commands.picking import pick
    from autofast.report.style import for_stream

    def ask(question: str) -> str:
        click.echo(question, err=True, nl=False)
        if sys.stdin is None or not (line := sys.stdin.readline()):
            raise BadInput("no answer: standard input has ended; nothing was written")
        return line

    def tell(text: str) -> None:
        click.echo(text, err=True, nl=False, color=True)

    return pick(ask, tell, for_stream(sys.stderr))
