"""Who else uses a function of the script: other scripts, tests and notebooks of the project, which
the script itself never reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from autofast.model import disk
from autofast.model.opening import open_source
from autofast.model.script import Script
from autofast.model.several import of_kind
from autofast.model.source import BadInput, ByNode, Source, ancestors, parent_of, source_of
from autofast.model.syntax import is_read


@dataclass(frozen=True)
class User:
    """A place outside of the script that uses one of its functions, as it is shown."""

    place: str

    def __str__(self) -> str:
        return self.place


class Importers:
    """``script.analysis(Importers)``: the files of the project that the script does not read, by
    what they import.
    """

    def __init__(self, script: Script):
        self.script = script
        entry = script.entry
        inside = entry.path.as_posix().endswith("/" + entry.rel)
        self.root = Path(str(entry.path)[: -len(entry.rel) - 1]) if inside else entry.path.parent
        self._read: dict[Path, Source | None] = {s.path: s for s in script.sources}
        self._mine = frozenset(self._read)
        self._found: ByNode[User | None] = {}
        self._modules: dict[tuple[Path, str, int], Path | None] = {}

    def user(self, function: ast.AST) -> User | None:
        """A use of a function (or of a method, or a class) in a file that is not part of the
        script; None where there is none.
        """
        if function not in self._found:
            self._found[function] = next(self._users(function), None)
        return self._found[function]

    def _users(self, function: ast.AST) -> Iterator[User]:
        outer = of_kind(ancestors(function), ast.stmt)
        owner = outer[-1] if outer and isinstance(outer[-1], ast.ClassDef) else function
        name, method = getattr(owner, "name", ""), getattr(function, "name", "")
        if not name or not isinstance(parent_of(owner), ast.Module) or len(outer) > 1:
            return
        targets, seen = [(source_of(function).path, name)], set()
        while targets:
            path, name = targets.pop()
            if (path, name) in seen:
                continue
            seen.add((path, name))
            for file in self._mentioning(re.escape(name.encode()), path):
                uses = list(_uses_of(self, file, path, name))
                targets += [(file.path, again) for again in _exported(self, file, path, name)]
                if method != getattr(owner, "name", "") and uses:
                    uses = [
                        n for n in file.nodes if isinstance(n, ast.Attribute) and n.attr == method
                    ]
                if file.path not in self._mine:
                    yield from (User(file.place(n.lineno)) for n in uses)

    def importing(self, module: Path, text: bytes) -> Iterator[Source]:
        """The files that are not part of the script, have a text (a pattern), and import a module
        or something of it.
        """
        for file in self._mentioning(text, module):
            if file.path not in self._mine and any(_bound(self, file, module)):
                yield file

    def mention(self, name: str) -> User | None:
        """A file that is not part of the script and has the word."""
        word = re.compile(rb"\b%s\b" % re.escape(name.encode()))
        found = (
            p for p, raw in self._raw.items() if p.resolve() not in self._mine and word.search(raw)
        )
        return next((User(p.relative_to(self.root).as_posix()) for p in found), None)

    # ---------------------------------------------------------------------------------------- files
    @cached_property
    def _files(self) -> list[Path]:
        return disk.python_below(self.root)

    @cached_property
    def _raw(self) -> dict[Path, bytes]:
        found = {}
        for path in self._files:
            try:
                found[path] = disk.read(path)
            except OSError:
                continue  # what nobody can read imports nothing
        return found

    def _mentioning(self, text: bytes, module: Path) -> Iterator[Source]:
        """The files that may import ``module``, by their text, and have another text."""
        word, imports = re.compile(text), self._imports(module)
        for path, raw in self._raw.items():
            if (
                word.search(raw)
                and (path.suffix != ".py" or imports.search(raw))
                and (source := self._source(path, raw)) is not None
            ):
                yield source

    def _imports(self, module: Path) -> re.Pattern[bytes]:
        """What stands in each file that imports ``module``: a file that only has the same words, or
        those of a module in another folder, need not be parsed.

        Notebooks are otherwise: their lines are JSON's.
        """
        whole = module.stem == "__init__"
        home = module.parent if whole else module
        called = {home.name if whole else home.stem}
        called |= {path.stem for path in self._links if path.resolve() == module}
        folders = {home.parent.name, *(path.name for path in disk.links_below(self.root))}
        words, packages = ("|".join(sorted(map(re.escape, names))) for names in (called, folders))
        if not (words + packages).isascii():  # one identifier may be spelled in many ways
            return re.compile(b"")
        name = rf"(?:(?<!\w\.)|\b(?:{packages})\.)\b(?:{words})\b"
        dots = r"|\bfrom[ \t\f\\]*\.[ \t\f.\\]*import\b" if whole else ""
        lines = rf"\b(?:from|import)\b(?:[^#\n]|\\\r?\n)*?{name}"
        in_parentheses = rf"\bimport\s*\((?:[^()#]|#[^\n]*\n)*?{name}"
        return re.compile(f"{lines}|{in_parentheses}{dots}".encode())

    @cached_property
    def _links(self) -> list[Path]:
        return [path for path in self._files if path.is_symlink()]

    def _source(self, path: Path, raw: bytes) -> Source | None:
        key = path.resolve()
        if key not in self._read:
            try:
                self._read[key] = open_source(key, path.relative_to(self.root).as_posix(), raw)
            except (BadInput, RecursionError):
                self._read[key] = None  # it cannot be run either
        return self._read[key]

    def module(self, importer: Source, name: str, level: int = 0) -> Path | None:
        """The project's file that an import of a module in ``importer`` means."""
        key = importer.path.parent, name, level
        if key not in self._modules:
            self._modules[key] = self._look_up(*key)
        return self._modules[key]

    def _look_up(self, here: Path, name: str, level: int) -> Path | None:
        parts = name.split(".") if name else []
        if level:
            bases = [[here, *here.parents][level - 1]]
        else:
            inside = [p for p in here.parents if p == self.root or self.root in p.parents]
            bases = [here, *inside, self.root / "src", self.root / "lib"]
        for base in bases:
            target = base.joinpath(*parts)
            for path in (target / "__init__.py", target.with_name(target.name + ".py")):
                if disk.is_file(path):
                    return path.resolve()
        return None


def _uses_of(files: Importers, file: Source, path: Path, name: str) -> Iterator[ast.expr]:
    """The places in ``file`` that use ``name`` of the module at ``path``."""
    names, modules = _bound(files, file, path, name)
    for use in file.nodes if names or modules else ():
        if (
            isinstance(use, ast.Name)
            and is_read(use)
            and use.id in names
            or (
                isinstance(use, ast.Attribute)
                and use.attr == name
                and ast.unparse(use.value) in modules
            )
        ):
            yield use


def _bound(files: Importers, file: Source, path: Path, name: str = "") -> tuple[set[str], set[str]]:
    """What ``name`` of the module at ``path`` (or anything of it) is called in ``file``, and what
    the module is.
    """
    names, modules = set(), set()
    for plain in file.each(ast.Import):
        for alias in plain.names:
            if files.module(file, alias.name) == path:
                modules.add(alias.asname or alias.name)
    for node in file.each(ast.ImportFrom):
        whole = files.module(file, node.module or "", node.level)
        for alias in node.names:
            part = ".".join(filter(None, (node.module, alias.name)))
            if whole == path and (not name or alias.name in (name, "*")):
                names.add(alias.asname or name)
            elif files.module(file, part, node.level) == path:
                modules.add(alias.asname or alias.name)
    return names, modules


def _exported(files: Importers, file: Source, path: Path, name: str) -> Iterator[str]:
    """The names under which ``file`` hands on ``name`` of the module at ``path``."""
    for node in file.tree.body:
        if isinstance(node, ast.ImportFrom) and (
            files.module(file, node.module or "", node.level) == path and path != file.path
        ):
            yield from (a.asname or name for a in node.names if a.name in (name, "*"))
