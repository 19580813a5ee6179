"""What an object of the project has under the name of an attribute: by assignments and by
``register_buffer``.
"""

from __future__ import annotations

import ast

from autofast.flow.defuse import bound_to
from autofast.flow.program import Flow
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.source import parent_of
from autofast.model.syntax import is_attribute, is_constant, is_read
from autofast.model.values import Inst, Unknown, one


def attribute_values(script: Script, attribute: ast.Attribute) -> list[ast.expr]:
    """The expressions whose value ``self.name`` may have; what is put there in other ways is not
    among them (see :func:`lasting_value`).
    """
    mine = _owners(script, attribute)
    found: list[ast.expr] = []
    for source in script.sources:
        for node in source.nodes if attribute.attr in source.text else ():
            owner, made = _put(node, attribute.attr)
            if owner is not None and any(id(t) in mine for t in script.values(owner)):
                assert made is not None
                found.append(made)
    return found


def lasting_value(script: Script, attribute: ast.Attribute) -> ast.expr | None:
    """The one expression whose value ``self.name`` has all along; None where it may be another, or
    be written to.

    What may be the same object's counts: objects that are not known, names in strings
    (``setattr``), calls of methods of the value. None does not: what is read here is no None.
    """
    mine, name = _owners(script, attribute), attribute.attr
    for source in script.sources:
        for node in source.nodes if name in source.text else ():
            if isinstance(node, ast.Constant) and node.value == name:
                if _put(parent_of(node), name)[0] is None and not _is_of_parameters(script, node):
                    return None  # setattr, a key of a dict
            if is_attribute(node, name):
                owners = script.values(node.value)
                if owners and not any(id(t) in mine or isinstance(t, Unknown) for t in owners):
                    continue
                if _put(parent_of(node), name)[0] is not node.value and not _is_only_read(node):
                    return None
    return one(
        [made for made in attribute_values(script, attribute) if not is_constant(made, None)]
    )


def _owners(script: Script, attribute: ast.Attribute) -> set[int]:
    return {id(t) for t in script.values(attribute.value) if isinstance(t, Inst)}


def _put(node: ast.AST | None, name: str) -> tuple[ast.expr | None, ast.expr | None]:
    """The object that gets something under the name, and what, where a node does that."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=owner, attr="register_buffer"),
            args=[ast.Constant(value), made, *_],
        ) if value == name:
            return owner, made
        case ast.Assign(targets=[ast.Attribute(value=owner, attr=attr)], value=made) if (
            attr == name
        ):
            return owner, made
    return None, None


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
