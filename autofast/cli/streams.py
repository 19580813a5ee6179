"""Standard output carries the product alone, standard error all that is said about it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import click

Tell = Callable[[int, int, str], None]


def say(errors: Iterable[str], warnings: Iterable[str], notes: Iterable[str] = ()) -> None:
    for kind, lines in (("", errors), ("warning: ", warnings), ("", notes)):
        for line in lines:
            click.echo(f"autofast: {kind}{line}", err=True)


def out(product: bytes | str) -> None:
    """Standard output in bytes: a script keeps its own encoding and line ends. Names of files need
    be no text.
    """
    if isinstance(product, str):
        product = product.encode("utf-8", "backslashreplace")
    click.echo(product, nl=False)


def counted(given: dict[str, Any]) -> AbstractContextManager[Tell | None]:
    """Shows how far work has come that takes long, but for ``--quiet``."""
    from autofast.report.progress import counted as shown

    return contextlib.nullcontext() if given["quiet"] else shown()
