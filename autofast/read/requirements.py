"""Which versions of a package a project allows: what its requirement files rule out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

from autofast.model import disk
from autofast.model.script import Script
from autofast.model.torch_age import Limit, version_of

FILES = tuple(
    """requirements*.txt requirements/*.txt docker/requirements*.txt install/requirements*.txt
    installation/requirements*.txt env/requirements*.txt pyproject.toml setup.cfg setup.py environment*.y*ml
    Pipfile Dockerfile* docker/Dockerfile*""".split()
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
# In words: "PyTorch 1.10+", "torch >= 1.7", "[PyTorch](https://pytorch.org) 1.6 or newer"
READ_ME = ("README*.md", "README*.rst", "README*.txt", "README", "readme*.md")
IN_WORDS = re.compile(
    r"(?i)\b(?:py)?torch\b[\s*_`\])]*(?:\(https?:[^)\s]*\)[\s*_`]*)?(?:version\s*)?(?:[>≥]=?\s*v?(\d+(?:\.\d+)+)"
    r"|v?(\d+(?:\.\d+)+)[*_`\])]*(?:\+|\s+(?:or|and)\s+(?:newer|later|higher|above|greater|up)\b))"
)
# "torch==1.4.0", "conda install pytorch=0.4.1": the same in a README as in a file for pip
PINNED = re.compile(rf"(?i){REQUIREMENT % NAMES['torch']}")
SPECIFIER = re.compile(r"([<>=!~^]=?=?)\s*v?(\d+(?:\.\d+)*)")


def rules_out(script: Script, version: tuple[int, ...], package: str) -> str:
    """Where the project says that ``package`` is older than ``version``; empty where it does
    not.
    """
    return next(
        (
            f"{place} asks for {package} {spec}"
            for place, spec, limit in limits(script, package)
            if limit is not None and limit.is_below(version)
        ),
        "",
    )


def at_least(script: Script, version: tuple[int, ...], package: str) -> bool:
    """Whether the project asks for ``version`` or a newer one."""
    return any(lower(spec) >= version for _, spec, _ in limits(script, package))


def limits(script: Script, package: str) -> tuple[tuple[str, str, Limit | None], ...]:
    """Where the project asks for ``package``, what it asks for, and which versions that rules
    out.
    """
    return script.analysis(Requirements).limits(package)


def of_torch(script: Script) -> tuple[tuple[str, str, Limit | None], ...]:
    """As :func:`limits` of torch, and what a README says. One exact version there counts where no
    file for installing names any.
    """
    return script.analysis(Requirements).of_torch


def _folders(script: Script) -> tuple[Path, ...]:
    """The folders from the entry's up to the project's root."""
    depth = len(Path(script.entry.rel).parts)
    return tuple(script.entry.path.parents[:depth])


class Requirements:
    """``script.analysis(Requirements)``: what the project's requirement files say of packages."""

    def __init__(self, script: Script):
        self._folders = _folders(script)
        self._limits: dict[str, tuple[tuple[str, str, Limit | None], ...]] = {}

    def limits(self, package: str) -> tuple[tuple[str, str, Limit | None], ...]:
        """As :func:`limits`."""
        if package not in self._limits:
            name = re.escape(package).replace("\\-", "[-_]")
            name = NAMES.get(package, name)
            exact = [WHEEL % name, *([IMAGE] if package == "torch" else [])]
            patterns = re.compile(REQUIREMENT % name), *map(re.compile, exact)
            self._limits[package] = tuple(_found(self._code, *patterns))
        return self._limits[package]

    @cached_property
    def of_torch(self) -> tuple[tuple[str, str, Limit | None], ...]:
        """As :func:`of_torch`."""
        asked = self.limits("torch")
        return asked + tuple(_in_words(_lines(self._folders, READ_ME), pins=not asked))

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


def _in_words(
    lines: Iterable[tuple[str, str]], pins: bool
) -> Iterator[tuple[str, str, Limit | None]]:
    for place, line in lines:
        if match := IN_WORDS.search(line):
            yield place, f">={match[1] or match[2]}", None
        elif pins and (match := PINNED.search(line)) and match[1].startswith("="):
            spec = match[1].strip().rstrip(",.").strip()
            yield place, spec, _limit(spec)


def _found(
    lines: tuple[tuple[str, str], ...], asked: re.Pattern[str], *exact: re.Pattern[str]
) -> Iterator[tuple[str, str, Limit | None]]:
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


def lower(spec: str) -> tuple[int, ...]:
    """The oldest version that is allowed."""
    bounds = [
        text for sign, text in SPECIFIER.findall(spec) if sign in (">=", "==", "~=", "^", "=")
    ]
    return max(map(version_of, bounds), default=(0,))
