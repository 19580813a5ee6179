"""The group of commands: what went wrong in any of them is one line and the right exit code."""

from __future__ import annotations

import errno
import os
import re
from typing import Any

import click

from autofast import __version__
from autofast.faults import REPORT, PostConditionError, internal
from autofast.model.source import BadInput

FULL = (errno.ENOSPC, errno.EIO, errno.EFBIG)  # of a file: those of a stream have no name


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


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autofast", message="%(prog)s %(version)s")
def cli() -> None:
    """Rewrites PyTorch training scripts into faster ones, every hunk with its reason."""
