"""Writes into each fixture.toml what comes out today: python -m scripts.fixture_lines [NAME ...];
then read ``git diff fixtures``.

What ``becomes`` says is a promise to the reader of a diff: nothing that this writes is right before
somebody has read it.
"""

from __future__ import annotations

import re
import sys

from tests.fixture import ALL
from tests.test_fixtures import written_for

BECOMES = re.compile(r"^becomes = \[(?:.*\]|\n(?:.*\n)*?\])\n", re.MULTILINE)


def remarks(part: str) -> dict[str, str]:
    """What is remarked behind the lines of ``becomes``, by the line as it is written there."""
    found = re.finditer(r"""^ +(["'].*["']),(  # .*)$""", part, re.MULTILINE)
    return {match[1]: match[2] for match in found}


def shown(lines: list[str], said: dict[str, str]) -> str:
    """The lines as a TOML array, as the fixtures are written; a remark stays with its line."""

    def quoted(line: str) -> str:
        if "'" not in line and ('"' in line or "\\" in line):
            return f"'{line}'"
        return '"' + line.replace("\\", "\\\\").replace('"', '\\"') + '"'

    if not lines:
        return ""
    if len(lines) == 1 and len(lines[0]) < 80 and not said:
        return f"becomes = [{quoted(lines[0])}]\n"
    code = map(quoted, lines)
    return "becomes = [\n" + "".join(f"    {c},{said.get(c, '')}\n" for c in code) + "]\n"


def main() -> None:
    """Updates the fixtures that are named, or all."""
    for fixture in ALL:
        if sys.argv[1:] and fixture.name not in sys.argv[1:]:
            continue
        path = fixture.folder / "fixture.toml"
        parts = re.split(r"^(?=\[\[)", path.read_text("utf-8"), flags=re.MULTILINE)
        wanted = iter(written_for(fixture))
        for number, part in enumerate(parts):
            if part.startswith("[[expect]]"):
                body = BECOMES.sub("", part)
                keys = re.match(r"\[\[expect\]\]\n(?:\w+ = .*\n)*", body)
                assert keys is not None
                parts[number] = keys[0] + shown(next(wanted), remarks(part)) + body[keys.end() :]
        path.write_text("".join(parts), "utf-8")


if __name__ == "__main__":
    main()
