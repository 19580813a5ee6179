"""The group of commands: what went wrong in any of them is one line and the right exit code.

Standard output carries the product alone, standard error all that is said about it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import click

from autofast import __version__
from autofast.faults import REPORT, PostConditionError, internal
from autofast.model.source import BadInput
from autofast.nearest import hint

Tell = Callable[[int, int, str], None]
Given = dict[str, Any]  # the values of options, by name


def say(errors: Iterable[str], warnings: Iterable[str], notes: Iterable[str] = ()) -> None:
    for kind, lines in (("", errors), ("warning: ", warnings), ("", notes)):
        for line in lines:
            click.echo(f"autofast: {kind}{line}", err=True)


def out(product: bytes | str) -> None:
    """Standard output in bytes: a script keeps its own encoding and line ends. Names of files need
    be no text."""
    if isinstance(product, str):
        product = product.encode("utf-8", "backslashreplace")
    click.echo(product, nl=False)


def counted(given: Given) -> AbstractContextManager[Tell | None]:
    """Shows how far work has come that takes long, but for ``--quiet``."""
    from autofast.report.progress import counted as shown

    return contextlib.nullcontext() if given["quiet"] else shown()


HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())  # of click 8.2 and newer
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
        with _told():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _told():
            return super().invoke(ctx)


@contextmanager
def _told() -> Iterator[None]:
    """What goes wrong, in the words of a ``Fault``."""
    try:
        yield
    except BadInput as error:
        raise Fault(str(error)) from None
    except PostConditionError as error:
        raise Fault(
            f"{error}; nothing was written, as this is a mistake of autofast: {REPORT}"
        ) from None
    except HELP:
        raise
    except click.UsageError as error:
        raise Fault(_misused(error)) from None
    except (click.ClickException, click.exceptions.Exit, BrokenPipeError):
        raise
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL and error.filename is None:
            raise Fault(f"standard output: cannot be written ({error.strerror})") from None
        raise Fault(internal(error)) from None


def _misused(error: click.UsageError) -> str:
    """One line about a command that was not written as it can be."""
    said = re.split(r"[.?]* \(?(?:Did you mean|Possible )", error.format_message())[0].rstrip(".")
    said = re.sub(r"is not a valid (?:float|integer)(?: range)?$", "is no number", said)
    said = said[0].lower() + said[1:] if said[1:2].islower() else said
    command = error.ctx.command_path if error.ctx is not None else "autofast"
    return f"{said}; {_meant(error, said)}`{command} --help` shows what there is"


def _meant(error: click.UsageError, said: str) -> str:
    """What was probably meant by an option or a command that does not exist (click's own guesses
    may be far)."""
    meant = ""
    if isinstance(error, click.NoSuchOption) and error.ctx is not None:
        known = [name for param in error.ctx.command.params for name in param.opts]
        meant = hint(error.option_name, (name for name in known if name[:2] == "--"), "")
    elif said.startswith("no such command "):
        meant = hint(said.partition("'")[2].rstrip("'"), cli.commands, "")
    return meant and f"{meant} "


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="autofast", message="%(prog)s %(version)s")
def cli() -> None:
    """Rewrites PyTorch training scripts into faster ones, every hunk with its reason."""
