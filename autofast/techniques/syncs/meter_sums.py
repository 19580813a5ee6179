"""What classes that count numbers compute of them, and whether tensors of one number each do as
well."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from autofast.model.calls import is_method, is_name, targets_of
from autofast.model.several import of_kind
from autofast.model.source import nodes_in, parent_of
from autofast.model.syntax import (
    VARIABLES,
    is_attribute,
    is_docstring,
    is_number,
    is_operation,
    is_stored,
)
from autofast.rule import Refusal

COMPUTES = (ast.Add, ast.Sub, ast.Mult, ast.Div)


class Sums:
    """What the method ``update`` of a class computes of its parameters ``given``, which get
    tensors; ``methods`` are all of the class.

    Attributes:
        attrs: the attributes that are computed of them.
    """

    def __init__(
        self, update: ast.FunctionDef, methods: Iterable[ast.FunctionDef], given: Iterable[str]
    ):
        self.update, self.methods, self.given = update, methods, frozenset(given)
        self.attrs = frozenset(self._computed())

    def _computed(self) -> set[str]:
        found, known = set(self.given), set[str]()
        for _ in nodes_in(self.update, ast.stmt):  # each may be computed of one below it
            for node in nodes_in(self.update, ast.stmt):
                value = getattr(node, "value", None)
                parts = [] if value is None else nodes_in(value, *VARIABLES)
                if any(getattr(p, "attr", getattr(p, "id", "")) in found for p in parts):
                    stored = {n.attr for n in nodes_in(node, ast.Attribute) if is_stored(n)}
                    found, known = found | stored, known | stored
        return known

    @cached_property
    def divides(self) -> bool:
        """A quotient by a number is a product with the inverse on CUDA."""
        return any(is_operation(n, ast.Div) for n in nodes_in(self.update, ast.BinOp))

    @cached_property
    def quotients(self) -> frozenset[str]:
        """The attributes that are floats whatever is counted."""
        made = (n for n in nodes_in(self.update, ast.Assign) if is_operation(n.value, ast.Div))
        return frozenset(t.attr for n in made for t in of_kind(targets_of(n), ast.Attribute))

    def check(self) -> None:
        """Raises :class:`Refusal` where the class does anything but add, multiply and format."""
        if self._in_place & {n.attr for n in self._bare()}:
            raise Refusal("what it adds to would be the tensor that it was given")
        for stmt in self.update.body:
            if not is_docstring(stmt):
                self._check(stmt)
        for method in self.methods:
            if method is not self.update:
                self._check_other(method)

    @property
    def _in_place(self) -> set[str]:
        """The attributes that are added to as they are."""
        added = nodes_in(self.update, ast.AugAssign)
        return {n.attr for a in added for n in nodes_in(a.target, ast.Attribute) if is_stored(n)}

    def _bare(self) -> Iterator[ast.Attribute]:
        """Attributes that become another name of a tensor."""
        for node in nodes_in(self.update, ast.Assign):
            if isinstance(node.value, VARIABLES) and self._has_tensor(node.value):
                yield from of_kind(targets_of(node), ast.Attribute)
                if is_attribute(node.value):
                    yield node.value

    def _has_tensor(self, tree: ast.AST) -> bool:
        return any(
            getattr(n, "attr", getattr(n, "id", "")) in self.given | self.attrs
            for n in nodes_in(tree, *VARIABLES)
        )

    def _check(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.Assign(value=value) if all(map(self._is_own, targets_of(stmt))):
                self._check_value(value)
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub(), value=value) if (
                self._is_own(target)
            ):
                self._check_value(value)
            case ast.If(test=test, body=then, orelse=other) if not self._has_tensor(test):
                for inner in (*then, *other):
                    self._check(inner)
            case _:
                raise Refusal("it does more than add and multiply")

    def _is_own(self, target: ast.expr) -> bool:
        return is_attribute(target) and is_name(target.value, self.update.args.args[0].arg)

    def _check_value(self, value: ast.expr) -> None:
        match value:
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, COMPUTES):
                if is_operation(value, ast.Div) and self._has_tensor(right):
                    raise Refusal("it divides by what it was given")
                self._check_value(left)
                self._check_value(right)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                self._check_value(inner)
            case ast.IfExp(test=test, body=one, orelse=other) if not self._has_tensor(test):
                self._check_value(one)
                self._check_value(other)
            case ast.Name() | ast.Constant():
                pass
            case ast.Attribute() if self._is_own(value):
                pass
            case _ if self._has_tensor(value):
                raise Refusal("it does more than add and multiply")

    def _check_other(self, method: ast.FunctionDef) -> None:
        """Another method sets numbers, and formats."""
        this = method.args.args[0].arg
        for node in nodes_in(method, ast.Attribute):
            if not is_name(node.value, this):
                continue
            if node.attr == "__dict__":
                self._check_text(method, parent_of(node))
            elif node.attr in self.attrs and is_stored(node):
                if not is_number(getattr(parent_of(node), "value", None)):
                    raise Refusal(f"{method.name}() sets more than numbers")
            elif node.attr in self.attrs and not _is_formatted(node):
                raise Refusal(f"{method.name}() does more than format")
            elif node.attr == self.update.name:
                raise Refusal(f"{method.name}() counts, too")

    def _check_text(self, method: ast.FunctionDef, use: ast.AST | None) -> None:
        """``("{avg" + self.spec + "}").format(**self.__dict__)``"""
        match use:
            case ast.keyword(arg=None):
                call = parent_of(use)
            case _:
                call = None
        texts = (n.value for n in nodes_in(method, ast.Constant) if isinstance(n.value, str))
        if not is_method(call, "format") or any("!" in text for text in texts):
            raise Refusal(f"{method.name}() shows all that it has")


def _is_formatted(value: ast.Attribute) -> bool:
    match parent_of(value):
        case ast.FormattedValue(conversion=-1):
            return True
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str() as text), attr="format")):
            return "!" not in text
        case ast.keyword() as given:
            return _is_formatted(given)  # type: ignore[arg-type]
    return False
