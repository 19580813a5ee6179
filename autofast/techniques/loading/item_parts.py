"""Parts that are cut out of items, at one place or at a place of each, for a batch; and items in
another order, of another type, with a border: views and copies of a whole batch.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import replace

from autofast.model.source import at
from autofast.rule import Refusal
from autofast.techniques.loading.item_arithmetic import Arithmetic
from autofast.techniques.loading.item_values import FLOATS, Draw, Items, Same, Value, no_form
from autofast.techniques.loading.windows import Sum


class Moves(Arithmetic):
    """Flips, turns, other orders of dimensions, borders, casts."""

    def moved(self, items: Items, method: str, more: int = 0, keeps: bool = False) -> Items:
        """A view: in another order, of which nothing more is known."""
        shape = items.shape if keeps else self.new_shape()
        code = f"({items.code}).{method}"
        return replace(items, code=code, more=items.more + more, laid_out=False, shape=shape)

    def flipped(self, items: Items, axes: list[int]) -> Items:
        dims = ", ".join(str(self.dim(items, a)) for a in axes)
        return replace(items, code=f"({items.code}).flip({dims})")

    def turned_by(self, items: Items, turns: Value, axes: tuple[int, int], node: ast.AST) -> Items:
        """Quarter turns; of images that are square, or some would come out otherwise."""
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
                    raise Refusal("turns what has no name: put it into a variable first", node)
                spread = self.spread_over(half, items), self.spread_over(odd, items)
                round_ = (
                    f"{self.torch}.where({spread[0]}, {held}.flip({pair[0]}, {pair[1]}), {held})"
                )
                self.lines.append("    " * self.depth + f"{held} = {self.plain(round_)}")
                code = f"{self.torch}.where({spread[1]}, {held}.rot90(1, {pair}), {held})"
                return replace(items, code=code, laid_out=False)
        raise Refusal("turns by something else than a whole number of known range", node)

    def turned(self, value: Value, node: ast.AST) -> Items:
        """``x.T``."""
        items = self.items(value, node)
        if self.rank(items) != 2:
            raise no_form(node)
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
            raise Refusal("makes floats whole numbers of few bits", node)
        made = "float32" if dtype == "float64" else dtype
        if items.made == made:
            return replace(items, dtype=dtype, fresh=items.fresh or numpy, taken=True)
        method = {"float32": "float", "int64": "long", "bool": "bool", "uint8": "byte", "int32": "int"}.get(made)  # fmt: skip
        if method is None:
            raise no_form(node)
        code = f"({items.code}).{method}()"
        copied = numpy or items.dtype not in ("", dtype)  # else it may be of this type already
        return replace(
            items, code=code, dtype=dtype, made=made, fresh=items.fresh or copied, taken=True
        )


class Parts(Moves):
    """Slices and crops."""

    def cut(self, items: Items, parts: list[ast.expr], node: ast.expr) -> Items:
        """``image[:, ::-1]``, ``image[top : top + 32]``, ``image[None]``, ``image[0]``."""
        crops: list[tuple[int, str, str]] = []
        plain: list[str] = []
        flips: list[int] = []
        for place, part in enumerate(parts):
            match part:
                case ast.Slice(lower=None, upper=None, step=None):
                    plain.append(":")
                case ast.Slice(lower=None, upper=None, step=step) if (
                    step is not None and self.script.constant(step) == -1
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
                case _:
                    raise no_form(node)
        if flips and any(p != ":" for p in plain) or (flips and crops):
            raise no_form(node)
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

    def plain_slice(self, lower: ast.expr | None, upper: ast.expr | None, node: ast.AST) -> str:
        codes = []
        for bound in (lower, upper):
            found = self.value(bound) if bound is not None else Same("")
            if not isinstance(found, Same):
                raise no_form(node)
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
            raise Refusal("takes parts of different lengths", node)
        span = self.expanded(Sum.of(upper)) - self.expanded(Sum.of(lower))
        sides = [self.value(span.nodes[k]) for k, n in span.terms.items() if n == 1]
        codes = [f"({side.code})" for side in sides if isinstance(side, Same)]
        if len(codes) < len(span.terms) or not (codes or span.number > 0):
            raise Refusal("takes parts of different lengths", node)
        codes += [str(span.number)] * bool(span.number)
        return Same(" + ".join(codes), span.number if not sides else ...)

    def within(self, first: Draw, size: Same, node: ast.AST) -> None:
        """A crop ends inside of the image. A slice would be shorter where it does not, and items of
        different lengths could not be collated: so it is certain if more than one place may be
        drawn, or if they are drawn up to the last one."""
        if first.kind != "int" or first.low is None or first.low < 0:
            raise Refusal(f"{at(node)}: where a part begins is not known to be in the image")
        several = first.high is not None and first.low < first.high
        last = first.below.replace(" ", "").replace("(", "").replace(")", "")
        length = size.code.replace(" ", "").replace("(", "").replace(")", "")
        if not several and not last.endswith((f"-{length}", f"-{length}+1")):
            raise Refusal(f"{at(node)}: whether a part ends in the image is not known")

    def cropped(
        self, items: Items, crops: list[tuple[int, str, str]], plain: list[str], node: ast.AST
    ) -> Items:
        """Parts of one length that begin at another place in each item."""
        self.not_listed(items, node)
        axes = [place for place, _, _ in crops]
        if any(p != ":" for p in plain) or axes not in ([0], [1], [0, 1], [1, 2]):
            raise no_form(node)
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
