"""A call of an operation, and the table of those that do more than to work on each element."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autofast.facts.cost.meta.tensor import UNKNOWN, Ledger, Meta, broadcast
from autofast.facts.cost.work import Unsized
from autofast.model.several import are_whole

Handler = Callable[["Call"], Any]
TABLE: dict[str, Handler] = {}


class Pair(NamedTuple):
    """What ``max`` along a dimension gives, and others."""

    values: Meta
    indices: Meta


class Unseen(Unsized):
    """An operand is not known, and so the result is not."""


@dataclass
class Call:
    """A call of an operation: of a method, what it belongs to stands first."""

    ledger: Ledger
    name: str
    args: list[Any]
    named: dict[str, Any] = field(default_factory=dict)

    def get(self, n: int, name: str, default: Any = None) -> Any:
        """The argument at place ``n``, or of this name."""
        if name in self.named:
            return self.named[name]
        return self.args[n] if 0 <= n < len(self.args) else default

    def whole(self, n: int, name: str, default: Any = ...) -> int:
        """The same, which is a whole number; raises :class:`Unsized` for others."""
        found = self.get(n, name, default)
        if type(found) is not int:
            raise Unsized(f"{name} of {self.name} is not known")
        return found

    def guessed(self, n: int, name: str, usual: int) -> int:
        """The same, or what is usual."""
        found = self.get(n, name)
        if type(found) is int:
            return found
        self.ledger.unsure(f"{name} of {self.name} is not known", only_sizes=True)
        return usual

    def tensor(self, n: int = 0, name: str = "input") -> Meta:
        found = self.get(n, name)
        if not isinstance(found, Meta):
            raise Unseen(f"what {self.name} is given is not known")
        return found

    def sizes(self, n: int) -> list[int]:
        """Sizes from place ``n`` on: one by one, or in one tuple."""
        rest: Any = self.args[n:] or [self.named.get("size", self.named.get("shape", UNKNOWN))]
        if len(rest) >= 1 and isinstance(rest[0], (tuple, list)):
            rest = rest[0]
        if not are_whole(rest):
            raise Unsized(f"a size in {self.name} is not known")
        return list(rest)


def operation(*names: str) -> Callable[[Handler], Handler]:
    """Enters a function in the table, by the names of what it does."""

    def add(handler: Handler) -> Handler:
        TABLE.update(dict.fromkeys(names, handler))
        return handler

    return add


def by_element(ledger: Ledger, given: list[Meta], whole: bool = False) -> Meta:
    """An operation by element on several tensors."""
    ledger.launch()
    return Meta(broadcast(given), whole or all(t.whole for t in given))


def flat(values: Iterable[Any]) -> Iterable[Any]:
    """What is given, and what lists hold that are."""
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from value
        else:
            yield value
