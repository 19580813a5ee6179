"""Which torch (or other package) a project allows: what its requirement files rule out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from autofast.model.script import Script

FILES = (
    "requirements*.txt",
    "requirements/*.txt",
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "environment*.y*ml",
    "Pipfile",
)
REQUIREMENT = (
    r"""(?<![\w./-])%s(?:["']?\s*[:=]\s*["'])?\s*(?:\[[\w,\s]*\])?\s*"""  # torch, pytorch =, "torch[x]", torch = "
    r"""((?:(?:[<>=!~^]=?=?)\s*v?\d[\d.]*[\w.*+]*\s*,?\s*)+)"""  # >=2.1,<3
)
SPECIFIER = re.compile(r"([<>=!~^]=?=?)\s*v?(\d+(?:\.\d+)*)")


def rules_out(script: Script, version: tuple[int, int], package: str = "torch") -> str:
    """Where the project says that its torch (or ``package``) is older than ``version``; empty where it does not."""
    if package == "torch" and (place := _imports_removed(script, version)):
        return place
    found = _limits(_folders(script), package)
    return next(
        (
            f"{place} asks for {package} {spec}"
            for place, spec, limit in found
            if _below(limit, version)
        ),
        "",
    )


# Modules of torch that are gone, and the version without them.
REMOVED = {"torch._six": (2, 0)}


def _imports_removed(script: Script, version: tuple[int, int]) -> str:
    """Where a file imports, whatever happens, what torch no longer has in ``version``: the project runs on older ones."""
    for source in script.sources:
        for node in source.tree.body:
            match node:
                case ast.ImportFrom(module=str(name), level=0):
                    names = [name]
                case ast.Import(names=aliases):
                    names = [alias.name for alias in aliases]
                case _:
                    continue
            for name in names:
                if REMOVED.get(name, (10**6, 0)) <= version:
                    last = ".".join(map(str, REMOVED[name]))
                    return f"{source.rel}:{node.lineno} imports {name}, which torch {last} no longer has"
    return ""


def at_least(script: Script, version: tuple[int, int], package: str = "torch") -> bool:
    """Whether the project asks for ``version`` or a newer one."""
    return any(_lower(spec) >= version for _, spec, _ in _limits(_folders(script), package))


def _folders(script: Script) -> tuple[Path, ...]:
    """The folders from the entry's up to the project's root."""
    depth = len(Path(script.entry.rel).parts)
    return tuple(script.entry.path.parents[:depth])


# The newest version that is allowed, and whether it is allowed itself.
Limit = tuple[tuple[int, ...], bool]


@lru_cache(maxsize=64)
def _limits(folders: tuple[Path, ...], package: str) -> tuple[tuple[str, str, Limit | None], ...]:
    return tuple(
        _found(
            folders,
            re.compile(
                REQUIREMENT
                % (
                    "(?:py)?torch"
                    if package == "torch"
                    else re.escape(package).replace("\\-", "[-_]")
                )
            ),
        )
    )


def _found(
    folders: tuple[Path, ...], requirement: re.Pattern[str]
) -> Iterator[tuple[str, str, Limit | None]]:
    for folder in folders:
        for pattern in FILES:
            for path in sorted(folder.glob(pattern)):
                try:
                    text = path.read_text("utf-8", "replace")
                except OSError:
                    continue
                for number, line in enumerate(text.splitlines(), 1):
                    if match := requirement.search(line.split("#")[0]):
                        spec = match[1].strip().rstrip(",").strip()
                        yield f"{path.name}:{number}", spec, _limit(spec)


def _limit(spec: str) -> Limit | None:
    limits: list[Limit] = []
    for sign, text in SPECIFIER.findall(spec):
        version = tuple(int(n) for n in text.split("."))
        if sign in ("==", "=", "===", "<="):
            limits.append((version, True))
        elif sign == "<":
            limits.append((version, False))
        elif sign == "~=":
            limits.append(
                ((*version[:-2], version[-2] + 1) if len(version) > 1 else (version[0] + 1,), False)
            )
        elif sign == "^":
            limits.append(((version[0] + 1,), False))
    return min(limits, default=None)


def _below(limit: Limit | None, version: tuple[int, int]) -> bool:
    if limit is None:
        return False
    newest, allowed = limit
    short = newest[: len(version)]
    if len(newest) < len(version):  # "==2" allows every 2.x
        return newest < version[: len(newest)] or (not allowed and newest <= version[: len(newest)])
    return short < version or (not allowed and newest <= version)


def _lower(spec: str) -> tuple[int, ...]:
    """The oldest version that is allowed."""
    bounds = [
        text for sign, text in SPECIFIER.findall(spec) if sign in (">=", "==", "~=", "^", "=")
    ]
    return max((tuple(int(n) for n in text.split(".")) for text in bounds), default=(0,))
