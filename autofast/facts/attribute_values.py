"""What an object of the project has under the name of an attribute: by assignments and by
``register_buffer``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.defuse import bound_to
from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import grouped
from autofast.model.source import parent_of
from autofast.model.syntax import is_constant, is_read
from autofast.model.values import Inst, Unknown, one


def attribute_values(script: Script, attribute: ast.Attribute) -> list[ast.expr]:
    """The expressions whose value ``self.name`` may have; what is put there in other ways is not
    among them (see :func:`lasting_value`).
    """
    mine = _owners(script, attribute)
    puts = script.analysis(_Puts).get(attribute.attr, [])
    return [made for owner, made in puts if any(id(t) in mine for t in script.values(owner))]


def lasting_value(script: Script, attribute: ast.Attribute) -> ast.expr | None:
    """The one expression whose value ``self.name`` has all along; None where it may be another, or
    be written to.

    What may be the same object's counts: objects that are not known, names in strings
    (``setattr``), calls of methods of the value. None does not: what is read here is no None.
    """
    mine, name = _owners(script, attribute), attribute.attr
    for text in script.each(ast.Constant):
        if text.value == name and not any(_put(parent_of(text))):
            if not _is_of_parameters(script, text):
                return None  # setattr, a key of a dict
    for node in script.attributes(name):
        owners = script.values(node.value)
        if owners and not any(id(t) in mine or isinstance(t, Unknown) for t in owners):
            continue
        is_put = any(owner is node.value for _, owner, _ in _put(parent_of(node)))
        if not is_put and not _is_only_read(node):
            return None
    return one(
        [made for made in attribute_values(script, attribute) if not is_constant(made, None)]
    )


def _owners(script: Script, attribute: ast.Attribute) -> set[int]:
    return {id(t) for t in script.values(attribute.value) if isinstance(t, Inst)}


class _Puts(dict[object, list[tuple[ast.expr, ast.expr]]]):
    """``script.analysis(_Puts)``: by its name, the objects that get an attribute, and what."""

    def __init__(self, script: Script):
        calls = map(parent_of, script.attributes("register_buffer"))
        found = (put for n in (*calls, *script.each(ast.Assign)) for put in _put(n))
        super().__init__(grouped((name, (owner, made)) for name, owner, made in found))


def _put(node: ast.AST | None) -> Iterator[tuple[object, ast.expr, ast.expr]]:
    """The name under which an object gets something, the object, and what it gets, where a node
    does that.
    """
    match node:
        case ast.Call(
            func=ast.Attribute(value=owner, attr="register_buffer"),
            args=[ast.Constant(name), made, *_],
        ):
            yield name, owner, made
        case ast.Assign(targets=[ast.Attribute(value=owner, attr=name)], value=made):
            yield name, owner, made


def _is_of_parameters(script: Script, text: ast.Constant) -> bool:
    """``n.endswith("bias")``, ``"bias" in n`` in ``for n, p in model.named_parameters()``."""
    match parent_of(text):
        case ast.Compare(left=ast.Name() as name) | ast.Compare(comparators=[ast.Name() as name]):
            pass
        case ast.Call(func=ast.Attribute(value=ast.Name() as name, attr="endswith" | "startswith")):
            pass
        case _:
            return False
    made = script.analysis(Flow).definition(name)
    over, _ = bound_to(made.node) if made is not None else (None, False)
    return is_method(over, "named_parameters")


def _is_only_read(node: ast.Attribute) -> bool:
    """``mask[:n, :n] == 0``, ``~mask``: compared or handed on, and not written to."""
    if not is_read(node):
        return False
    outer: ast.AST | None = parent_of(node)
    here: ast.AST = node
    while isinstance(outer, ast.Subscript) and outer.value is here:
        if not is_read(outer):
            return False
        here, outer = outer, parent_of(outer)
    if isinstance(outer, ast.Attribute):
        return outer.attr in ("bool", "logical_not", "to", "shape", "size", "device", "dtype")
    return isinstance(outer, (ast.Compare, ast.UnaryOp)) or is_method(outer, "masked_fill")
