"""Measurements, each one documented command."""

from __future__ import annotations

from pathlib import Path


def one_tree() -> Path:
    """The tree of this file; ends where autofast or its rules would be taken from another one.

    The current folder comes before what is installed, but only for ``autofast``: its rules are those of the tree that is installed.
    """
    import autofast
    import autofast.rules

    root = Path(__file__).resolve().parents[1]
    of = {"autofast": autofast.__file__, "autofast.rules": autofast.rules.__file__}
    expected = {"autofast": root / "autofast", "autofast.rules": root / "rules"}
    for name, file in of.items():
        if Path(file or "").resolve().parent != expected[name]:
            raise SystemExit(f"{name} is {file}, not of {root}: pip install -e {root}")
    return root
