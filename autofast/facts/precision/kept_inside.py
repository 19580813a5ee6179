"""What code under autocast puts away (``self.feature = x``, a forward hook's ``found[name] =
out``), and NumPy is given elsewhere: it has no bf16.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from autofast.facts.precision.activations import is_activation
from autofast.facts.precision.code import Code
from autofast.flow.defuse import bound_to
from autofast.flow.positions import nodes_of
from autofast.flow.program import definitions_at
from autofast.model.calls import arguments_of, is_method
from autofast.model.script import Script
from autofast.model.several import any_in
from autofast.model.source import at
from autofast.model.syntax import SEQUENCES, is_stored
from autofast.model.values import COLLECTIONS, Dict, Func, Seq, unbound

HOOKS = ("register_forward_hook", "register_forward_pre_hook")
FILLS = tuple("append extend insert update setdefault appendleft".split())
CASTS = tuple("float double int long bool byte item tolist argmax".split())
DEEP = 8


def kept_inside(code: Code) -> str:
    """Where a 16-bit tensor that was kept under autocast would be given to NumPy, in words; empty
    where none is.
    """
    script = code.script
    classes = [c for m in code.models for c in m.classes]
    inner = nodes_of([*classes, *_hooks(script)])  # helpers are asked about what models give them
    for site in script.log.of("sync"):
        node = site.node
        if node in inner or not is_method(node):
            continue
        if any(
            o.data.get("how") == "numpy" and o.this and is_activation(frozenset({o.this}))
            for o in site
        ):
            for place in _places(script, node.func.value, 0):
                if any_in(_stores(script, place), inner):
                    text = ast.unparse(place)
                    return f"`{text}` would be a 16-bit tensor on {at(node)}, and NumPy has no bf16: write .float() before it"
    return ""


def _hooks(script: Script) -> Iterator[ast.AST]:
    for site in script.methods(*HOOKS):
        for occurrence in site:
            for thing in occurrence.args.get(0, "hook"):
                func = unbound(thing)
                if isinstance(func, Func):
                    yield func.node


Place = ast.Attribute | ast.Subscript | ast.Name


def _places(script: Script, expr: ast.expr, depth: int) -> Iterator[Place]:
    """The attributes, elements and containers that a value may have been read from; not where it
    was cast on the way.
    """
    if depth > DEEP or is_method(expr, *CASTS):
        return
    if isinstance(expr, (ast.Attribute, ast.Subscript)):
        yield expr
        yield from _places(script, expr.value, depth + 1)
    elif isinstance(expr, ast.Call):
        inner = [expr.func.value] if is_method(expr) else []
        for part in (*inner, *arguments_of(expr)):
            yield from _places(script, part, depth + 1)
    elif isinstance(expr, ast.Name):
        yield expr
        for definition in definitions_at(script, expr):
            value, _ = bound_to(definition.node)
            if value is not None:
                yield from _places(script, value, depth + 1)
    elif isinstance(expr, SEQUENCES):
        for part in expr.elts:
            yield from _places(script, part, depth + 1)
    elif isinstance(expr, (ast.ListComp, ast.GeneratorExp)):
        yield from _places(script, expr.elt, depth + 1)


def _stores(script: Script, place: Place) -> Iterator[ast.AST]:
    """What may put something there."""
    held = script.values(place)
    owners = held if isinstance(place, ast.Name) else held | script.values(place.value)
    stores = script.analysis(_Stores)
    if isinstance(place, ast.Attribute):
        for node in stores.attributes[place.attr]:
            if script.values(node.value) & script.values(place.value):
                yield node
    for thing in owners:
        if isinstance(thing, COLLECTIONS):
            yield from stores.items[thing]


class _Stores:
    """``script.analysis(_Stores)``: what puts something into attributes, by their names, and into
    lists and dicts.
    """

    def __init__(self, script: Script):
        self.attributes: dict[str, list[ast.Attribute]] = defaultdict(list)
        self.items: dict[Seq | Dict, list[ast.AST]] = defaultdict(list)
        for stored in script.each(ast.Attribute):
            if is_stored(stored):
                self.attributes[stored.attr].append(stored)
        fills = (c for c in script.each(ast.Call) if is_method(c, *FILLS))
        into: list[tuple[ast.AST, ast.expr]] = [(c, c.func.value) for c in fills]
        into += [(n, n.value) for n in script.each(ast.Subscript) if is_stored(n)]
        for node, owner in into:
            for thing in script.values(owner):
                if isinstance(thing, COLLECTIONS):
                    self.items[thing].append(node)
