"""``check``: the findings of many scripts, each place once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autofast.commands import rewriting
from autofast.commands.discover import scripts
from autofast.config import Config
from autofast.depth import deeply
from autofast.faults import internal
from autofast.model.source import BadInput
from autofast.report.record import Record, merged
from autofast.report.text import shown_path
from autofast.rule import Effect


@dataclass
class Checked:
    """What was found in ``files`` (relative to the root). ``complaints`` are lines for standard error."""

    files: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    failed: bool = False


@deeply
def check(
    paths: Iterable[Path], root: Path, config: Config, stdin: Mapping[Path, bytes | None]
) -> Checked:
    """Look at every script that ``paths`` name or hold, and at the texts of ``stdin``. One that cannot be read does not hide the others."""
    result = Checked()
    files: set[str] = set()
    idle: list[str] = []
    entries = list(_entries(paths, root, config, stdin))
    for entry, raw in entries:
        try:
            script = rewriting.read(entry, root, raw)
            files.update(source.rel for source in script.sources)
            plan = rewriting.plan(script, config)
            if rewriting.trains_nothing(script, plan):
                idle.append(script.entry.rel)
            result.records += rewriting.findings(plan)
            warnings = [left.warning for left in plan.left_out]
            # Whoever goes as far as that wants to know what there is.
            if config.effect is Effect.RECIPE and not config.select:
                requested, more = rewriting.on_request(script, plan, config)
                result.records += requested
                warnings += more
            result.complaints += [f"warning: {line}" for line in warnings]
        except BadInput as error:
            result.complaints.append(str(error))
            result.failed = True
        except Exception as error:  # must not hide what is found in other scripts
            result.complaints.append(f"{shown_path(entry.resolve())}: {internal(error)}")
            result.failed = True
    if len(entries) == 1 and idle:
        result.complaints.append(f"{idle[0]}: no training loop found; give the script that trains")
    result.complaints = list(dict.fromkeys(result.complaints))  # scripts share files
    result.files, result.records = sorted(files), merged(result.records)
    return result


def _entries(
    paths: Iterable[Path], root: Path, config: Config, stdin: Mapping[Path, bytes | None]
) -> Iterator[tuple[Path, bytes | None]]:
    yield from ((path, None) for path in scripts(paths, root, config.exclude))
    yield from stdin.items()
