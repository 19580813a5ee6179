"""The command line: parse options, call one function, print, exit.

Only ``click`` is imported at the top, so that ``autofast --help`` and a pre-commit hook start at
once; everything else is imported by the command that needs it. Standard output carries the product
alone, standard error all that is said about it.
"""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from autofast.cli import asking, checking, measuring, rewriting  # noqa: F401 (they add their commands)
from autofast.cli.group import cli


def main() -> NoReturn:
    """The console script."""
    for name in ("stdout", "stderr"):  # one that is closed takes nothing
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    cli(prog_name="autofast")
    raise AssertionError("click exits")
