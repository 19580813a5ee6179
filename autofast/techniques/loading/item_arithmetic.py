"""Arithmetic and choices of ``__getitem__``, as they are written for a whole batch; what its code
has names for, and how its dimensions are counted.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from itertools import count

from autofast.model.script import Script
from autofast.model.several import all_of, is_numeric
from autofast.model.source import at
from autofast.ops.families import COMPARED, SIGNS
from autofast.rule import Refusal
from autofast.techniques.loading.item_values import (
    FLOATS,
    Draw,
    Fixed,
    Items,
    Same,
    Several,
    Value,
    by_numpy,
    by_torch,
    no_form,
)
from autofast.techniques.loading.windows import Sum


class Names:
    """``torch`` is its name in the file; ``ranks`` the dimensions of the items of stored arrays, as
    far as they are known.
    """

    script: Script
    taken: set[str]
    n: str  # names of variables at the head of the method, where they are used
    device: str
    each: str

    def __init__(self, torch: str, ranks: dict[str, int]) -> None:
        self.torch, self.ranks = torch, ranks
        self.draws = self.computes = False
        self.numbers = count()
        self.sums: dict[str, Sum] = {}  # of variables
        self.places: dict[tuple[str, str], str] = {}  # of crops: the variable that holds them
        self.lines: list[str] = []
        self.depth = 0

    # ---------------------------------------------------------------------------------------- names
    def fresh(self, name: str) -> str:
        """A name that the code does not use yet."""
        found = name
        for n in count(2):
            if found not in self.taken:
                break
            found = f"{name}_{n}"
        self.taken.add(found)
        return found

    def forget(self, name: str = "") -> None:
        """Places of crops that were made of this variable, or all, are made again."""
        self.places = {k: v for k, v in self.places.items() if name and name not in (*k, v)}

    @staticmethod
    def plain(code: str) -> str:
        """The code without parentheses that it does not need."""
        return ast.unparse(ast.parse(code, mode="eval")).replace("'", '"')

    def new_shape(self) -> str:
        return f"#{next(self.numbers)}"

    def drawn_by(self, function: str, *arguments: str) -> str:
        """``torch.rand(n, device=device)``."""
        self.draws = True
        given = ", ".join([*arguments, f"device={self.device}"])
        return f"{self.torch}.{function}({given})"

    # ----------------------------------------------------------------------------------- dimensions
    def items(self, value: Value, node: ast.AST) -> Items:
        if not isinstance(value, Items):
            raise no_form(node)
        return value

    def rank(self, items: Items) -> int | None:
        if not items.root:
            return items.more
        known = self.ranks.get(items.root)
        return None if known is None else known + items.more

    def learn(self, items: Items, rank: int) -> None:
        """One item certainly has so many dimensions, or the script would fail."""
        known = self.rank(items)
        if known is None:
            self.ranks[items.root] = rank - items.more
        elif known != rank:
            raise Refusal("its items have other dimensions than its __getitem__ works with")

    def spread_over(self, draw: str, items: Items) -> str:
        """Numbers of items in a shape in which they meet the items."""
        rank = self.rank(items)
        if rank is None:
            return f"({draw}).view(-1, *[1] * (({items.code}).dim() - 1))"
        return f"({draw})[{', '.join([':', *['None'] * rank])}]" if rank else draw

    def side(self, items: Items, place: int) -> Same:
        return Same(f"({items.code}).shape[{place + 1 if place >= 0 else place}]", side=True)

    def dim(self, items: Items, axis: int, new: int = 0) -> int:
        """A dimension of an item, as one of the batch; ``new``: it is counted with so many more."""
        rank = self.rank(items)
        if axis < 0 and rank is not None:
            axis += rank + new
        if rank is not None and not 0 <= axis < rank + new:
            raise Refusal("its items have other dimensions than its __getitem__ works with")
        return axis + 1 if axis >= 0 else axis

    def value(self, expr: ast.expr) -> Value:
        raise NotImplementedError

    def not_listed(self, items: Items, node: ast.AST) -> None:
        """Raises for images of a list, which may be of different sizes until they are cut."""
        raise NotImplementedError


OTHERS = {ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}
BYTE = range(256)


class Arithmetic(Names):
    """Signs, comparisons, conditions."""

    def two(self, one: Value, op: ast.operator, other: Value, node: ast.AST) -> Value:
        if type(op) not in SIGNS:
            if isinstance(one, Same) and isinstance(other, Same):
                sign = {ast.FloorDiv: "//", ast.Mod: "%"}.get(type(op))
                if sign:
                    return Same(f"({one.code}) {sign} ({other.code})")
            raise no_form(node)
        sign = SIGNS[type(op)]
        if isinstance(one, Items) or isinstance(other, Items):
            return self.on_items(one, sign, other, node)
        if isinstance(one, Several) or isinstance(other, Several):
            raise no_form(node)
        code = f"({one.code}) {sign} ({other.code})"
        if isinstance(one, Same) and isinstance(other, Same):
            sided = sign in "+-" and (one.side or one.sided)
            return Same(code, _computed(one.value, sign, other.value), sided=sided)
        if not isinstance(one, Fixed) and not isinstance(other, Fixed):
            return self.of_draws(one, sign, other, code, node)
        raise no_form(node)

    def of_draws(self, one: Value, sign: str, other: Value, code: str, node: ast.AST) -> Draw:
        kinds = [v.kind if isinstance(v, Draw) else _kind(v) for v in (one, other)]
        if "bool" in kinds or "" in kinds:
            raise no_form(node)
        if "float" in kinds or sign == "/":
            return Draw(code)
        low = high = None
        if isinstance(one, Draw) and isinstance(other, Same) and sign in "+-":
            step = other.value if isinstance(other.value, int) else None
            if step is not None:
                step = -step if sign == "-" else step
                low = None if one.low is None else one.low + step
                high = None if one.high is None else one.high + step
        return Draw(code, "int", low, high)

    def on_items(self, one: Value, sign: str, other: Value, node: ast.AST) -> Items:
        items, rest = (one, other) if isinstance(one, Items) else (other, one)
        assert isinstance(items, Items)
        self.computes = True
        code, dtype, made, shape, out = self.operand(items, rest, sign, node)
        codes = (f"({items.code})", f"({code})")
        first, second = codes if items is one else codes[::-1]
        return replace(
            out,
            code=f"{first} {sign} {second}",
            dtype=dtype,
            made=made,
            shape=shape,
            fresh=True,
            laid_out=items.laid_out and (not isinstance(rest, Items) or rest.laid_out),
        )

    def operand(
        self, items: Items, rest: Value, sign: str, node: ast.AST
    ) -> tuple[str, str, str, str, Items]:
        """The other side of an operation: its code, the types and the shape that come of both."""
        if not items.made:
            raise Refusal("computes with numbers of a type that is not known", node)
        if items.made == "bool":
            raise Refusal("computes with bools", node)
        together = by_numpy if items.numpy else by_torch
        match rest:
            case Same():
                dtype, made = self.by_number(items, rest, sign, node)
                return rest.code, dtype, made, items.shape, items
            case Draw(kind="float"):
                whole = items.dtype not in FLOATS
                double = "float64" if items.numpy else "float32"
                dtype = double if whole else items.dtype
                made = items.made if items.made in FLOATS else "float32"
                return self.spread_over(rest.code, items), dtype, made, items.shape, items
            case Draw(kind="int") if items.dtype in FLOATS and items.made in FLOATS:
                over = self.spread_over(rest.code, items)
                return over, items.dtype, items.made, items.shape, items
            case Fixed(code=code, rank=rank, dtype=dtype) if dtype in FLOATS:
                known = self.rank(items)
                if (known is None and rank > 1) or (known is not None and rank > known):
                    raise Refusal(f"{at(node)}: how many dimensions the items have is not known")
                made = "float32" if items.made not in FLOATS else items.made
                return code, together(items.dtype, dtype), made, items.shape, items
            case Items():
                return self.operand_items(items, rest, together, node)
        raise no_form(node)

    def operand_items(
        self, items: Items, rest: Items, together: object, node: ast.AST
    ) -> tuple[str, str, str, str, Items]:
        same = self.alike(items, rest)
        if not same or not callable(together) or not rest.made or rest.made == "bool":
            raise Refusal("computes with items of different kinds", node)
        made = by_torch(items.made, rest.made)
        if not made:
            raise Refusal("computes with items of different kinds", node)
        shape = items.shape if items.shape == rest.shape else self.new_shape()
        return rest.code, together(items.dtype, rest.dtype), made, shape, items

    def by_number(self, items: Items, number: Same, sign: str, node: ast.AST) -> tuple[str, str]:
        """The types of items and a number of Python: in the script, and of the tensor."""
        kind = _kind(number)
        if not kind:
            raise Refusal(f"{at(node)}: `{number.code}` is not known to be a number")
        made = "float32" if items.made not in FLOATS else items.made
        if items.dtype in FLOATS:
            return items.dtype, made
        if kind == "float" or sign == "/":
            return ("float64" if items.numpy else "float32"), made
        if items.dtype == "uint8" and number.value not in BYTE:
            raise Refusal("leaves the range of bytes", node)
        if items.made != items.dtype or items.dtype not in ("uint8", "int64"):
            raise Refusal("computes with numbers of a type that is not known", node)
        return items.dtype, items.made

    def in_place(self, old: Value, op: ast.operator, value: Value, node: ast.AST) -> Value:
        """``image += noise``; of an array, the type stays."""
        made = self.two(old, op, value, node)
        if isinstance(old, Items) and isinstance(made, Items):
            if not old.fresh:
                raise Refusal("may change the data themselves", node)
            if old.dtype not in FLOATS or old.made != "float32" != made.made:
                raise Refusal("computes with numbers of a type that is not known", node)
            return replace(made, dtype=old.dtype, fresh=True)
        return made

    def one(self, op: ast.unaryop, value: Value, node: ast.AST) -> Value:
        match op, value:
            case ast.USub(), Same(code=code):
                found = value.value
                return Same(f"-({code})", -found if isinstance(found, (int, float)) else found)
            case ast.Not(), Same(code=code):
                return Same(f"not ({code})")
        raise no_form(node)

    def compared(self, one: Value, op: ast.cmpop, other: Value, node: ast.AST) -> Value:
        sign = (COMPARED | OTHERS).get(type(op), "")
        if not sign or isinstance(one, Several) or isinstance(other, Several):
            raise no_form(node)
        code = f"({one.code}) {sign} ({other.code})"
        if isinstance(one, Same) and isinstance(other, Same):
            return Same(code)
        if type(op) in COMPARED and all_of((one, other), Draw, Same):
            return Draw(code, "bool")
        raise no_form(node)

    # -------------------------------------------------------------------------------------- choices
    def alike(self, one: Items, other: Items) -> bool:
        """Whether items of both have as many dimensions."""
        ranks = (self.rank(one), self.rank(other))
        if None not in ranks:
            return ranks[0] == ranks[1]
        return (one.root, one.more) == (other.root, other.more)

    def chosen(self, mask: str, new: Value, old: Value, name: str) -> Value:
        """For each item the one or the other."""
        what = f"`{name}`" if name else "an item"
        if isinstance(new, Items) and isinstance(old, Items):
            types = (new.dtype, new.made, new.numpy)
            if types != (old.dtype, old.made, old.numpy) or not self.alike(new, old):
                raise Refusal(f"{what} is of another type or shape by chance")
            if new.shape != old.shape:
                raise Refusal(f"{what} may have another shape by chance")
            code = f"{self.torch}.where({self.spread_over(mask, old)}, {new.code}, {old.code})"
            laid = new.laid_out and old.laid_out
            return replace(new, code=code, laid_out=laid, fresh=new.fresh and old.fresh)
        if isinstance(new, Draw) and isinstance(old, Draw) and new.kind == old.kind:
            return Draw(f"{self.torch}.where({mask}, {new.code}, {old.code})", new.kind)
        raise Refusal(f"{what} is something else by chance")

    def either(self, one: Value, other: Value, name: str) -> Value:
        """What a variable is where an ``if`` has been decided for all items in one of two ways."""
        if one == other:
            return one
        if isinstance(one, Items) and isinstance(other, Items):
            types = (one.dtype, one.made, one.numpy)
            if types == (other.dtype, other.made, other.numpy) and self.alike(one, other):
                shape = one.shape if one.shape == other.shape else self.new_shape()
                laid, fresh = one.laid_out and other.laid_out, one.fresh and other.fresh
                return replace(one, code=name, laid_out=laid, fresh=fresh, shape=shape)
        if isinstance(one, Same) and isinstance(other, Same):
            return Same(name)
        if isinstance(one, Draw) and isinstance(other, Draw) and one.kind == other.kind:
            return Draw(name, one.kind)
        raise Refusal(f"`{name}` may be of one type or another")

    def finished(self, value: Value, node: ast.AST) -> str:
        """What the batch gets of it: as the loader would have collated it."""
        match value:
            case Items(dtype="", taken=False, root=root) if root:
                raise Refusal(f"{at(node)}: of which type the items are is not known")
            case Items(code=code, dtype=dtype, made=made, laid_out=laid_out):
                if dtype != made:
                    raise Refusal(f"gives items of type {dtype}, computed as such", node)
                return code if laid_out else f"({code}).contiguous()"
            case Draw(code=code, kind="int"):
                return code
        raise Refusal("gives something else than arrays and tensors", node)


def _kind(value: Value) -> str:
    """``int`` or ``float`` for a number of Python; empty where it may be anything."""
    if not isinstance(value, Same):
        return ""
    if value.side:
        return "int"
    known = value.value if isinstance(value.value, type) else type(value.value)
    return {int: "int", float: "float"}.get(known, "")


def _computed(one: object, sign: str, other: object) -> object:
    """A number that is computed of two known ones."""
    if is_numeric(one) and is_numeric(other):
        assert isinstance(one, (int, float)) and isinstance(other, (int, float))
        if sign == "/":
            return one / other if other else ...
        return one + other if sign == "+" else one - other if sign == "-" else one * other
    kinds = [v if isinstance(v, type) else type(v) for v in (one, other)]
    if all(k in (int, float) for k in kinds):
        return float if float in kinds or sign == "/" else int
    return ...
