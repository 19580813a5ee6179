"""Items in another order, of another type, with a border: views and copies of a whole batch."""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.model.source import at
from autofast.rule import Refusal
from autofast.techniques.loading.item_arithmetic import Arithmetic
from autofast.techniques.loading.item_values import FLOATS, Draw, Items, Same, Value


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
