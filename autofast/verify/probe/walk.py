"""The entries of nested structures: batches, arguments and results of modules, checkpoints."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

DEPTH = 8

Path = tuple[str, ...]


def same(value: Any) -> Any:
    return value


def entries(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Of sequences, mappings (in the order of their keys, as words) and dataclasses; None: it is a
    leaf. A class is one, whatever its instances are, and so is a table (a DataFrame)."""
    kind = type(value)
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    if isinstance(value, Mapping) or hasattr(kind, "items") and not hasattr(kind, "shape"):
        try:
            return sorted(value.items(), key=lambda entry: str(entry[0]))
        except Exception:  # a class of mappings, or no mapping
            return None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(one.name, getattr(value, one.name, None)) for one in dataclasses.fields(value)]
    return None


def walk(
    value: Any, opened: Callable[[Any], Any] = same, path: Path = ()
) -> Iterator[tuple[Path, Any]]:
    """Leaves with the keys and places that lead to them; ``opened`` gives what is walked in place
    of a value. What lies deeper than DEPTH is left out.
    """
    value = opened(value)
    parts = entries(value)
    if parts is None:
        yield path, value
    elif len(path) < DEPTH:
        for key, part in parts:
            yield from walk(part, opened, (*path, str(key)))
