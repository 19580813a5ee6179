"""Settings that stand in a file of the project instead of its code: YAML, JSON, TOML. What is to be
changed there is advice, with file and line.

Values that the script loads and uses are followed by the reader (:class:`Setting`); the others are
looked up line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from autofast.model.script import Script
from autofast.model.values import Arguments, Dict, Setting, Values
from autofast.read.setting_files import candidates, text_of


def set_to(script: Script, name: str, words: str) -> str:
    """Where a file of the project sets ``name`` to what the pattern ``words`` matches, in words;
    empty where none does.

    Of several files, those that the code names are asked first. A file that sets it otherwise
    decides as well: then it is not certain.
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


def setting(values: Values) -> Setting | None:
    """The one setting that an argument is by default; None where it may be anything else."""
    found = [t for t in values if isinstance(t, Setting)]
    return found[0] if len(found) == len(values) == 1 else None


def place(said: Setting) -> str:
    return f"line {said.line} of {said.file}"


def beside(args: Arguments) -> str:
    """Where the arguments stand that a call gets from a file with settings, in words; empty where
    it gets none.
    """
    for holder in args.dicts:
        if isinstance(holder, Dict):
            for said in sorted(holder.any(), key=lambda t: getattr(t, "line", 0)):
                if isinstance(said, Setting):
                    return place(said)
    return ""


def _files(script: Script) -> Iterator[tuple[str, str]]:
    """The files with settings near the entry, by their path from there, with their text: those that
    the code names, else all.
    """
    folder = script.entry.path.parent
    paths = candidates(folder)
    named = [p for p in paths if any(p.name in source.text for source in script.sources)]
    for path in named or paths:
        if (text := text_of(path)) is not None:
            yield path.relative_to(folder).as_posix(), text
