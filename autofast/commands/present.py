"""What ``check`` prints, in each of its formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autofast.commands.checking import Checked
from autofast.report.style import Style

if TYPE_CHECKING:
    from autofast.report.sarif import Fix


def present(
    result: Checked,
    form: str,
    style: Style,
    *,
    refused: bool = False,
    statistics: bool = False,
    quiet: bool = False,
    fixes: Mapping[tuple[object, ...], Fix] | None = None,
) -> str:
    """The report. Where something could not be read and nothing was found, people are told no more
    than that."""
    if form in ("text", "concise"):
        from autofast.report import text

        listing = text.statistics if statistics else text.full if form == "text" else text.concise
        body = listing(result.records, style, refused=refused)
        if quiet or (result.errors and not result.records):
            return body
        return body + text.closing(result.records, result.elsewhere, refused=refused)
    from autofast.report import ci, json

    if form == "json":
        return json.report(result.files, result.records)
    if form == "sarif":
        from autofast.report import sarif

        return sarif.report(result.records, fixes or {}, result.errors)
    return {"github": ci.github, "gitlab": ci.gitlab, "markdown": ci.markdown}[form](result.records)
