"""The commands that only tell: configuration, rules, places; and the one that editors ask."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from autofast import DISTRIBUTION
from autofast.cli.group import Fault, cli, out
from autofast.cli.options import complete_files, complete_rules, facts_option, flag, input_options
from autofast.cli.project import ProjectCommand, configured, root_of
from autofast.model.names import first_part
from autofast.model.source import BadInput


@cli.command("config", cls=ProjectCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...", shell_complete=complete_files)
@facts_option
@input_options
def config_command(paths: tuple[str, ...], **given: Any) -> None:
    """Show the settings in force, and where each comes from.

    PATH is a script or a folder of the project. Without one it is the current folder.
    """
    from autofast.config import settings
    from autofast.model.source import shown_path
    from autofast.report import config
    from autofast.report.style import for_stream

    near = [Path(path) for path in paths or (".",)]
    if missing := next((path for path in near if not os.path.exists(path)), None):
        raise BadInput(f"{missing}: no such file or folder")
    root = root_of(given["root"], *near)
    found, in_force = settings(root), configured(root, given)
    there = os.path.isfile(found.path)
    named = [key.replace("_", "-") for key, value in given.items() if value not in (None, ())]
    click.echo(f"project: {root}{'' if there else ' (without a pyproject.toml)'}\n", err=True)
    style = for_stream(sys.stdout)
    click.echo(config.table(in_force, found, named, style, shown_path(found.path)), nl=False)


@cli.command("rules")
@flag("--markdown", help="Print the table of README.md.")
@flag("--json", "as_json", help="Print JSON, for programs.")
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
    """Show the card of one rule: what it does, when, and why not."""
    from autofast.report import rules

    click.echo(rules.card(name, sys.stdout), nl=False)


@cli.command("explain", cls=ProjectCommand)
@click.argument("place", metavar="FILE:LINE", shell_complete=complete_files)
@flag("--json", "as_json", help="Print JSON, for programs.")
@facts_option
@input_options
def explain_command(place: str, as_json: bool, **given: Any) -> None:
    """Say what is known of one line, and what rules do there.

    How often it runs, which loader, model, optimizer or tensor it is, where its values come from,
    which rules change it or leave it alone, and why.
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
    help="Read a text when nothing was typed for S seconds.  [default: 0.3]",
)
def server_command(delay: float) -> None:
    """Serve editors by the Language Server Protocol.

    It speaks over standard input and output, and takes its options from [tool.autofast] of each
    project.
    """
    try:
        from autofast.server.protocol import serve
    except ModuleNotFoundError as error:
        if first_part(error.name or "") not in ("pygls", "lsprotocol"):
            raise
        raise Fault(f"the server needs pygls: pip install '{DISTRIBUTION}[server]'") from None
    serve(delay)
