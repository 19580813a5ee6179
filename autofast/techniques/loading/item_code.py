"""The code that makes a whole batch of what ``__getitem__`` makes of one item, statement by
statement, with draws of its own for each item.

Arrays of an item become tensors with one dimension more, random numbers become vectors, and what
all items share stays as it is. An ``if`` that a draw decides becomes ``torch.where``. What has no
such form raises :class:`Refusal`. Nothing here asks how many items there are, or of which size: an
item that differs from the others in its shape could not be collated.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from autofast.model.script import Script
from autofast.rule import Refusal
from autofast.techniques.loading.item_expressions import Stored
from autofast.techniques.loading.item_statements import Statements
from autofast.techniques.loading.item_values import Several, Value

SPREAD = "per_item"
SPREAD_CODE = '''\
def {name}(draws, items):
    """One number for each item, in a shape in which it meets all of its numbers."""
    return draws.view(-1, *[1] * (items.dim() - 1))
'''


@dataclass(frozen=True)
class Form:
    """The method: ``code``, with the parameters that it gets for ``stored`` rows and for ``fixed``
    arrays.

    ``draws``: it draws random numbers; ``computes``: it rounds otherwise than the host may;
    ``spread``: it uses that function.
    """

    code: str
    stored: tuple[Stored, ...]
    fixed: tuple[str, ...]
    draws: bool
    computes: bool
    spread: bool


def form_of(script: Script, getitem: ast.FunctionDef, torch: str, name: str, spread: str) -> Form:
    """The form of items' code for whole batches; raises Refusal."""
    ranks: dict[str, int] = {}
    # What is known of dimensions further down helps further up, the second time.
    Code(script, getitem, torch, spread, ranks).method(name)
    return Code(script, getitem, torch, spread, ranks).method(name)


class Code(Statements):
    """Walks the statements and writes them for a batch."""

    def method(self, name: str) -> Form:
        self.returned(self.body(self.getitem))
        first = next(iter(self.stored.values()), None)
        if first is None:
            raise Refusal("its items are not rows of arrays in memory")
        rest = []
        if self.uses_each:
            rest.append(f"{self.each} = {self.torch}.arange({self.n}, device={self.device})")
        used = ((self.uses_n, "_n", f"len({first.name})"), (self.uses_device, "_device", f"{first.name}.device"))  # fmt: skip
        pairs = [(getattr(self, kept), code) for is_used, kept, code in used if is_used]
        named, given = ", ".join(n for n, _ in pairs), ", ".join(c for _, c in pairs)
        head = [f"{named} = {given}", *rest] if pairs else rest
        parameters = [
            self.this,
            *(s.name for s in self.stored.values()),
            *(p for _, p in self.fixed),
        ]
        draws = ", each with draws of its own" * self.draws
        said = f'"""What __getitem__ makes of one item, for a whole batch{draws}."""'
        body = [said, *head, *_needed(self.lines)]
        text = f"def {name}({', '.join(parameters)}):\n" + "".join(f"    {x}\n" for x in body)
        fixed = tuple(code for code, _ in self.fixed)
        return Form(
            text, tuple(self.stored.values()), fixed, self.draws, self.computes, self.spreads
        )

    def returned(self, given: Value) -> None:
        parts = given.parts if isinstance(given, Several) else (given,)
        codes = [self.plain(self.finished(part, self.getitem.body[-1])) for part in parts]
        if isinstance(given, Several) and given.names:
            pairs = [f'"{k}": {code}' for k, code in zip(given.names, codes, strict=True)]
            self.lines.append(f"return {{{', '.join(pairs)}}}")
        else:
            self.lines.append(
                f"return [{', '.join(codes)}]"
                if isinstance(given, Several)
                else f"return {codes[0]}"
            )


def _needed(lines: list[str]) -> list[str]:
    """The lines without those that set a variable for nobody: the end of a window."""
    for line in reversed(lines):
        name, sign, _ = line.partition(" = ")
        others = [x for x in lines if x is not line]
        if sign and name.isidentifier() and not any(re.search(rf"\b{name}\b", x) for x in others):
            return _needed(others)
    return lines
