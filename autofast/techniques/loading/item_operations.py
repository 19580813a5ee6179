"""Operations on what a variable of ``__getitem__`` is, as they are written for a whole batch."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace
from itertools import count

from autofast.model.script import Script
from autofast.model.source import at
from autofast.model.values import const
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
)
from autofast.techniques.loading.windows import Sum

SIGNS: dict[type[ast.AST], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
COMPARED: dict[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip
ON_DRAWS = ("<", "<=", ">", ">=", "==", "!=")
BYTE = range(256)


class Operations:
    """``torch`` and ``spread`` are names in the file; ``ranks`` the dimensions of the items of stored arrays, as far as they are known."""

    script: Script
    taken: set[str]

    def __init__(self, torch: str, spread: str, ranks: dict[str, int]) -> None:
        self.torch, self.spread, self.ranks = torch, spread, ranks
        self.draws = self.computes = self.spreads = False
        self.uses_n = self.uses_device = self.uses_each = False
        self.numbers = count()
        self.sums: dict[str, Sum] = {}  # of variables
        self.places: dict[tuple[str, str], str] = {}  # of crops: the variable that holds them
        self.lines: list[str] = []
        self.depth = 0

    # -------------------------------------------------------------------------------------------- names
    def fresh(self, name: str) -> str:
        """A name that the code does not use yet."""
        found = name
        for n in count(2):
            if found not in self.taken:
                break
            found = f"{name}_{n}"
        self.taken.add(found)
        return found

    def local(self, kept: str, name: str) -> str:
        """The name of a variable at the head of the method."""
        if not hasattr(self, kept):
            setattr(self, kept, self.fresh(name))
        found: str = getattr(self, kept)
        return found

    @property
    def n(self) -> str:
        self.uses_n = True
        return self.local("_n", "n")

    @property
    def device(self) -> str:
        self.uses_device = True
        return self.local("_device", "device")

    @property
    def each(self) -> str:
        self.uses_each = True
        return self.local("_each", "each")

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

    # -------------------------------------------------------------------------------------------- dimensions
    def items(self, value: Value, node: ast.AST) -> Items:
        if not isinstance(value, Items):
            raise Refusal(f"{at(node)} has no form for batches")
        return value

    def rank(self, items: Items) -> int | None:
        """The dimensions of one item."""
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
            self.spreads = True
            return f"{self.spread}({draw}, {items.code})"
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

    # -------------------------------------------------------------------------------------------- arithmetic
    def two(self, one: Value, op: ast.operator, other: Value, node: ast.AST) -> Value:
        if type(op) not in SIGNS:
            if isinstance(one, Same) and isinstance(other, Same):
                sign = {ast.FloorDiv: "//", ast.Mod: "%"}.get(type(op))
                if sign:
                    return Same(f"({one.code}) {sign} ({other.code})")
            match one, op, other:
                case Draw(kind="int", code=code), ast.FloorDiv(), Same(code=by):
                    return Draw(f"({code}) // ({by})", "int", index=one.index)
                case Draw(kind="int", code=code), ast.Mod(), Same(code=by):
                    return Draw(f"({code}) % ({by})", "int", index=one.index)
            raise Refusal(f"{at(node)} has no form for batches")
        sign = SIGNS[type(op)]
        if isinstance(one, Items) or isinstance(other, Items):
            return self.on_items(one, sign, other, node)
        if isinstance(one, Several) or isinstance(other, Several):
            raise Refusal(f"{at(node)} has no form for batches")
        code = f"({one.code}) {sign} ({other.code})"
        if isinstance(one, Same) and isinstance(other, Same):
            sided = sign in "+-" and (one.side or one.sided)
            return Same(code, _computed(one.value, sign, other.value), sided=sided)
        if not isinstance(one, Fixed) and not isinstance(other, Fixed):
            return self.of_draws(one, sign, other, code, node)
        raise Refusal(f"{at(node)} has no form for batches")

    def of_draws(self, one: Value, sign: str, other: Value, code: str, node: ast.AST) -> Draw:
        kinds = [v.kind if isinstance(v, Draw) else _kind(v) for v in (one, other)]
        if "bool" in kinds or "" in kinds:
            raise Refusal(f"{at(node)} has no form for batches")
        if "float" in kinds or sign == "/":
            return Draw(code)
        low = high = None
        if isinstance(one, Draw) and isinstance(other, Same) and sign in "+-":
            step = other.value if isinstance(other.value, int) else None
            if step is not None:
                step = -step if sign == "-" else step
                low = None if one.low is None else one.low + step
                high = None if one.high is None else one.high + step
        indexed = any(isinstance(v, Draw) and v.index for v in (one, other))
        return Draw(code, "int", low, high, index=indexed)

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
            raise Refusal(f"{at(node)} computes with numbers of a type that is not known")
        if items.made == "bool":
            raise Refusal(f"{at(node)} computes with bools")
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
        raise Refusal(f"{at(node)} has no form for batches")

    def operand_items(
        self, items: Items, rest: Items, together: object, node: ast.AST
    ) -> tuple[str, str, str, str, Items]:
        same = self.alike(items, rest)
        if not same or not callable(together) or not rest.made or rest.made == "bool":
            raise Refusal(f"{at(node)} computes with items of different kinds")
        made = by_torch(items.made, rest.made)
        if not made:
            raise Refusal(f"{at(node)} computes with items of different kinds")
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
            raise Refusal(f"{at(node)} leaves the range of bytes")
        if items.made != items.dtype or items.dtype not in ("uint8", "int64"):
            raise Refusal(f"{at(node)} computes with numbers of a type that is not known")
        return items.dtype, items.made

    def in_place(self, old: Value, op: ast.operator, value: Value, node: ast.AST) -> Value:
        """``image += noise``; of an array, the type stays."""
        made = self.two(old, op, value, node)
        if isinstance(old, Items) and isinstance(made, Items):
            if not old.fresh:
                raise Refusal(f"{at(node)} may change the data themselves")
            if old.dtype not in FLOATS or old.made != "float32" != made.made:
                raise Refusal(f"{at(node)} computes with numbers of a type that is not known")
            return replace(made, dtype=old.dtype, fresh=True)
        return made

    def one(self, op: ast.unaryop, value: Value, node: ast.AST) -> Value:
        match op, value:
            case ast.USub(), Same(code=code):
                found = value.value
                return Same(f"-({code})", -found if isinstance(found, (int, float)) else found)
            case ast.USub(), Draw(code=code, kind="int" | "float"):
                return Draw(f"-({code})", value.kind)
            case ast.USub(), Items(code=code, made=made) if made in FLOATS:
                return replace(value, code=f"-({code})", fresh=True)
            case ast.Not(), Same(code=code):
                return Same(f"not ({code})")
            case ast.Not(), Draw(code=code, kind="bool"):
                return Draw(f"~({code})", "bool")
        raise Refusal(f"{at(node)} has no form for batches")

    def compared(self, one: Value, op: ast.cmpop, other: Value, node: ast.AST) -> Value:
        sign = COMPARED.get(type(op), "")
        if not sign or isinstance(one, Several) or isinstance(other, Several):
            raise Refusal(f"{at(node)} has no form for batches")
        code = f"({one.code}) {sign} ({other.code})"
        if isinstance(one, Same) and isinstance(other, Same):
            return Same(code)
        if sign in ON_DRAWS and all(isinstance(v, (Draw, Same)) for v in (one, other)):
            return Draw(code, "bool")
        raise Refusal(f"{at(node)} has no form for batches")

    def joined(self, op: ast.boolop, values: list[Value], node: ast.AST) -> Value:
        match op:
            case ast.And():
                word, sign = " and ", " & "
            case _:
                word, sign = " or ", " | "
        codes = [f"({v.code})" for v in values if not isinstance(v, Several)]
        if all(isinstance(v, Same) for v in values):
            return Same(word.join(codes))
        if all(isinstance(v, Draw) and v.kind == "bool" for v in values):
            return Draw(sign.join(codes), "bool")
        raise Refusal(f"{at(node)} has no form for batches")

    def conditional(self, test: Value, one: Value, other: Value, node: ast.AST) -> Value:
        if isinstance(test, Draw) and test.kind == "bool":
            return self.chosen(test.code, one, other, "")
        raise Refusal(f"{at(node)} has no form for batches")

    # -------------------------------------------------------------------------------------------- choices
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
                    raise Refusal(f"{at(node)} gives items of type {dtype}, computed as such")
                return code if laid_out else f"({code}).contiguous()"
            case Draw(code=code, kind="int"):
                return code
        raise Refusal(f"{at(node)} gives something else than arrays and tensors")

    # -------------------------------------------------------------------------------------------- moves
    def moved(self, items: Items, method: str, more: int = 0, keeps: bool = False) -> Items:
        """A view: in another order, of which nothing more is known."""
        shape = items.shape if keeps else self.new_shape()
        code = f"({items.code}).{method}"
        return replace(items, code=code, more=items.more + more, laid_out=False, shape=shape)

    def flipped(self, items: Items, axes: list[int]) -> Items:
        dims = ", ".join(str(self.dim(items, a)) for a in axes)
        return replace(items, code=f"({items.code}).flip({dims})")

    def turned_by(self, items: Items, turns: Value, axes: tuple[int, int], node: ast.AST) -> Items:
        """Quarter turns; of images that are square, or some would come out otherwise than others."""
        pair = tuple(self.dim(items, a) for a in axes)
        match turns:
            case Same(code=code, value=int()):
                return self.moved(items, f"rot90({code}, {pair})")
            case Draw(code=code, kind="int", low=int() as low, high=int() as high) if low < high:
                few = low >= 0 and high <= 3
                half = f"({code}) >= 2" if few else f"({code}) % 4 >= 2"
                odd = f"({code}) % 2 == 1"
                held = items.code
                if not held.isidentifier():
                    raise Refusal(
                        f"{at(node)} turns what has no name: put it into a variable first"
                    )
                spread = self.spread_over(half, items), self.spread_over(odd, items)
                round_ = (
                    f"{self.torch}.where({spread[0]}, {held}.flip({pair[0]}, {pair[1]}), {held})"
                )
                self.lines.append("    " * self.depth + f"{held} = {self.plain(round_)}")
                code = f"{self.torch}.where({spread[1]}, {held}.rot90(1, {pair}), {held})"
                return replace(items, code=code, laid_out=False)
        raise Refusal(f"{at(node)} turns by something else than a whole number of known range")

    def turned(self, value: Value, node: ast.AST) -> Items:
        """``x.T``."""
        items = self.items(value, node)
        if self.rank(items) != 2:
            raise Refusal(f"{at(node)} has no form for batches")
        return self.moved(items, "transpose(1, 2)")

    def ordered(self, items: Items, axes: list[int]) -> Items:
        self.learn(items, len(axes))
        dims = ", ".join(str(d) for d in [0, *(self.dim(items, a) for a in axes)])
        return self.moved(items, f"permute({dims})")

    def padded(self, items: Items, sides: list[tuple[int, int]], value: str) -> Items:
        """``sides``: of the last dimensions, the first one first."""
        flat = ", ".join(f"{a}, {b}" for a, b in reversed(sides))
        given = f"{items.code}, ({flat})" + (f", value={value}" if value != "0" else "")
        code = f"{self.torch}.nn.functional.pad({given})"
        return replace(items, code=code, shape=self.new_shape(), fresh=True)

    def cast(self, items: Items, dtype: str, node: ast.AST, *, numpy: bool) -> Items:
        """The same numbers of another type; double precision is computed in single."""
        known = items.dtype or items.taken
        if not known and items.numpy and numpy:
            raise Refusal(f"{at(node)}: of which type the stored numbers are is not known")
        if items.made in FLOATS and dtype not in FLOATS and dtype != "int64":
            raise Refusal(f"{at(node)} makes floats whole numbers of few bits")
        made = "float32" if dtype == "float64" else dtype
        if items.made == made:
            return replace(items, dtype=dtype, fresh=items.fresh or numpy, taken=True)
        method = {"float32": "float", "int64": "long", "bool": "bool", "uint8": "byte", "int32": "int"}.get(made)  # fmt: skip
        if method is None:
            raise Refusal(f"{at(node)} has no form for batches")
        code = f"({items.code}).{method}()"
        copied = numpy or items.dtype not in ("", dtype)  # else it may be of this type already
        return replace(
            items, code=code, dtype=dtype, made=made, fresh=items.fresh or copied, taken=True
        )

    # -------------------------------------------------------------------------------------------- parts
    def cut(self, items: Items, parts: list[ast.expr], node: ast.expr) -> Items:
        """``image[:, ::-1]``, ``image[top : top + 32, left : left + 32]``, ``image[None]``, ``image[0]``."""
        crops: list[tuple[int, str, str]] = []
        plain: list[str] = []
        flips: list[int] = []
        for place, part in enumerate(parts):
            match part:
                case ast.Slice(lower=None, upper=None, step=None):
                    plain.append(":")
                case ast.Slice(lower=None, upper=None, step=step) if (
                    step is not None and const(self.script.values(step)) == -1
                ):
                    flips.append(place)
                    plain.append(":")
                case ast.Slice(lower=lower, upper=upper, step=None):
                    crop = self.crop(lower, upper, node)
                    if crop is None:
                        plain.append(self.plain_slice(lower, upper, node))
                    else:
                        crops.append((place, *crop))
                        plain.append(":")
                case ast.Constant(value=None) if len(parts) == 1:
                    return self.moved(items, "unsqueeze(1)", 1)
                case ast.Constant(value=x) if x is ... and place == 0:
                    return self.from_behind(items, parts[1:], node)
                case _:
                    raise Refusal(f"{at(node)} has no form for batches")
        if flips and any(p != ":" for p in plain) or (flips and crops):
            raise Refusal(f"{at(node)} has no form for batches")
        known = self.rank(items)
        if known is not None and known < len(parts):
            raise Refusal("its items have other dimensions than its __getitem__ works with")
        if flips:
            return self.flipped(items, flips)
        if crops:
            return self.cropped(items, crops, plain, node)
        self.not_listed(items, node)
        code = f"({items.code})[:, {', '.join(plain)}]"
        return replace(items, code=code, laid_out=False, shape=self.new_shape())

    def from_behind(self, items: Items, parts: list[ast.expr], node: ast.expr) -> Items:
        """``image[..., ::-1]``, ``image[..., None]``."""
        match parts:
            case [ast.Slice(lower=None, upper=None, step=ast.expr() as step)] if (
                const(self.script.values(step)) == -1
            ):
                return self.flipped(items, [-1])
            case [ast.Constant(value=None)]:
                return self.moved(items, "unsqueeze(-1)", 1)
        raise Refusal(f"{at(node)} has no form for batches")

    def value(self, expr: ast.expr) -> Value:
        raise NotImplementedError

    def plain_slice(self, lower: ast.expr | None, upper: ast.expr | None, node: ast.AST) -> str:
        codes = []
        for bound in (lower, upper):
            found = self.value(bound) if bound is not None else Same("")
            if not isinstance(found, Same):
                raise Refusal(f"{at(node)} has no form for batches")
            codes.append(f"({found.code})" if found.code else "")
        return ":".join(codes)

    def crop(
        self, lower: ast.expr | None, upper: ast.expr | None, node: ast.AST
    ) -> tuple[str, str] | None:
        """Where a crop begins and how long it is, in code; None where nothing is drawn for it."""
        first = self.value(lower) if lower is not None else Same("0", 0)
        if not isinstance(first, Draw):
            return None
        length = self.length(lower, upper, node)
        self.within(first, length, node)
        return first.code, length.code

    def expanded(self, total: Sum) -> Sum:
        """The sum, with what variables in it are the sums of."""
        for name, times in dict(total.terms).items():
            if name in self.sums and times == 1:
                total = total - Sum(Counter({name: 1})) + self.sums[name]
        return total

    def length(self, lower: ast.expr | None, upper: ast.expr | None, node: ast.AST) -> Same:
        """From ``lower`` up to ``upper``, where that is as much for all items."""
        if lower is None or upper is None:
            raise Refusal(f"{at(node)} takes parts of different lengths")
        span = self.expanded(Sum.of(upper)) - self.expanded(Sum.of(lower))
        sides = [self.value(span.nodes[k]) for k, n in span.terms.items() if n == 1]
        codes = [f"({side.code})" for side in sides if isinstance(side, Same)]
        if len(codes) < len(span.terms) or not (codes or span.number > 0):
            raise Refusal(f"{at(node)} takes parts of different lengths")
        codes += [str(span.number)] * bool(span.number)
        return Same(" + ".join(codes), span.number if not sides else ...)

    def within(self, first: Draw, size: Same, node: ast.AST) -> None:
        """A crop ends inside of the image. A slice would be shorter where it does not, and items of different lengths could not be collated:
        so it is certain if more than one place may be drawn, or if they are drawn up to the last one."""
        if first.index:
            return
        if first.kind != "int" or first.low is None or first.low < 0:
            raise Refusal(f"{at(node)}: where a part begins is not known to be in the image")
        several = first.high is not None and first.low < first.high
        last = first.below.replace(" ", "").replace("(", "").replace(")", "")
        length = size.code.replace(" ", "").replace("(", "").replace(")", "")
        if not several and not last.endswith((f"-{length}", f"-{length}+1")):
            raise Refusal(f"{at(node)}: whether a part ends in the image is not known")

    def not_listed(self, items: Items, node: ast.AST) -> None:
        """Raises for images of a list, which may be of different sizes until they are cut."""
        raise NotImplementedError

    def cropped(
        self, items: Items, crops: list[tuple[int, str, str]], plain: list[str], node: ast.AST
    ) -> Items:
        """Parts of one length that begin at another place in each item."""
        self.not_listed(items, node)
        axes = [place for place, _, _ in crops]
        if any(p != ":" for p in plain) or axes not in ([0], [1], [0, 1], [1, 2]):
            raise Refusal(f"{at(node)} has no form for batches")
        names = []
        for n, (_, first, size) in enumerate(crops):
            key = (self.plain(first), self.plain(size))
            if key not in self.places:
                word = ("rows", "columns")[n] if len(crops) == 2 else "places"
                name = self.places[key] = self.fresh(word)
                line = f"({first})[:, None] + {self.torch}.arange({size}, device={self.device})"
                self.lines.append("    " * self.depth + f"{name} = {self.plain(line)}")
            names.append(self.places[key])
        inner = axes[0] == 1
        if len(names) == 2:
            index = [
                f"{self.each}[:, None, None]",
                f"{names[0]}[:, :, None]",
                f"{names[1]}[:, None]",
            ]
        else:
            index = [f"{self.each}[:, None]", names[0]]
        inside = ", ".join([index[0], *[":"] * inner, *index[1:]])
        code = f"({items.code})[{inside}]"
        if inner:
            code += f".movedim({len(names) + 1}, 1)"
        return replace(items, code=code, laid_out=not inner, shape=self.new_shape())


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
    if type(one) in (int, float) and type(other) in (int, float):
        assert isinstance(one, (int, float)) and isinstance(other, (int, float))
        if sign == "/":
            return one / other if other else ...
        return one + other if sign == "+" else one - other if sign == "-" else one * other
    kinds = [v if isinstance(v, type) else type(v) for v in (one, other)]
    if all(k in (int, float) for k in kinds):
        return float if float in kinds or sign == "/" else int
    return ...
