"""Settings that stand in a file of the project instead of its code: YAML, JSON, TOML. They are read for advice only, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from autofast.model.script import Script

KINDS = ("*.yaml", "*.yml", "*.json", "*.toml")
FOLDERS = (".", "conf*", "conf*/*", "cfg*", "options", "experiments", "hparams", "params")
LARGEST = 100_000  # bytes: settings, no data


def set_to(script: Script, name: str, words: str) -> str:
    """Where a file of the project sets ``name`` to what the pattern ``words`` matches, in words; empty where none does.

    Of several files, those that the code names are asked first. A file that sets it otherwise decides as well: then it is not certain.
    """
    line = re.compile(rf"""^\s*["']?{re.escape(name)}["']?\s*[:=]\s*["']?([\w.+-]+)""", re.I)
    found: list[tuple[str, str]] = []
    for path, text in _files(script):
        for number, one in enumerate(text.splitlines(), 1):
            if (match := line.match(one)) is not None:
                found.append((match[1], f"line {number} of {path}"))
    if not found or not all(re.fullmatch(words, value, re.I) for value, _ in found):
        return ""
    return found[0][1]


def _files(script: Script) -> Iterator[tuple[str, str]]:
    """The files with settings near the entry, by their path from there, with their text: those that the code names, else all."""
    folder = script.entry.path.parent
    paths = {p for f in FOLDERS for kind in KINDS for p in folder.glob(f"{f}/{kind}")}
    named = {p for p in paths if any(p.name in source.text for source in script.sources)}
    for path in sorted(named or paths):
        if (text := _text(path)) is not None:
            yield path.relative_to(folder).as_posix(), text


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size <= LARGEST:
            return path.read_text("utf-8", "replace")
    except OSError:
        pass
    return None
