"""The configuration that is in force, each line with where it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from enum import Enum
from typing import Any

from autofast.config import AUTO, Config, Settings
from autofast.report.style import Style

DEFAULT, COMMAND_LINE = "default", "command line"
WORDS: dict[str, dict[object, object]] = {  # for numbers
    "accumulate": {0: None},
    "workers": {0: None, AUTO: "auto"},
}


def table(
    config: Config, settings: Settings, given: Sequence[str], style: Style, shown: str
) -> str:
    """All keys of ``[tool.autofast]`` with their values, and options of single commands that the
    file sets.

    ``given`` are the keys that the command line sets; ``shown`` is the project's file as it is
    called.
    """
    rows = []
    for place in fields(Config):
        key = place.name.replace("_", "-")
        origins = [f"{shown}:{settings.lines[key]}"] if key in settings.lines else []
        if key in given:
            origins = [
                *(origins if key == "ignore" and "select" not in given else []),
                COMMAND_LINE,
            ]
        elif key == "line-length" and not origins and config.line_length is not None:
            origins = ["formatter of the project"]
        value = getattr(config, place.name)
        value = WORDS[key].get(value, value) if key in WORDS else value
        rows.append((key, _value(value), " and ".join(origins) or DEFAULT))
    for command, options in settings.commands.items():
        for key, value in options.items():
            at = settings.lines.get(f"{command}.{key}")
            rows.append((f"{command}.{key}", _value(value), f"{shown}:{at}" if at else shown))
    wide = [max(len(row[n]) for row in rows) for n in range(2)]
    lines = []
    for key, value, origin in rows:
        line = f"{key.ljust(wide[0])}  {value.ljust(wide[1])}  {origin}"
        lines.append(style(line, "dim") if origin == DEFAULT else line)
    return "".join(line + "\n" for line in lines)


def _value(value: Any) -> str:
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (tuple, list)):
        return (
            ", ".join(
                f"{item[0]}: {' '.join(item[1])}" if isinstance(item, tuple) else str(item)
                for item in value
            )
            or "-"
        )
    return f"{value:g}" if isinstance(value, float) else "-" if value is None else str(value) or "-"
