"""Which torch a project's README names, where no file for installing does.

"PyTorch 1.1", a badge, a row of a table, ``torch-0.4.0-cp27``: one version in words is the one that
the project runs with, the newest where several are named. "1.10+" or "1.4 or later" is a lower
bound, and so open above.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from autofast.model.torch_age import Limit, Version, version_of
from autofast.read.torch_versions import CUDAS, PYTHONS

READ_ME = ("README*.md", "README*.rst", "README*.txt", "README", "readme*.md")

_BETWEEN = (  # "](https://pytorch.org) **version**: "
    r"(?:\]\(https?:[^)\s]*\)|\]\[[^\]]*\]|[\s*_`\])(|:,=~<>≥≤!/-]|\b(?:code|install|tested|on|with|under|using|ver|version|versions|release"
    r"|at|least|minimum|newer|higher|later|than|above|from|since|up|to)\b\.?|\bv(?=\d))*?"
)
_VERSION = r"\d+(?:\.\d+)+"
NAMED = re.compile(
    rf"(?i)(?<![\w-])(?:py)?torch(?P<between>{_BETWEEN})"
    rf"(?P<version>{_VERSION})(?P<more>(?:(?:[\s,/–~&-]|\b(?:and|or|to)\b)+v?{_VERSION})*)"
)
BEFORE = re.compile(
    r"(?i)\b(?:at\s+least|minimum(?:\s+of)?|above|newer\s+than|from|since)[\s*_`(\[]*$"
)
WITHIN = re.compile(r"(?i)[>≥]|\b(?:least|minimum|newer|higher|later|above|from|since)\b")
BEHIND = re.compile(
    r"(?i)^(?:\.x)?[*_`\])]*(?:\+(?!\w)|\s*[(,]?\s*(?:or|and)\s+(?:newer|later|higher|above|greater|up|more\s+recent)\b"
    r"|[^.\n]{0,40}\b(?:newer|later|higher|greater)\s+(?:versions?|releases?)\b|\s*(?:onwards?|upwards?)\b)"
)
# "does not work with torch 1.0", "torch < 2.0 is not supported": no version that it runs with
DENIED_BEFORE = re.compile(
    r"(?i)(?:\bnot|n't|\bno\s+longer)\s+(?!only\b)(?:\w+\s+){0,2}(?:with|on|under|supports?)[\s*_`(\[]*$"
)
DENIED_BEHIND = re.compile(
    r"(?i)^[*_`\])]*\s*(?:(?:is|are|was|were)\s+)?(?:not|(?:isn|aren)'t|no\s+longer)"
    r"\s+(?:supported|compatible|recommended)\b"
)
BELOW = re.compile(r"[<≤](=?)\s*v?$")
PYTHON = re.compile(
    r"(?i)\bpython[\s*_`\])(|:,=v-]*([23])(?:\.\d+)*(\+?)(?:[\s,/&]|or|and)*([23])?"
)
CUDA = re.compile(r"(?:\bcu|\bcuda|cudatoolkit[ =]+|nvidia/cuda:)(\d+(?:\.\d)?)(?![\d.]*\+)")
NEWEST_TORCH = (3,)


@dataclass(frozen=True)
class Said:
    """What a line says; ``oldest`` is a lower bound, ``limit`` a pin."""

    place: str
    why: str
    oldest: Version = ()
    limit: Limit | None = None


def said(lines: Iterable[tuple[str, str]]) -> tuple[list[Said], list[Said]]:
    """The lower bounds of a README, and its pin: none beside a lower bound."""
    found = [s for place, line in lines for s in _of_line(place, unquote(line))]
    bounds = [s for s in found if s.limit is None]
    return bounds, ([] if bounds else _newest(found))


def of_cuda(lines: Iterable[tuple[str, str]]) -> list[Said]:
    """What old wheels of CUDA say: ``cu90``, ``cudatoolkit=9.0``, where nothing names torch."""
    found = []
    for place, line in lines:
        for match in CUDA.finditer(line):
            if (newest := CUDAS.get(match[1].replace(".", ""))) is not None:
                found.append(Said(place, f"asks for CUDA by `{match[0]}`", limit=Limit(newest)))
    return _newest(found)


def of_python(lines: Iterable[tuple[str, str]]) -> list[Said]:
    """Python 2, where that is the only one named."""
    found = []
    for place, line in lines:
        for match in PYTHON.finditer(line):
            if DENIED_BEHIND.search(line[match.end() :]):
                return []
            if match[1] == "3" or match[2] or match[3] == "3" or "+" in line[match.end() :][:1]:
                return []
            words = f"says {' '.join(match[0].split())}".rstrip(" ,/&(|-")
            found.append(Said(place, words, limit=Limit(PYTHONS[(2,)])))
    return found[:1]


def _newest(found: list[Said]) -> list[Said]:
    pins = [s for s in found if s.limit is not None]
    return [max(pins, key=lambda s: s.limit.newest if s.limit else ())] if pins else []


def _of_line(place: str, line: str) -> Iterator[Said]:
    for match in NAMED.finditer(line):
        named = [version_of(v) for v in re.findall(_VERSION, match["version"] + match["more"])]
        known = [v for v in named if v < NEWEST_TORCH]
        start, rest = line[: match.start()], line[match.end() :]
        denied = DENIED_BEFORE.search(start) or DENIED_BEHIND.search(rest)
        if not known or denied or "!=" in match["between"]:
            continue
        open_above = BEFORE.search(start) or WITHIN.search(match["between"]) or BEHIND.search(rest)
        if open_above:
            yield Said(place, f"asks for torch >={'.'.join(map(str, min(known)))}", min(known))
            continue
        below = BELOW.search(match["between"])
        words = re.sub(r"\]?\(https?:\S*\)|[*_`\[\](|:]", " ", match[0])
        yield Said(
            place,
            f"says {' '.join(words.split())}",
            limit=Limit(max(known), included=below is None or bool(below[1])),
        )
