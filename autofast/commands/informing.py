"""What was measured of a script, where it was measured of this very text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from autofast.config import Config
from autofast.model.source import shown_path

if TYPE_CHECKING:
    from autofast.model.measured import Facts
    from autofast.model.script import Script


def with_facts(script: Script, config: Config) -> Script:
    """The script with the facts that hold for it; raises :class:`BadInput` for a file of facts that
    cannot be read."""
    found = _of(script, config)
    if found is not None and not found.changed(script.sources):
        script.facts = found
    return script


def stale_facts(script: Script, config: Config) -> Iterator[str]:
    """Says so where a file of the script has changed since it was measured."""
    found = _of(script, config)
    if found is not None and config.facts and (name := found.changed(script.sources)):
        yield (
            f"{shown_path(config.facts)}: {name} has changed since it was measured, so nothing of it is used; "
            "measure again: autofast verify --facts"
        )


def said_of(script: Script, config: Config) -> Iterator[str]:
    """The same, and where nothing was measured of the script."""
    yield from stale_facts(script, config)
    if config.facts and _of(script, config) is None:
        yield f"{shown_path(config.facts)}: says nothing of {script.entry.rel}"


def _of(script: Script, config: Config) -> Facts | None:
    if config.facts is None:
        return None
    from autofast.model.measured import read

    return next((f for f in read(config.facts) if f.entry == script.entry.rel), None)
