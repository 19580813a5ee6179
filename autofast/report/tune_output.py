"""Where a search goes: the tuned script as ``rewrite`` would write it, text to standard error, JSON
and a page to files.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import IO, Any

from autofast.commands.files import Output, write_all
from autofast.commands.output import STDOUT, Destination, deliver as deliver_rewritten
from autofast.commands.rewriting import Rewritten
from autofast.model.source import BadInput
from autofast.report import diff, tune_json, tune_text, tune_words
from autofast.report.style import Style, for_stream
from autofast.report.verify_output import Wish
from autofast.tune.result import Tuned


def check(to: Destination, wish: Wish) -> None:
    """Before minutes of measuring: raises ``BadInput`` for what could not be written afterwards."""
    wish.check()
    if wish.json == STDOUT and to.mode in ("diff", "file", "patch") and to.path == STDOUT:
        if to.mode != "diff":
            raise BadInput("--json - and the script: only one can have standard output")
    if to.path == STDOUT or to.mode not in ("file", "patch", "folder"):
        return
    path = Path(to.path)
    if any(path.resolve() == script.resolve() for script in wish.scripts):
        raise BadInput(f"{path}: is the script itself; rewrite it with --in-place")
    if to.mode == "folder":
        if path.exists() and not path.is_dir():
            raise BadInput(f"{path}: is not a folder; give another name")
        if path.is_dir() and any(path.iterdir()) and not to.force:
            raise BadInput(f"{path}: holds files; replace them with --force, or give another name")
        return
    if path.is_dir():
        raise BadInput(f"{path}: is a directory; give a file, or use --output-dir")
    if path.exists() and not to.force:
        raise BadInput(f"{path}: exists; replace it with --force, or give another name")
    if not path.parent.is_dir():
        raise BadInput(f"{path}: there is no folder {path.parent}; make it first")


def deliver(
    tuned: Tuned, kept: Rewritten, to: Destination, wish: Wish, stdout: IO[Any], stderr: IO[Any]
) -> tuple[bytes, str, Sequence[str]]:
    """What is to stand on standard output, the report for people, and what was written, in
    words.
    """
    style = for_stream(stdout)
    written = []
    if to.mode == "diff":
        product = b"" if wish.json == STDOUT else shown(tuned, kept, style).encode()
    else:
        delivery = deliver_rewritten(kept, to, style)
        product = delivery.product
        written += [f"wrote {path}" for path in delivery.written]
        if delivery.kept is not None:
            written.append(f"as it was: {delivery.kept}")
    outputs = []
    if wish.json == STDOUT:
        product = tune_json.text(tuned).encode()
    elif wish.json is not None:
        outputs.append(Output(Path(wish.json), tune_json.text(tuned).encode()))
    if wish.html is not None:
        from autofast.report import tune_html  # with matplotlib, which nothing else here needs

        page = tune_html.page(tuned, date=date.today().isoformat())
        outputs.append(Output(Path(wish.html), page.encode()))
    write_all(outputs, force=wish.force)
    written += [f"wrote {output.path}" for output in outputs]
    said = tune_text.text(tuned, for_stream(stderr))
    if to.mode != "diff" and to.path != STDOUT and kept.texts:
        said += "\n" + shown(tuned, kept, for_stream(stderr))
    return product, said, written


def shown(tuned: Tuned, kept: Rewritten, style: Style) -> str:
    """The diff, with what was measured at every hunk."""
    return diff.shown(kept.diffs(), style, tune_words.measured(tuned))
