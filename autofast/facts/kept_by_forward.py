"""What a forward pass keeps of a batch for the next: attributes that it sets and goes on with."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.program import graph_of
from autofast.model.calls import is_augmented, is_name
from autofast.model.contents import members, with_contents
from autofast.model.script import Script
from autofast.model.source import nodes_in, parent_of, statement_of
from autofast.model.syntax import is_read, is_stored
from autofast.model.values import Func, Inst, Thing
from autofast.ops import is_in_place


def changed_by_forward(module: Thing) -> Iterator[ast.Attribute]:
    """The attributes of a module, and of those inside of it, that forward sets and reads, or
    changes in place.
    """
    for function, this in _forwards(module):
        loaded = {n.attr for n in _of_this(function, this) if is_read(n)}
        for node in _of_this(function, this):
            stored = is_stored(node) and (node.attr in loaded or is_augmented(node))
            if stored or _in_place(node):
                yield node


def carried_by_forward(script: Script, module: Thing) -> Iterator[ast.Attribute]:
    """Those of them that forward reads before it sets them anew."""
    for function, this in _forwards(module):
        mine = list(_of_this(function, this))
        graph = graph_of(script, function)
        for node in mine:
            if _in_place(node) or (is_stored(node) and is_augmented(node)):
                yield node
            elif is_stored(node):
                stores = [n for n in mine if is_stored(n) and n.attr == node.attr]
                reads = (n for n in mine if is_read(n) and n.attr == node.attr)
                if not all(
                    any(
                        graph.dominates(s, r) and statement_of(s) is not statement_of(r)
                        for s in stores
                    )
                    for r in reads
                ):
                    yield node


def _forwards(module: Thing) -> Iterator[tuple[ast.AST, str]]:
    for part in with_contents([module], members):
        if isinstance(part, Inst):
            for func in part.cls.find("forward") or ():
                spec = getattr(func.node, "args", None) if isinstance(func, Func) else None
                if isinstance(func, Func) and isinstance(spec, ast.arguments) and spec.args:
                    yield func.node, spec.args[0].arg


def _of_this(function: ast.AST, this: str) -> Iterator[ast.Attribute]:
    return (n for n in nodes_in(function, ast.Attribute) if is_name(n.value, this))


def _in_place(node: ast.Attribute) -> bool:
    """``self.seen.add_(...)``, ``self.seen[i] = ...``"""
    match parent_of(node):
        case ast.Attribute(attr=name) as method:
            return is_in_place(name, flags=True) and isinstance(parent_of(method), ast.Call)
        case ast.Subscript() as item:
            return is_stored(item)
    return False
