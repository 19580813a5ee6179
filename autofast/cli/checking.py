"""What `autofast check` does: look, present, show or write the fixes, and look again whenever a
file changes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autofast.cli.group import Given, cli, counted, out, say
from autofast.cli.options import (
    Named,
    also,
    complete_files,
    facts_option,
    flag,
    input_options,
    stdin_option,
)
from autofast.cli.project import STDIN, ProjectCommand, configured, entry_of, root_of
from autofast.model.source import BadInput

if TYPE_CHECKING:
    from autofast.commands.checking import Checked, Request as CheckRequest

FORMATS = ("text", "concise", "json", "sarif", "github", "gitlab", "markdown")


@cli.command("check", cls=ProjectCommand)
@click.argument(
    "paths",
    nargs=-1,
    type=Named("give a script or a folder."),
    metavar="[PATH]...",
    shell_complete=complete_files,
)
@flag("--diff", help="Show the fixes as a diff; nothing is written.")
@flag("--fix", help="Write the fixes and take out unused ignore comments: all files or none.")
@click.option(
    "--output-format",
    type=click.Choice(FORMATS),
    default="text",
    help="Form of the report: for people, programs or a CI.  [default: text]",
)
@flag("--statistics", help="Count the findings of each rule.")
@flag("--exit-zero", help="Exit with 0 although something was found.")
@flag("--exit-non-zero-on-fix", help="Exit with 1 where --fix wrote something.")
@flag("-v", "--show-refused", help="Also list the places that are left alone, with the reason.")
@flag(
    "--imported",
    help="Take PATH for the script that is started, and report its imports too; so does --root.",
)
@also("--force-exclude", help="Leave out what `exclude` names even where a PATH names it.")
@flag("--no-cache", help="Read all scripts again, and keep nothing.")
@flag("--watch", help="Look again whenever a file changes, until Ctrl-C.")
@flag("-q", "--quiet", help="Only findings and errors.")
@stdin_option
@facts_option
@input_options
def check_command(paths: tuple[str, ...], **given: Any) -> None:
    """Find what could be faster.

    Each PATH is a script, or a folder that is searched for training scripts (`-`: standard input).
    Without one it is the current folder.

    Exit code: 0 nothing found, 1 something found, 2 something could not be read.
    """
    paths = paths or (".",)
    if given["fix"] and (given["diff"] or STDIN in paths):
        other = "--diff" if given["diff"] else "standard input"
        raise click.UsageError(f"--fix and {other} exclude each other: choose one.")
    if given["watch"]:
        watch(paths, given)
        return
    request = requested(paths, given)
    raise click.exceptions.Exit(check(request, given)[0])


def requested(paths: tuple[str, ...], given: Given) -> CheckRequest:
    from autofast.commands.checking import Request

    stdin = [entry_of(path, given["stdin_filename"]) for path in paths if path == STDIN][:1]
    named = [Path(path) for path in paths if path != STDIN]
    near = [*named, *(path for path, _ in stdin)]
    root = root_of(given["root"], near[0], *near[1:])
    # Who names the project means all of it.
    imported = given["imported"] or given["root"] is not None
    cache = not given["no_cache"]
    return Request(named, root, configured(root, given), dict(stdin), imported, cache)


def watch(paths: tuple[str, ...], given: Given) -> None:
    """Check again and again. What cannot be read now may be mended by the next change."""
    from autofast.commands.watching import watch as again, watched

    if given["fix"] or STDIN in paths:
        other = "--fix" if given["fix"] else "standard input"
        raise click.UsageError(f"--watch and {other} exclude each other: choose one.")
    last: list[CheckRequest] = [requested(paths, given)]
    if missing := next((path for path in last[0].paths if not path.exists()), None):
        raise BadInput(f"{missing}: no such file or folder; give one that is there")

    def look() -> list[Path]:
        if sys.stdout.isatty():
            click.clear()
        result = None
        try:
            last[0] = requested(paths, given)
            result = check(last[0], given)[1]
        except BadInput as error:
            say([str(error)], [])
        if not given["quiet"]:
            click.echo("Watching for changes; Ctrl-C ends it.", err=True)
        sys.stdout.flush()
        return watched(last[0], result)

    again(look)


def check(request: CheckRequest, given: Given) -> tuple[int, Checked | None]:
    """The exit code of ``check``, and what was found where that was asked."""
    from autofast.commands.checking import check as found_by

    if given["diff"]:
        return _show_fixes(request, given), None
    fixed = _write_fixes(request, given) if given["fix"] else 0
    with counted(given) as tell:
        result = found_by(request, tell)
    say(result.errors, [] if fixed else result.warnings, [] if given["quiet"] else result.notes)
    out(_presented(request, result, given))
    if fixed and not given["quiet"]:
        click.echo(f"Fixed {fixed}.", err=True)
    found = result.found and not given["exit_zero"]
    found = found or bool(fixed and given["exit_non_zero_on_fix"])
    return (2 if result.errors else int(found)), result


def _presented(request: CheckRequest, result: Checked, given: Given) -> str:
    from autofast.commands.present import present
    from autofast.report.style import for_stream

    fixes = None
    if given["output_format"] == "sarif":
        from autofast.commands.fixing import of_request

        fixes = of_request(request)
    return present(
        result,
        given["output_format"],
        for_stream(sys.stdout),
        refused=given["show_refused"],
        statistics=given["statistics"],
        quiet=given["quiet"],
        fixes=fixes,
    )


def _show_fixes(request: CheckRequest, given: Given) -> int:
    """The exit code of ``check --diff``."""
    from autofast.commands.fixing import fix
    from autofast.report import diff
    from autofast.report.style import count, for_stream

    with counted(given) as tell:
        result = fix(request, tell)
    say(result.errors, result.warnings)
    out(diff.shown(result.diffs, for_stream(sys.stdout)))
    if not given["quiet"]:
        places, files = count(len(result.records), "place"), count(len(result.diffs), "file")
        click.echo(f"Would fix {places} in {files}.", err=True)
    return 2 if result.errors else int(bool(result.diffs) and not given["exit_zero"])


def _write_fixes(request: CheckRequest, given: Given) -> str:
    """Write what ``check --fix`` writes; says how much that was, nothing where it was nothing."""
    from autofast.commands.fixing import fix
    from autofast.report.style import count

    with counted(given) as tell:
        result = fix(request, tell)
    say([], result.warnings)
    files = result.write()
    places = count(len(result.records), "place") if result.records else "unused comments"
    return f"{places} in {count(len(files), 'file')}" if files else ""
