"""What the code for a whole batch has names for, and how its dimensions are counted."""

from __future__ import annotations

import ast
from itertools import count

from autofast.model.script import Script
from autofast.model.source import at
from autofast.rule import Refusal
from autofast.techniques.loading.item_values import Items, Same, Value
from autofast.techniques.loading.windows import Sum


class Names:
    """``torch`` and ``spread`` are names in the file; ``ranks`` the dimensions of the items of
    stored arrays, as far as they are known.
    """

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

    # ----------------------------------------------------------------------------------- dimensions
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

    def value(self, expr: ast.expr) -> Value:
        raise NotImplementedError

    def not_listed(self, items: Items, node: ast.AST) -> None:
        """Raises for images of a list, which may be of different sizes until they are cut."""
        raise NotImplementedError
