"""Tuples, lists and dicts that the new text makes, of which an attribute is read that these do not
have: what stood there was of another class, a named tuple for one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from autofast.edit.hunks import Hunk
from autofast.model.script import Script
from autofast.model.source import Source, at, line_of, source_of
from autofast.model.syntax import is_read
from autofast.model.values import Dict, Seq, Tensor, Thing

KINDS = {"tuple": tuple, "list": list, "set": set}


def missing_attributes(
    new: Script, source: Source, hunks: Sequence[Hunk]
) -> Iterator[tuple[Hunk, str]]:
    """The hunks of a file that make such a container, each with what is missing."""
    for read in filter(is_read, new.each(ast.Attribute)):
        if any(isinstance(t, Tensor) and t.rank != "?" for t in new.values(read.value)):
            continue  # one of several parts: those that are tensors have it
        for node in filter(None, (_maker(t, read.attr) for t in new.values(read.value))):
            for hunk in hunks:
                here = source_of(node).path == source.path
                if here and hunk.new[0] <= line_of(node) - 1 < hunk.new[1]:
                    yield hunk, f"{at(read)} reads `{read.attr}`, which a plain container has not"


def _maker(thing: Thing, name: str) -> ast.AST | None:
    """What makes a container, if those of its kind have no attribute of this name."""
    match thing:
        case Seq(names=(), kind="tuple" | "list" | "set"):
            return None if hasattr(KINDS[thing.kind], name) else thing.node
        case Dict(node=ast.Dict()):
            return None if hasattr(dict, name) else thing.node
    return None
