"""Scripts that are part of a package and say so: ``from .data import load`` runs under ``python -m
package.train`` only.
"""

from __future__ import annotations

import ast
import os


def of(script: str, cwd: str = "") -> tuple[str, str]:
    """The folder that is to stand first on the path, and the script's package: empty for a script
    that runs by itself. ``cwd``: where it is started."""
    path = os.path.realpath(script)
    folder = os.path.dirname(path)
    depth = relative(path)
    if not depth:
        return folder, ""
    names: list[str] = []
    top = folder
    while os.path.isfile(os.path.join(top, "__init__.py")) and os.path.dirname(top) != top:
        top, name = os.path.split(top)
        names.insert(0, name)
    here = os.path.realpath(cwd or os.getcwd())
    # Folders without __init__.py are packages too, seen from where one stands.
    if len(names) < depth and folder.startswith(here + os.sep):
        top, names = here, os.path.relpath(folder, here).split(os.sep)
    if len(names) < depth or not all(map(str.isidentifier, names)):
        return folder, ""
    return top, ".".join(names)


def relative(path: str) -> int:
    """How many folders up the imports reach that cannot but run: not those that a function or a
    ``try`` may leave out.
    """
    try:
        with open(path, "rb") as file:
            body = ast.parse(file.read()).body
    except (OSError, SyntaxError, ValueError, RecursionError):
        return 0
    return max((node.level for node in body if isinstance(node, ast.ImportFrom)), default=0)
