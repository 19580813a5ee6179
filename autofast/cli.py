"""The command line: parse options, call one function, print, exit.

Only ``click`` is imported at the top, so that ``autofast --help`` and a pre-commit hook start at once; everything else is imported by the
command that needs it. Standard output carries the product alone, standard error all that is said about it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from autofast import DISTRIBUTION, __version__, checked
from autofast.faults import REPORT, PostConditionError, internal
from autofast.model.disk import real
from autofast.model.source import BadInput
from autofast.options import (
    SETTINGS,
    STDIN,
    Named,
    ProjectCommand,
    complete_files,
    complete_rules,
    configured,
    entry_of,
    facts_option,
    input_options,
    output_options,
    root_of,
    run_options,
)
from autofast.streams import counted, out, say

if TYPE_CHECKING:
    from autofast.commands.output import Mode
    from autofast.commands.picking import Picker
    from autofast.commands.rewriting import Rewritten

    Modes = dict[str, tuple[Mode, str | bool | None]]

FULL = (errno.ENOSPC, errno.EIO, errno.EFBIG)  # of a file: those of a stream have no name
FORMATS = ("text", "concise", "json", "sarif", "github", "gitlab", "markdown")


class Fault(click.ClickException):
    """One line on standard error, exit code 2."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"autofast: {self.format_message()}", file=file, err=True)


class Commands(click.Group):
    """Turns what went wrong in any command into one line and the right exit code."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            os.getcwd()
        except OSError as error:
            raise Fault(f"the current folder: {error.strerror}; change to another one") from None
        try:
            return super().make_context(*args, **kwargs)
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise Fault(_misused(error)) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BadInput as error:
            raise Fault(str(error)) from None
        except PostConditionError as error:
            raise Fault(
                f"{error}; nothing was written, as this is a mistake of autofast: {REPORT}"
            ) from None
        except click.exceptions.NoArgsIsHelpError:
            raise
        except click.UsageError as error:
            raise Fault(_misused(error)) from None
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None
        except Exception as error:
            if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
                raise Fault(f"standard output: cannot be written ({error.strerror})") from None
            raise Fault(internal(error)) from None


def _misused(error: click.UsageError) -> str:
    """One line about a command that was not written as it can be."""
    said = error.format_message().rstrip(".").replace(". (Did you", " (did you")
    said = re.sub(r"is not a valid (?:float|integer)(?: range)?$", "is no number", said)
    said = said[0].lower() + said[1:] if said[1:2].islower() else said
    command = error.ctx.command_path if error.ctx is not None else "autofast"
    return f"{said}; `{command} --help` shows what there is"


# ------------------------------------------------------------------------------------------------ commands
@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autofast", message="%(prog)s %(version)s")
def cli() -> None:
    """Rewrites PyTorch training scripts into faster ones, every hunk with its reason."""


@cli.command("rewrite", cls=ProjectCommand)
@click.argument("entry", type=Named("give a script."), shell_complete=complete_files)
@output_options
@click.option(
    "--split-patches",
    type=Named(),
    metavar="DIR",
    help="Write one patch for each rule below DIR, each to be applied on top of the one before.",
)
@click.option(
    "--commit", is_flag=True, help="Rewrite the files, with one git commit for each rule."
)
@click.option(
    "-i",
    "--interactive",
    is_flag=True,
    help="Ask about each fix; without another option, those that are wanted are written in place.",
)
@click.option(
    "--report",
    type=Named(),
    metavar="FILE",
    help="Also write a page for reviewers to FILE: old and new side by side, with all reasons.",
)
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("-q", "--quiet", is_flag=True, help="Only what is asked for, warnings and errors.")
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

    ENTRY is the script that you start; the files of its project that it imports are read and rewritten with it. `-` reads standard input and
    writes the rewritten script to standard output.
    """
    without: Mode = "file" if entry == STDIN else "in-place" if given["interactive"] else "diff"
    more: Modes = {"--split-patches": ("patches", split_patches), "--commit": ("commits", commit)}
    option, mode, path = _chosen(output, output_dir, in_place, diff, patch, more, without)
    if entry == STDIN and (in_place or output_dir or split_patches or commit):
        raise click.UsageError(
            f"standard input cannot be rewritten with {option}: leave it out, or use -o, --diff or --patch."
        )
    if entry == STDIN and given["interactive"]:
        raise click.UsageError("the answers come from standard input: give a file, not `-`.")
    _rewrite(entry, mode, path, force, given)


def _rewrite(entry: str, mode: Mode, path: str, force: bool, given: dict[str, Any]) -> None:
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
    except (BadInput, PostConditionError, click.Abort):
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
        summary(result, to, delivery, for_stream(sys.stderr)),
        err=True,
        nl=False,
        color=True,
    )
    if given["report"]:
        click.echo(f"Page for reviewers: {given['report']}", err=True)


def _report(result: Rewritten, path: Path, force: bool) -> None:
    """Write the page of ``--report``: before anything else, as that may already be what it speaks of."""
    from autofast.commands.files import Output, write_all

    try:
        from autofast.report.review import page

        text = page(result)
    except ModuleNotFoundError as error:
        if error.name != "jinja2":
            raise
        raise Fault(f"--report: needs jinja2; pip install '{DISTRIBUTION}[report]'") from None
    if any(real(path) == source.path for source in result.script.sources):
        raise BadInput(f"{path}: is a file of the script; name another one for the page")
    write_all([Output(path, text.encode())], force=force)


def _picker() -> Picker:
    """Asks on standard error, as standard output is for what comes of it."""
    from autofast.commands.picking import pick
    from autofast.report.style import for_stream

    def ask(question: str) -> str:
        click.echo(question, err=True, nl=False)
        if sys.stdin is None or not (line := sys.stdin.readline()):
            raise click.Abort
        return line

    def tell(text: str) -> None:
        click.echo(text, err=True, nl=False, color=True)

    return pick(ask, tell, for_stream(sys.stderr))


@cli.command("check", cls=ProjectCommand)
@click.argument(
    "paths",
    nargs=-1,
    type=Named("give a script or a folder."),
    metavar="[PATH]...",
    shell_complete=complete_files,
)
@click.option("--diff", is_flag=True, help="Show the fixes as a diff; nothing is written.")
@click.option(
    "--fix", is_flag=True, help="Write the fixes, and take out unused comments: all files or none."
)
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    default="text",
    help="For people, programs or a CI.  [default: text]",
)
@click.option("--statistics", is_flag=True, help="Count the findings of each rule.")
@click.option("--exit-zero", is_flag=True, help="Exit with 0 although something was found.")
@click.option(
    "--exit-non-zero-on-fix", is_flag=True, help="Exit with 1 where --fix wrote something."
)
@click.option(
    "-v",
    "--show-refused",
    is_flag=True,
    help="Also list the places that are left alone, with the reason.",
)
@click.option(
    "--imported",
    is_flag=True,
    help="Take PATH for the script that is started, and report its imports too; so does --root.",
)
@click.option(
    "--force-exclude",
    is_flag=True,
    default=None,
    help="Leave out what `exclude` names even where a PATH names it.",
)
@click.option("--no-cache", is_flag=True, help="Read all scripts again, and keep nothing.")
@click.option("--watch", is_flag=True, help="Look again whenever a file changes, until Ctrl-C.")
@click.option("-q", "--quiet", is_flag=True, help="Only findings and errors.")
@facts_option
@input_options
def check_command(paths: tuple[str, ...], **given: Any) -> None:
    """Find what could be faster.

    Each PATH is a script, or a folder that is searched for training scripts (`-`: standard input). Without one it is the current folder.

    Exit code: 0 nothing found, 1 something found, 2 something could not be read.
    """
    paths = paths or (".",)
    if given["fix"] and (given["diff"] or STDIN in paths):
        other = "--diff" if given["diff"] else "standard input"
        raise click.UsageError(f"--fix and {other} exclude each other: choose one.")
    if given["watch"]:
        checked.watch(paths, given)
        return
    request = checked.requested(paths, given)
    raise click.exceptions.Exit(checked.check(request, given)[0])


@cli.command("config", cls=ProjectCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=complete_files)
@facts_option
@input_options
def config_command(paths: tuple[str, ...], **given: Any) -> None:
    """Show the configuration that is in force, and where it comes from.

    PATH is a script or a folder of the project. Without one it is the current folder.
    """
    from autofast.config import settings
    from autofast.model.source import shown_path
    from autofast.report import config
    from autofast.report.style import for_stream

    near = [Path(path) for path in paths or (".",)]
    if missing := next((path for path in near if not path.exists()), None):
        raise BadInput(f"{missing}: no such file or folder")
    root = root_of(given["root"], *near)
    found, in_force = settings(root), configured(root, given)
    there = found.path.is_file()
    named = [key.replace("_", "-") for key, value in given.items() if value not in (None, ())]
    click.echo(f"project: {root}{'' if there else ' (without a pyproject.toml)'}\n", err=True)
    style = for_stream(sys.stdout)
    click.echo(config.table(in_force, found, named, style, shown_path(found.path)), nl=False)


@cli.command("rules")
@click.option("--markdown", is_flag=True, help="As the table of README.md.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def rules_command(markdown: bool, as_json: bool) -> None:
    """List all rules."""
    from autofast.report import rules

    if as_json:
        click.echo(rules.json(), nl=False)
    else:
        click.echo(rules.markdown() if markdown else rules.table(sys.stdout), nl=False)


@cli.command("rule")
@click.argument("name", shell_complete=complete_rules)
def rule_command(name: str) -> None:
    """Show the card of the rule NAME."""
    from autofast.report import rules

    click.echo(rules.card(name, sys.stdout), nl=False)


class _WithScriptArguments(ProjectCommand):
    """What stands behind ``--`` belongs to the script."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, behind = (
            (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        )
        rest = super().parse_args(ctx, own)
        ctx.params["arguments"] = tuple(behind)
        return rest


@cli.command(
    "verify",
    cls=_WithScriptArguments,
    options_metavar="[OPTIONS]",
    epilog="Arguments of the script stand behind `--`.",
)
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("rewritten", type=click.Path(path_type=Path), required=False)
@run_options
@click.option("--by-rule", is_flag=True, help="Also measure what each rule contributes.")
@click.option(
    "--facts",
    "facts_file",
    type=Named(),
    metavar="FILE",
    help="Write what SCRIPT was seen to do to FILE, for `rewrite --facts`.",
)
@click.option("--github", is_flag=True, help="Print Markdown for a pull request in place of text.")
@click.option(
    "--resume-from",
    type=click.Path(path_type=Path),
    metavar="CKPT",
    help="Compare a late part: both scripts go on from their checkpoint CKPT.",
)
@click.option(
    "--launch-rewritten",
    default="",
    metavar="COMMAND",
    help="The same for the rewritten script alone, as after --ddp.",
)
@click.option(
    "--cwd",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Run in DIR itself, not in copies.",
)
@input_options
def verify_command(
    script: Path,
    rewritten: Path | None,
    json_file: str | None,
    html_file: str | None,
    facts_file: str | None,
    github: bool,
    force: bool,
    **given: Any,
) -> None:
    """Prove that a rewritten script is faster and trains the same.

    Runs SCRIPT and REWRITTEN side by side, in copies of the project, and compares their times and what they train. Without REWRITTEN, SCRIPT
    is rewritten to a temporary one first, for the hardware that is found. --effect says how far that rewrite may go, or, for a second script
    that autofast did not write, how far the two may differ.

    Exit code: 0 as fast or faster and the same training, 1 otherwise, 2 no run could be made.
    """
    from autofast.report.progress import progress
    from autofast.report.verify_output import Wish, deliver
    from autofast.verify.command import Request, explain, verify
    from autofast.verify.series import NoRun

    wish = Wish(
        json_file,
        html_file,
        github,
        force,
        tuple(path for path in (script, rewritten) if path is not None),
        facts_file,
    )
    wish.check()
    given.pop("stdin_filename")
    root = root_of(given["root"], script)
    config = configured(root, given)
    options = {name: value for name, value in given.items() if name not in SETTINGS}
    request = Request(
        script=script,
        rewritten=rewritten,
        root=root,
        config=config,
        facts=facts_file is not None,
        **options,
    )
    with progress() as tell:
        try:
            result = verify(request, tell)
        except NoRun as error:
            if error.run.stderr.strip():
                click.echo(error.run.stderr.rstrip(), err=True)
            raise Fault(f"{script}: {explain(error)}") from None
    product, notes = deliver(result, wish, sys.stdout)
    out(product)
    for line in notes:
        click.echo(line, err=True)
    raise click.exceptions.Exit(0 if result.passed else 1)


@cli.command("explain", cls=ProjectCommand)
@click.argument("place", metavar="FILE:LINE", shell_complete=complete_files)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@facts_option
@input_options
def explain_command(place: str, as_json: bool, **given: Any) -> None:
    """Tell what is known of one place of a script, and what rules do about it.

    How often it runs, which loader, model, optimizer or tensor it is, where its values come from, which rules change it or leave it alone, and why.
    """
    from autofast.explain.explanation import explain, parsed
    from autofast.explain.shown import shown
    from autofast.report.style import for_stream

    root = root_of(given["root"], parsed(place)[0])
    found = explain(place, root, configured(root, given))
    if as_json:
        from json import dumps

        out(dumps(found.data(), indent=2) + "\n")
    else:
        out(shown(found, for_stream(sys.stdout)))


@cli.command("server")
@click.option(
    "--delay",
    type=click.FloatRange(0),
    default=0.3,
    metavar="S",
    help="Seconds without a change after which a text is read.  [default: 0.3]",
)
def server_command(delay: float) -> None:
    """Speak the Language Server Protocol, for editors, over standard input and output.

    Options stand in [tool.autofast] of each project.
    """
    try:
        from autofast.server.protocol import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise Fault(f"the server needs pygls: pip install '{DISTRIBUTION}[server]'") from None
    serve(delay)


@cli.command(
    "tune",
    cls=_WithScriptArguments,
    options_metavar="[OPTIONS]",
    epilog="Arguments of the script stand behind `--`.",
)
@click.argument("script", type=click.Path(path_type=Path))
@output_options
@run_options
@click.option("-q", "--quiet", is_flag=True, help="Only what is asked for, warnings and errors.")
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
    """Keep what pays on this machine.

    Rewrites SCRIPT, measures rule by rule and in combination, in copies of the project, and keeps what makes it faster here and trains the
    same. Where nothing pays, the script stays as it is.

    Exit code: 0 done, 2 no run could be made or nothing could be written, 130 ended by Ctrl-C: the best so far was written.
    """
    from autofast.commands.output import Destination
    from autofast.report import tune_output
    from autofast.report.progress import progress
    from autofast.report.verify_output import Wish
    from autofast.tune.command import tune
    from autofast.verify.command import Request, explain
    from autofast.verify.series import NoRun

    _, mode, path = _chosen(output, output_dir, in_place, diff, patch)
    to = Destination(mode, path, force)
    wish = Wish(json_file, html_file, False, force, (script,))
    tune_output.check(to, wish)
    given.pop("stdin_filename")
    root = root_of(given["root"], script)
    config = configured(root, given)
    options = {name: value for name, value in given.items() if name not in SETTINGS}
    request = Request(script=script, rewritten=None, root=root, config=config, **options)
    with progress(request.budget) as tell:
        try:
            tuned, kept = tune(request, tell, alone=to.alone)
        except NoRun as error:
            if error.run.stderr.strip():
                click.echo(error.run.stderr.rstrip(), err=True)
            raise Fault(f"{script}: {explain(error)}") from None
    product, said, written = tune_output.deliver(tuned, kept, to, wish, sys.stdout, sys.stderr)
    if not quiet:
        click.echo(said, err=True, nl=False, color=True)
    say([], tuned.warnings)
    for line in written:
        click.echo(line, err=True)
    out(product)
    raise click.exceptions.Exit(130 if tuned.found.by_user else 0)


def _chosen(
    output: str | None,
    output_dir: str | None,
    in_place: bool,
    diff: bool,
    patch: str | None,
    more: Modes | None = None,
    without: Mode = "diff",
) -> tuple[str, Mode, str]:
    """Where the script goes: the option that says so, what it means, and its path; ``without`` where there is none."""
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


def main() -> NoReturn:
    """The console script."""
    for name in ("stdout", "stderr"):  # one that is closed takes nothing
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    cli(prog_name="autofast")
    raise AssertionError("click exits")
