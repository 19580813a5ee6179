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
from autofast.flow.program import Flow
from autofast.model.calls import arguments_of, is_method
from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.syntax import SEQUENCES, is_stored
from autofast.model.values import Bound, Dict, Func, Seq

HOOKS = ("register_forward_hook", "register_forward_pre_hook")
FILLS = ("append", "extend", "insert", "update", "setdefault", "appendleft")
CASTS = ("float", "double", "int", "long", "bool", "byte", "item", "tolist", "argmax")
METHODS = ("matmul", "mm", "bmm", "mv", "dot", "addmm")
PRODUCTS = (*(f"torch.{name}" for name in METHODS), "torch.einsum", "torch.nn.functional.linear")
PRODUCT = "and the other side of the product may be fp32"
DEEP = 8


def kept_inside(code: Code) -> str:
    """Where a 16-bit tensor that was kept under autocast would be given to NumPy, or to a layer or
    product in fp32, in words; empty where none is.
    """
    script = code.script
    classes = [c for m in code.models for c in m.classes]
    inner = nodes_of([*classes, *_hooks(script)])  # helpers are asked about what models give them
    uses: dict[ast.AST, tuple[list[ast.expr], str]] = {}
    for site in script.log.of("forward"):
        if isinstance(site.node, ast.Call) and id(site.node) not in code.all:
            uses[site.node] = arguments_of(site.node), "and that layer's weights are fp32"
    for node in script.nodes:
        if id(node) in code.all:
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            uses[node] = [node.left, node.right], PRODUCT
        elif isinstance(node, ast.Call) and script.is_call(node, *PRODUCTS):
            uses[node] = arguments_of(node), PRODUCT
        elif is_method(node, *METHODS):
            uses[node] = [node.func.value, *node.args], PRODUCT
    for site in script.log.of("sync"):
        if is_method(site.node) and any(
            o.data.get("how") == "numpy" and o.this and is_activation(frozenset({o.this}))
            for o in site
        ):
            uses[site.node] = [site.node.func.value], "and NumPy has no bf16"
    named = {name for hook in _hooks(script) for name in _kept_by(hook)}
    for node, (operands, why) in uses.items():
        for operand in operands if id(node) not in inner else ():
            for place in _places(script, operand, 0):
                if named & _words(place) or (
                    is_activation(script.values(operand))
                    and any(id(store) in inner for store in _stores(script, place))
                ):
                    text = ast.unparse(place)
                    return f"`{text}` would be a 16-bit tensor on {at(node)}, {why}: write .float() before it"
    return ""


def _hooks(script: Script) -> Iterator[ast.AST]:
    for site in script.methods(*HOOKS):
        for occurrence in site:
            for thing in () if occurrence.args is None else occurrence.args.get(0, "hook"):
                func = thing.func if isinstance(thing, Bound) else thing
                if isinstance(func, Func):
                    yield func.node


def _kept_by(hook: ast.AST) -> Iterator[str]:
    """The names under which a hook, whose code is not followed, puts away what is no cast."""
    for node in ast.walk(hook):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=attr)) if attr in FILLS:
                kept = next(reversed(arguments_of(node)), node)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript() as owner], value=kept):
                pass
            case _:
                continue
        if not is_method(kept, *CASTS):
            yield from _words(owner)


def _words(place: ast.AST) -> set[str]:
    """The last name of what holds: ``feats`` in ``self.feats[n]``."""
    while isinstance(place, ast.Subscript):
        place = place.value
    return {place.attr} if isinstance(place, ast.Attribute) else {getattr(place, "id", "")} - {""}


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
        for definition in script.analysis(Flow).reaching(expr):
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
        if isinstance(thing, (Seq, Dict)):
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
                if isinstance(thing, (Seq, Dict)):
                    self.items[thing].append(node)
