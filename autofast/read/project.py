"""The files of the project: which file an import means."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

from autofast.model import disk
from autofast.model.disk import resolved_path
from autofast.model.opening import open_source, read_source
from autofast.model.several import wordset
from autofast.model.source import BadInput, Source

# never a project's own code, even where a copy of it lies in the tree: they are described in
# torchlib
LIBRARIES = wordset(
    "torch torchvision torchaudio torchtext numpy lightning pytorch_lightning lightning_fabric accelerate "
    "transformers datasets tqdm PIL cv2 scipy sklearn apex deepspeed"
)


class Project:
    """Finds and reads modules below ``root``; everything else is a library and never opened.

    ``overlay`` gives other contents for some files: standard input, or a rewritten text that is
    read again. ``before`` are files as an
    earlier reading found them: those that still are the same are not parsed again.
    """

    def __init__(
        self,
        entry: Path,
        root: Path,
        overlay: dict[Path, bytes] | None = None,
        before: Iterable[Source] = (),
    ):
        self.before = {source.path: source for source in before}
        self.entry, self.root = entry, root.resolve()
        self.overlay = {path.resolve(): raw for path, raw in (overlay or {}).items()}
        self.sources: dict[Path, Source] = {}
        self.broken: dict[Path, str] = {}  # why; empty where nobody need know
        self.neighbours: set[Path] = set()  # files that import the entry, and are read for that
        self.namespaces: dict[str, Source | None] = {}
        self._places: dict[tuple[Path | str, ...], Source | None] = {}
        first = resolved_path(entry).parent
        self.search = list(
            dict.fromkeys([first, self.root, self.root / "src", self.root / "lib", first.parent])
        )
        self.added: list[Path] = []  # by the script itself
        self.search = [
            p for p in self.search if p == self.root or self.root in p.parents or p == first
        ]

    def search_also(self, folder: Path, first: bool) -> bool:
        """Look for modules in a folder of the project that the script puts on ``sys.path``; False
        where that is nothing new.
        """
        inside = folder == self.root or self.root in folder.parents
        if not inside or folder in (*self.search, *self.added) or not disk.is_folder(folder):
            return False
        if first:
            self.search.insert(1, folder)
        self.added.append(folder)
        self.namespaces.clear()
        return True

    def read(self, path: Path) -> Source:
        """The source at ``path``, read once; raises :class:`BadInput`."""
        key = resolved_path(path)  # a link to itself is told by the reader
        if key not in self.sources:
            before = self.before.get(key)
            if key in self.overlay:
                if self.root in key.parents:
                    rel = key.relative_to(self.root).as_posix()
                else:
                    rel = path.as_posix()
                self.sources[key] = open_source(key, rel, self.overlay[key], before)
            else:
                self.sources[key] = read_source(path, self.root, before)
        return self.sources[key]

    def find(self, name: str, level: int, importer: Source) -> Source | None:
        """The file for ``import name`` (``level`` dots) in ``importer``; None for a library."""
        parts = name.split(".") if name else []
        if level:
            base = importer.path.parent
            for _ in range(level - 1):
                base = base.parent
            return self._at(base, parts)
        # The folder of the script comes first of all, for every file.
        beside = (importer.path.parent, self.search[0], *self.added)
        if (
            parts
            and parts[0] in LIBRARIES
            and not any(self._at(base, parts[:1]) for base in beside)
        ):
            return next((x for base in beside if (x := self._in_folder(base, parts))), None)
        standard = bool(parts) and parts[0] in sys.stdlib_module_names
        for base in self.search[:1] if standard else (*self.search, *self.added):
            if (found := self._at(base, parts)) is not None:
                return found
        return None

    def _at(self, base: Path, parts: list[str]) -> Source | None:
        """The module that lies there; every place is looked up once."""
        key: tuple[Path | str, ...] = (base, *parts)
        if key not in self._places:
            self._places[key] = self._look_up(base, parts)
        found = self._places[key]
        return found if found is None or found.path not in self.broken else None

    def _look_up(self, base: Path, parts: list[str]) -> Source | None:
        target = base.joinpath(*parts)
        for path in (
            (target / "__init__.py", target.with_name(target.name + ".py"))
            if parts
            else (target / "__init__.py",)
        ):
            if disk.is_file(path) or (self.overlay and path.resolve() in self.overlay):
                if path.resolve() in self.broken:
                    return None
                try:
                    return self.read(path)
                except BadInput as error:
                    self.broken[path.resolve()] = str(error)
                    return None
        return None

    def _in_folder(self, base: Path, parts: list[str]) -> Source | None:
        """A module of a folder of the script that is called like a library, ``datasets/ours.py``,
        and has no ``__init__.py``.

        torch is installed, and would be taken before such a folder; that another library is not,
        the script counts on.
        """
        if parts[0] == "torch" or len(parts) == 1 or disk.is_file(base / parts[0] / "__init__.py"):
            return None
        return self._at(base, parts)

    def in_namespace(self, name: str) -> Source | None:
        """The module ``folder.module`` of a folder of the project without ``__init__.py``."""
        top, _, rest = name.partition(".")
        if not rest or top == "builtins" or top in sys.stdlib_module_names:
            return None
        if name not in self.namespaces:
            parts = name.split(".")
            if top in LIBRARIES:
                beside = (self.search[0], *self.added)
                every = (self._in_folder(base, parts) for base in beside)
            else:
                bases = (*self.search, *self.added)
                every = (self._at(base, parts) for base in bases if disk.is_folder(base / top))
            self.namespaces[name] = next((found for found in every if found is not None), None)
        return self.namespaces[name]

    def matching(self, pattern: str) -> list[Source]:
        """The modules whose dotted name fits ``models.*_model``; none where all would."""
        if len(pattern.replace("*", "").strip(".")) < 3 or pattern.startswith(("*", ".")):
            return []  # a relative one is of a package that is not known here
        found: dict[Path, Source] = {}
        for base in (*self.search, *self.added):
            for path in disk.matching(base, pattern.replace(".", "/") + ".py")[:16]:
                try:
                    found.setdefault(path.resolve(), self.read(path))
                except BadInput as error:
                    self.broken[path.resolve()] = str(error)
        return list(found.values())

    def importers(self, source: Source) -> list[Path]:
        """Python files beside or above ``source`` that import it: where its classes are used."""
        stem = source.path.stem
        found = []
        folders = dict.fromkeys([source.path.parent, source.path.parent.parent, self.root])
        for folder in folders:
            if folder != self.root and self.root not in folder.parents:
                continue
            for path in disk.matching(folder, "*.py")[:200]:
                if path.resolve() == source.path or path.resolve() in self.broken:
                    continue
                try:
                    text = disk.text(path)
                except OSError:
                    continue
                if stem in text and _imports(text, stem):
                    found.append(path)
        return list(dict.fromkeys(found))[:8]


def _imports(text: str, stem: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what is odd in a neighbour is not asked here
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(a.name.split(".")[-1] == stem for a in node.names):
            return True
        if isinstance(node, ast.ImportFrom) and (
            (node.module or "").split(".")[-1] == stem or any(a.name == stem for a in node.names)
        ):
            return True
    return False
