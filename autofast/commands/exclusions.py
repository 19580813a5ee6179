"""What the user keeps rules away from: files by the configuration, places by comments whose names
must be those of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autofast.commands.discover import is_marimo
from autofast.config import Config
from autofast.edit.hunks import changes, lines_of
from autofast.model.script import Script
from autofast.model.source import IGNORE, Source, shown_path
from autofast.model.torch_age import version_of
from autofast.registry import all_rules, check_names, expanded


def with_exclusions(script: Script, config: Config) -> Script:
    """The script, which knows the user's torch, and whose files know what ``per-file-ignores``
    keeps away from them; raises :class:`BadInput` for comments that name no rule."""
    if config.torch:
        script.torch = replace(script.torch, given=version_of(config.torch))
    for source in script.sources:
        if is_marimo(source.raw):
            source.spared |= frozenset(all_rules())
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


def without_comments(source: Source, text: str, unused: Mapping[int, Sequence[str]]) -> str:
    """The new text of a file without comments that keep nothing away: lines of the old text, each
    with the names that are idle (or none).

    One on a line that changes anyway stays: what it says of the new line is not known yet.
    """
    old, new = lines_of(source.text), lines_of(text)
    moved = changes(old, new)
    for number in unused:
        here = number - 1
        if any(c.old[0] <= here < c.old[1] for c in moved):
            continue
        grown = ((c.new[1] - c.new[0]) - (c.old[1] - c.old[0]) for c in moved if c.old[1] <= here)
        at = here + sum(grown)
        new[at] = _without(new[at], unused[number])
    return "".join(new)


def _without(line: str, idle: Sequence[str]) -> str:
    """A line without its comment, or with some names fewer in it; what else is remarked there
    stays."""
    *_, match = IGNORE.finditer(line)
    kept = [name.strip() for name in (match[2] or "").split(",")]
    if kept := [name for name in kept if name and name not in idle]:
        return line[: match.start(2)] + ", ".join(kept) + line[match.end(2) :]
    before, after = line[: match.start()].rstrip(), line[match.end() :].strip()
    if after:
        return line[: match.start()] + "# " + after.lstrip("# ") + "\n" * line.endswith("\n")
    return before + "\n" * line.endswith("\n") if before else ""
