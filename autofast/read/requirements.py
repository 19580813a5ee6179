"""Which versions of a package a project allows: what its requirement files rule out; where there
is none, what its README and the pages on installing it say, or else remarks in its code.

"PyTorch 1.1", a badge, a row of a table, ``torch-0.4.0-cp27``: one version in words is the one that
the project runs with, the newest where several are named. "1.10+", "1.x" or "1.4 or later" is
a lower bound, and so open above. Where nothing names torch, what is said of Python counts, or else
what other packages are pinned to: an environment with these has a torch of their time. A remark
counts where it speaks of the project ("we support", "tested with", at the head of a file
"requires", or a line with the version alone): another may speak of one function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

from autofast.model import disk
from autofast.model.script import Script
from autofast.model.several import not_none
from autofast.model.source import Source
from autofast.model.syntax import is_docstring
from autofast.model.torch_age import Limit, Version, shown, version_of
from autofast.read.torch_versions import CUDAS, OUT, PYTHONS, TIMES

READ_ME = tuple(
    """README*.md README*.rst README*.txt README readme*.md INSTALL*.md docs/*INSTALL*.md docs/*install*.md
    get*started*.md docs/*get*started*.md""".split()
)

_BETWEEN = (  # "](https://pytorch.org) **version**: "
    r"(?:\]\(https?:[^)\s]*\)|\]\[[^\]]*\]|[\s*_`\])(|:,=~<>≥≤!/-]|\b(?:code|install|tested|on|with|under|using|ver|version|versions|release"
    r"|at|least|minimum|newer|higher|later|than|above|from|since|up|to)\b\.?|\bv(?=\d))*?"
)
_VERSION = r"\d+(?:(?:\.\d+)+|\.x\b)"


def _named(name: str, version: str) -> re.Pattern[str]:
    more = rf"(?:(?:[\s,/–~&-]|\b(?:and|or|to)\b)+v?{version})*"
    return re.compile(
        rf"(?i)(?<![\w-]){name}(?P<between>{_BETWEEN})(?P<version>{version})(?P<more>{more})"
    )


NAMED = _named("(?:py)?torch", _VERSION)
PYTHON = _named("python", r"\d+(?:\.\d+)*(?!\w)")
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
_OF_PROJECT = (
    r"(?i)(?:^\W*|[.;:(]\s*|\b(?:this|the|our)\s+(?:code|script|repo|repository|implementation|project|package"
    r"|library|program)\s+(?:(?:is|was|has\s+been|only)\s+)*)"
)
_ENDS = r"\s+(?:(?:at\s+least|only|the|version|versions)\s+)*$"
SUPPORTS = re.compile(r"(?i)\bwe\s+(?:\w+\s+)?support" + _ENDS)
TESTED = re.compile(
    _OF_PROJECT
    + r"(?:tested|developed|written|implemented)\s+(?:with|on|under|in|for|using)"
    + _ENDS
)
REQUIRES = re.compile(_OF_PROJECT + r"(?:requires?|needs?)" + _ENDS)
CUDA = re.compile(r"(?:\bcu|\bcuda|cudatoolkit[ =]+|nvidia/cuda:)(\d+(?:\.\d)?)(?![\d.]*\+)")
NEXT = {"torch": (3,), "python": (4,)}


# Where a package is asked for, what is asked for, and which versions that rules out.
Demand: TypeAlias = tuple[str, str, "Limit | None"]


@dataclass(frozen=True)
class Said:
    """What a line says; ``oldest`` is a lower bound (that ``binds`` however old), ``limit`` a
    pin.
    """

    place: str
    why: str
    oldest: Version = ()
    limit: Limit | None = None
    binds: bool = False


def _in_lines(
    lines: Iterable[tuple[str, str]], named: re.Pattern[str] = NAMED, package: str = "torch"
) -> list[Said]:
    texts = [(place, unquote(line)) for place, line in lines]
    found = (_of_match(place, x, m, package) for place, x in texts for m in named.finditer(x))
    return not_none(found)


def _weighed(found: list[Said]) -> tuple[list[Said], list[Said]]:
    """The lower bounds, and the pin: none beside a lower bound."""
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
    """What an old Python says, where no newer one is named."""
    pins = _weighed(_in_lines(lines, PYTHON, "python"))[1]
    torch = next((newest_with(said.limit) for said in pins), None)
    return [] if torch is None else [replace(pins[0], limit=Limit(torch))]


def newest_with(python: Limit | None) -> Version | None:
    """The last torch for such Pythons; None where any may be meant."""
    above = ((*version[:-1], version[-1] + 1) for version in PYTHONS)
    found = zip(PYTHONS.values(), above, strict=True)
    return next((torch for torch, a in found if python and python.is_below(a)), None)


def _newest(found: list[Said]) -> list[Said]:
    pins = [s for s in found if s.limit is not None]
    return [max(pins, key=lambda s: s.limit.newest if s.limit else ())] if pins else []


def _of_match(
    place: str, line: str, match: re.Match[str], package: str = "torch", least: bool = False
) -> Said | None:
    """What one name of a package says; with ``least`` a lower bound."""
    said = match["version"] + match["more"]
    named = [version_of(v) for v in re.findall(r"\d+(?:\.\d+)*", said)]
    known = [v for v in named if v < NEXT[package]]
    start, rest = line[: match.start()], line[match.end() :]
    denied = DENIED_BEFORE.search(start) or DENIED_BEHIND.search(rest)
    if not known or denied or "!=" in match["between"]:
        return None
    open_above = BEFORE.search(start) or WITHIN.search(match["between"]) or BEHIND.search(rest)
    if open_above or least or ".x" in said:
        why = f"asks for {package} >={'.'.join(map(str, min(known)))}"
        return Said(place, why, min(known), binds=least)
    below = BELOW.search(match["between"])
    words = re.sub(r"\]?\(https?:\S*\)|[*_`\[\](|:]", " ", match[0])
    return Said(
        place,
        f"says {' '.join(words.split())}",
        limit=Limit(max(known), included=below is None or bool(below[1])),
    )


def _remarked(source: Source) -> Iterator[Said]:
    """What comments and docstrings say of the project: what "we support" binds, however old."""
    first = next((s for s in source.tree.body if not is_docstring(s)), None)
    documents = {
        n
        for stmt in source.each(ast.Expr)
        if is_docstring(stmt)
        for n in range(stmt.lineno, (stmt.end_lineno or 0) + 1)
    }
    for number, line in enumerate(source.text.splitlines(), 1):
        if "orch" not in line or ("#" not in line and number not in documents):
            continue
        remark = line if number in documents else line.partition("#")[2]
        for match in NAMED.finditer(remark):
            start = remark[: match.start()]
            supports = bool(SUPPORTS.search(start))
            at_head = first is None or number < first.lineno
            alone = not any(map(str.isalnum, start + remark[match.end() :]))
            requires = at_head and (alone or REQUIRES.search(start))
            found = _of_match(source.place(number), remark, match, "torch", supports)
            if found is not None and (supports or requires or TESTED.search(start)):
                yield found


FILES = tuple(
    """[Rr]eq*.txt requirements/*.txt docker/req*.txt install/req*.txt
    installation/req*.txt env/req*.txt pyproject.toml setup.cfg setup.py *env*.y*ml conda*.y*ml
    Pipfile Dockerfile* docker/Dockerfile* cog.yaml""".split()
)
REQUIREMENT = (
    # torch, pytorch =, "torch[x]", torch = "
    r"""(?<![\w./-])%s(?:["']?\s*[:=]\s*["'])?\s*(?:\[[\w,\s]*\])?\s*"""
    r"""((?:(?:[<>=!~^]=?=?)\s*v?\d[\d.]*[\w.*+]*\s*,?\s*)+)"""  # >=2.1,<3
)
# Of one version: https://.../torch-1.1.0-cp36-cp36m-linux_x86_64.whl, FROM
# pytorch/pytorch:1.4-cuda10.1-cudnn7-runtime
WHEEL, IMAGE = r"/%s-(\d+(?:\.\d+)+)[-+%%]\S*\.whl", r"\bpytorch/pytorch:(\d+(?:\.\d+)+)"
PACKAGE = ("pyproject.toml", "setup.cfg", "setup.py")  # what pip asks when others install it
NAMES = {"torch": "(?:py)?torch", "python": "(?:requires-)?python(?:_requires)?"}
SPECIFIER = re.compile(r"([<>=!~^]=?=?)\s*v?(\d+(?:\.\d+)*)")


def rules_out(script: Script, version: tuple[int, ...], package: str) -> str:
    """Where the project says that ``package`` is older than ``version``; empty where it does
    not.
    """
    return next(
        (
            f"{place} asks for {package} {spec}"
            for place, spec, limit in version_limits(script, package)
            if limit is not None and limit.is_below(version)
        ),
        "",
    )


def at_least(script: Script, version: tuple[int, ...], package: str) -> bool:
    """Whether the project asks for ``version`` or a newer one."""
    return any(oldest_version(spec) >= version for _, spec, _ in version_limits(script, package))


def version_limits(script: Script, package: str) -> tuple[Demand, ...]:
    """Where the project asks for ``package``, what it asks for, and which versions that rules
    out.
    """
    return script.analysis(Requirements).limits(package)


def in_words(script: Script) -> tuple[list[Said], list[Said]]:
    """The lower bounds of torch in a README; and what pins it where no file for installing says
    anything of it: a README's words, wheels of an old CUDA, Python 2.
    """
    return script.analysis(Requirements).in_words


def _folders(script: Script) -> tuple[Path, ...]:
    """The folders from the entry's up to the project's root."""
    depth = len(Path(script.entry.rel).parts)
    return tuple(script.entry.path.parents[:depth])


def for_python_2(script: Script) -> str:
    """What says that the script is for Python 2 alone; empty where nothing does."""
    return script.analysis(Requirements).python_2


class Requirements:
    """``script.analysis(Requirements)``: what the project's requirement files say of packages."""

    def __init__(self, script: Script):
        self._folders = _folders(script)
        self._sources = script.sources
        self._is_for_python_3 = next(script.each(ast.JoinedStr), None) is not None
        self._limits: dict[str, tuple[Demand, ...]] = {}

    def limits(self, package: str) -> tuple[Demand, ...]:
        if package not in self._limits:
            name = re.escape(package).replace("\\-", "[-_]")
            name = NAMES.get(package, name)
            exact = [WHEEL % name, *([IMAGE] if package == "torch" else [])]
            patterns = re.compile(REQUIREMENT % name), *map(re.compile, exact)
            self._limits[package] = tuple(_found(self._code, *patterns))
        return self._limits[package]

    @cached_property
    def in_words(self) -> tuple[list[Said], list[Said]]:
        lines = list(_lines(self._folders, READ_ME))
        bounds, pins = _weighed(_in_lines(lines))
        if self.limits("torch"):
            return bounds, []
        if not bounds and not pins:
            bounds, pins = _weighed([s for source in self._sources for s in _remarked(source)])
        if not bounds and not pins:
            pins = of_cuda([*self._code, *lines])
            if not self.limits("python"):
                pins += self._python
        return bounds, pins or ([] if bounds else self._of_their_time)

    @cached_property
    def _python(self) -> list[Said]:
        """What an old Python in words says of torch."""
        said = of_python([*self._classifiers, *_lines(self._folders, READ_ME)])
        two = Limit(PYTHONS[(2,)])
        return [p for p in said if p.limit != two or not self._is_for_python_3]

    @cached_property
    def python_2(self) -> str:
        """What says that the project is for Python 2 alone; empty where nothing does."""
        for place, spec, limit in self.limits("python"):
            if limit is not None and limit.is_below((3,)):
                return f"{place} asks for Python {spec}"
        for said in self._python:
            if said.limit == Limit(PYTHONS[(2,)]) and not self.limits("python"):
                return f"{said.place} {said.why}"
        return ""

    @property
    def _of_their_time(self) -> list[Said]:
        """The newest torch that was out when the newest of the pinned packages was."""
        found = []
        for package, since in TIMES.items():
            for place, spec, limit in self.limits(package):
                if limit is None or spec[0] not in "=~":
                    continue
                out = [t for t, first in zip(OUT, since, strict=False) if not limit.is_below(first)]
                if len(out) == len(since):
                    return []
                torch = out[-1] if out else (0, 4)
                words = f"pins {package} {spec}, which is of the time of torch {shown(torch)}"
                found.append(Said(place, words, limit=Limit(torch)))
        return _newest(found)

    @property
    def _classifiers(self) -> list[tuple[str, str]]:
        """The lines that say which Pythons a package is for."""
        return [(place, line) for place, line in self._code if "Programming Language ::" in line]

    @cached_property
    def _code(self) -> tuple[tuple[str, str], ...]:
        """The lines of these files, without their comments."""
        lines = ((place, line.split("#")[0]) for place, line in _lines(self._folders, FILES))
        return tuple((place, code) for place, code in lines if any(map(str.isdigit, code)))


def _lines(folders: Iterable[Path], kinds: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The place and the text of each line of files of these kinds that may name a version."""
    for path in (p for folder in folders for kind in kinds for p in disk.matching(folder, kind)):
        try:
            text = disk.text(path)
        except OSError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if any(map(str.isdigit, line)):
                yield f"{path.name}:{number}", line


def _found(
    lines: tuple[tuple[str, str], ...], asked: re.Pattern[str], *exact: re.Pattern[str]
) -> Iterator[Demand]:
    for place, code in lines:
        if match := asked.search(code):
            spec = match[1].strip().rstrip(",").strip()
        elif match := next((m for e in exact if (m := e.search(code))), None):
            spec = f"=={match[1]}"
        else:
            continue
        yield place, spec, _limit(spec)


def _limit(spec: str) -> Limit | None:
    found: list[Limit] = []
    for sign, text in SPECIFIER.findall(spec):
        version = version_of(text)
        if sign in ("==", "=", "===", "<="):
            found.append(Limit(version))
        elif sign == "<":
            found.append(Limit(version, included=False))
        elif sign == "~=":
            above = (*version[:-2], version[-2] + 1) if len(version) > 1 else (version[0] + 1,)
            found.append(Limit(above, included=False))
        elif sign == "^":
            found.append(Limit((version[0] + 1,), included=False))
    return min(found, key=lambda limit: (limit.newest, limit.included), default=None)


def oldest_version(spec: str) -> tuple[int, ...]:
    """The oldest version that is allowed."""
    bounds = [
        text for sign, text in SPECIFIER.findall(spec) if sign in (">=", "==", "~=", "^", "=")
    ]
    return max(map(version_of, bounds), default=(0,))
