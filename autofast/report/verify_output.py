"""Where a verification goes: text or Markdown to standard output, JSON and a page to files."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import IO, Any

from autofast import DISTRIBUTION
from autofast.commands.files import Output, write_all
from autofast.model import measured
from autofast.model.source import BadInput
from autofast.report.style import for_stream
from autofast.verify.result import Verification

STDOUT = "-"


@dataclass(frozen=True)
class Wish:
    """``json``, ``html`` and ``facts`` are files (``-``: standard output, for JSON only).
    ``scripts``: what is compared, never written over.
    """

    json: str | None = None
    html: str | None = None
    github: bool = False
    force: bool = False
    scripts: tuple[Path, ...] = ()
    facts: str | None = None

    def check(self) -> None:
        """Before minutes of measuring: raises ``BadInput`` for files that could not be written
        afterwards.
        """
        for name in (self.json, self.html, self.facts):
            if name is None or name == STDOUT == self.json:
                continue
            path = Path(str(name))
            if path.is_dir():
                raise BadInput(f"{path}: is a folder; name a file in it")
            if path.resolve() in {script.resolve() for script in self.scripts}:
                raise BadInput(f"{path}: is the script itself; name another file")
            if path.exists() and not self.force:
                raise BadInput(f"{path}: exists; use --force to replace it")
            if not path.parent.is_dir():
                raise BadInput(f"{path}: its folder does not exist; make it first")
            if not os.access(path.parent, os.W_OK):
                raise BadInput(f"{path}: its folder cannot be written to; name another one")
        if STDOUT in (self.html, self.facts):
            option, what = ("--report", "page") if self.html == STDOUT else ("--facts", "facts")
            raise BadInput(f"{option}: name a file for the {what}")
        named: dict[Path, str] = {}
        for option, name in (
            ("--json", self.json),
            ("--report", self.html),
            ("--facts", self.facts),
        ):
            if name is not None and name != STDOUT:
                other = named.setdefault(Path(name).resolve(), option)
                if other != option:
                    raise BadInput(f"{name}: is named by {other} and by {option}; name two files")
        if self.html is not None:
            missing = [
                name for name in ("jinja2", "matplotlib") if importlib.util.find_spec(name) is None
            ]
            if missing:
                raise BadInput(
                    f"--report: needs {' and '.join(missing)}; pip install '{DISTRIBUTION}[verify]'"
                )
        if self.json == STDOUT and self.github:
            raise BadInput(
                "--json - and --github: only one can have standard output; name a file for the JSON"
            )


def deliver(
    result: Verification, wish: Wish, stdout: IO[Any], verbose: bool = False
) -> tuple[bytes, list[str]]:
    """What is to stand on standard output, and what was written, in words."""
    from autofast.report import verify_html, verify_json, verify_markdown, verify_text

    outputs = []
    if wish.json not in (None, STDOUT):
        outputs.append(Output(Path(str(wish.json)), verify_json.text(result).encode()))
    if wish.html is not None:
        outputs.append(
            Output(
                Path(wish.html), verify_html.page(result, date=date.today().isoformat()).encode()
            )
        )
    notes = []
    if wish.facts is not None and result.facts is None:
        notes.append(f"{wish.facts}: not written, as the run that looks for facts failed")
    elif wish.facts is not None and result.facts is not None:
        outputs.append(Output(Path(wish.facts), measured.text([result.facts]).encode()))
    write_all(outputs, force=wish.force)
    if wish.json == STDOUT:
        product = verify_json.text(result)
    elif wish.github:
        product = verify_markdown.markdown(result)
    else:
        product = verify_text.text(result, for_stream(stdout), verbose)
    return product.encode(), [*(f"wrote {output.path}" for output in outputs), *notes]
