"""Expressions of ``__getitem__``, as they are written for a whole batch: what the dataset holds,
rows of it, parts of items, sizes.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from autofast.facts.arrays import Array, array_of, constant_array
from autofast.facts.dimensions import dimension_count
from autofast.flow.scopes import loaded_in, stored_in
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.source import at, source_of
from autofast.model.values import Arg, Const, Thing, const, one
from autofast.rule import Refusal
from autofast.techniques.loading.item_calls import Calls
from autofast.techniques.loading.item_values import (
    Draw,
    Fixed,
    Items,
    Same,
    Several,
    Value,
    no_form,
)


@dataclass(frozen=True)
class Stored:
    """An attribute of the dataset whose rows are items, and the parameter that gets them."""

    attr: str
    name: str
    array: Array


class Expressions(Calls):
    """What an expression is, of all items of a batch."""

    def __init__(
        self, script: Script, getitem: ast.FunctionDef, torch: str, ranks: dict[str, int]
    ) -> None:
        super().__init__(torch, ranks)
        self.script, self.getitem = script, getitem
        self.lines: list[str] = []
        self.depth = 0
        self.mask = ""
        self.env: dict[str, Value] = {}
        self.given: Value | None = None
        self.stored: dict[str, Stored] = {}
        self.fixed: list[tuple[str, str]] = []
        parameters = [a.arg for a in getitem.args.args]
        plain = not (getitem.decorator_list or getitem.args.vararg or getitem.args.kwonlyargs)
        if len(parameters) != 2 or not plain:
            raise Refusal("its __getitem__ is not a plain one")
        self.this, self.index = parameters
        self.own = stored_in(getitem)
        self.taken = self.own | loaded_in(getitem) | set(parameters)
        self.n, self.device, self.each = map(self.fresh, ("n", "device", "each"))

    def value(self, expr: ast.expr) -> Value:
        match expr:
            case ast.Constant(value=value):
                return Same(repr(value), value)
            case ast.Name(id=name) if name in self.env:
                return self.env[name]
            case ast.Name() | ast.Attribute():
                return self.shared(expr)
            case ast.Tuple(elts=elts):
                return Several(tuple(self.value(e) for e in elts))
            case ast.Dict(keys=keys, values=values) if all(
                isinstance(getattr(k, "value", None), str) for k in keys
            ):
                names = tuple(getattr(k, "value", "") for k in keys)
                return Several(tuple(self.value(v) for v in values), names)
            case ast.Subscript():
                return self.subscript(expr)
            case ast.Call():
                return self.call(expr)
        return self.operation(expr)

    def operation(self, expr: ast.expr) -> Value:
        match expr:
            case ast.BinOp(left=left, op=op, right=right):
                return self.two(self.value(left), op, self.value(right), expr)
            case ast.UnaryOp(op=op, operand=inner):
                return self.one(op, self.value(inner), expr)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self.compared(self.value(left), op, self.value(right), expr)
        raise no_form(expr)

    def shared(self, expr: ast.Name | ast.Attribute) -> Value:
        """What all items share: a constant, an attribute of the dataset, a small array."""
        match expr:
            case ast.Attribute(value=inner, attr="T"):
                return self.turned(self.value(inner), expr)
            case ast.Attribute(value=inner, attr="shape"):
                return Several(tuple(self.sides(expr, None)))
            case ast.Name(id=name) if name == self.index:
                raise self.no_row(expr)
            case ast.Name(id=name) if name == self.this:
                raise Refusal("hands on the dataset itself", expr)
            case ast.Name(id=name) if name in self.own:
                raise Refusal(f"{at(expr)}: what `{name}` is is not known")
        is_here = source_of(expr) is source_of(self.getitem)
        code = self.path(expr) if _is_of(expr, self.this) else ast.unparse(expr)
        if is_here and (array := constant_array(self.script, expr)) is not None:
            known = next((p for c, p in self.fixed if c == code), "")
            if not known:
                known = self.fresh(last_part(code).lower())
                self.fixed.append((code, known))
            assert array.rank is not None
            return Fixed(known, array.rank, array.dtype)
        if not is_here and not _is_of(expr, self.this):
            if type(value := self.script.constant(expr)) in (int, float, str, bool):
                return Same(repr(value), value)
            raise Refusal("is of another file", expr)
        match expr:
            case ast.Attribute(value=ast.Name(id=name)) if name != self.this:
                if not isinstance(self.script.constant(expr), (int, float, str)):
                    raise Refusal(f"{at(expr)}: what `{code}` is is not known")
        return Same(code, self.number(expr))

    def no_row(self, expr: ast.expr) -> Refusal:
        return Refusal(f"uses `{self.index}` for something else than to index arrays", expr)

    def number(self, expr: ast.expr) -> object:
        """The constant that it is; a type for an option of it; ``...`` where it may be anything."""
        found = self.script.values(expr)
        if (value := const(found)) is not ...:
            return value
        values = [v for t in found for v in _constants(t)]
        if found and ... not in values and values:
            types = {type(v) for v in values}
            return one(types, ...)
        return ...

    def attribute(self, expr: ast.expr) -> str:
        """``images`` for ``self.images[index]``, ``self.images[index, :]``."""
        match expr:
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=this), attr=attr), slice=index
            ):
                picked = _row_picked(index)
                if isinstance(picked, ast.Name) and (this, picked.id) == (self.this, self.index):
                    return attr
        return ""

    def row(self, expr: ast.Subscript, attr: str, name: str = "") -> Items:
        """Rows of what is stored under an attribute."""
        known = self.held(expr, attr, name)
        array = known.array
        return Items(
            known.name,
            attr,
            dtype=array.dtype,
            made=array.dtype,
            numpy=not array.tensor,
            shape=attr,
            taken=array.tensor,
        )

    def held(self, expr: ast.Subscript, attr: str, name: str = "") -> Stored:
        """What is stored under an attribute, and the parameter for it."""
        known = self.stored.get(attr)
        if known is None:
            array = array_of(self.script, expr.value)
            if array is None or not array.plain:
                raise Refusal(
                    f"what `{ast.unparse(expr.value)}` holds is not known to be one array or tensor"
                )
            known_rank = (
                dimension_count(self.script, expr.value) if array.rank is None else array.rank
            )
            if known_rank is not None:
                self.ranks[attr] = known_rank - 1
            name = name or (self.fresh(attr) if attr in self.taken else attr)
            self.taken.add(name)
            known = self.stored[attr] = Stored(attr, name, array)
        return known

    def subscript(self, expr: ast.Subscript) -> Value:
        if attr := self.attribute(expr):
            return self.row(expr, attr)
        match expr:
            case ast.Subscript(value=ast.Attribute(value=inner, attr="shape"), slice=index):
                place = self.script.constant(index)
                if isinstance(place, int):
                    return self.side(self.items(self.value(inner), expr), place)
                raise no_form(expr)
        if self.index in loaded_in(expr.slice):
            raise self.no_row(expr)
        base = self.value(expr.value)
        if isinstance(base, Several):
            place = self.script.constant(expr.slice)
            if isinstance(place, int) and abs(place) < len(base.parts):
                return base.parts[place]
        if isinstance(base, Draw) and self.script.constant(expr.slice) == 0:
            return base  # ``torch.rand(1)[0]``
        return self.cut(self.items(base, expr), getattr(expr.slice, "elts", [expr.slice]), expr)

    def sides(self, expr: ast.expr, count: int | None) -> list[Same]:
        """The sides that ``image.shape`` or ``image.shape[:2]`` gives."""
        match expr:
            case ast.Attribute(value=inner, attr="shape"):
                items = self.items(self.value(inner), expr)
                if count is not None:
                    self.learn(items, count)
                if (rank := self.rank(items)) is None:
                    raise Refusal(f"{at(expr)}: how many dimensions it has is not known")
                return [self.side(items, n) for n in range(rank)]
            case ast.Subscript(
                value=ast.Attribute(value=inner, attr="shape"),
                slice=ast.Slice(lower=lower, upper=upper, step=None),
            ):
                items = self.items(self.value(inner), expr)
                first = 0 if lower is None else self.script.constant(lower)
                last = None if upper is None else self.script.constant(upper)
                if first == 0 and type(last) is int and last > 0:
                    return [self.side(items, n) for n in range(last)][: count or last]
                if type(first) is int and last is None and count is not None:
                    if first > 0:
                        self.learn(items, first + count)
                        return [self.side(items, first + n) for n in range(count)]
                    if first == -count:
                        return [self.side(items, first + n) for n in range(count)]
        raise no_form(expr)

    def path(self, owner: ast.expr) -> str:
        """An object that the dataset holds, as the method of the dataset calls it."""
        match owner:
            case ast.Attribute(value=inner, attr=attr):
                return f"{self.path(inner)}.{attr}"
            case ast.Name(id=found) if found == self.this and found:
                return self.this
        raise Refusal(f"{at(owner)}: `{ast.unparse(owner)}` has no form for batches")

    def not_listed(self, items: Items, node: ast.AST) -> None:
        known = self.stored.get(items.root)
        if known is None or known.array.is_list:
            raise Refusal("cuts images of a list, which may be of different sizes", node)


def _row_picked(index: ast.expr) -> ast.expr:
    """``index`` of ``index`` itself and of ``index, :``."""
    match index:
        case ast.Tuple(elts=[first, *rest]) if all(ast.unparse(part) == ":" for part in rest):
            return first
    return index


def _is_of(expr: ast.expr, name: str) -> bool:
    """``self.transform.p``."""
    match expr:
        case ast.Attribute(value=owner):
            return _is_of(owner, name)
        case ast.Name(id=found):
            return bool(name) and found == name
    return False


def _constants(thing: Thing) -> list[object]:
    """The constants that a thing may be; ``...`` for anything else."""
    if isinstance(thing, Const):
        return [thing.value]
    if isinstance(thing, Arg):
        return [v for t in thing.default for v in _constants(t)] or [...]
    return [...]
