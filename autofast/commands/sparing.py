"""What the user keeps rules away from: files by the configuration, places by comments whose names must be those of rules."""

from __future__ import annotations

from autofast.config import Config
from autofast.model.script import Script
from autofast.model.source import shown_path
from autofast.registry import check_names, expanded


def spare(script: Script, config: Config) -> Script:
    """The script, whose files know what ``per-file-ignores`` keeps away from them; raises :class:`BadInput` for comments that name no rule."""
    for source in script.sources:
        for line, names in (*source.ignores.items(), *source.file_ignores.items()):
            if names:
                place = shown_path(source.path) + source.place(line).removeprefix(source.rel)
                check_names(sorted(names), f"{place}: ")
    if config.per_file_ignores:
        from pathspec import GitIgnoreSpec

        for pattern, away in config.per_file_ignores:
            spec = GitIgnoreSpec.from_lines([pattern])
            for source in script.sources:
                if spec.match_file(source.rel):
                    source.spared |= expanded(away)
    return script
