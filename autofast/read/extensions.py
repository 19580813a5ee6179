"""C++ and CUDA that a script imports, as far as the project builds it: what does not compile with
every torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from autofast.model import disk
from autofast.model.script import Script
from autofast.model.several import any_of
from autofast.model.source import Source, source_of
from autofast.model.torch_age import Limit, Newest
from autofast.read.torch_versions import CPP

BUILDS = ("setup.py", "build.py", "make.py")
CODE = tuple("**/*.cpp **/*.cc **/*.cu **/*.cuh **/*.h **/*.hpp".split())
DECLARED = re.compile(r"""Extension\(\s*(?:name\s*=\s*)?["']([\w.]+)["']""")


def extension_limits(script: Script) -> Iterator[Newest]:
    """What the sources of the extensions that a script uses rule out."""
    root = script.entry.path.parents[len(Path(script.entry.rel).parts) - 1]
    seen: set[Path] = set()
    for source in script.sources:
        wanted = set(_imported(source))
        if wanted:
            for folder in _around(source.path, root):
                if folder not in seen and _builds(folder, wanted):
                    seen.add(folder)
                    yield from _outdated(folder, root)
    for site in script.calls("torch.utils.cpp_extension.load"):
        folder = source_of(site.node).path.parent
        if folder not in seen:
            seen.add(folder)
            yield from _outdated(folder, root)


def _imported(source: Source) -> Iterator[str]:
    """The modules, and names in them, that a file cannot do without."""
    for stmt in source.tree.body:
        match stmt:
            case ast.Try(body=body, handlers=handlers) if all(map(_raises, handlers)):
                inner = body
            case _:
                inner = [stmt]
        for node in inner:
            if isinstance(node, ast.ImportFrom):
                yield from (".".join(filter(None, (node.module, a.name))) for a in node.names)
                yield node.module or ""
            elif isinstance(node, ast.Import):
                yield from (a.name for a in node.names)


def _raises(handler: ast.ExceptHandler) -> bool:
    return any_of(ast.walk(handler), ast.Raise)


def _around(path: Path, root: Path) -> Iterator[Path]:
    """The folders from a file's up to the project's."""
    for folder in path.parents:
        yield folder
        if folder == root:
            return


def _builds(folder: Path, wanted: set[str]) -> bool:
    """Whether a build file there declares an extension that is wanted."""
    for name in BUILDS:
        path = folder / name
        if disk.is_file(path):
            try:
                declared = DECLARED.findall(disk.text(path))
            except OSError:
                continue
            if any(_is_same(module, built) for built in declared for module in wanted if module):
                return True
    return False


def _is_same(module: str, built: str) -> bool:
    """``pointnet2._ext``, and ``_ext`` where it is imported beside the file."""
    return module == built or f".{module}".endswith(f".{built}") or built.endswith(f".{module}")


def _outdated(folder: Path, root: Path) -> Iterator[Newest]:
    """The first place of each kind."""
    left = list(CPP)
    for path in (path for pattern in CODE for path in disk.matching(folder, pattern)):
        try:
            text = disk.text(path)
        except OSError:
            continue
        for known in list(left):
            pattern, what, newest, since = known
            found = pattern.search(text)
            if found and "TORCH_VERSION" not in text and f"define {what}" not in text:
                left.remove(known)
                line = text.count("\n", 0, found.end()) + 1
                place = f"{path.relative_to(root).as_posix()}:{line}"
                yield Newest(place, f"uses {what}, gone {since}", Limit(newest))
