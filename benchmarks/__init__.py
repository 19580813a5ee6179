"""Measurements, each one documented command."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path


def one_tree() -> Path:
    """The tree of this file; ends where autofast or its rules would be taken from another one.

    The current folder comes before what is installed, but only for ``autofast``: its rules are
    those of the tree that is installed.
    """
    root = Path(__file__).resolve().parents[1]
    expected = {"autofast": root / "autofast", "autofast.rules": root / "rules"}
    of = {name: import_module(name).__file__ for name in expected}
    for name, file in of.items():
        if Path(file or "").resolve().parent != expected[name]:
            raise SystemExit(f"{name} is {file}, not of {root}: pip install -e {root}")
    return root
