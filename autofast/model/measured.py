"""What a run of a script has shown of it: the file that ``autofast verify --facts`` writes and
``autofast rewrite --facts`` reads.

Each place has a file, a line and the text of that line, and each script the digests of its files:
what was measured of another text is not used. docs/facts.md describes every field. Times are
seconds, sizes bytes unless a name says otherwise.
"""

from __future__ import annotations

import ast
import hashlib
import json
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from autofast.model import disk
from autofast.model.source import BadInput, Source, shown_path, source_of

VERSION = 1  # of the format; additions do not change it


@dataclass(frozen=True)
class Place:
    """A line of the project: ``file`` relative to its folder, ``code`` as it stands there without
    indentation.
    """

    file: str
    line: int
    code: str

    def is_in(self, node: ast.AST) -> bool:
        """Whether it is one of the lines of ``node``."""
        source, first = source_of(node), getattr(node, "lineno", 0)
        last = getattr(node, "end_lineno", None) or first
        return (
            source.rel == self.file
            and first <= self.line <= last
            and source.lines[self.line - 1].strip() == self.code
        )


@dataclass(frozen=True)
class Fetches:
    """Batches of the loaders that are made at one place, of passes that train or of others.

    Attributes:
        workers: processes that made the batches; 0: the training itself did.
        batches, items: how many were seen.
        item, batch: to make one item, and to make one batch of them and collate it.
        waited: of the training, for one batch.
    """

    place: Place
    training: bool
    workers: int
    batches: int
    items: int
    item: float
    batch: float
    waited: float


@dataclass(frozen=True)
class Copies:
    """Copies from the host to the device at one place: their number, bytes, and the time that the
    host spent on them.
    """

    place: Place
    count: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Reads:
    """Reads of tensors by the host at one place, and the time that it waited for them."""

    place: Place
    count: int
    seconds: float


@dataclass(frozen=True)
class Shapes:
    """Sizes of all tensors that a model was given in one call, and the number of such calls."""

    sizes: tuple[tuple[int, ...], ...]
    calls: int


@dataclass(frozen=True)
class Forwards:
    """Calls of models at one place with gradients; ``others``: calls of further shapes than those
    in ``shapes``.
    """

    place: Place
    calls: int
    shapes: tuple[Shapes, ...]
    others: int = 0

    @property
    def fixed(self) -> bool:
        """Whether all calls, but for smaller last batches, had the same shapes."""
        usual = max(self.shapes, key=lambda s: s.calls, default=None)
        if usual is None or self.others:
            return False
        partial = [s for s in self.shapes if s is not usual]
        return len(partial) < 2 and all(_is_partial(s, usual) for s in partial)


def _is_partial(shapes: Shapes, usual: Shapes) -> bool:
    return (
        len(shapes.sizes) == len(usual.sizes)
        and all(
            a == b or (len(a) == len(b) and a[1:] == b[1:] and a[:1] < b[:1])
            for a, b in zip(shapes.sizes, usual.sizes, strict=True)
        )
        and shapes.calls < usual.calls
    )


@dataclass(frozen=True)
class Facts:
    """Of one script.

    Attributes:
        entry, files: the script, and the SHA-256 of it and of the project's files that it imported,
            by their paths from its folder.
        device: ``cuda``, ``mps`` or ``cpu``.
        gpu: its name.
        arguments: that the script was run with.
        steps: that were watched.
        step: seconds of one, undisturbed.
        phases: shares of it, by name (verify's phases).
        operations: begun in one step; on a GPU kernels.
        idle: share of a step in which the GPU does nothing. None: not measured.
        host_memory, device_memory: most MiB that were used; the latter None without a GPU.
    """

    entry: str
    files: Mapping[str, str]
    device: str
    step: float
    phases: Mapping[str, float]
    steps: int
    arguments: tuple[str, ...] = ()
    gpu: str = ""
    torch: str = ""
    operations: float | None = None
    idle: float | None = None
    fetches: tuple[Fetches, ...] = ()
    copies: tuple[Copies, ...] = ()
    reads: tuple[Reads, ...] = ()
    forwards: tuple[Forwards, ...] = ()
    host_memory: float = 0.0
    device_memory: float | None = None

    def changed(self, sources: Iterable[Source]) -> str:
        """The first file that is no longer what was measured; empty where all are. Files that the
        script did not come to do not count.
        """
        by_name = {source.rel: source for source in sources}
        for name, known in self.files.items():
            if name in by_name and digest(by_name[name].raw) != known:
                return name
        return ""


def digest(raw: bytes) -> str:
    """Of a file, by which its text is told from every other."""
    return hashlib.sha256(raw).hexdigest()


P = TypeVar("P", Fetches, Copies, Reads, Forwards)


def at(found: Sequence[P], nodes: Iterable[ast.AST]) -> list[P]:
    """What was measured at the lines of ``nodes``."""
    nodes = list(nodes)
    return [one for one in found if any(one.place.is_in(node) for node in nodes)]


# ----------------------------------------------------------------------------------------- the file
def text(scripts: Sequence[Facts]) -> str:
    return (
        json.dumps({"version": VERSION, "scripts": [asdict(s) for s in scripts]}, indent=1) + "\n"
    )


def read(path: Path) -> tuple[Facts, ...]:
    """What a file says; raises :class:`BadInput`, in one line, for one that says nothing."""
    shown = shown_path(path)
    again = "write it anew: autofast verify --facts"
    try:
        data = json.loads(disk.read(path).decode("utf-8"))
    except OSError as error:
        raise BadInput(f"{shown}: cannot be read ({error.strerror}); {again}") from None
    except ValueError:
        raise BadInput(f"{shown}: is no JSON; {again}") from None
    if not isinstance(data, dict) or "scripts" not in data or "version" not in data:
        raise BadInput(f"{shown}: has no facts; {again}")
    if data["version"] != VERSION:
        raise BadInput(
            f"{shown}: has version {data['version']!r} of the format, and this autofast reads {VERSION}; {again}"
        )
    try:
        found: tuple[Facts, ...] = _read(tuple[Facts, ...], data["scripts"], "scripts")
    except ValueError as error:
        raise BadInput(f"{shown}: {error}; {again}") from None
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def _read(kind: Any, data: Any, where: str) -> Any:
    """``data`` as a value of type ``kind``; raises ``ValueError``, with the place in the
    document.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return None if data is None else _read(inner[0], data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise ValueError(f"{where} is no list")
        return tuple(_read(inner[0], one, f"{where}[{n}]") for n, one in enumerate(data))
    if origin is not None:
        if not isinstance(data, dict):
            raise ValueError(f"{where} is no object")
        return {key: _read(inner[1], value, f"{where}.{key}") for key, value in data.items()}
    if is_dataclass(kind) and isinstance(kind, type):
        return _made(kind, data, where)
    right = isinstance(data, (int, float) if kind is float else kind)
    if not right or (isinstance(data, bool) and kind is not bool):
        raise ValueError(f"{where} is {data!r}, not {_WORDS[kind]}")
    if kind is not bool and isinstance(data, (int, float)) and not 0 <= data < float("inf"):
        raise ValueError(f"{where} is {data!r}, which was never measured")
    return float(data) if kind is float else data


def _made(kind: type, data: Any, where: str) -> Any:
    """A dataclass; entries that this version does not know are passed over."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} is no object")
    hints, given = _hints(kind), {}
    for place in fields(kind):
        if place.name in data:
            given[place.name] = _read(hints[place.name], data[place.name], f"{where}.{place.name}")
        elif place.default is MISSING and place.default_factory is MISSING:
            raise ValueError(f"{where} has no {place.name}")
    return kind(**given)
