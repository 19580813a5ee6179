"""The variable of a loop that counts its batches: the one of ``enumerate`` that it has, or a new
one.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from autofast.edit.edits import Edits, Rewrite, Wrap
from autofast.facts.updates.counter import Counter
from autofast.flow.scopes import binds, mentions, variables_of
from autofast.model.script import Script
from autofast.model.source import function_of, source_of
from autofast.model.syntax import is_read
from autofast.rule import Refusal

NAMES = ("step", "batch_idx", "batch_index", "i")


def step_counter(script: Script, loop: ast.For, changed: Collection[str]) -> tuple[str, int, Edits]:
    """The variable, its first value, and the edits that make it; it is none of those ``changed`` in
    the loop. Raises :class:`Refusal`.
    """
    reader = Counter(script, loop)
    known = reader.start in (0, 1)
    if reader.name.strip("_") and reader.name not in changed and known:
        return reader.name, reader.start, ()
    taken = source_of(loop).names
    name = next((n for n in NAMES if n not in taken), "") or source_of(loop).fresh("batch_number")
    if known and reader.target is not None and _is_nobody(reader.target):
        return name, reader.start, (Rewrite(reader.target, name),)
    other = variables_of(loop).find("enumerate", function_of(loop))
    if other is not None and binds(other.scope, other.name):
        raise Refusal("`enumerate` is something else here")
    target = Wrap(
        loop.target, f"{name}, ({{}})" if isinstance(loop.target, ast.Tuple) else f"{name}, {{}}"
    )
    return name, 0, (target, Wrap(loop.iter, "enumerate({})"))


def _is_nobody(target: ast.Name) -> bool:
    """``_`` of ``for _, (x, _) in enumerate(loader)``, which nothing asks for."""
    name = target.id
    return not name.strip("_") and not any(map(is_read, mentions(function_of(target), name)))
