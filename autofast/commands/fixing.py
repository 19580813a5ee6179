"""``check --fix`` and ``--diff``: what all the scripts together become. Written are all files or none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from autofast.commands.checking import Request, entries, guarded
from autofast.commands.files import Output, write_all
from autofast.commands.rewriting import Rewritten, rewrite
from autofast.depth import deeply
from autofast.model.source import shown_path
from autofast.report.diff import FileDiff
from autofast.report.record import Record, merged


@dataclass
class Fixed:
    """What becomes of the files that are named.

    Attributes:
        diffs, outputs: the changes, one for each file. records: the fixes in them.
        errors, warnings: lines for standard error.
    """

    diffs: list[FileDiff] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def write(self) -> Sequence[Path]:
        """Write all files or none; raises ``BadInput`` where it is none."""
        write_all(self.outputs)
        return [output.path for output in self.outputs]


@deeply
def fix(request: Request) -> Fixed:
    """Rewrite every script that is named or found, in memory.

    Scripts that share a file must make the same of it: one that would make something else of it than those before is left out.
    """
    result = Fixed()
    made: dict[Path, tuple[str, Path]] = {}  # by the script that it is made for
    todo, _ = entries(request)

    def take(entry: Path, raw: bytes | None) -> None:
        done = rewrite(entry, request.root, request.config, raw=raw, within=request.within)
        result.warnings += done.warnings
        for source in done.script.sources:
            text, other = made.get(source.path, (None, entry))
            if text is not None and text != done.texts.get(source, source.text):
                ours, theirs, file = map(_shown, (entry, other, source.path))
                result.warnings.append(
                    f"{ours}: left for another run, as it would not make of {file} what {theirs} makes of it"
                )
                return
        _add(result, done, made, entry)

    for entry, raw in todo:
        guarded(entry, lambda entry=entry, raw=raw: take(entry, raw), result.errors)  # type: ignore[misc]
    result.errors = list(dict.fromkeys(result.errors))
    result.warnings = list(dict.fromkeys(result.warnings))
    result.records = merged(result.records)
    return result


def _add(result: Fixed, done: Rewritten, made: dict[Path, tuple[str, Path]], entry: Path) -> None:
    for file in done.diffs():
        if file.source.path not in made:
            data = done.bytes_of(file.source)
            result.diffs.append(file)
            result.outputs.append(Output(file.source.path, data, was=file.source.raw))
    result.records += [record for record in done.records if record.status == "fix"]
    made.update({source.path: (text, entry) for source, text in done.texts.items()})


def _shown(path: Path) -> str:
    return shown_path(path.resolve())
